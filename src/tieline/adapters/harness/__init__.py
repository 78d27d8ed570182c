"""The coding agents that Tieline is put into: one file each, found, set up, taken out, examined.

Source: DESIGN.md 4 "setup"; reference/harnesses.md.
"""

from tieline.adapters.harness.change import Change
from tieline.adapters.harness.door import (
    EXTRAS,
    NAMES,
    apply,
    checks,
    extras_of,
    here,
    hint,
    paths,
    place,
    plan_in,
    plan_out,
    tidied,
    trusted,
)

__all__ = [
    "EXTRAS",
    "NAMES",
    "Change",
    "apply",
    "checks",
    "extras_of",
    "here",
    "hint",
    "paths",
    "place",
    "plan_in",
    "plan_out",
    "tidied",
    "trusted",
]
