"""`tieline status`: what a root knows, and what an ended sender left."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.adapters.cli.fake import ESCAPE, ErrorAnswer, FakeRoot, Result, message, receipt

Run = Callable[..., Result]
Make = Callable[..., FakeRoot]


def unknown(params: dict[str, Any]) -> dict[str, Any]:
    """Answer as a root that never heard of it."""
    raise ErrorAnswer("UNKNOWN_TARGET", "no such message")


def left(state: str) -> dict[str, Any]:
    """Return an ended sender's record."""
    return {
        "instanceId": "i-ended",
        "receipt": receipt(state),
        "message": {"content": "x"},
        "unsettled": True,
    }


def test_status_of_sent_and_received_shows_all(run: Run, fake_root: Make) -> None:
    """The receipt in words, attempts, the last refusal, the history and a received message are shown."""
    sent = {
        "receipt": receipt("pending"),
        "message": {"content": f"text{ESCAPE}"},
        "attempts": 4,
        "lastRefusal": {"code": "QUEUE_FULL", "text": "32 of 32"},
        "history": [{"type": "receipt", "cursor": "5", "state": "pending"}],
    }
    fake_root({"local.status": {"sent": [sent], "received": [{"message": message(), "history": []}]}})
    result = run("status", "m-1")
    assert result.code == 0
    for word in ("not yet handed over", "attempts 4", "QUEUE_FULL", "  | text", "received", ":web"):
        assert word in result.out
    assert "\x1b" not in result.out
    assert run("status", "m-1", "--json").json["sent"] == [sent]


@pytest.mark.parametrize(("state", "code"), [("unknown", 3), ("pending", 3), ("accepted", 0)])
def test_status_of_ended_sender_says_ask_the_recipient(
    run: Run, fake_root: Make, monkeypatch: pytest.MonkeyPatch, state: str, code: int
) -> None:
    """A message whose sender ended keeps its state, is retried by nobody, and that is said."""
    monkeypatch.setattr("tieline.runtime.ended.outbox_of_ended", lambda home, message_id: [left(state)])
    fake_root({"local.status": unknown})
    result = run("status", "m-1")
    assert result.code == code
    assert "nothing retries it; ask the recipient" in result.out
    shape = run("status", "m-1", "--json").json
    assert shape["ended"] == [left(state)]
    assert shape["sent"] == []


def test_status_without_any_root_still_reads_ended_ones(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """No root is needed to read what an ended one left."""
    monkeypatch.setattr("tieline.runtime.ended.outbox_of_ended", lambda home, message_id: [left("unknown")])
    assert run("status", "m-1").code == 3


def test_status_of_an_ended_senders_message_past_its_time_says_so(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays unknown, and a person reads that nothing can change any more."""
    late = {**left("unknown"), "expired": True}
    monkeypatch.setattr("tieline.runtime.ended.outbox_of_ended", lambda home, message_id: [late])
    result = run("status", "m-1")
    assert result.code == 3
    assert "its time is over" in result.out


def test_status_of_unknown_id_says_where_to_look(run: Run, fake_root: Make) -> None:
    """An id that nobody knows ends in 4, with where ids are shown; no root at all is told as that."""
    assert run("status", "m-0", "--json").json["error"]["code"] == "NO_ROOT"
    fake_root({"local.status": unknown})
    result = run("status", "m-0", "--json")
    assert (result.code, result.json["error"]["code"]) == (4, "UNKNOWN_TARGET")
    assert "tieline log" in result.json["error"]["action"]
