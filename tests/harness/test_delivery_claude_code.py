"""A real Claude Code session gets mail: pushed when idle, pushed when busy, and at its hooks."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.model import Call, ModelServer, Say
from tests.harness.neighbour import Neighbour
from tests.harness.programs import Program
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
    if has_hooks:
        file = program.place.home / "claude" / "settings.json"
        settings = json.loads(file.read_text())
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
