"""A real Codex gets mail: at its hooks, woken from idle, steered through its server; each thread is told apart.

What is configured is what `tieline setup codex --with trust` writes, with a consent of the tests.
"""

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.model import Call, Conversation, ModelServer, Request, Say
from tests.harness.neighbour import Neighbour, document
from tests.harness.programs import Program

SECONDS_MAX = 60.0
PROJECT = "one"

Opener = Callable[..., Program]

pytestmark = pytest.mark.harness("codex")


def wired(program: Program, idle: str = "notify") -> Program:
    """Return the program with our server and hooks, trusted, as a person has them."""
    shared = program.place.shared
    shared.mkdir(mode=0o700, exist_ok=True)
    (shared / "config.toml").write_text(f'[communication]\nscope = "machine"\nidle_behavior = "{idle}"\n')
    set_up(program, "setup", "--with", "trust")
    return program


def set_up(program: Program, command: str, *words: str) -> None:
    """Run `tieline setup codex` or `unsetup` where this program looks for its configuration."""
    tieline = shutil.which("tieline")
    assert tieline is not None
    environment = {**program.environment(), "TIELINE_HOME": str(program.place.shared)}
    environment["PATH"] = f"{Path(program.command[0]).parent}:{environment['PATH']}"
    done = subprocess.run(
        [tieline, command, "codex", "--yes", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def await_peer(neighbour: Neighbour, **members: Any) -> dict[str, Any]:
    """Return the session's entry once the neighbour sees it with these members."""
    give_up = time.monotonic() + SECONDS_MAX
    while time.monotonic() < give_up:
        for peer in neighbour.peers():
            if peer["project"] == PROJECT and members.items() <= peer.items():
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


def turns(model: ModelServer) -> list[Request]:
    """Return the requests of the session itself: one for a title has no tools."""
    return [request for request in model.requests if request.seen.tools]


def shown_once(model: ModelServer, mark: str) -> bool:
    """Return whether no request of the session shows the mark twice, and one shows it."""
    counts = [request.seen.count(mark, "user", "result", "system") for request in turns(model)]
    return max(counts, default=0) == 1


def test_run_without_a_window_gets_mail_at_a_tool_boundary_and_at_its_end(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """Steering mail is in the very next request, queued mail continues the turn; both are told as read."""
    program = wired(open_program("codex", is_wired=False))
    held, ending = threading.Event(), threading.Event()
    model.script(
        "BUSY-NOW",
        Call("list_peers"),
        Call("list_peers", {}, held),
        Say("First part done.", ending),
    )
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour, program.started("BUSY-NOW") as run:
        model.wait(lambda seen: bool(seen.results()))
        peer = await_peer(neighbour, busy=True, harness="codex", model="mock-model")
        steered = neighbour.send(peer["peerId"], "Stop at the next step. S-1001")
        queued = neighbour.send(peer["peerId"], "When you are done. Q-1002", delivery="queue")
        held.set()
        request = model.wait(lambda seen: seen.count("S-1001") > 0)
        assert len(request.seen.results(request.seen.last_user_with("BUSY-NOW"))) == 2, "the very next one"
        assert request.seen.count("Q-1002") == 0
        ending.set()
        request = model.wait(lambda seen: seen.count("Q-1002") > 0)
        assert request.seen.count("First part done.", "assistant") == 1
        for sent in (steered, queued):
            await_state(neighbour, sent["messageId"], "consumed")
        assert run.ended().code == 0
    assert shown_once(model, "S-1001")
    assert shown_once(model, "Q-1002")
