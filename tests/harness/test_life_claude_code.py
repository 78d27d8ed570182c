"""What a real Claude Code session goes through beside its turns: woken without a socket, cleared, killed."""

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.model import Call, Conversation, ModelServer, Say
from tests.harness.model.script import Reply
from tests.harness.model.server import Request
from tests.harness.neighbour import Neighbour, document
from tests.harness.programs import Program
from tests.harness.terminal import plain
from tests.harness.test_delivery_claude_code import SECONDS_MAX, answer_of, await_state
from tieline.adapters import harness

SUMMARY = "Your task is to create a detailed summary"
"""How Claude Code asks for the summary of a conversation."""
AUTOMATIC_REPLIES = 3
GATE = """
[resource]
auto_grant = "fifo"

[[resource.rule]]
resource = "machine/ledger"
name = "ledger"
executables = ["ledger"]
"""

Opener = Callable[..., Program]

pytestmark = pytest.mark.harness("claude-code")


def set_up(program: Program, *extras: str, **settings: str) -> Program:
    """Return the program with what `tieline setup claude-code` gives a person; settings go to config.toml."""
    tieline = shutil.which("tieline")
    assert tieline is not None
    program.place.shared.mkdir(parents=True, exist_ok=True)
    lines = [f"{name} = {json.dumps(value)}" for name, value in {"scope": "machine", **settings}.items()]
    (program.place.shared / "config.toml").write_text("\n".join(["[communication]", *lines, ""]))
    folder = program.place.home / "claude"
    edit(folder / ".claude.json", lambda held: held.update(hasSeenAutoDefaultNudge=True))
    # The mode of a new installation asks a server elsewhere about each command. That the model may use our
    # tools unasked is setup's own entry.
    permissions = {"allow": ["Bash"], "defaultMode": "acceptEdits"}
    edit(folder / "settings.json", lambda held: held.update(permissions=permissions))
    environment = {**program.environment(), "TIELINE_HOME": str(program.place.shared)}
    place = harness.place(environment, "")._replace(command=(tieline,))
    harness.apply(harness.plan_in("claude-code", place, ("permission", *extras)), environment)
    return program


def edit(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change one of the harness's files."""
    held = json.loads(file.read_text())
    change(held)
    file.write_text(json.dumps(held))


def without_socket(program: Program) -> Program:
    """Return the program as one that has no inbox socket: neither our server nor our hooks are told of it."""
    folder = program.place.home / "claude"

    def hide(held: dict[str, Any]) -> None:
        held["mcpServers"]["tieline"].setdefault("env", {})["CLAUDE_CODE_MESSAGING_SOCKET"] = ""

    def hide_from_hooks(held: dict[str, Any]) -> None:
        for group in (group for groups in held["hooks"].values() for group in groups):
            for hook in group["hooks"]:
                if hook["type"] == "command":
                    hook["command"] = f"unset CLAUDE_CODE_MESSAGING_SOCKET; {hook['command']}"

    edit(folder / ".claude.json", hide)
    edit(folder / "settings.json", hide_from_hooks)
    return program


def waiters() -> list[int]:
    """Return the processes of this user that wait for mail in the background."""
    found = []
    for name in os.listdir("/proc"):
        try:
            words = Path("/proc", name, "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"Wait" in words and os.stat(f"/proc/{name}").st_uid == os.geteuid():
            found.append(int(name))
    return found


def until(is_so: Callable[[], bool], seconds: float = SECONDS_MAX) -> None:
    """Wait until something is so."""
    give_up = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < give_up, f"not so within {seconds} s"
        time.sleep(0.1)


def shown(model: ModelServer, text: str) -> Request:
    """Return the first request that shows a text to the model, whatever it is called there."""
    return model.wait(lambda seen: seen.count(text) > 0, SECONDS_MAX)


def times_shown(model: ModelServer, text: str) -> int:
    """Return how often the newest request that shows a text shows it."""
    return max((one.seen.count(text) for one in model.requests), default=0)


def test_window_without_a_socket_is_woken_by_the_command_that_waits(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """Idle, twice, each time by the one process that waits; the sender is told; none is left behind."""
    program = without_socket(set_up(open_program("claude-code", is_wired=False), idle_behavior="auto"))
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour:
        with program.window() as window:
            window.until(*program.ready)
            peer = neighbour.until_listed(program.place.work.name)["peerId"]
            for mark in ("W-1101", "W-1102"):
                until(lambda: len(waiters()) == 1)
                sent = neighbour.send(peer, f"The build is red. {mark}")
                request = shown(model, mark)
                assert request.seen.count(mark, "user") == 1
                await_state(neighbour, sent["messageId"], "consumed")
            until(lambda: len(waiters()) == 1)
            window.type("Please go on\r")
            model.with_text("Please go on")
            time.sleep(1)
            until(lambda: len(waiters()) == 1)
            assert times_shown(model, "W-1101") == times_shown(model, "W-1102") == 1
        until(lambda: waiters() == [], 5)


def test_cleared_window_is_the_same_peer_and_tells_its_new_session(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """A new session id in the same process: mail still wakes it, and listings name the new id."""
    program = set_up(open_program("claude-code", is_wired=False), idle_behavior="auto")
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour, program.window() as window:
        window.until(*program.ready)
        before = neighbour.until_listed(program.place.work.name)
        window.type("/clear\r")
        time.sleep(2)
        sent = neighbour.send(before["peerId"], "The build is red. C-1301")
        request = shown(model, "C-1301")
        assert request.seen.count("C-1301") == 1
        await_state(neighbour, sent["messageId"], "consumed")
        assert waiters() == [], "what the socket does needs no process"
        (after,) = [peer for peer in neighbour.peers() if peer["peerId"] == before["peerId"]]
        assert after["sessionId"] != before["sessionId"]


def test_mail_that_comes_during_compaction_is_shown_once_behind_it(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """Nothing of it goes into the summary's request, nothing is lost."""
    program = set_up(open_program("claude-code", is_wired=False), idle_behavior="auto")
    held, plain = threading.Event(), model.scripts.next

    def answer(seen: Conversation) -> Reply:
        if SUMMARY in "".join(seen.texts("user")[-1:]):
            held.wait(SECONDS_MAX)
        return plain(seen)

    model.scripts.next = answer  # type: ignore[method-assign]
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour, program.window() as window:
        window.until(*program.ready)
        peer = neighbour.until_listed(program.place.work.name)["peerId"]
        window.type("Please remember A-1401\r")
        model.with_text("A-1401")
        window.until("done", "for ")
        time.sleep(1)
        window.type("/compact\r")
        model.with_text(SUMMARY)
        sent = neighbour.send(peer, "The build is red. K-1402")
        time.sleep(2)
        held.set()
        request = shown(model, "K-1402")
        assert request.seen.count("K-1402") == 1
        assert request.seen.count(SUMMARY) == 0
        await_state(neighbour, sent["messageId"], "consumed")
        assert times_shown(model, "K-1402") == 1


def test_ended_window_leaves_its_unread_mail_to_recover_and_is_a_new_peer_when_continued(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """The sender is told no more than is true; the continued session is reached under its old id."""
    program = set_up(open_program("claude-code", is_wired=False))
    held = threading.Event()
    model.script("BUSY-1501", Call("list_peers", {}, held), Say("Done."))
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour:
        with program.window() as window:
            window.until(*program.ready)
            before = neighbour.until_listed(program.place.work.name)
            window.type("Please BUSY-1501\r")
            model.with_text("BUSY-1501")
            sent = neighbour.send(before["peerId"], "Pushed as it ends. E-1502")
            time.sleep(1)
        held.set()
        left = neighbour.recover(before["instanceId"])
        assert [one.envelope.message_id for one in left.unread] == [sent["messageId"]]
        assert "'state': 'accepted'" in str(neighbour.status(sent["messageId"]))
        with program.window("--continue") as window:
            window.until(*program.ready)
            after = neighbour.until_listed(program.place.work.name)
            assert after["peerId"] != before["peerId"]
            assert after["sessionId"] == before["sessionId"]
            neighbour.send(after["peerId"], "To the new one. E-1503")
            window.type("Please go on\r")
            request = shown(model, "E-1503")
            assert request.seen.count("E-1502") == 0, "a successor does not inherit mail"


def test_root_that_is_killed_while_a_push_is_out_tells_nothing_false(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """What the window had is not called read, and is there to recover; the window starts a successor."""
    program = set_up(open_program("claude-code", is_wired=False))
    held = threading.Event()
    model.script("BUSY-1601", Call("Bash", {"command": "true", "description": "x"}, held), Say("All done."))
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour, program.window() as window:
        window.until(*program.ready)
        before = neighbour.until_listed(program.place.work.name)
        window.type("Please BUSY-1601\r")
        model.with_text("BUSY-1601")
        sent = neighbour.send(before["peerId"], "On its way. K-1602")
        time.sleep(1)
        for pid in servers(window.process.pid):
            os.kill(pid, signal.SIGKILL)
        held.set()
        request = shown(model, "K-1602")
        assert request.seen.count("K-1602") == 1
        window.until("All done.")
        assert "'state': 'consumed'" not in str(neighbour.status(sent["messageId"]))
        left = neighbour.recover(before["instanceId"])
        assert [one.envelope.message_id for one in left.unread] == [sent["messageId"]]
        after = neighbour.until_listed(program.place.work.name)
        assert after["peerId"] != before["peerId"]
        assert after["sessionId"] == before["sessionId"]
        neighbour.send(after["peerId"], "To its successor. K-1603")
        window.type("Please go on\r")
        shown(model, "K-1603")
        assert times_shown(model, "K-1602") == 1


def servers(pid: int) -> list[int]:
    """Return our servers below a process."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path("/proc", name, "cmdline").read_bytes().split(b"\0")
            parent = int(Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid and b"mcp" in words:
            found.append(int(name))
    return found


def test_mail_that_the_harness_holds_comes_at_its_hooks(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """A person lets messages be held: the push shows no evidence, the next prompt shows the mail, once."""
    program = set_up(open_program("claude-code", is_wired=False), idle_behavior="auto")
    settings = program.place.home / "claude" / "settings.json"
    edit(settings, lambda held: held.update(crossSessionInbound="hold"))
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour, program.window() as window:
        window.until(*program.ready)
        peer = neighbour.until_listed(program.place.work.name)["peerId"]
        sent = neighbour.send(peer, "The build is red. H-1701")
        time.sleep(11.5)
        assert times_shown(model, "H-1701") == 0
        assert "'state': 'consumed'" not in str(neighbour.status(sent["messageId"]))
        window.type("Please go on\r")
        request = shown(model, "H-1701")
        assert request.seen.count("H-1701") == 1
        await_state(neighbour, sent["messageId"], "consumed")


def test_person_is_told_once_and_nobody_is_woken_under_notify(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """The default: mail waits for the next prompt, and the window names its sender as it comes."""
    program = set_up(open_program("claude-code", is_wired=False))
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour, program.window() as window:
        window.until(*program.ready)
        peer = neighbour.until_listed(program.place.work.name)["peerId"]
        sent = neighbour.send(peer, "The build is \x1b[31mred\x1b[0m. N-1801")
        time.sleep(3)
        assert not model.requests
        window.type("Please go on\r")
        request = shown(model, "N-1801")
        assert request.seen.count("N-1801") == 1
        await_state(neighbour, sent["messageId"], "consumed")
        window.until("Understood.")
        assert plain(window.drawn()).count("Tieline:mailfromreviewer") == 1
        assert b"\x1b[31mred" not in window.drawn()


def test_gate_stops_a_command_of_the_model_with_the_reason_until_it_waits_its_turn(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """Denied while another holds what it needs; the line that it is told waits, and then runs."""
    program = set_up(open_program("claude-code", is_wired=False), "gate")
    work, tieline = program.place.work, shutil.which("tieline")
    assert tieline is not None
    with (shared / "config.toml").open("a") as file:
        file.write(GATE)
    (work / "ledger").write_text("#!/bin/sh\necho LEDGER-RAN >> ran\ncat ran\n")
    (work / "ledger").chmod(0o755)
    wait = "touch held; while [ ! -e free ]; do sleep 0.05; done"
    mine = {**program.environment(), "TIELINE_HOME": str(shared)}
    program.environment = lambda: mine  # type: ignore[method-assign]

    def told(seen: Conversation) -> dict[str, str]:
        line = seen.results()[-1].partition("waits for its turn: ")[2].partition("  Now:")[0]
        return {"command": line.strip(), "description": "as told"}

    model.script("GATE-1901", Call("Bash", {"command": "./ledger", "description": "x"}), Call("Bash", told))
    holder = [tieline, "run", "--resource", "machine/ledger", "--", "sh", "-c", wait]
    with subprocess.Popen(holder, cwd=work, env=mine) as process, program.window() as window:
        try:
            window.until(*program.ready)
            until((work / "held").exists)
            window.type("Please GATE-1901\r")
            request = model.with_result("machine/ledger", SECONDS_MAX)
            assert "held by" in request.seen.results()[-1]
            time.sleep(2)
            assert not (work / "ran").exists()
            (work / "free").touch()
            assert process.wait(SECONDS_MAX) == 0
            model.with_result("LEDGER-RAN", SECONDS_MAX)
            assert (work / "ran").read_text() == "LEDGER-RAN\n"
        finally:
            (work / "free").touch()


def test_two_windows_that_answer_each_other_stop_at_the_budget(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """With `auto` each mail wakes the other window; so many automatic answers, and it is quiet."""
    one = set_up(open_program("claude-code", "one", is_wired=False), idle_behavior="auto")
    two = set_up(open_program("claude-code", "two", is_wired=False), idle_behavior="auto")
    with (shared / "config.toml").open("a") as file:
        file.write(f"[limits]\nautomatic_replies = {AUTOMATIC_REPLIES}\n")

    def first(seen: Conversation) -> dict[str, str]:
        return {"to": peer_named_of(seen, "two"), "content": "PING-2002"}

    model.script("START-2001", Call("list_peers", {"scope": "machine"}), Call("send_peer_message", first))
    model.script("PING-2002", Call("send_peer_message", answer_of("PING-2002", "PING-2002")), Say("Sent."))
    with (
        Neighbour(shared, private_home / "n", "reviewer") as neighbour,
        one.window() as window,
        two.window() as other,
    ):
        window.until(*one.ready)
        other.until(*two.ready)
        for program in (one, two):
            neighbour.until_listed(program.place.work.name)
        window.type("Please START-2001\r")
        until(lambda: len(sent_by_models(model)) == 1 + AUTOMATIC_REPLIES)
        count = len(model.requests)
        time.sleep(5)
        assert len(sent_by_models(model)) == 1 + AUTOMATIC_REPLIES
        assert len(model.requests) <= count + 1, "the newest answer wakes nobody; its own turn ends"


def sent_by_models(model: ModelServer) -> set[str]:
    """Return the ids of the messages that any model sent."""
    results = (
        document(text) for one in list(model.requests) for text in one.seen.results() if "Accepted" in text
    )
    return {str(result["messageId"]) for result in results}


def peer_named_of(seen: Conversation, project: str) -> str:
    """Return the peer of a project in the result of `list_peers`."""
    (found,) = [
        peer["peerId"] for peer in document(seen.results()[-1])["peers"] if peer["project"] == project
    ]
    return str(found)
