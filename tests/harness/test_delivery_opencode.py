"""Real windows of opencode with our plugin: woken, steered, asked for the last answer, subagents as runs."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.model import Call, ModelServer, Say
from tests.harness.neighbour import Neighbour
from tests.harness.programs import Program
from tests.harness.shimmed import SECONDS_MAX, await_peer, await_state, shimmed
from tests.harness.test_mcp_alone import TOKEN, answered, script

AUTOMATIC = {"TIELINE_IDLE_BEHAVIOR": "auto"}

Opener = Callable[..., Program]

pytestmark = pytest.mark.harness("opencode")


def test_idle_window_is_woken_reads_a_burst_once_and_in_order_and_tells_its_answer(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """Mail begins turns in a session that went idle; each message is shown once, and its sender told so."""
    program = shimmed(open_program("opencode", is_wired=False), **AUTOMATIC)
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour, program.window() as window:
        window.until(*program.ready)
        window.type("good morning\r")
        peer = await_peer(neighbour, program.place.work, busy=False, harness="opencode")
        sent = [neighbour.send(peer["peerId"], f"The build is red. W-{number}.") for number in range(10)]
        model.with_text("W-9.", SECONDS_MAX)
        for receipt in sent:
            await_state(neighbour, receipt["messageId"], "consumed")
        await_peer(neighbour, program.place.work, busy=False)
        shown = "".join(model.with_text("W-9.").seen.texts("user"))
        places = [shown.find(f"W-{number}.") for number in range(10)]
        assert places == sorted(places)
        assert places[0] >= 0
        assert all(shown.count(f"W-{number}.") == 1 for number in range(10))
        assert "external data" in shown.lower()
        assert neighbour.last(peer["peerId"])["text"] == "Understood."


def test_busy_window_is_steered_at_the_next_tool_boundary(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """What comes while a tool is being called is in the next request, behind the tool's result."""
    program = shimmed(open_program("opencode", is_wired=False))
    held = threading.Event()
    model.script("BUSY-NOW", Call("list_peers", {}, held), Say("Done with it."))
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour, program.window() as window:
        window.until(*program.ready)
        window.type("Please BUSY-NOW\r")
        peer = await_peer(neighbour, program.place.work, busy=True)
        model.with_text("BUSY-NOW")
        sent = neighbour.send(peer["peerId"], "Stop at the next step. S-2002")
        time.sleep(1)
        held.set()
        request = model.with_text("S-2002", SECONDS_MAX)
        assert len(request.seen.results()) == 1
        await_state(neighbour, sent["messageId"], "consumed")
        window.until("Done with it.")


def test_model_with_the_plugins_tools_asks_a_neighbour_and_is_shown_the_answer(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """The tools are the session's own root; our MCP server, which is configured too, is not started."""
    program = shimmed(open_program("opencode"))
    script(model)
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour:
        with program.started(f"Please {TOKEN} now") as run:
            answered("opencode", model, neighbour)
            assert len([peer for peer in neighbour.peers() if peer.get("project") == "one"]) == 1
            ended = run.ended()
        assert ended.code == 0, ended
        assert "The reviewer has answered." in ended.output


def test_subagent_is_a_run_of_its_session_that_can_be_written_to(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """The session that the task tool began is a child peer while it works; its mail is shown to it alone."""
    program = shimmed(open_program("opencode", is_wired=False))
    held = threading.Event()
    task = {"description": "look", "prompt": "CHILD-WORK please", "subagent_type": "general"}
    model.script("PARENT-WORK", Call("task", task), Say("The child is done."))
    model.script("CHILD-WORK", Call("list_peers", {}, held), Say("Child over."))
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour, program.window() as window:
        window.until(*program.ready)
        window.type("Please PARENT-WORK\r")
        model.wait(lambda seen: "CHILD-WORK please" in "".join(seen.texts("user")))
        child = await_peer(neighbour, program.place.work, kind="run")
        sent = neighbour.send(child["peerId"], "For the child. C-4004")
        time.sleep(1)
        held.set()
        request = model.with_text("C-4004", SECONDS_MAX)
        assert request.seen.last_user_with("CHILD-WORK") >= 0
        await_state(neighbour, sent["messageId"], "consumed")
        window.until("The child is done.")
