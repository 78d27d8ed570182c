"""`tieline send`: receipts in true words, one per recipient, and exit codes that say what is known."""

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.adapters.cli.fake import ESCAPE, INSTANCE, ErrorAnswer, FakeRoot, Result, receipt

Run = Callable[..., Result]
Make = Callable[..., FakeRoot]


def accepted(params: dict[str, Any]) -> dict[str, Any]:
    """Answer as a root whose recipient accepted."""
    target = {"peerId": "peer-x", "alias": params["to"]}
    return {"receipts": [receipt(messageId=params["messageId"], target=target)], "errors": []}


def test_send_accepted_says_synced_and_expiry_and_exits_zero(run: Run, fake_root: Make) -> None:
    """A synced acceptance is told as that, with its id and expiry."""
    root = fake_root({"local.send": accepted})
    result = run("send", ":api", "the build is ready", "--topic", "build", "--id", "m-5")
    assert result.code == 0
    assert "m-5" in result.out
    assert "stable storage" in result.out
    assert "expires" in result.out
    params = root.params("local.send")
    assert params["to"] == "api"
    assert (params["content"], params["topic"], params["messageId"]) == ("the build is ready", "build", "m-5")


def test_send_without_id_chooses_one_before_sending(run: Run, fake_root: Make) -> None:
    """Every message has an id before its first byte leaves, so that its outcome can be asked for."""
    root = fake_root({"local.send": accepted})
    assert run("send", "api", "x").code == run("send", "api", "x").code == 0
    ids = [params["messageId"] for method, params in root.requests if method == "local.send"]
    assert len(set(ids)) == 2


def test_send_lost_answer_exits_three_and_names_the_id(run: Run, fake_root: Make) -> None:
    """A root that dies before it answers leaves the outcome unknown, under a named id."""

    def dies(params: dict[str, Any]) -> dict[str, Any]:
        raise ConnectionAbortedError

    fake_root({"local.send": dies})
    result = run("send", "api", "x", "--id", "m-6", "--json")
    assert result.code == 3
    assert result.json["error"]["code"] == "DELIVERY_UNKNOWN"
    assert result.json["error"]["messageId"] == "m-6"


@pytest.mark.parametrize(
    ("state", "code", "word"),
    [
        ("accepted", 0, "stable storage"),
        ("consumed", 0, "read"),
        ("replied", 0, "replied"),
        ("pending", 3, "not yet handed over"),
        ("unknown", 3, "may have arrived"),
        ("expired", 1, "expired"),
    ],
)
def test_send_each_state_has_its_words_and_code(
    run: Run, fake_root: Make, state: str, code: int, word: str
) -> None:
    """Only what the recipient durably stated counts as done; what is open says how to go on."""
    fake_root({"local.send": {"receipts": [receipt(state)], "errors": []}})
    result = run("send", "api", "x")
    assert result.code == code
    assert word in result.out
    assert ("tieline status m-1" in result.out) == (code == 3)


def test_send_volatile_acceptance_is_not_called_durable(run: Run, fake_root: Make) -> None:
    """An acceptance in memory, or one that says nothing of storage, is not told as stored."""
    for durability, word in (("volatile", "memory"), ("unstated", "not how durably")):
        root = fake_root({"local.send": {"receipts": [receipt(durability=durability)]}}, instance=durability)
        result = run("send", "api", "x", "--instance", durability)
        assert word in result.out
        assert "stable storage" not in result.out
        assert root.methods[-1] == "local.send"


def test_send_several_recipients_get_one_id_receipt_and_line_each(run: Run, fake_root: Make) -> None:
    """Each recipient has a message of its own; one refusal does not hold the others."""

    def some(params: dict[str, Any]) -> dict[str, Any]:
        if params["to"] == "gone":
            error = {
                "to": "gone",
                "code": "PEER_OFFLINE",
                "text": "it ended",
                "action": "list",
                "retryable": True,
            }
            return {"receipts": [], "errors": [error]}
        return accepted(params)

    root = fake_root({"local.send": some})
    result = run("send", "api", ":gone", "web", "hello", "--json")
    assert result.code == 4
    assert [item["target"]["alias"] for item in result.json["receipts"]] == ["api", "web"]
    assert [error["to"] for error in result.json["errors"]] == ["gone"]
    assert len({params["messageId"] for method, params in root.requests if method == "local.send"}) == 3
    assert "gone: PEER_OFFLINE" in result.err


def test_send_several_with_one_id_is_wrong_usage(run: Run, fake_root: Make) -> None:
    """One id names one message."""
    root = fake_root({"local.send": accepted})
    assert run("send", "api", "web", "x", "--id", "m").code == 2
    assert "local.send" not in root.methods


@pytest.mark.clause("O03")
@pytest.mark.parametrize("to", ["enginer", "peer-" + "0" * 32, "engineer "])
def test_send_name_that_nobody_bears_exits_four(run: Run, fake_root: Make, to: str) -> None:
    """A misspelt name is a typed refusal, never a success; the name is handed over as it was given."""

    def unknown(params: dict[str, Any]) -> dict[str, Any]:
        error = {"to": params["to"], "code": "UNKNOWN_TARGET", "text": "nobody bears it", "retryable": False}
        return {"receipts": [], "errors": [error]}

    root = fake_root({"local.send": unknown})
    result = run("send", to, "x", "--json")
    assert result.code == 4
    assert result.json["error"]["code"] == "UNKNOWN_TARGET"
    assert root.params("local.send")["to"] == to


@pytest.mark.clause("O03")
@pytest.mark.parametrize("words", [("", "x"), (":", "x"), ("api",), ("api", "")])
def test_send_empty_word_is_wrong_usage(run: Run, fake_root: Make, words: tuple[str, ...]) -> None:
    """An empty recipient or text, or a missing one, reaches no root."""
    root = fake_root({"local.send": accepted})
    assert run("send", *words).code == 2
    assert root.requests == []


def test_send_text_from_stdin_keeps_all_but_one_line_end(run: Run, fake_root: Make) -> None:
    """`-` reads stdin; only the last line end is the shell's."""
    root = fake_root({"local.send": accepted})
    assert run("send", "api", "-", stdin="ä\n\nb\n\n".encode()).code == 0
    assert root.params("local.send")["content"] == "ä\n\nb\n"
    assert run("send", "api", "-", stdin=b"\xff").code == 2


def test_send_text_after_dashes_may_begin_with_one(run: Run, fake_root: Make) -> None:
    """After `--` a word that looks like an option is text."""
    root = fake_root({"local.send": accepted})
    assert run("send", "api", "--topic", "t", "--", "--force").code == 0
    assert root.params("local.send")["content"] == "--force"
    assert run("send", "api", "--force").code == 2


def test_send_attachment_travels_as_text(run: Run, fake_root: Make, tmp_path: Any) -> None:
    """An attachment is a named text; what is no text is refused before anything is sent."""
    root = fake_root({"local.send": accepted})
    (tmp_path / "plan.md").write_text("# plan")
    (tmp_path / "image").write_bytes(b"\xff\xfe")
    assert run("send", "api", "see", "--attach", str(tmp_path / "plan.md")).code == 0
    (part,) = root.params("local.send")["attachments"]
    assert part == {"name": "plan.md", "text": "# plan", "mediaType": "text/markdown"}
    assert run("send", "api", "see", "--attach", str(tmp_path / "image")).code == 2
    assert run("send", "api", "see", "--attach", str(tmp_path / "none")).code == 1


@pytest.mark.clause("O18", "I47", "S15")
def test_send_below_host_with_live_runs_needs_the_runs_capability(run: Run, fake_root: Make) -> None:
    """While a host has live runs nobody can tell whose act a command is; without --run it is refused."""
    live = {"runs": [{"runId": "r-1", "alias": "reviewer"}]}
    root = fake_root({"local.send": accepted, "local.who": live})
    result = run("send", "api", "x", "--json")
    assert result.code == 1
    assert result.json["error"]["code"] == "AMBIGUOUS_TARGET"
    assert result.json["error"]["candidates"] == [{"runId": "r-1", "alias": "reviewer"}]
    assert "--run" in result.json["error"]["action"]
    assert "MCP tool" in result.json["error"]["action"]
    assert "local.send" not in root.methods
    assert run("send", "api", "x", "--run", "token").code == 0
    assert root.params("local.send")["run"] == "token"


@pytest.mark.clause("O18")
def test_send_naming_the_instance_is_no_way_around_the_runs(run: Run, fake_root: Make) -> None:
    """Naming the root does not say whose act it is."""
    root = fake_root({"local.send": accepted, "local.who": {"runs": [{"runId": "r-1"}]}})
    assert run("send", "api", "x", "--instance", INSTANCE).code == 1
    assert "local.send" not in root.methods


def test_send_foreign_text_reaches_the_terminal_escaped(run: Run, fake_root: Make) -> None:
    """Neither a receipt nor an error of another's making can steer a terminal."""
    target = {"peerId": ESCAPE, "alias": ESCAPE}
    answer = {"receipts": [receipt(messageId=ESCAPE, target=target, outcome=ESCAPE)], "errors": []}
    root = fake_root({"local.send": answer})
    seen = run("send", "api", "x")
    as_json = run("send", "api", "x", "--json")

    def refuse(params: dict[str, Any]) -> dict[str, Any]:
        raise ErrorAnswer("QUEUE_FULL", ESCAPE)

    root.answers["local.send"] = refuse
    refused = run("send", "api", "x")
    for text in (seen.out, seen.err, as_json.out, refused.out, refused.err):
        assert not set(text) & {"\x1b", "\x07", "\u202e"}


def test_send_named_root_that_is_not_there_opens_none(run: Run) -> None:
    """Where a person named a root, no other may speak for it."""
    result = run("send", "api", "x", "--instance", "nobody", "--json")
    assert result.code == 4
    assert result.json["error"]["code"] == "NO_ROOT"


@pytest.mark.parametrize(
    ("outcome", "word"),
    [("NOT_DELIVERED", "never delivered"), ("REPLACED", "replaced it"), (None, "time was over")],
)
def test_send_expired_message_says_why_in_words(
    run: Run, fake_root: Make, outcome: str | None, word: str
) -> None:
    """An expiry before the deadline has a reason, and it is told in words beside its code."""
    fake_root({"local.send": {"receipts": [receipt("expired", outcome=outcome)], "errors": []}})
    result = run("send", "api", "x")
    assert word in result.out
    assert (f"({outcome})" in result.out) == (outcome is not None)


@pytest.mark.parametrize(
    "words",
    [
        ("--id", ""), ("--id", "a b"), ("--id", "a\x1b"), ("--id", "i" * 257), ("--thread", ""),
        ("--thread", "\x1b[2J"), ("--replace",),
    ],
)  # fmt: skip
def test_send_option_that_means_nothing_is_wrong_usage(
    run: Run, fake_root: Make, words: tuple[str, ...]
) -> None:
    """An empty id would be a new one, an invisible one cannot be asked for, a lone --replace is nothing."""
    root = fake_root({"local.send": accepted})
    result = run("send", "api", "x", *words)
    assert result.code == 2
    assert words[0] in result.err
    assert "local.send" not in root.methods
    assert run("send", "api", "x", "--replace", "--thread", "t").code == 0
    assert root.params("local.send")["replace"] is True


def test_send_refusal_names_the_recipient_once(run: Run, fake_root: Make) -> None:
    """The name stands before the reason, and not twice."""
    error = {"to": "api", "code": "QUEUE_FULL", "text": "api refused message q-30", "retryable": True}
    root = fake_root({"local.send": {"receipts": [], "errors": [error]}})
    assert "QUEUE_FULL: api refused message q-30" in run("send", "api", "x").err
    root.answers["local.send"] = {"receipts": [], "errors": [{**error, "text": "its inbox is full"}]}
    assert "QUEUE_FULL: api: its inbox is full" in run("send", "api", "x").err


def test_send_refusal_shows_the_roots_own_next_action(run: Run, fake_root: Make) -> None:
    """What the root says that helps here is shown, and not what the code says in general."""
    error = {
        "to": "api",
        "code": "UNKNOWN_TARGET",
        "text": "gone",
        "retryable": False,
        "action": "wait for it",
    }
    fake_root({"local.send": {"receipts": [], "errors": [error]}})
    assert "next: wait for it\n" in run("send", "api", "x").err


def test_send_interrupted_at_an_agents_root_says_that_it_goes_on(run: Run, fake_root: Make) -> None:
    """The agent's root keeps and retries what it took; the person gets the id to ask for."""
    root = fake_root({"local.status": {"sent": [{"receipt": receipt("unknown")}], "received": []}})

    def interrupt(params: dict[str, Any]) -> dict[str, Any]:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        time.sleep(0.2)
        return {}

    root.answers["local.send"] = interrupt
    result = run("send", "api", "x", "--id", "m-8")
    assert result.code == 130
    assert "id m-8: sent, but no answer came" in result.err
    assert "tieline status m-8" in result.err
    assert "nothing retries" not in result.err
