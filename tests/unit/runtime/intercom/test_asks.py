"""Questions that wait, and which one a reply means."""

from typing import Any

import pytest

from tieline.errors import Refusal
from tieline.runtime.intercom.asks import ASK_MS, ASKS_MAX, Ask, Asks


def ask(name: str, session: str = "pi-1", **fields: Any) -> Ask:
    """Return a question."""
    given: dict[str, Any] = {
        "sender": "peer-" + session,
        "alias": session,
        "preview": "",
        "thread": None,
        "at_ms": 0,
    }
    return Ask(name, session, **{**given, **fields})


def picked(asks: Asks, **fields: Any) -> Any:
    """Return which one is meant."""
    given: dict[str, Any] = {
        "reply_to": None,
        "to": None,
        "resolve": lambda to: to,
        "is_of_turn": lambda _ask: False,
    }
    found = asks.pick(0, **{**given, **fields})
    return found.message_id if isinstance(found, Ask) else found.code


@pytest.mark.clause("intercom-105", "intercom-106", "intercom-107")
def test_reply_means_what_it_names_else_the_turns_else_the_only_one() -> None:
    """And nothing where that is not one."""
    asks = Asks()
    assert picked(asks) == "INVALID_REPLY"
    asks.add(ask("a"))
    assert picked(asks) == "a"
    asks.add(ask("b", "pi-2"))
    assert picked(asks) == "AMBIGUOUS_TARGET"
    assert picked(asks, is_of_turn=lambda one: one.message_id == "b") == "b"
    assert picked(asks, reply_to="b") == "b"
    assert picked(asks, reply_to="b", to="pi-1") == "INVALID_REPLY"
    assert picked(asks, reply_to="c") == "INVALID_REPLY"
    assert picked(asks, to="pi-1", is_of_turn=lambda one: one.message_id == "b") == "a"
    assert picked(asks, to="x", resolve=lambda _to: Refusal("UNKNOWN_TARGET", "no")) == "UNKNOWN_TARGET"
    asks.add(ask("c", "pi-1"))
    assert picked(asks, to="pi-1") == "AMBIGUOUS_TARGET"


@pytest.mark.clause("intercom-99")
def test_question_waits_until_it_is_over_or_its_asker_gone() -> None:
    """Answered, out of time, or left: then there is nothing to reply to."""
    asks = Asks()
    for one in (ask("a"), ask("b", "pi-2"), ask("c", "pi-2", at_ms=5)):
        asks.add(one)
    asks.end("pi-1", "a")
    assert [one.message_id for one in asks.waiting(0)] == ["b", "c"]
    assert [one.message_id for one in asks.waiting(ASK_MS)] == ["c"]
    asks.left("pi-2")
    assert asks.waiting(ASK_MS) == []


@pytest.mark.clause("intercom-70", "intercom-108")
def test_newer_question_of_a_thread_replaces_and_the_bound_drops_the_oldest() -> None:
    """One per asker and thread; a hundred in all."""
    asks = Asks()
    asks.add(ask("a", thread="t"))
    asks.add(ask("x", "pi-2", thread="t"))
    asks.add(ask("b", thread="t"))
    assert [one.message_id for one in asks.waiting(0)] == ["x", "b"]
    for number in range(ASKS_MAX):
        asks.add(ask(str(number)))
    assert len(asks.waiting(0)) == ASKS_MAX
    assert asks.waiting(0)[0].message_id == "0"


def test_questions_of_one_name_and_id_are_told_apart_by_their_askers() -> None:
    """What could be meant is named so that each of them can be copied."""
    asks = Asks()
    asks.add(ask("a"))
    asks.add(ask("a", "pi-2"))
    told = asks.pick(0, reply_to="a", to=None, resolve=lambda to: to, is_of_turn=lambda _one: False)
    assert isinstance(told, Refusal)
    assert "replyTo a to pi-1, replyTo a to pi-2" in told.text
    meant = asks.pick(0, reply_to="a", to="pi-2", resolve=lambda to: to, is_of_turn=lambda _one: False)
    assert not isinstance(meant, Refusal)
    assert meant.session_id == "pi-2"
