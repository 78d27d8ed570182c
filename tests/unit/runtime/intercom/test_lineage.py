"""The group of a root: both variables exactly, or neither."""

import pytest

from tieline.errors import UsageError
from tieline.runtime.intercom.lineage import (
    PARENT_VARIABLE,
    ROOT_VARIABLE,
    Lineage,
    child_environment,
    lineage_of,
)


def test_root_without_the_variables_is_a_main() -> None:
    """Its own session is its group, and it has no parent."""
    assert lineage_of({}) == Lineage()
    assert Lineage().fields("s") == {"rootSessionId": "s"}
    assert not Lineage().is_child


@pytest.mark.clause("intercom-57")
def test_root_with_the_pair_is_a_child_of_that_main() -> None:
    """What a main's run gets in its environment makes it one."""
    found = lineage_of(child_environment("main"))
    assert found.is_child
    assert found.fields("s") == {"rootSessionId": "main", "parentSessionId": "main"}


@pytest.mark.parametrize(
    "pair",
    [
        ("a", None),
        (None, "a"),
        ("a", "b"),
        ("", ""),
        (" a", " a"),
        ("a ", "a "),
        ("a\n", "a\n"),
        ("a\x00", "a\x00"),
    ],
)
def test_pair_that_is_not_exact_stops_the_wire(pair: tuple[str | None, str | None]) -> None:
    """One missing, empty, padded or different: nothing is trimmed into another identity."""
    names = (ROOT_VARIABLE, PARENT_VARIABLE)
    environment = {name: value for name, value in zip(names, pair, strict=True) if value is not None}
    with pytest.raises(UsageError, match="PI_INTERCOM_"):
        lineage_of(environment)


def test_session_that_its_own_pair_names_is_no_child() -> None:
    """Nobody is his own main; a main without a pair is nobody's child, and a child of another is one."""
    pair = lineage_of(child_environment("s"))
    with pytest.raises(UsageError, match="name this very session"):
        pair.require_other("s")
    pair.require_other("t")
    Lineage().require_other("")
