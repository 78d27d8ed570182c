"""Real pi and oh-my-pi over a session's life: subagents, drafts, compaction, a killed root, resume."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.model import Call, ModelServer, Say
from tests.harness.neighbour import Neighbour
from tests.harness.programs import Program
from tests.harness.rpc import Rpc
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

HARNESSES = pytest.mark.parametrize("harness", ["pi", "omp"])
AUTOMATIC = {"TIELINE_IDLE_BEHAVIOR": "auto"}

Opener = Callable[..., Program]


def compacting(program: Program) -> None:
    """Let the program compact a short session."""
    folder = program.place.home / "agent"
    name = "settings.json" if program.name == "pi" else "config.yml"
    path = folder / name
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**known, "compaction": {"keepRecentTokens": 20}}))


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


@HARNESSES
def test_window_with_a_draft_is_woken_and_steered_and_the_draft_survives(
    harness: str, open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """What a person has half typed is there whole, after mail began a turn and other mail went into it."""
    program = shimmed(open_program(harness, is_wired=False), **AUTOMATIC)
    held = threading.Event()
    model.script("HOLD-ON", Call("list_peers", {}, held), Say("Held on."))
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour, program.window() as window:
        window.until(*program.ready)
        peer = await_peer(neighbour, program.place.work)
        window.type("half a dr")
        first = neighbour.send(peer["peerId"], "Please HOLD-ON. D-5005")
        model.with_text("D-5005", SECONDS_MAX)
        await_peer(neighbour, program.place.work, busy=True)
        second = neighbour.send(peer["peerId"], "And this. D-5006")
        window.type("aft")
        held.set()
        assert len(model.with_text("D-5006", SECONDS_MAX).seen.results()) == 1
        for sent in (first, second):
            await_state(neighbour, sent["messageId"], "consumed")
        await_peer(neighbour, program.place.work, busy=False)
        window.type(" survives\r")
        model.with_text("half a draft survives", SECONDS_MAX)


@HARNESSES
def test_window_whose_root_was_killed_gets_another_and_its_mail_is_there_for_review(
    harness: str, open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """The person was told once who wrote, in plain text; nothing is told as read that nobody saw."""
    program = shimmed(open_program(harness, is_wired=False))
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour, program.window() as window:
        window.until(*program.ready)
        old = await_peer(neighbour, program.place.work)
        sent = neighbour.send(old["peerId"], "Waits for a prompt. K-6006", topic="Colour \u202edeR\u202c")
        window.until("Tieline: a message of reviewer: Colour \\u202edeR")
        assert "\u202e".encode() not in window.drawn()
        os.kill(attached(program), signal.SIGKILL)
        new = await_peer(
            neighbour, program.place.work, sessionId=old["sessionId"], peerId=Other(old["peerId"])
        )
        assert state_of(neighbour, sent) == "accepted"
        later = neighbour.send(new["peerId"], "Comes with the prompt. K-6007")
        window.type("good evening\r")
        assert model.with_text("K-6007", SECONDS_MAX).seen.count("K-6006") == 0
        await_state(neighbour, later["messageId"], "consumed")
        assert state_of(neighbour, sent) == "accepted"
        assert "K-6006" in str(neighbour.recover(old["instanceId"]))


@HARNESSES
def test_message_during_compaction_is_shown_behind_it_once(
    harness: str, open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """While the harness asks its model for the summary no turn begins; behind it the mail does."""
    program = shimmed(open_program(harness, is_wired=False), **AUTOMATIC)
    compacting(program)
    model.scripts.summaries = threading.Event()
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour, program.window() as window:
        window.until(*program.ready)
        peer = await_peer(neighbour, program.place.work)
        for number in range(3):
            window.type(f"good morning {number} {'and so on ' * 20}\r")
            model.with_text(f"good morning {number}", SECONDS_MAX)
            await_peer(neighbour, program.place.work, busy=False)
        window.type("/compact\r")
        model.wait(lambda seen: not seen.tools)
        sent = neighbour.send(peer["peerId"], "While you compact. C-7007")
        time.sleep(1.5)
        assert not model.requests[-1].seen.tools, "no turn begins meanwhile"
        assert state_of(neighbour, sent) == "accepted"
        model.scripts.summaries.set()
        assert model.with_text("C-7007", SECONDS_MAX).seen.count("C-7007") == 1
        await_state(neighbour, sent["messageId"], "consumed")


@HARNESSES
def test_resumed_and_forked_session_has_a_root_of_its_own_and_one_that_ends_tells_nothing_false(
    harness: str, open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """A new, resumed or forked session is one peer, the old one gone.

    Mail on its way into a session that ends is in its record and told as read, or stays for review.
    """
    program = shimmed(open_program(harness, is_wired=False), **AUTOMATIC)
    model.script("HOLD-ON", Call("list_peers", {}, threading.Event()))
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour, Rpc(program) as session:
        first = await_peer(neighbour, program.place.work)
        begun = session.ask("get_state")
        assert first["sessionId"] == begun["sessionId"]
        session.ask("prompt", message="good morning")
        model.with_text("good morning")
        await_peer(neighbour, program.place.work, busy=False)
        session.ask("new_session")
        fresh = await_peer(neighbour, program.place.work, sessionId=Other(first["sessionId"]))
        session.ask("switch_session", sessionPath=begun["sessionFile"])
        resumed = await_peer(neighbour, program.place.work, sessionId=first["sessionId"])
        assert len({first["peerId"], fresh["peerId"], resumed["peerId"]}) == 3
        word, members = (
            ("fork", "get_fork_messages") if harness == "pi" else ("branch", "get_branch_messages")
        )
        entry = session.ask(members)["messages"][0]["entryId"]
        session.ask(word, entryId=entry)
        forked = await_peer(neighbour, program.place.work, sessionId=Other(first["sessionId"]))
        assert own_peers(neighbour) == [forked["peerId"]]
        woken = neighbour.send(forked["peerId"], "Please HOLD-ON. F-8008")
        model.with_text("F-8008", SECONDS_MAX)
        await_state(neighbour, woken["messageId"], "consumed")
        flying = neighbour.send(forked["peerId"], "Never shown. F-8009")
        time.sleep(1)
        session.end()
        assert all(one.seen.count("F-8009") == 0 for one in model.requests)
        recorded = "".join(path.read_text() for path in program.place.home.rglob("*.jsonl"))
        is_recorded = "F-8009" in recorded  # then a resumed session shows it: both may place what waited
        assert state_of(neighbour, flying) == ("consumed" if is_recorded else "accepted")
        assert ("F-8009" in str(neighbour.recover(forked["instanceId"]))) is not is_recorded
