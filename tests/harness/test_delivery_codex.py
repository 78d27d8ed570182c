"""A real Codex gets mail: at its hooks, woken from idle, steered through its server; threads are told apart.

What is configured is what `tieline setup codex --with trust` writes, with a consent of the tests.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.model import Call, Conversation, ModelServer, Request, Say
from tests.harness.neighbour import Neighbour, document
from tests.harness.programs import Program
from tests.harness.shimmed import await_run
from tests.harness.terminal import Terminal

SECONDS_MAX = 30.0
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


def begun_by(token: str) -> Callable[[Conversation], bool]:
    """Return what is true of a request of the session that was asked so, once a tool was called."""
    return lambda seen: seen.last_user_with(token) >= 0 and bool(seen.results())


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


@contextlib.contextmanager
def serving(program: Program) -> Iterator[Path]:
    """Run the server that windows of Codex share, in the foreground and for this test alone."""
    folder = program.place.home / "codex" / "app-server-control"
    folder.mkdir(mode=0o700)
    process = subprocess.Popen(
        [*program.command, "app-server", "--listen", "unix://"],
        cwd=program.place.work,
        env=program.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        give_up = time.monotonic() + SECONDS_MAX
        while not (folder / "app-server-control.sock").exists():
            assert time.monotonic() < give_up, "the server of Codex does not listen"
            time.sleep(0.05)
        yield folder
    finally:
        # The socket itself is a file that Codex keeps elsewhere.
        socket = (folder / "app-server-control.sock").resolve()
        process.terminate()
        process.wait()
        for left in (socket, socket.with_name(socket.name + ".lock")):
            left.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            socket.parent.rmdir()


def attached(program: Program) -> Terminal:
    """Return a window whose threads run in the shared server."""
    return Terminal(
        [*program.command, "--remote", "unix://"],
        folder=program.place.work,
        environment=program.environment(),
    )


def test_window_gets_mail_with_its_first_prompt_and_is_then_woken_through_its_queue(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """Ten messages at once begin a turn: each is shown once, in order, and told as read."""
    program = wired(open_program("codex", is_wired=False), "auto")
    marks = [f"B-5{number:03}" for number in range(10)]
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour, program.window() as window:
        window.until(*program.ready)
        peer = await_peer(neighbour, harness="codex")
        early = neighbour.send(peer["peerId"], "Before anybody typed. P-2000")
        time.sleep(2)
        window.type("Please HELLO\r")
        request = model.wait(lambda seen: bool(seen.tools) and seen.count("P-2000") > 0, SECONDS_MAX)
        assert request.seen.last_user_with("HELLO") >= 0
        await_state(neighbour, early["messageId"], "consumed")
        await_peer(neighbour, activity="idle", busy=False)
        assert neighbour.last(peer["peerId"])["text"] == "Understood."
        sent = [neighbour.send(peer["peerId"], f"Part {mark}") for mark in marks]
        for one in sent:
            await_state(neighbour, one["messageId"], "consumed")
        shown = "\n".join(turns(model)[-1].seen.texts())
        assert [shown.count(mark) for mark in marks] == [1] * 10
        assert sorted(marks, key=shown.index) == marks
    assert shown_once(model, "P-2000")


def test_window_at_its_server_is_woken_and_steered_through_it(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """An idle session begins a turn at once; a busy one has the next message in its very next request."""
    program = wired(open_program("codex", is_wired=False), "auto")
    held = threading.Event()
    model.script("BUSY-NOW", Call("list_peers", {}, held), Say("Done with it."))
    with (
        Neighbour(shared, private_home / "n", "reviewer") as neighbour,
        serving(program),
        attached(program) as window,
    ):
        window.until(*program.ready)
        peer = await_peer(neighbour, harness="codex")
        woken = neighbour.send(peer["peerId"], "The build is red. W-3001")
        model.with_text("W-3001", 8)
        await_state(neighbour, woken["messageId"], "consumed")
        await_peer(neighbour, activity="idle")
        window.type("Please BUSY-NOW\r")
        model.wait(lambda seen: seen.last_user_with("BUSY-NOW") >= 0 and bool(seen.tools))
        steered = neighbour.send(peer["peerId"], "Stop at the next step. S-3002")
        time.sleep(1)
        held.set()
        request = model.wait(lambda seen: bool(seen.tools) and seen.count("S-3002") > 0, SECONDS_MAX)
        await_state(neighbour, steered["messageId"], "consumed")
        assert request.seen.count("S-3002", "user") == 1, "as a message in the turn, not with a tool's result"
        window.until("Done with it.")
    assert shown_once(model, "W-3001")
    assert shown_once(model, "S-3002")


def test_subagent_is_a_run_of_its_session_with_mail_of_its_own(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """Its server joins the session's root: one peer, a run below it, and mail at the run's own boundary."""
    program = wired(open_program("codex", is_wired=False))
    held, sent_at = threading.Event(), threading.Event()
    spawned = Call("spawn_agent", {"message": "Please SUB-AGENT now"})
    waiting = Call(
        "wait_agent",
        lambda seen: {"targets": [document(seen.results()[0])["agent_id"]], "timeout_ms": 20_000},
        sent_at,
    )
    model.script("MAIN-AGENT", spawned, waiting, Say("Main done."))
    model.script("SUB-AGENT", Call("list_peers"), Call("list_peers", {}, held), Say("Sub done."))
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour, program.started("MAIN-AGENT") as run:
        request = model.wait(begun_by("SUB-AGENT"), SECONDS_MAX)
        sent_at.set()
        own = document(request.seen.results()[-1])["self"]
        child = await_run(neighbour, program.place.work)
        listed = [peer for peer in neighbour.peers() if peer["project"] == PROJECT]
        assert len(listed) == 2, "the session, and its subagent"
        assert own["peerId"] == child["peerId"]
        assert {peer["instanceId"] for peer in listed} == {own["instanceId"]}
        sent = neighbour.send(child["peerId"], "For the subagent. U-6006")
        held.set()
        request = model.wait(lambda seen: seen.count("U-6006") > 0, SECONDS_MAX)
        assert request.seen.last_user_with("SUB-AGENT") >= 0, "the subagent's own request"
        await_state(neighbour, sent["messageId"], "consumed")
        assert run.ended(SECONDS_MAX).code == 0
    mains = [one for one in turns(model) if one.seen.last_user_with("MAIN-AGENT") >= 0]
    assert not any(one.seen.count("U-6006") for one in mains)


def files_of(program: Program) -> dict[str, bytes]:
    """Return the bytes of the files that `setup` writes, of those that are there."""
    folder = program.place.home / "codex"
    return {path.name: path.read_bytes() for path in folder.glob("*") if path.suffix in (".toml", ".json")}


def test_model_that_calls_the_tool_of_the_hooks_is_refused_and_unsetup_leaves_nothing(
    open_program: Opener, model: ModelServer
) -> None:
    """What a hook says moves budgets and evidence. What setup wrote goes to the byte, after a run too."""
    program = open_program("codex", is_wired=False)
    before = files_of(program)
    wired(program)
    assert set(files_of(program)) == {"config.toml", "hooks.json"}
    faked = {"event": "UserPromptSubmit", "session": "x", "payload": {"prompt": "go on"}}
    model.script("FAKE-IT", Call("tieline_host", faked), Say("Tried."))
    assert program.run("FAKE-IT", seconds=SECONDS_MAX).code == 0
    assert any("CAPABILITY_DENIED" in text for text in turns(model)[-1].seen.results())
    set_up(program, "unsetup")
    assert files_of(program) == before


def test_two_sessions_in_one_folder_are_two_peers(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """Mail for one is shown to that one alone."""
    program = wired(open_program("codex", is_wired=False))
    held = threading.Event()
    for token in ("FIRST-ONE", "SECOND-ONE"):
        model.script(token, Call("list_peers"), Call("list_peers", {}, held), Say("Done."))
    with (
        Neighbour(shared, private_home / "n", "reviewer") as neighbour,
        program.started("FIRST-ONE") as first,
        program.started("SECOND-ONE") as second,
    ):
        peers = []
        for token in ("FIRST-ONE", "SECOND-ONE"):
            request = model.wait(begun_by(token), SECONDS_MAX)
            peers.append(document(request.seen.results()[0])["self"])
        assert len({peer["sessionId"] for peer in peers}) == len({peer["instanceId"] for peer in peers}) == 2
        sent = neighbour.send(peers[0]["peerId"], "For the first. F-7001")
        held.set()
        await_state(neighbour, sent["messageId"], "consumed")
        assert first.ended(SECONDS_MAX).code == second.ended(SECONDS_MAX).code == 0
    shown = [request for request in turns(model) if request.seen.count("F-7001")]
    assert shown
    assert all(request.seen.last_user_with("FIRST-ONE") >= 0 for request in shown)


def server_of(window: Terminal) -> int:
    """Return the process of our server that this window started."""
    pid = window.process.pid
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            status, words = (entry / "stat").read_text(), (entry / "cmdline").read_bytes().split(b"\0")
            if int(status.rpartition(")")[2].split()[1]) == pid and b"mcp" in words:
                return int(entry.name)
    raise AssertionError("the window has no server of ours")


def test_window_lives_on_without_its_root_and_is_the_same_session_when_resumed(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """A root that was killed is never told to have shown anything; resumed, the session has a root anew."""
    program = wired(open_program("codex", is_wired=False))
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour:
        with program.window() as window:
            window.until(*program.ready)
            window.type("Please HELLO\r")
            window.until("Understood.")
            peer = await_peer(neighbour, activity="idle", busy=False)
            sent = neighbour.send(peer["peerId"], "Never shown. K-8001")
            os.kill(server_of(window), signal.SIGKILL)
            mark = window.mark()
            window.type("Please GO-ON\r")
            window.until("Understood.", since=mark)
        assert not any(request.seen.count("K-8001") for request in model.requests)
        assert "consumed" not in str(neighbour.status(sent["messageId"]))
        with program.window("resume", "--last") as window:
            window.until(*program.ready)
            again = await_peer(neighbour, sessionId=peer["sessionId"], busy=False)
            assert again["instanceId"] != peer["instanceId"]
            early = neighbour.send(again["peerId"], "While it compacts. C-8002")
            mark = window.mark()
            window.type("/compact\r")
            window.until("compacted", "Compacted", since=mark)
            window.type("Please GO-ON\r")
            request = model.wait(lambda seen: bool(seen.tools) and seen.count("C-8002") > 0, SECONDS_MAX)
            assert request.seen.count("C-8002") == 1
            await_state(neighbour, early["messageId"], "consumed")
    assert shown_once(model, "C-8002")
