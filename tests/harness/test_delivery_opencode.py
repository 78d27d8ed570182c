"""Real windows of opencode with our plugin: woken, steered, asked for the last answer, subagents as runs.

Rule 1: opencode takes many seconds to start, so most tests share one window, each with words of its own; each
begins with an idle session, and the one that kills its root is the last.
"""

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.harness.conftest import FOUND
from tests.harness.model import Call, ModelServer, Say
from tests.harness.neighbour import Neighbour
from tests.harness.programs import PROGRAMS, Place, Program
from tests.harness.shimmed import (
    SECONDS_MAX,
    Other,
    attached,
    await_peer,
    await_state,
    own_peers,
    shimmed,
    state_of,
)
from tests.harness.terminal import Terminal
from tests.harness.test_mcp_alone import TOKEN, answered, script

AUTOMATIC = {"TIELINE_IDLE_BEHAVIOR": "auto"}

Opener = Callable[..., Program]

pytestmark = pytest.mark.harness("opencode")


class Session(NamedTuple):
    """A window whose session has begun and is idle."""

    program: Program
    model: ModelServer
    neighbour: Neighbour
    window: Terminal

    def peer(self, **members: object) -> str:
        """Return the peer id of the session, once it is so."""
        found: str = await_peer(self.neighbour, self.program.place.work, kind="root", **members)["peerId"]
        return found


@pytest.fixture(scope="module")
def opened() -> Iterator[Session]:
    """Give the window that tests share; our MCP server is configured too, as another setup left it."""
    folder = Path(tempfile.mkdtemp(prefix="p"))
    with ModelServer() as model:
        place = Place(folder / "one-home", folder / "one", folder / "t", model.url)
        program = PROGRAMS["opencode"](FOUND["opencode"].command, place)
        program.configure(program.mcp_server())
        shimmed(program, **AUTOMATIC)
        with Neighbour(place.shared, folder / "n", "reviewer") as neighbour, program.window() as window:
            window.until(*program.ready)
            window.type("good morning\r")
            yield Session(program, model, neighbour, window)
    shutil.rmtree(folder)


@pytest.fixture
def session(opened: Session) -> Iterator[Session]:
    """Give that window with an idle session; where the test fails, what the model was shown is said."""
    opened.peer(busy=False)
    yield opened
    print(opened.model.story())


def test_idle_window_is_woken_reads_a_burst_once_and_in_order_and_tells_its_answer(session: Session) -> None:
    """Mail begins turns in a session that went idle; each message is shown once, and its sender told so."""
    _, model, neighbour, _ = session
    peer = session.peer()
    sent = [neighbour.send(peer, f"The build is red. W-{number}.") for number in range(10)]
    model.with_text("W-9.", SECONDS_MAX)
    for receipt in sent:
        await_state(neighbour, receipt["messageId"], "consumed")
    session.peer(busy=False)
    shown = "".join(model.with_text("W-9.").seen.texts("user"))
    places = [shown.find(f"W-{number}.") for number in range(10)]
    assert places == sorted(places)
    assert places[0] >= 0
    assert all(shown.count(f"W-{number}.") == 1 for number in range(10))
    assert "external data" in shown.lower()
    assert neighbour.last(peer)["text"] == "Understood."


def test_busy_window_is_steered_at_the_next_tool_boundary_and_a_draft_survives(session: Session) -> None:
    """What comes while a tool is being called is in the next request, behind the tool's result."""
    _, model, neighbour, window = session
    held = threading.Event()
    model.script("BUSY-NOW", Call("list_peers", {}, held), Say("Done with it."))
    window.type("Please BUSY-NOW\r")
    model.with_text("BUSY-NOW")
    peer = session.peer(busy=True)
    window.type("half a dr")
    sent = neighbour.send(peer, "Stop at the next step. S-2002")
    time.sleep(1)
    held.set()
    request = model.with_text("S-2002", SECONDS_MAX)
    assert len(request.seen.results(request.seen.last_user_with("BUSY-NOW"))) == 1
    await_state(neighbour, sent["messageId"], "consumed")
    window.until("Done with it.")
    session.peer(busy=False)
    window.type("aft survives\r")
    model.with_text("half a draft survives", SECONDS_MAX)


def test_model_with_the_plugins_tools_asks_a_neighbour_and_is_shown_the_answer(session: Session) -> None:
    """The tools are the session's own root; our MCP server, which is configured too, is not started."""
    script(session.model)
    session.window.type(f"Please {TOKEN} now\r")
    answered("opencode", session.model, session.neighbour)
    assert len(own_peers(session.neighbour)) == 1
    session.window.until("The reviewer has answered.")


def test_subagent_is_a_run_of_its_session_that_can_be_written_to(session: Session) -> None:
    """The session that the task tool began is a child peer while it works; its mail is shown to it alone."""
    program, model, neighbour, window = session
    held = threading.Event()
    task = {"description": "look", "prompt": "CHILD-WORK please", "subagent_type": "general"}
    model.script("PARENT-WORK", Call("task", task), Say("The child is done."))
    model.script("CHILD-WORK", Call("list_peers", {}, held), Say("Child over."))
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


def test_message_during_compaction_is_shown_once_behind_it(session: Session) -> None:
    """While opencode asks its model for the summary no request shows the mail; the one behind it does."""
    _, model, neighbour, window = session
    model.scripts.summaries = threading.Event()
    count = len(model.requests)
    window.type("/compact\r")
    window.type("\r")  # the first chooses the command from the list that was offered
    give_up = time.monotonic() + SECONDS_MAX
    while not any(not one.seen.tools for one in model.requests[count:]):
        assert time.monotonic() < give_up, "no summary was asked for"
        time.sleep(0.1)
    sent = neighbour.send(session.peer(), "While you compact. C-7007")
    time.sleep(1)
    model.scripts.summaries.set()
    assert model.with_text("C-7007", SECONDS_MAX).seen.count("C-7007") == 1
    await_state(neighbour, sent["messageId"], "consumed")
    model.scripts.summaries = None


def test_window_whose_root_was_killed_gets_another_that_is_woken(session: Session) -> None:
    """Mail that was being kept back for the killed root's session is not told as read."""
    program, model, neighbour, _ = session
    old = await_peer(neighbour, program.place.work, kind="root")
    kept = neighbour.send(old["peerId"], "Only with a prompt. K-6006", delivery="passive")
    os.kill(attached(program), signal.SIGKILL)
    new = await_peer(
        neighbour, program.place.work, sessionId=old["sessionId"], peerId=Other(old["peerId"]), kind="root"
    )
    woken = neighbour.send(new["peerId"], "Wake up again. K-6007")
    assert model.with_text("K-6007", SECONDS_MAX).seen.count("K-6006") == 0
    await_state(neighbour, woken["messageId"], "consumed")
    assert state_of(neighbour, kept) == "accepted"
    assert "K-6006" in str(neighbour.recover(old["instanceId"]))


def test_window_told_its_person_who_wrote_and_its_mail_comes_with_the_next_prompt_also_when_resumed(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """With `notify` a toast says once who wrote, in plain text; a resumed session has another root.

    With the intercom switched on in config.toml alone, its tool is offered.
    """
    program = shimmed(open_program("opencode", is_wired=False))
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour:
        with program.window() as window:
            window.until(*program.ready)
            window.type("good morning\r")
            tools = model.with_text("good morning").seen.tools
            assert "intercom" not in [tool.full_name for tool in tools]
            peer = await_peer(neighbour, program.place.work, busy=False)
            sent = neighbour.send(peer["peerId"], "Waits for a prompt. N-9009", topic="Colour \u202edeR")
            window.until("Tieline: a message of reviewer: Colour \\u202edeR")
            assert "\u202e".encode() not in window.drawn()
            window.type("good evening\r")
            assert model.with_text("good evening", SECONDS_MAX).seen.count("N-9009", "user") == 1
            await_state(neighbour, sent["messageId"], "consumed")
        (shared / "config.toml").write_text("[wires.intercom]\nenabled = true\n")
        with program.started("good night", "--continue") as run:
            request = model.with_text("good night", SECONDS_MAX)
            resumed = await_peer(neighbour, program.place.work, peerId=Other(peer["peerId"]))
            assert resumed["sessionId"] == peer["sessionId"]
            assert "intercom" in [tool.full_name for tool in request.seen.tools]
            assert run.ended().code == 0
