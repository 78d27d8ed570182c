"""`tieline send`: receipts in true words, one per recipient, and exit codes that say what is known."""

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
