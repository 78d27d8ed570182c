"""`tieline recover`: what ended instances left, for review."""

from collections.abc import Callable

import pytest

from tests.unit.adapters.cli.fake import ESCAPE, Result, message, receipt
from tieline.errors import RecoveryRequired, Refused
from tieline.runtime.ended import Ended, Recovered

Run = Callable[..., Result]
MODULE = "tieline.adapters.cli.recover"


@pytest.mark.clause("native-184", "native-185")
def test_recover_instance_shows_mail_with_original_ids(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old messages are shown with their own ids; unsettled sends say that nobody retries them."""
    sent = {
        "receipt": receipt("unknown", messageId="m-77"),
        "message": {"content": ESCAPE},
        "unsettled": True,
    }
    found = Recovered("i-1", "s-1", [message()], [sent])
    asked: list[object] = []
    monkeypatch.setattr(f"{MODULE}.recover", lambda *words: asked.append(words) or found)
    result = run("recover", "i-1", "--session", "s-1")
    assert result.code == 0
    for word in ("id m-9", "  | two", "id m-77", "ask the recipient"):
        assert word in result.out
    assert "\x1b" not in result.out
    assert "nothing was changed" in result.err
    assert asked[0][1:] == ("i-1", "s-1")  # type: ignore[index]
    shape = run("recover", "i-1", "--json").json
    assert shape == {"version": 1, "command": "recover", **found._asdict()}


def test_recover_without_name_lists_what_needs_a_person(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended instances with unread, unsettled or damaged mail are listed; finished ones are not."""
    found = [
        Ended("i-1", "s", 2, 1, 9, ""),
        Ended("i-2", "s", 0, 0, 9, ""),
        Ended("i-3", "", None, None, None, "damaged"),
        Ended("i-4", "s", 0, 0, 1, "", 1),
    ]
    monkeypatch.setattr(f"{MODULE}.ended_instances", lambda home: found)
    result = run("recover")
    assert [row.split()[0] for row in result.out.splitlines()] == ["i-1", "i-3", "i-4"]
    assert "0 not settled, 1 held" in result.out.splitlines()[2]
    assert result.out.splitlines()[1].split() == [
        "i-3",
        "unknown",
        "unread",
        "unknown",
        "not",
        "settled",
        "damaged",
    ]
    assert "nothing can be shown" in result.err
    shape = run("recover", "--json").json["instances"]
    assert (shape[1]["unread"], shape[1]["unsettled"], shape[1]["messages"]) == (None, None, None)
    assert shape[0] == {
        "instanceId": "i-1",
        "sessionId": "s",
        "unread": 2,
        "unsettled": 1,
        "held": 0,
        "messages": 9,
        "fault": None,
    }
    assert [item["instanceId"] for item in shape] == ["i-1", "i-3", "i-4"]


def test_recover_names_what_waited_for_the_persons_word_without_its_text(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never arrived: who sent it and under which id is all that is told."""
    held = {"messageId": "m-5", "from": "peer-x", "fromAlias": ESCAPE, "contentBytes": 9}
    monkeypatch.setattr(f"{MODULE}.recover", lambda *_words: Recovered("i-1", "s-1", [], [], [held]))
    result = run("recover", "i-1")
    assert "id m-5" in result.out
    assert "never arrived; ask its sender" in result.out
    assert "\x1b" not in result.out
    assert "1 held; nothing was changed" in result.err


def test_recover_all_lists_finished_ones_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `forget` may be told is shown by name, also where nothing is left to review."""
    monkeypatch.setattr(f"{MODULE}.ended_instances", lambda home: [Ended("i-2", "s", 0, 0, 9, "")])
    assert run("recover").out == ""
    assert run("recover", "--all").out.split()[0] == "i-2"
    assert [item["instanceId"] for item in run("recover", "--all", "--json").json["instances"]] == ["i-2"]


def test_recover_where_nothing_was_left_says_so(run: Run) -> None:
    """An empty list is a sentence."""
    result = run("recover")
    assert (result.code, result.out) == (0, "")
    assert "no ended instance" in result.err


@pytest.mark.clause("native-180", "native-216")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refused("STILL_ALIVE", "runs"), 1),
        (RecoveryRequired("damaged"), 5),
        (Refused("UNKNOWN_TARGET", "none"), 4),
    ],
)
def test_recover_refusals_have_their_exit_codes(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    """A live instance, a damaged store and an unknown name are told apart."""

    def refuse(*words: object) -> Recovered:
        raise error

    monkeypatch.setattr(f"{MODULE}.recover", refuse)
    assert run("recover", "i-1").code == code
