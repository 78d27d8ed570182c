"""Whom a send is for."""

from typing import Any

import pytest

from tests.unit.engine.brokering.kit import DIRECT, RECORDED, letter, session, turn
from tieline.engine.brokering.contract import Failed, Lineage, SendAsked
from tieline.engine.brokering.sessions import Session
from tieline.engine.brokering.state import State
from tieline.engine.brokering.targets import target_of
from tieline.wire.intercom.saying import FrameCodec

KID = Lineage("r", "r")


def state_of(*members: Session) -> State:
    state = State(FrameCodec())
    for one in members:
        state.sessions.add(one)
    return state


def found(state: State, sender: Session, to: str, **parts: Any) -> str:
    """Return the id of the target, or the code of the refusal."""
    asked = SendAsked(link=1, message_id="m", token="t", to=to, letter=letter(), **parts)
    target = target_of(state, sender, asked, to)
    return target.code if isinstance(target, Failed) else target.id


@pytest.mark.clause("intercom-43", "intercom-44", "intercom-45", "intercom-46", "intercom-47", "intercom-49")
def test_exact_id_then_name_then_for_some_a_prefix() -> None:
    """Each kind of sender finds what its rules let it find."""
    direct, recorded = session("aaa", 1), session("bbb", 2, RECORDED)
    state = state_of(
        direct,
        recorded,
        session("ccc", 3, name="aaa"),
        session("ddd", 4, name="TWIN"),
        session("eee", 5, name="twin"),
    )
    assert found(state, direct, "aaa") == "aaa"
    assert found(state, direct, "CCC") == "E_TARGET_NOT_FOUND"
    assert found(state, direct, "Twin") == "E_AMBIGUOUS_TARGET"
    assert found(state, direct, "cc") == "E_TARGET_NOT_FOUND"
    assert found(state, recorded, "cc") == "ccc"
    assert found(state, recorded, "") == "E_AMBIGUOUS_TARGET"
    assert found(state, direct, "") == "E_TARGET_NOT_FOUND"
    alone = session("f", 9, RECORDED)
    assert found(state_of(alone), alone, "") == "E_TARGET_NOT_FOUND"


@pytest.mark.clause("intercom-42", "intercom-56", "I42")
def test_hidden_id_is_refused_in_the_words_for_nobodys_id() -> None:
    """The refusals of a hidden and of an unknown id differ in nothing."""
    one, hidden = session("one", 1), session("hidden", 2, lineage=KID)
    state = state_of(one, hidden)

    def refusal(to: str) -> object:
        asked = SendAsked(link=1, message_id="m", token="t", to=to, letter=letter())
        return target_of(state, one, asked, to)

    assert refusal("hidden") == refusal("nobody")
    assert isinstance(refusal("hidden"), Failed)


@pytest.mark.clause("intercom-54", "intercom-55")
def test_bound_target_is_that_registration_or_a_refusal() -> None:
    """A stale epoch, one that left, a hidden and an unknown id; a name is never looked at."""
    one, two = session("one", 1, RECORDED), session("two", 2, RECORDED)
    hidden, gone = session("hid", 3, lineage=KID), session("gone", 4, RECORDED)
    state = state_of(one, two, hidden)
    state.mailbox.left(gone, turn(), is_parked=False)
    assert found(state, one, "x", target_id="two", target_epoch="epoch-two") == "two"
    assert found(state, one, "two", target_id="two", target_epoch="old") == "E_TARGET_REBOUND"
    assert found(state, one, "two", target_id="gone", target_epoch="e") == "E_TARGET_REBOUND"
    assert found(state, one, "two", target_id="hid", target_epoch="epoch-hid") == "E_TARGET_NOT_FOUND"
    assert found(state, one, "two", target_id="z", target_epoch="e") == "E_TARGET_NOT_FOUND"


@pytest.mark.clause("intercom-48", "intercom-131")
def test_who_left_is_found_where_its_mail_is_held() -> None:
    """A mailbox for its kind of sender, a parked child for its group; a live name goes first."""
    direct, recorded, sibling = session("f", 1), session("n", 2, RECORDED), session("s", 3, DIRECT, KID)
    state = state_of(direct, recorded, sibling)
    state.mailbox.left(session("gone", 4, RECORDED, name="box"), turn(), is_parked=False)
    state.mailbox.left(session("kid", 5, DIRECT, KID, name="child"), turn(), is_parked=True)
    assert [found(state, one, "gone") for one in (direct, recorded)] == ["E_TARGET_NOT_FOUND", "gone"]
    assert [found(state, one, "kid") for one in (direct, recorded, sibling)] == ["E_TARGET_NOT_FOUND"] * 2 + [
        "kid"
    ]
    assert found(state, sibling, "CHILD") == "kid"
    assert found(state, recorded, "Box") == "gone"
    state.sessions.add(session("late", 6, RECORDED, name="box"))
    assert found(state, recorded, "Box") == "late"
