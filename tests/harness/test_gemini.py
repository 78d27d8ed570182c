"""A real Gemini CLI, set up by `tieline setup`, is shown mail at its boundaries, and its sender is told."""

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.harness.model import Call, ModelServer, Say
from tests.harness.neighbour import Neighbour
from tests.harness.programs import Program
from tests.harness.shimmed import await_peer
from tieline.adapters import harness

SECONDS_MAX = 40.0

Opener = Callable[..., Program]

pytestmark = pytest.mark.harness("gemini")


def set_up(program: Program) -> Program:
    """Return the program with what `tieline setup gemini` gives a person, the tools allowed."""
    tieline = shutil.which("tieline")
    assert tieline is not None
    program.place.shared.mkdir(parents=True, exist_ok=True)
    (program.place.shared / "config.toml").write_text('[communication]\nscope = "machine"\n')
    environment = {**program.environment(), "TIELINE_HOME": str(program.place.shared)}
    place = harness.place(environment, "")._replace(command=(tieline,))
    harness.apply(harness.plan_in("gemini", place, ("permission",)), environment)
    return program


@contextmanager
def neighbour_of(shared: Path, home: Path) -> Iterator[Neighbour]:
    """Give a root that writes to the session."""
    with Neighbour(shared, home / "n", "reviewer") as neighbour:
        yield neighbour


def peer_of(program: Program, neighbour: Neighbour) -> str:
    """Return the session's address once it is there."""
    return str(neighbour.until_listed(program.place.work.name)["peerId"])


def await_state(neighbour: Neighbour, message_id: str, state: str) -> None:
    """Wait until the sender was told that its message is in this state."""
    give_up = time.monotonic() + SECONDS_MAX
    seen: Any = None
    while time.monotonic() < give_up:
        seen = neighbour.status(message_id)
        if f"'state': '{state}'" in str(seen):
            return
        time.sleep(0.1)
    raise AssertionError(f"never {state}: {seen}")


def test_busy_session_is_steered_at_the_next_tool_boundary(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """What comes while a tool runs is in the very next request, once, and nothing of it is escaped."""
    program = set_up(open_program("gemini", is_wired=False))
    held = threading.Event()
    model.script("BUSY-NOW", Call("list_peers", {}, held), Call("list_peers"), Say("Done with it."))
    with neighbour_of(shared, private_home) as neighbour, program.started("Please BUSY-NOW") as run:
        peer = peer_of(program, neighbour)
        model.with_text("BUSY-NOW")
        sent = neighbour.send(peer, "Stop if a < b. S-2002")
        held.set()
        request = model.with_text("S-2002", SECONDS_MAX)
        assert len(request.seen.results()) == 1, "in the request that has the first tool's result"
        assert all("&lt;" not in item.text for item in request.seen.items if "S-2002" in item.text)
        await_state(neighbour, sent["messageId"], "consumed")
        ended = run.ended()
        assert (ended.code, "Done with it." in ended.output) == (0, True), ended
        assert all(one.seen.count("S-2002") <= 1 for one in model.requests)


def test_mail_at_the_end_of_a_turn_lets_the_turn_go_on(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """A turn that is about to end goes on with the mail, and the sender is told."""
    program = set_up(open_program("gemini", is_wired=False))
    held = threading.Event()
    model.script("SAY-NOW", Say("The first answer.", held))
    model.script("E-3003", Say("The second answer."))
    with neighbour_of(shared, private_home) as neighbour, program.started("Please SAY-NOW") as run:
        peer = peer_of(program, neighbour)
        model.with_text("SAY-NOW")
        sent = neighbour.send(peer, "And if a < b? E-3003")
        held.set()
        request = model.with_text("E-3003", SECONDS_MAX)
        assert request.seen.count("E-3003", "user") == 1
        await_state(neighbour, sent["messageId"], "consumed")
        assert run.ended().code == 0


def test_idle_window_gets_mail_with_its_next_prompt(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """Mail that came while nobody typed is with the prompt, and the sender can read the answer."""
    program = set_up(open_program("gemini", is_wired=False))
    model.script("PROMPT-NOW", Say("Both were read."))
    with neighbour_of(shared, private_home) as neighbour, program.window() as window:
        window.until(*program.ready)
        peer = peer_of(program, neighbour)
        sent = neighbour.send(peer, "The build is red. P-4004")
        window.type("Please PROMPT-NOW\r")
        request = model.with_text("PROMPT-NOW", SECONDS_MAX)
        assert request.seen.count("P-4004", "user") == 1
        await_state(neighbour, sent["messageId"], "consumed")
        window.until("Both were read.")
        give_up = time.monotonic() + SECONDS_MAX
        while "Both were read." not in str(neighbour.last(peer)):
            assert time.monotonic() < give_up, neighbour.last(peer)
            time.sleep(0.2)
        await_peer(neighbour, program.place.work, activity="idle", model="gemini-2.5-flash")


def test_idle_window_is_woken_by_a_waiter_that_its_model_started(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """With two settings of the person's the end of a background command, as mail comes, begins a turn."""
    program = set_up(open_program("gemini", is_wired=False))
    settings = program.place.home / ".gemini" / "settings.json"
    told = json.loads(settings.read_text())
    told["experimental"] = {"modelSteering": True}
    told.setdefault("tools", {})["shell"] = {"backgroundCompletionBehavior": "inject"}
    settings.write_text(json.dumps(told))
    command = f"TIELINE_HOME={shared} tieline inbox --wait 100 > /dev/null"
    waiter = {"command": command, "is_background": True, "description": "waits for mail"}
    model.script("ARM-NOW", Call("run_shell_command", waiter), Say("It waits now."))
    with neighbour_of(shared, private_home) as neighbour, program.window("--yolo") as window:
        window.until(*program.ready)
        peer = peer_of(program, neighbour)
        window.type("Please ARM-NOW\r")
        window.until("It waits now.")
        time.sleep(2)
        sent = neighbour.send(peer, "The build is red. Q-5005")
        request = model.with_text("Q-5005", SECONDS_MAX)
        assert request.seen.count("Q-5005", "user") == 1
        await_state(neighbour, sent["messageId"], "consumed")


def test_subagent_is_not_shown_the_mail_of_its_session(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """Its hooks are the session's, whose own model gets the mail, once, when the subagent has ended."""
    program = set_up(open_program("gemini", is_wired=False))
    held = threading.Event()
    task = {"agent_name": "generalist", "prompt": "Please SUBTASK-NOW"}
    model.script("MAIN-NOW", Call("invoke_agent", task), Say("Main is done."))
    model.script(
        "SUBTASK-NOW",
        Call("list_peers", {}, held),
        Call("list_peers"),
        Call("complete_task", {"result": {"response": "The subagent is done."}}),
    )
    with neighbour_of(shared, private_home) as neighbour, program.started("MAIN-NOW", "--yolo") as run:
        peer = peer_of(program, neighbour)
        model.with_text("SUBTASK-NOW")
        sent = neighbour.send(peer, "Stop it. U-6006")
        held.set()
        request = model.with_text("U-6006", SECONDS_MAX)
        assert request.seen.count("SUBTASK-NOW", "user") == 0
        assert any("The subagent is done." in result for result in request.seen.results())
        await_state(neighbour, sent["messageId"], "consumed")
        ended = run.ended()
        assert (ended.code, "Main is done." in ended.output) == (0, True), ended
    assert [one.seen.count("U-6006") for one in model.requests].count(1) == 1
    selves = {result.partition("peerId")[2][:50] for one in model.requests for result in one.seen.results()}
    assert len(selves - {""}) == 1, "the subagent acts as the session's peer"


def test_resumed_session_is_listed_under_its_id_and_gets_mail_with_its_prompt(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """It is a root of its own, of the same session; what was said before is in its requests."""
    program = set_up(open_program("gemini", is_wired=False))
    model.script("FIRST-NOW", Call("list_peers"), Say("The first is done."))
    model.script("SECOND-NOW", Say("The second is done."))
    with neighbour_of(shared, private_home) as neighbour:
        assert program.run("Please FIRST-NOW").code == 0
        (first,) = [one for one in model.requests if one.seen.results()]
        session = json.loads(first.seen.results()[0].partition("sessionId")[2].replace("\\", "")[2:40])
        with program.window("--resume", "latest") as window:
            window.until(*program.ready)
            found = neighbour.until_listed(program.place.work.name)
            sent = neighbour.send(found["peerId"], "The build is red. V-7007")
            window.type("Please SECOND-NOW\r")
            request = model.with_text("SECOND-NOW", SECONDS_MAX)
            assert (request.seen.count("V-7007", "user"), request.seen.count("FIRST-NOW", "user")) == (1, 1)
            await_state(neighbour, sent["messageId"], "consumed")
            window.until("The second is done.")
            (peer,) = [one for one in neighbour.peers() if one["harness"] == "gemini-cli"]
            assert (peer["sessionId"], peer["peerId"]) == (session, found["peerId"])
