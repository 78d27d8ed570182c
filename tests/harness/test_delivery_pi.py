"""Real windows of pi and oh-my-pi with our extension: woken, steered, asked for the last answer, reloaded."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.model import Call, ModelServer, Say
from tests.harness.neighbour import Neighbour
from tests.harness.programs import Program
from tests.harness.shimmed import SECONDS_MAX, await_peer, await_state, own_peers, shimmed
from tests.harness.test_mcp_alone import TOKEN, answered, script

HARNESSES = pytest.mark.parametrize("harness", ["pi", "omp"])
AUTOMATIC = {"TIELINE_IDLE_BEHAVIOR": "auto"}

Opener = Callable[..., Program]


@pytest.mark.clause("pi-peers-50")
@HARNESSES
def test_idle_window_is_woken_reads_a_burst_once_and_in_order_and_tells_its_answer(
    harness: str, open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """Nobody typed: mail begins turns, each message is shown once, in order, and its sender is told so."""
    program = shimmed(open_program(harness, is_wired=False), **AUTOMATIC)
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour, program.window() as window:
        window.until(*program.ready)
        peer = await_peer(neighbour, program.place.work)
        sent = [neighbour.send(peer["peerId"], f"The build is red. W-{number}.") for number in range(10)]
        model.with_text("W-9.", SECONDS_MAX)
        for receipt in sent:
            await_state(neighbour, receipt["messageId"], "consumed")
        await_peer(neighbour, program.place.work, busy=False)
        last = model.requests[-1].seen
        shown = "".join(last.texts("user"))
        places = [shown.find(f"W-{number}.") for number in range(10)]
        assert places == sorted(places)
        assert places[0] >= 0
        assert all(shown.count(f"W-{number}.") == 1 for number in range(10))
        assert "external data" in shown.lower()
        assert neighbour.last(peer["peerId"])["text"] == "Understood."


@HARNESSES
def test_busy_window_is_steered_at_the_next_tool_boundary(
    harness: str, open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """What comes while a tool is being called is in the next request, behind the tool's result."""
    program = shimmed(open_program(harness, is_wired=False))
    held = threading.Event()
    model.script("BUSY-NOW", Call("list_peers", {}, held), Say("Done with it."))
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour, program.window() as window:
        window.until(*program.ready)
        peer = await_peer(neighbour, program.place.work)
        window.type("Please BUSY-NOW\r")
        model.with_text("BUSY-NOW")
        await_peer(neighbour, program.place.work, busy=True)
        sent = neighbour.send(peer["peerId"], "Stop at the next step. S-2002")
        time.sleep(1)
        held.set()
        request = model.with_text("S-2002", SECONDS_MAX)
        assert len(request.seen.results()) == 1
        await_state(neighbour, sent["messageId"], "consumed")
        window.until("Done with it.")
        assert all(one.seen.count("S-2002") <= 1 for one in model.requests)


@HARNESSES
def test_model_with_the_extensions_tools_asks_a_neighbour_and_is_shown_the_answer(
    harness: str, open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """The tools are the session's own root: no second peer of this session is there."""
    program = shimmed(open_program(harness, is_wired=False))
    script(model)
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour:
        with program.started(f"Please {TOKEN} now") as run:
            answered("pi-extension", model, neighbour)
            assert len(own_peers(neighbour)) == 1
            ended = run.ended()
        assert ended.code == 0, ended
        assert "The reviewer has answered." in ended.output


@HARNESSES
def test_reloaded_window_is_the_same_peer_and_a_new_session_another(
    harness: str, open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """A reload keeps the root and its mail; a new session has a root of its own, and the old one is gone."""
    program = shimmed(open_program(harness, is_wired=False))
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour, program.window() as window:
        window.until(*program.ready)
        peer = await_peer(neighbour, program.place.work)
        neighbour.send(peer["peerId"], "Waits for a prompt. R-3003")
        if harness == "pi":
            window.type("/reload\r")
            time.sleep(3)
        assert await_peer(neighbour, program.place.work)["peerId"] == peer["peerId"]
        window.type("good morning\r")
        assert model.with_text("R-3003", SECONDS_MAX).seen.count("R-3003", "user") == 1
        await_peer(neighbour, program.place.work, busy=False)
        window.type("/new\r")
        give_up = time.monotonic() + SECONDS_MAX
        while (there := own_peers(neighbour)) in ([], [peer["peerId"]]):
            assert time.monotonic() < give_up, neighbour.peers()
            time.sleep(0.2)
        assert len(there) == 1
