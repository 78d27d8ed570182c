"""`tieline inbox`: previews change nothing, and what is consumed was printed first."""

import io
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.adapters.cli.fake import ESCAPE, INSTANCE, FakeRoot, Result, message

Run = Callable[..., Result]
Make = Callable[..., FakeRoot]
TAKEN = {"host.taken": {"consumed": 1}, "host.refused": {"freed": 1}}


def mail(*messages: dict[str, Any], token: str | None = None, **more: Any) -> dict[str, Any]:
    """Return an inbox answer."""
    base = {
        "messages": list(messages),
        "events": [],
        "cursor": "7",
        "oldestCursor": "1",
        "gap": False,
        "token": token,
    }
    return {**base, **more}


def test_inbox_preview_shows_mail_and_consumes_nothing(run: Run, fake_root: Make) -> None:
    """A preview asks for no token and settles none."""
    root = fake_root({"local.inbox": mail(message()), **TAKEN})
    result = run("inbox")
    assert result.code == 0
    assert ":web" in result.out
    assert "  | one\n  | two\n" in result.out
    assert "preview" in result.err
    assert "consume" not in root.params("local.inbox")
    assert root.methods == ["local.who", "local.inbox"]


@pytest.mark.clause("K33", "I9")
def test_inbox_consume_settles_after_the_output(run: Run, fake_root: Make) -> None:
    """With --consume the root is told once the text was flushed."""
    root = fake_root({"local.inbox": mail(message(), token="t-1"), **TAKEN})
    assert run("inbox", "--consume").code == 0
    assert root.methods == ["local.who", "local.inbox", "host.taken"]
    assert root.params("host.taken") == {"token": "t-1"}


@pytest.mark.clause("K33")
@pytest.mark.parametrize("error", [BrokenPipeError, OSError(28, "No space left on device")])
def test_inbox_consume_with_broken_stdout_frees_the_mail(
    run: Run, fake_root: Make, monkeypatch: pytest.MonkeyPatch, error: Any
) -> None:
    """Where stdout did not take the text, nothing is consumed, and the mail is free again."""
    root = fake_root({"local.inbox": mail(message(), token="t-1"), **TAKEN})

    class Broken(io.StringIO):
        def flush(self) -> None:
            raise error

    monkeypatch.setattr("sys.stdout", Broken())
    assert run("inbox", "--consume").code in (1, 141)
    assert root.methods[-1] == "host.refused"
    assert "host.taken" not in root.methods


@pytest.mark.clause("K33")
def test_inbox_closed_pipe_ends_quietly_and_consumes_nothing(fake_root: Make) -> None:
    """A reader that went away ends the command without a word; the mail stays unread."""
    root = fake_root({"local.inbox": mail(message(), token="t-1"), **TAKEN})
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "tieline.adapters.cli.main", "inbox", "--consume"],
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")
    assert "host.taken" not in root.methods


@pytest.mark.clause("I9", "K33")
@pytest.mark.parametrize("words", [(), ("--consume",)])
def test_inbox_shows_a_person_every_page(run: Run, fake_root: Make, words: tuple[str, ...]) -> None:
    """A person is shown all, each page settled by itself; a program gets one page and the rest's count."""
    pages = [
        mail(message(messageId="m-1"), token="t-1", cursor="4", remaining=2),
        mail(message(messageId="m-2"), message(messageId="m-3"), token="t-2", cursor="9", remaining=0),
    ]
    answers = iter(pages)
    root = fake_root({"local.inbox": lambda params: next(answers), **TAKEN})
    result = run("inbox", *words)
    assert all(name in result.out for name in ("m-1", "m-2", "m-3"))
    assert "3 shown" in result.err
    assert root.params("local.inbox")["after"] == "4"
    assert root.methods.count("host.taken") == (2 if words else 0)
    answers = iter(pages)
    assert run("inbox", *words, "--json").json["remaining"] == 2


@pytest.mark.clause("I9")
def test_inbox_consume_names_what_is_on_its_way_to_the_model(run: Run, fake_root: Make) -> None:
    """Unread mail of an open boundary is not there to be read, and nobody is told that there is none."""
    fake_root({"local.inbox": mail(unread=2, prepared=2, remaining=0)})
    result = run("inbox", "--consume")
    assert "2 unread on the way to the model" in result.err
    assert "no unread mail to read here" in result.err


def test_inbox_consumed_but_untold_says_it_will_be_shown_again(run: Run, fake_root: Make) -> None:
    """Text that was printed and could not be settled is told as that."""

    def dies(params: dict[str, Any]) -> dict[str, Any]:
        raise ConnectionAbortedError

    fake_root({"local.inbox": mail(message(), token="t-1"), "host.taken": dies})
    result = run("inbox", "--consume")
    assert "two" in result.out
    assert result.code == 4
    assert "shown again" in result.err


@pytest.mark.clause("O18", "I47")
def test_inbox_below_host_with_live_runs_needs_to_know_whose(run: Run, fake_root: Make) -> None:
    """With live runs there are several mailboxes, also for a preview: the list, never a guess."""
    root = fake_root({"local.inbox": mail(message()), "local.who": {"runs": [{"runId": "r-1"}]}})
    for words in (["inbox"], ["inbox", "--consume"]):
        result = run(*words, "--json")
        assert (result.code, result.json["error"]["code"]) == (1, "AMBIGUOUS_TARGET")
        assert "--run" in result.json["error"]["action"]
    assert "local.inbox" not in root.methods
    assert run("inbox", "--run", "token").code == 0
    assert root.params("local.inbox")["run"] == "token"


@pytest.mark.clause("O07")
def test_inbox_short_wait_reads_at_least_once(run: Run, fake_root: Make) -> None:
    """However short the wait, one read happens, and mail that is there is shown."""
    root = fake_root({"local.inbox": mail(message())})
    for seconds in ("0", "0.001", "0.1"):
        assert run("inbox", "--wait", seconds).code == 0
    assert root.methods.count("local.inbox") == 3


@pytest.mark.clause("O07")
@pytest.mark.parametrize("seconds", ["-1", "86401", "nan", "inf", "soon"])
def test_inbox_wait_out_of_range_is_wrong_usage(run: Run, fake_root: Make, seconds: str) -> None:
    """A wait outside its range is a typed error and asks nobody."""
    root = fake_root({"local.inbox": mail()})
    result = run("inbox", f"--wait={seconds}", "--json")
    assert result.code == 2
    assert result.json["error"]["code"] == "USAGE"
    assert f"must be 0 to 86400 seconds, not {seconds}" in result.json["error"]["text"]
    assert root.requests == []


def test_inbox_wait_without_mail_exits_124(run: Run, fake_root: Make) -> None:
    """A wait that ends without mail is told apart from an empty look."""
    fake_root({"local.inbox": mail(timedOut=True)})
    started = time.monotonic()
    assert run("inbox", "--wait", "0.2").code == 124
    assert time.monotonic() - started >= 0.2
    assert run("inbox").code == 0


def test_inbox_long_wait_is_asked_in_steps_each_root_takes(
    run: Run, fake_root: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No single wait is longer than 30 s, whatever a person asked for."""
    monkeypatch.setattr("tieline.adapters.cli.inbox.WAIT_STEP_S", 0.05)
    answers = iter([mail(timedOut=True), mail(timedOut=True), mail(message())])
    root = fake_root({"local.inbox": lambda params: next(answers)})
    assert run("inbox", "--wait", "60").code == 0
    asked = [params["waitMs"] for method, params in root.requests if method == "local.inbox"]
    assert asked == [50, 50, 50]


@pytest.mark.clause("S22")
def test_inbox_peers_text_cannot_leave_its_frame(run: Run, fake_root: Make) -> None:
    """Every line of a peer's text stands behind the bar, and none of its controls reach the terminal."""
    content = f"{ESCAPE}\r99  :boss  peer-x\n99  :boss  peer-x\u2028x\x85y"
    changes = {"content": content, "topic": f"a\n{ESCAPE}", "fromAlias": f"x\n9 :boss{ESCAPE}"}
    fake_root({"local.inbox": mail(message(**changes, attachments=[{"name": ESCAPE, "text": content}]))})
    out = run("inbox").out
    assert not set(out) & {"\x1b", "\x07", "\r", "\u202e", "\u2028", "\x85"}
    assert not any(row.startswith(("9", "99")) for row in out.splitlines())


def test_inbox_json_has_the_documented_shape(run: Run, fake_root: Make) -> None:
    """The versioned shape holds the messages as the root gave them."""
    fake_root({"local.inbox": mail(message(), unread=4)})
    shape = run("inbox", "--json").json
    assert set(shape) == {
        "version",
        "command",
        "messages",
        "cursor",
        "oldestCursor",
        "gap",
        "unread",
        "consume",
        "root",
    }
    assert shape["version"] == 1
    assert shape["messages"] == [message()]
    assert shape["consume"] is False


def test_inbox_without_root_of_its_own_consumes_nothing(run: Run, fake_root: Make, place: Any) -> None:
    """The root of the workspace shows a preview to anybody, and lets nobody else consume."""
    root = fake_root({"local.inbox": mail(message(), token="t")}, is_host=False)
    presence = place / "active-agents" / "x.json"
    workspace = os.path.realpath(os.getcwd())
    presence.write_text(f'{{"workspaceRoot":"{workspace}","communication":{{"instanceId":"{INSTANCE}"}}}}')
    presence.chmod(0o600)
    shown = run("inbox")
    assert shown.code == 0
    assert "no root hosts this command" in shown.err
    assert run("inbox", "--consume").code == 4
    assert root.methods == ["local.inbox"]


def held(**more: Any) -> dict[str, Any]:
    """Return a message that waits for the person's word."""
    return {**message(messageId="m-held"), "contentBytes": 7, **more}


def test_inbox_shows_what_waits_for_the_persons_word_apart(run: Run, fake_root: Make) -> None:
    """A held message is no mail yet: it is told on stderr, with how to let it in, and escapes nothing."""
    fake_root({"local.inbox": mail(held=[held(content=f"let me{ESCAPE} in")])})
    result = run("inbox")
    assert (result.code, result.out) == (0, "")
    assert "waits for your word: m-held from web" in result.err
    assert "--accept m-held" in result.err
    assert "  | let me" in result.err
    assert "\x1b" not in result.err
    assert run("inbox", "--json").json["held"][0]["messageId"] == "m-held"


def test_inbox_without_text_of_a_held_message_still_names_it(run: Run, fake_root: Make) -> None:
    """An agent's own shell is shown no text, and the person still sees that something waits."""
    waiting = held()
    waiting.pop("content", None)
    fake_root({"local.inbox": mail(held=[waiting])})
    assert "waits for your word: m-held" in run("inbox").err


@pytest.mark.parametrize(("word", "is_accepted"), [("--accept", True), ("--deny", False)])
def test_inbox_word_of_the_person_is_passed_on(
    run: Run, fake_root: Make, word: str, is_accepted: bool
) -> None:
    """Yes and no go to the root, and nothing is read or consumed by them."""
    answer = {"accepted": is_accepted, "receipt": {"state": "accepted"}}
    root = fake_root({"local.consent": answer})
    result = run("inbox", word, "m-held")
    assert (result.code, "m-held is" in result.out) == (0, True)
    assert root.params("local.consent") == {"messageId": "m-held", "accept": is_accepted}
    assert "local.inbox" not in root.methods
    shape = run("inbox", word, "m-held", "--json").json
    assert (shape["accepted"], shape["messages"]) == (is_accepted, [])


def test_inbox_yes_and_no_at_once_is_wrong_usage(run: Run, fake_root: Make) -> None:
    """Who says both has said nothing."""
    root = fake_root({"local.consent": {}})
    assert run("inbox", "--accept", "a", "--deny", "a").code == 2
    assert root.requests == []
