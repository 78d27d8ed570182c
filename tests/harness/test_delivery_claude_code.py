"""A real Claude Code session gets mail: pushed when idle, pushed when busy, and at its hooks."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.model import Call, Conversation, ModelServer, Say
from tests.harness.neighbour import Neighbour, document
from tests.harness.programs import Program
from tests.harness.shimmed import await_run
from tieline.adapters.harness.facts import CLAUDE_HOOKS, HOST_TOOL, SERVER, tool_input

ALIAS = "coder"
SECONDS_MAX = 60.0
AUTOMATIC = {"TIELINE_IDLE_BEHAVIOR": "auto"}

Opener = Callable[..., Program]

pytestmark = pytest.mark.harness("claude-code")


def wired(program: Program, *, has_hooks: bool, **variables: str) -> Program:
    """Return the program with our server under an alias, and with our hooks where they are wanted."""
    server = program.mcp_server("--alias", ALIAS)
    program.configure({**server, "env": {**server["env"], **variables}})
    state_file = program.place.home / "claude" / ".claude.json"
    state = json.loads(state_file.read_text())
    state_file.write_text(json.dumps({**state, "hasSeenAutoDefaultNudge": True}))
    file = program.place.home / "claude" / "settings.json"
    # The mode of a new installation asks a server elsewhere before a subagent starts.
    settings = {**json.loads(file.read_text())}
    settings["permissions"] = {"allow": [f"mcp__{SERVER}", "Agent"], "defaultMode": "acceptEdits"}
    file.write_text(json.dumps(settings))
    if has_hooks:
        hooks: dict[str, list[Any]] = {}
        for hook in CLAUDE_HOOKS:
            call = {"type": "mcp_tool", "server": SERVER, "tool": HOST_TOOL, "input": tool_input(hook)}
            hooks.setdefault(hook.event, []).append({"matcher": hook.matcher, "hooks": [call]})
        file.write_text(json.dumps({**settings, "hooks": hooks}))
    return program


def await_peer(neighbour: Neighbour, **members: Any) -> dict[str, Any]:
    """Return the session's entry once the neighbour sees it with these members."""
    give_up = time.monotonic() + SECONDS_MAX
    while time.monotonic() < give_up:
        for peer in neighbour.peers():
            if peer["alias"] == ALIAS and members.items() <= peer.items():
                found: dict[str, Any] = peer
                return found
        time.sleep(0.1)
    raise AssertionError(f"no such peer: {neighbour.peers()}")


def await_state(neighbour: Neighbour, message_id: str, *states: str) -> None:
    """Wait until the sender was told that its message is in one of these states."""
    give_up = time.monotonic() + SECONDS_MAX
    seen: Any = None
    while time.monotonic() < give_up:
        seen = neighbour.status(message_id)
        if any(f"'state': '{state}'" in str(seen) for state in states):
            return
        time.sleep(0.1)
    raise AssertionError(f"never {states}: {seen}")


def answer_of(token: str, content: str) -> Callable[[Conversation], dict[str, Any]]:
    """Return how the model answers the message that holds `token`: from what its frame says."""

    def arguments(seen: Conversation) -> dict[str, Any]:
        shown = document(seen.items[seen.last_user_with(token)].text)
        return {"to": shown["from"], "content": content, "replyTo": shown["messageId"]}

    return arguments


def test_idle_window_with_hooks_is_woken_and_tells_the_sender(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """A window that nobody typed into answers a message; the sender learns that it was read, once."""
    program = wired(open_program("claude-code"), has_hooks=True, **AUTOMATIC)
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour, program.window() as window:
        window.until(*program.ready)
        await_peer(neighbour)
        sent = neighbour.send(ALIAS, "The build is red. W-1001")
        request = model.with_text("W-1001", SECONDS_MAX)
        assert request.seen.count("W-1001", "user") == 1
        await_state(neighbour, sent["messageId"], "consumed")
        time.sleep(3)
        assert all(one.seen.count("W-1001") <= 1 for one in model.requests)


def test_busy_window_with_hooks_is_steered_at_the_next_tool_boundary(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """What comes while a tool runs is in the very next request."""
    program = wired(open_program("claude-code"), has_hooks=True)
    held = threading.Event()
    model.script("BUSY-NOW", Call("list_peers", {}, held), Say("Done with it."))
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour, program.window() as window:
        window.until(*program.ready)
        await_peer(neighbour)
        window.type("Please BUSY-NOW\r")
        model.with_text("BUSY-NOW")
        sent = neighbour.send(ALIAS, "Stop at the next step. S-2002")
        time.sleep(1)
        held.set()
        model.wait(lambda seen: len(seen.results(seen.last_user_with("BUSY-NOW"))) > 0)
        request = model.wait(lambda seen: seen.count("S-2002") > 0)
        results = request.seen.results()
        assert len(results) == 1, "in the request that has the tool's result"
        await_state(neighbour, sent["messageId"], "consumed")
        window.until("Done with it.")
        assert all(one.seen.count("S-2002") <= 1 for one in model.requests)


def test_idle_window_with_our_server_alone_is_woken_and_its_answer_is_the_evidence(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """Nothing but the MCP server is configured: the mail comes, and is read once it is answered."""
    program = wired(open_program("claude-code"), has_hooks=False, **AUTOMATIC)
    model.script("ASK-3003", Call("send_peer_message", answer_of("ASK-3003", "Green. R-3003")), Say("Told."))
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour, program.window() as window:
        window.until(*program.ready)
        await_peer(neighbour)
        sent = neighbour.send(ALIAS, "Is it green? ASK-3003")
        model.with_text("ASK-3003", SECONDS_MAX)
        answer = neighbour.next_message()
        assert answer.content == "Green. R-3003"
        await_state(neighbour, sent["messageId"], "replied")
        time.sleep(2)
        assert all(one.seen.count("ASK-3003", "user") <= 1 for one in model.requests)


def test_turn_end_brings_queued_mail_and_the_last_answer_is_kept(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """Queued mail waits for the end of the turn and continues it; peers can read the last answer."""
    program = wired(open_program("claude-code"), has_hooks=True)
    held = threading.Event()
    model.script("BUSY-NOW", Call("list_peers", {}, held), Say("First part done."))
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour, program.window() as window:
        window.until(*program.ready)
        await_peer(neighbour)
        window.type("Please BUSY-NOW\r")
        model.with_text("BUSY-NOW")
        sent = neighbour.send(ALIAS, "When you are done. Q-4004", delivery="queue")
        held.set()
        request = model.wait(lambda seen: seen.count("Q-4004") > 0)
        assert request.seen.count("First part done.", "assistant") == 1
        await_state(neighbour, sent["messageId"], "consumed")
        await_peer(neighbour, activity="idle", model=request.model)
        assert neighbour.last(ALIAS)["text"] == "First part done."


def test_burst_to_an_idle_window_is_shown_whole_once_and_in_order(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """Ten messages at once: each in the model's sight once, none overtakes another."""
    program = wired(open_program("claude-code"), has_hooks=True, **AUTOMATIC)
    marks = [f"B-5{number:03}" for number in range(10)]
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour, program.window() as window:
        window.until(*program.ready)
        await_peer(neighbour)
        sent = [neighbour.send(ALIAS, f"Part {mark}") for mark in marks]
        request = model.wait(lambda seen: all(seen.count(mark) for mark in marks), SECONDS_MAX)
        for one in sent:
            await_state(neighbour, one["messageId"], "consumed")
        shown = "\n".join(request.seen.texts())
        assert [shown.count(mark) for mark in marks] == [1] * 10
        assert sorted(marks, key=shown.index) == marks


def test_subagent_has_an_address_and_gets_its_mail_at_its_own_boundary(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """A neighbour sees it below its session, and what it sends is in the subagent's next request."""
    program = wired(open_program("claude-code"), has_hooks=True)
    held = threading.Event()
    task = {"description": "look", "prompt": "Please SUB-AGENT now", "subagent_type": "general-purpose"}
    model.script("MAIN-AGENT", Call("Agent", task), Say("Main done."))
    model.script("SUB-AGENT", Call("list_peers", {}), Call("list_peers", {}, held), Say("Sub done."))
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour, program.window() as window:
        window.until(*program.ready)
        await_peer(neighbour)
        window.type("Please MAIN-AGENT\r")
        model.wait(lambda seen: seen.last_user_with("SUB-AGENT") >= 0 and bool(seen.results()), 15)
        run = await_run(neighbour, program.place.work)
        sent = neighbour.send(run["peerId"], "For the subagent. U-6006")
        held.set()
        request = model.wait(lambda seen: seen.count("U-6006") > 0)
        assert request.seen.last_user_with("SUB-AGENT") >= 0, "the subagent's own request"
        await_state(neighbour, sent["messageId"], "consumed")
        listed = [document(text) for text in request.seen.results()]
        assert listed[0]["self"]["peerId"] == run["peerId"]
        window.until("Main done.")
        assert not any(
            one.seen.count("U-6006") for one in model.requests if one.seen.last_user_with("MAIN-AGENT") >= 0
        )
