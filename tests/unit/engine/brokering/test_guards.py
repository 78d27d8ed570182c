"""Conditional sends; every fault of a binding is in tests/scripts/test_intercom_groups.py."""

import pytest

from tests.unit.engine.brokering.kit import letter, seated, session
from tieline.engine.brokering.contract import Failed, Guard, Lineage
from tieline.engine.brokering.features import Features
from tieline.engine.brokering.guards import NOT_FOUND, guarded_target, is_conditional
from tieline.engine.brokering.sessions import Session

ABLE = Features(needs_plain=True, guarded_delivery=True)
GUARD = Guard("r2", "b", "i", "g")


def pair() -> tuple[Session, Session]:
    one, two = session("a", 1, ABLE, Lineage("r1")), session("b", 2, ABLE, Lineage("r2"))
    two.bind("g")
    return one, two


def reason(found: Session | Failed) -> str:
    assert isinstance(found, Failed)
    return found.reason


@pytest.mark.clause("intercom-135", "I41")
def test_whole_and_true_binding_finds_its_target() -> None:
    """All of it is so: the target is that session."""
    one, two = pair()
    asked = letter(guard=GUARD, is_guardable=True)
    assert guarded_target(seated(one, two), one, "b", asked) is two


@pytest.mark.clause("intercom-135", "I41")
def test_each_fault_refuses() -> None:
    """Each part of the binding that is not so refuses, and so does each missing condition."""
    one, two = pair()
    sessions = seated(one, two, session("old", 3), session("kid", 4, ABLE, Lineage("r2", "r2")))
    whole = letter(guard=GUARD, is_guardable=True)
    assert "not negotiated" in reason(guarded_target(sessions, session("z", 9), "b", whole))
    for broken in (
        letter(guard=GUARD),
        letter(is_guardable=True),
        letter(guard=GUARD, is_guardable=True, is_guard_broken=True),
    ):
        assert "whole guard" in reason(guarded_target(sessions, one, "b", broken))
    for to in ("c", "kid", "B"):
        assert reason(guarded_target(sessions, one, to, whole)) == NOT_FOUND
    assert "does not take" in reason(guarded_target(sessions, one, "old", whole))
    for guard in (Guard("r", "b", "i", "g"), Guard("r2", "x", "i", "g"), Guard("r2", "b", "x", "g")):
        assert "context" in reason(guarded_target(sessions, one, "b", letter(guard=guard, is_guardable=True)))
    other = letter(guard=Guard("r2", "b", "i", "x"), is_guardable=True)
    assert "application guard" in reason(guarded_target(sessions, one, "b", other))
    sessions.add(session("twin", 5, lineage=Lineage("r2")))
    assert "ambiguous" in reason(guarded_target(sessions, one, "b", whole))


def test_guard_makes_a_send_conditional_and_a_lone_hint_for_its_kind_alone() -> None:
    """A guard is never passed on as an unknown member; a hint alone is, from who knows no hints."""
    one, _ = pair()
    old = session("z", 9)
    assert is_conditional(old, letter(guard=GUARD))
    assert not is_conditional(old, letter(is_guard_broken=True))
    assert is_conditional(one, letter(is_guard_broken=True))
    assert not is_conditional(one, letter())
