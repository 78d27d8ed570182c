"""`tieline ask`: the reply alone on stdout, consumed after it was printed; a timeout is no answer."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.adapters.cli.fake import ESCAPE, ErrorAnswer, FakeRoot, Result, message, receipt

Run = Callable[..., Result]
Make = Callable[..., FakeRoot]


def test_ask_answered_prints_only_the_reply(run: Run, fake_root: Make) -> None:
    """The reply's text is the data; who replied is told beside it."""
    root = fake_root({"local.ask": {"receipt": receipt("replied"), "reply": message(), "timedOut": False}})
    result = run("ask", ":api", "which port?", "--timeout", "5")
    assert (result.code, result.out) == (0, "one\ntwo\n")
    assert ":web replied" in result.err
    params = root.params("local.ask")
    assert (params["to"], params["content"], params["timeoutMs"]) == ("api", "which port?", 5_000)
    assert params["messageId"].startswith("cli-")


def test_ask_without_reply_exits_124_and_names_the_state(run: Run, fake_root: Make) -> None:
    """A timeout names the last known state and the id to ask for, and prints no data."""
    fake_root({"local.ask": {"receipt": receipt("consumed"), "reply": None, "timedOut": True}})
    result = run("ask", "api", "q", "--timeout", "0.1", "--id", "q-1")
    assert (result.code, result.out) == (124, "")
    assert "read at the recipient" in result.err
    assert "tieline status q-1" in result.err
    shape = run("ask", "api", "q", "--timeout", "0.1", "--json").json
    assert (shape["reply"], shape["timedOut"]) == (None, True)


@pytest.mark.clause("K33")
@pytest.mark.parametrize("member", ["token", "taken"])
def test_ask_reply_is_settled_after_it_was_printed(run: Run, fake_root: Make, member: str) -> None:
    """Where the root leaves the reply for the reader to settle, that happens after the flush."""
    answer = {"receipt": receipt("replied"), "reply": message(), "timedOut": False, member: "t-1"}
    root = fake_root({"local.ask": answer, "host.taken": {"consumed": 1}})
    assert run("ask", "api", "q").code == 0
    assert root.methods[-1] == "host.taken"


def test_ask_two_recipients_is_wrong_usage(run: Run, fake_root: Make) -> None:
    """A question has one recipient."""
    root = fake_root({"local.ask": {}})
    assert run("ask", "api", "web", "q").code == 2
    assert root.requests == []


def test_ask_lost_answer_is_unknown(run: Run, fake_root: Make) -> None:
    """A root that dies while it is asked leaves the outcome unknown."""

    def dies(params: dict[str, Any]) -> dict[str, Any]:
        raise ConnectionAbortedError

    fake_root({"local.ask": dies})
    assert run("ask", "api", "q").code == 3


def test_ask_hostile_reply_is_escaped(run: Run, fake_root: Make) -> None:
    """A reply cannot steer the terminal."""
    reply = message(content=ESCAPE + "\r", fromAlias=ESCAPE)
    fake_root({"local.ask": {"receipt": receipt("replied"), "reply": reply}})
    result = run("ask", "api", "q")
    assert not set(result.out + result.err) & {"\x1b", "\x07", "\r", "\u202e"}


def test_ask_refusal_keeps_its_code(run: Run, fake_root: Make) -> None:
    """A refused question ends in the refusal's own exit code."""

    def refuse(params: dict[str, Any]) -> dict[str, Any]:
        raise ErrorAnswer("PEER_OFFLINE", "it ended")

    fake_root({"local.ask": refuse})
    assert run("ask", "api", "q").code == 4
