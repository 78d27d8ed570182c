"""Who may see whom."""

from typing import NamedTuple

import pytest

from tieline.engine.brokering.contract import Lineage
from tieline.engine.brokering.topology import is_child, is_visible


class Place(NamedTuple):
    scope: str | None = None
    lineage: Lineage | None = None


MAIN_1, KID_1 = Place(lineage=Lineage("r1")), Place(lineage=Lineage("r1", "r1"))
MAIN_2, KID_2 = Place(lineage=Lineage("r2")), Place(lineage=Lineage("r2", "r2"))
OLD, SCOPED = Place(), Place(scope="s")


@pytest.mark.clause("intercom-42", "intercom-57")
@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (MAIN_1, MAIN_2, True),
        (MAIN_1, KID_1, True),
        (KID_1, KID_1, True),
        (MAIN_1, OLD, True),
        (OLD, OLD, True),
        (SCOPED, SCOPED, True),
        (KID_1, KID_2, False),
        (KID_1, MAIN_2, False),
        (KID_1, OLD, False),
        (OLD, SCOPED, False),
        (Place("s", Lineage("r1")), KID_1, False),
    ],
)
def test_visibility_is_of_group_mains_and_scope_and_holds_both_ways(
    one: Place, other: Place, expected: bool
) -> None:
    """Every kind of pair is visible or not, from both its ends."""
    assert is_visible(one, other) is expected
    assert is_visible(other, one) is expected


def test_child_is_who_has_a_parent() -> None:
    """A main names no parent, and who names nothing is a main."""
    assert [is_child(one) for one in (MAIN_1, KID_1, OLD)] == [False, True, False]
