"""The one checker: it reads a history and the final stores, and says which promises were broken.

Rule 1: one named function per invariant; each counts what it checked, so that a zero means something.
Rule 2: nothing of the product's is called to judge the product: states, order and limits are written here
again, from the reference.

Source: reference/reliability.md 2.4.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.sim.checker import bounds, conversation, custody, dedupe, identity, ordering, receipts
from tests.sim.checker.claims import Claim
from tests.sim.checker.reading import Reading
from tests.sim.history import Entry

__all__ = ["INVARIANTS", "Verdict", "check"]

INVARIANTS: dict[str, Callable[[Reading, Claim], None]] = {
    **custody.INVARIANTS,
    **ordering.INVARIANTS,
    **receipts.INVARIANTS,
    **dedupe.INVARIANTS,
    **conversation.INVARIANTS,
    **identity.INVARIANTS,
    **bounds.INVARIANTS,
}
"""Every invariant that concerns messaging, by its number in the reference."""


class Verdict(NamedTuple):
    """What the checker found: violations as (invariant, sentence), and checks made by invariant."""

    violations: list[tuple[str, str]]
    counts: dict[str, int]


def check(entries: Sequence[Entry], only: Sequence[str] = ()) -> Verdict:
    """Check a history against all invariants, or those named."""
    reading = Reading(entries)
    violations: list[tuple[str, str]] = []
    counts: dict[str, int] = {}
    for name, function in INVARIANTS.items():
        if not only or name in only:
            claim = Claim()
            function(reading, claim)
            counts[name] = claim.count
            violations += [(name, text) for text in claim.violations]
    return Verdict(violations, counts)
