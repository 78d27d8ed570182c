"""Real pi and oh-my-pi over a session's life: subagents, drafts, compaction, a killed root, resume."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.model import Call, ModelServer, Say
from tests.harness.neighbour import Neighbour
from tests.harness.programs import Program
from tests.harness.shimmed import SECONDS_MAX, await_peer, await_state, own_peers, shimmed

HARNESSES = pytest.mark.parametrize("harness", ["pi", "omp"])
AUTOMATIC = {"TIELINE_IDLE_BEHAVIOR": "auto"}

Opener = Callable[..., Program]


@pytest.mark.harness("omp")
def test_subagent_is_a_run_of_its_session_and_a_server_of_another_configuration_stands_aside(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """The session that the task tool began is a child peer while it works; its mail is shown to it alone.

    Our MCP server is configured too, as oh-my-pi finds it in other agents' configurations: it is no peer.
    """
    program = shimmed(open_program("omp", is_wired=True))
    held = threading.Event()
    task = {
        "context": "look around",
        "tasks": [{"name": "Looker", "task": "CHILD-WORK please, and say more"}],
    }
    model.script("PARENT-WORK", Call("task", task), Say("Begun."))
    model.script("CHILD-WORK", Call("list_peers", {}, held), Call("yield", {"data": "Child over."}))
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour, program.window() as window:
        window.until(*program.ready)
        parent = await_peer(neighbour, program.place.work)
        window.type("Please PARENT-WORK\r")
        model.wait(lambda seen: "CHILD-WORK please" in "".join(seen.texts("user")))
        child = await_peer(neighbour, program.place.work, kind="run")
        assert child["sessionId"] == parent["sessionId"]
        sent = neighbour.send(child["peerId"], "For the child. C-4004")
        time.sleep(1)
        held.set()
        request = model.with_text("C-4004", SECONDS_MAX)
        assert request.seen.last_user_with("CHILD-WORK") >= 0
        assert f'"peerId":"{child["peerId"]}"' in request.seen.results()[0], "its calls are its own"
        names = sorted(tool.full_name for tool in request.seen.tools)
        assert [name for name in names if "peer" in name] == [
            "list_peers",
            "peer_messages",
            "send_peer_message",
        ]
        await_state(neighbour, sent["messageId"], "consumed")
        model.wait(lambda seen: "Child over." in "".join(seen.texts("user")))
        assert all(
            one.seen.count("C-4004") == 0
            for one in model.requests
            if one.seen.last_user_with("PARENT-WORK") >= 0
        )
        assert own_peers(neighbour) == [parent["peerId"]]
