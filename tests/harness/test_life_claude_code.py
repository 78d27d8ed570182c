"""What a real Claude Code session goes through beside its turns: woken without a socket, cleared, killed."""

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.model import ModelServer
from tests.harness.neighbour import Neighbour
from tests.harness.programs import Program
from tests.harness.test_delivery_claude_code import SECONDS_MAX, await_state
from tieline.adapters import harness

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
    # The mode of a new installation asks a server elsewhere about each command.
    permissions = {"allow": ["mcp__tieline", "Bash"], "defaultMode": "acceptEdits"}
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
                request = model.with_text(mark, SECONDS_MAX)
                assert request.seen.count(mark, "user") == 1
                await_state(neighbour, sent["messageId"], "consumed")
            until(lambda: len(waiters()) == 1)
            window.type("Please go on\r")
            model.with_text("Please go on")
            time.sleep(1)
            until(lambda: len(waiters()) == 1)
            assert times_shown(model, "W-1101") == times_shown(model, "W-1102") == 1
        until(lambda: waiters() == [], 5)
