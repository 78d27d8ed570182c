"""Figures: medians and tails of samples, and aims that are met or missed.

Rule 1: a figure carries its unit and how many samples it stands on; none is rounded before it is shown.
Rule 2: an aim compares two figures of one run; a figure that is not there makes it missed, never met.
Rule 3: this module measures nothing and knows no clock.

Source: DESIGN.md 7; reference/substrate.md 10; reference/native.md 2.17.
"""

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

__all__ = ["AIMS", "Aim", "Figure", "Judged", "judge", "percentile"]


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the smallest sample that at least `share` (0 to 1) of all samples do not exceed.

    Raises:
        ValueError: there are no samples.
    """
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


class Figure(NamedTuple):
    """One measured quantity. `p50` and `p99` are equal where there is one value only."""

    p50: float
    p99: float
    unit: str
    sample_count: int

    @classmethod
    def of(cls, samples: Sequence[float], unit: str) -> "Figure":
        """Return the figure of many samples.

        Raises:
            ValueError: there are none.
        """
        return cls(percentile(samples, 0.5), percentile(samples, 0.99), unit, len(samples))

    @classmethod
    def single(cls, value: float, unit: str) -> "Figure":
        """Return the figure of one value."""
        return cls(value, value, unit, 1)

    def shape(self) -> dict[str, Any]:
        """Return it for the JSON shape."""
        return {"p50": self.p50, "p99": self.p99, "unit": self.unit, "samples": self.sample_count}


class Aim(NamedTuple):
    """What is wanted: `measured` against `limit`, both names of figures, at the percentile `part`.

    `bound` is the ratio that may not be exceeded, or, with `is_least`, that must be reached. With no
    `limit` the figure itself is compared. `stretch` is a ratio beyond it, or None.
    """

    name: str
    measured: str
    limit: str
    bound: float
    stretch: float | None = None
    part: str = "p50"
    is_least: bool = False


class Judged(NamedTuple):
    """An aim with what came out; `ratio` is None where a figure is missing."""

    aim: Aim
    measured: float | None
    limit: float | None
    ratio: float | None
    verdict: str  # "met", "met, stretch too" or "missed"

    @property
    def is_met(self) -> bool:
        """Whether the bound holds."""
        return self.verdict != "missed"


AIMS: Final = (
    Aim("accepted over a warm link", "accept", "limit", 3.2, 2.5),
    Aim("a whole send, with its own intent", "send", "limit", 6.5, 5.0),
    Aim("32 child routes against one", "routes_32_rate", "routes_serial_rate", 8.0, is_least=True),
    Aim("a bystander's ping during that", "ping_at_routes", "ping_no_store", 3.0, part="p99"),
    Aim("accepted with much stored against little", "accept_much_stored", "accept_little_stored", 1.2),
    Aim("idle root with the MCP door, PSS", "mcp_pss", "", 40.0),
    Aim("tieline mcp: initialize answered", "mcp_initialize", "python_pass", 2.5),
    Aim("tieline mcp: first tool call answered", "mcp_first_call", "python_pass", 10.0),
    Aim("tieline peers from a cold shell", "cli_peers", "python_pass", 4.0),
)  # fmt: skip
"""In the order in which they are shown. Each ratio is of two figures of the same run."""


def judge(aim: Aim, figures: dict[str, Figure]) -> Judged:
    """Return what came of an aim."""
    measured = figures.get(aim.measured)
    limit = figures.get(aim.limit) if aim.limit else Figure.single(1.0, "")
    if measured is None or limit is None:
        return Judged(aim, None, None, None, "missed")
    value, base = (measured.p99, limit.p99) if aim.part == "p99" else (measured.p50, limit.p50)
    ratio = value / base if base else math.inf
    verdict = "met" if _holds(ratio, aim.bound, is_least=aim.is_least) else "missed"
    if verdict == "met" and aim.stretch is not None and _holds(ratio, aim.stretch, is_least=aim.is_least):
        verdict = "met, stretch too"
    return Judged(aim, value, base if aim.limit else None, ratio, verdict)


def _holds(ratio: float, bound: float, *, is_least: bool) -> bool:
    return ratio >= bound if is_least else ratio <= bound
