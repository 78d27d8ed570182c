"""What a waiting command says of a ring: of its own wait only, once, and nothing after its end."""

import time
from typing import Any, Self

import pytest

from tieline.adapters.cli import ringed
from tieline.adapters.cli.ringed import RingWatch, told
from tieline.errors import Refused

ME, OTHER = "peer-me", "peer-other"
WAYS = [
    {"peer": ME, "act": "answer", "subject": "m-2", "text": "answer :b"},
    {"peer": ME, "act": "give_up", "subject": "m-1", "text": "stop waiting for :b"},
    {"peer": OTHER, "act": "give_up", "subject": "m-2", "text": "not ours to do"},
]
ANSWER = {"self": ME, "generation": 4, "cycles": [{"text": ":a waits for :b\x1b[2J", "ways": WAYS}]}


class Asked:
    """A client whose root shows these answers, one after another, and then the last one again."""

    def __init__(self, *answers: dict[str, Any] | Exception) -> None:
        self.path, self.answers, self.params = "/control", list(answers), list[dict[str, Any]]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def call(self, _method: str, params: dict[str, Any], _timeout_s: float) -> dict[str, Any]:
        self.params.append(params)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        time.sleep(0.01)
        if isinstance(answer, Exception):
            raise answer
        return answer


def said(monkeypatch: pytest.MonkeyPatch, asked: Asked, seconds: float = 0.3) -> list[str]:
    """Return the lines that a watch over `m-1` says in a while."""
    lines: list[str] = []
    monkeypatch.setattr(ringed, "QUIET_S", 0.0)
    monkeypatch.setattr(ringed, "Client", lambda _path: asked)
    with RingWatch(asked, "tieline ask", ["m-1"], "token", lines.append):  # type: ignore[arg-type]
        time.sleep(seconds)
    return lines


def test_ring_over_ones_own_wait_is_told_with_what_one_can_do() -> None:
    """The line has the ring and our own ways out, without a control character of a peer's name."""
    (text,) = told(ANSWER, frozenset({"m-1"}))
    assert text.startswith("WAIT_CYCLE: :a waits for :b")
    assert text.endswith("answer :b or stop waiting for :b")
    assert "\x1b" not in text
    assert "not ours" not in text


def test_ring_over_another_wait_is_not_told() -> None:
    """A question that is put to us is no wait of ours, nor is one of another command."""
    assert told(ANSWER, frozenset({"m-2", "m-3"})) == []
    assert told({"cycles": []}, frozenset({"m-1"})) == []


def test_watch_says_a_ring_once_and_asks_for_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same ring in many answers is one line; what was seen is named in the next request."""
    asked = Asked({"self": ME, "generation": 3, "cycles": []}, ANSWER)
    lines = said(monkeypatch, asked)
    assert len(lines) == 1
    assert lines[0].startswith("tieline ask: WAIT_CYCLE")
    assert [one.get("after") for one in asked.params[:3]] == [None, 3, 4]
    assert all(one["run"] == "token" for one in asked.params)


def test_watch_of_a_root_that_cannot_tell_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older root, or one that ended, is no fault of the command that waits."""
    asked = Asked(Refused("VERSION_SKEW", "no such request"))
    assert said(monkeypatch, asked) == []
    assert len(asked.params) == 1


def test_watch_that_is_over_at_once_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short wait costs no link."""
    asked = Asked(ANSWER)
    lines: list[str] = []
    monkeypatch.setattr(ringed, "QUIET_S", 0.05)
    monkeypatch.setattr(ringed, "Client", lambda _path: asked)
    with RingWatch(asked, "tieline ask", ["m-1"], None, lines.append):  # type: ignore[arg-type]
        pass
    time.sleep(0.15)
    assert lines == asked.params == []
