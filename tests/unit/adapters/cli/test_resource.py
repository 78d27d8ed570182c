"""`tieline resource`: what it asks the root for, what it shows, and whom it lets answer for a command."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.adapters.cli.fake import ESCAPE, ErrorAnswer, FakeRoot, Result
from tieline.model.identity import Peer, Principal
from tieline.model.resource import Claimant, Launch, ResourceKey, key_digest
from tieline.runtime.resources.coordinator import Coordinator
from tieline.shell.process import self_identity

KEY = ResourceKey("machine/db")
FREE = {"resource": "machine/db", "state": "available", "configured": True, "enrolled": True, "epoch": 2,
        "controllerAlias": "lead", "profile": "strict", "queue": [], "nextAction": "run it"}  # fmt: skip
HELD = FREE | {
    "state": "running",
    "holder": {"requestId": "r-0", "alias": "api" + ESCAPE, "executable": "pytest", "state": "running",
               "fence": 7, "since": "2026-11-30T20:00:00.000Z", "heldMs": 65_000, "launchId": "l-1",
               "supervisor": 4242,
               "isOrphan": True},
    "queue": [{"requestId": "r-1", "alias": "web", "reason": "tests", "waitMs": 5_000}],
    "blockers": [{"alias": "old", "executable": "make", "launchId": "l-0"}],
}  # fmt: skip


def answered(shape: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return an answer of `coordinate_resource`."""
    return {"resource": shape, "text": "", **more}


def test_status_says_on_one_screen_who_holds_who_waits_and_what_next(
    run: Callable[..., Result], fake_root: Callable[..., FakeRoot]
) -> None:
    """Holder, since when, queue, blockers, orphan and next action; foreign text cannot reach the terminal."""
    fake_root({"coordinate_resource": answered(HELD)})
    result = run("resource", "status", "machine/db")
    assert result.code == 0
    assert ESCAPE not in result.out
    for words in (
        ":lead grants",
        "pytest",
        "fence 7",
        "65 s",
        ":web for 5 s: tests",
        ":old (make)",
        "run it",
    ):
        assert words in result.out
    assert "kill -TERM 4242" in result.out


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["request", "machine/db", "--reason", "x", "--id", "r"],
         {"operation": "request", "resource": "machine/db", "reason": "x", "requestId": "r"}),
        (["grant", "r", "--epoch", "3"], {"operation": "grant", "requestId": "r", "epoch": 3}),
        (["release", "r"], {"operation": "release", "requestId": "r"}),
        (["cancel", "r"], {"operation": "cancel_request", "requestId": "r"}),
    ],
)  # fmt: skip
def test_action_asks_the_root_for_its_operation(
    run: Callable[..., Result], fake_root: Callable[..., FakeRoot], words: list[str], asked: dict[str, Any]
) -> None:
    """Each action is one operation of the root, with its own fields."""
    ticket = {"requestId": "r", "state": "queued"}
    root = fake_root({"coordinate_resource": answered(FREE, ticket=ticket)})
    result = run("resource", *words, "--json")
    assert result.code == 0
    assert root.params("coordinate_resource") == asked
    assert result.json["ticket"] == ticket


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["--controller", "me", "--participant", "a", "--participant", "b", "--profile", "build",
          "--auto-grant"],
         {"controller": "me", "participants": ["a", "b"], "profile": "build", "isAutoGrant": True}),
        (["--open", "--takeover", "--epoch", "4"], {"isOpen": True, "isTakeover": True, "epoch": 4}),
        (["--unenrol", "a"], {"unenrol": ["a"]}),
    ],
)  # fmt: skip
def test_policy_asks_the_root(
    run: Callable[..., Result], fake_root: Callable[..., FakeRoot], words: list[str], asked: dict[str, Any]
) -> None:
    """A policy, an open resource and an un-enrolment are said as such; a takeover only by its word."""
    root = fake_root({"resource.policy": answered(FREE)})
    assert run("resource", "policy", "machine/db", *words).code == 0
    assert root.params("resource.policy") == {"resource": "machine/db", "isTakeover": False} | asked


@pytest.mark.parametrize(
    "words",
    [
        ["policy", "machine/db"],
        ["policy", "machine/db", "--open", "--controller", "me"],
        ["policy"],
        ["grant"],
        ["request"],
        ["recover"],
        ["list", "machine/db"],
        ["watch", "--after", "3"],
        ["status", "machine/.."],
        ["status", "elsewhere/x"],
        ["explode"],
    ],
)
def test_wrong_words_are_wrong_usage(
    run: Callable[..., Result], fake_root: Callable[..., FakeRoot], words: list[str]
) -> None:
    """Nothing is asked of the root."""
    root = fake_root({})
    assert run("resource", *words).code == 2
    assert "coordinate_resource" not in root.methods


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [("STALE_POLICY", 1), ("RESOURCE_BUSY", 1), ("CONTROLLER_UNAVAILABLE", 1), ("TARGET_ENDED", 4),
     ("RECOVERY_REQUIRED", 5), ("RESERVATION_EXPIRED", 1)],
)  # fmt: skip
def test_refusal_has_its_exit_code_and_next_action(
    run: Callable[..., Result], fake_root: Callable[..., FakeRoot], code: str, exit_code: int
) -> None:
    """The root's own no comes through, with what helps."""

    def refuse(_params: dict[str, Any]) -> dict[str, Any]:
        raise ErrorAnswer(code, "no")

    fake_root({"coordinate_resource": refuse})
    result = run("resource", "grant", "r")
    assert result.code == exit_code
    assert code in result.err
    assert "next: " in result.err


def test_status_without_a_root_reads_the_files(run: Callable[..., Result], place: Path) -> None:
    """Somebody outside every agent sees an open resource whole, and an unused one free."""
    result = run("resource", "status", "machine/db", "--json")
    (shape,) = result.json["resources"]
    assert (shape["state"], shape["enrolled"], result.json["root"]) == ("unconfigured", True, None)
    assert run("resource", "list").err.startswith("no resource was used here yet")


def lost_holder(place: Path) -> str:
    """Leave a command that began and never said what it started; return its launch id."""
    from tieline.engine import coordination
    from tieline.engine.coordination import Begin, Claim

    me = self_identity()
    peer = Peer("i-1")
    principal = Principal(peer, frozenset({"resource.request"}))
    claimant = Claimant(peer.id, "i-1", "gone", me, waiter=me)
    coordinator = Coordinator(str(place))
    coordinator.decide([KEY], Claim(principal, claimant, "l-1", "d", "make", "build", "r-1"))
    coordinator.observe([KEY], principal)
    launch = Launch("l-1", "n" * 32, "d", "make", "c", claimant, 1, me.boot_id, resources=((KEY, 1),))
    coordinator.decide(
        [KEY],
        Begin(principal, "l-1", "n" * 32, "d", {KEY: 1}),
        change=lambda ledger, documents: coordination.admit(ledger, launch, documents),
    )
    coordinator.close()
    return "l-1"


@pytest.mark.clause("native-195", "native-196", "I34")
def test_recover_shows_the_evidence_needs_the_id_and_writes_an_event(
    run: Callable[..., Result], place: Path
) -> None:
    """Without the typed id nothing changes; with it the record ends, with who and why."""
    launch = lost_holder(place)
    shown = run("resource", "recover", "machine/db")
    assert shown.code == 5
    assert "its start was never confirmed" in shown.err
    assert f"tieline resource recover machine/db --launch {launch} --evidence TEXT" in shown.err
    assert run("resource", "status", "machine/db", "--json").json["resources"][0]["state"] == "starting"
    assert run("resource", "recover", "machine/db", "--launch", "another").code == 2
    done = run("resource", "recover", "machine/db", "--launch", launch, "--evidence", "looked: no make runs")
    assert done.code == 0
    coordinator = Coordinator(str(place))
    document = coordinator.store.read(KEY)
    coordinator.close()
    assert document.holder is None
    assert [event.note for event in document.events if event.state == "recovered"] == [
        f"{Peer(f'local-user-{os.getuid()}').id}: looked: no make runs"
    ]
    assert document.fence == 1


@pytest.mark.clause("native-197", "I34")
def test_recover_refuses_while_a_process_lives(run: Callable[..., Result], place: Path) -> None:
    """A supervisor that is seen alive is not answered away, and nobody ends it."""
    import subprocess

    from tieline.engine import coordination
    from tieline.engine.coordination import Started
    from tieline.shell.process import identify

    launch = lost_holder(place)
    child = subprocess.Popen(["sleep", "30"], start_new_session=True)
    try:
        identity = identify(child.pid)
        assert identity is not None
        coordinator = Coordinator(str(place))
        coordinator.decide(
            [KEY],
            Started(launch, "n" * 32, {KEY: 1}, (identity,), "group"),
            change=lambda ledger, _: coordination.identify_launch(
                ledger, launch, "n" * 32, (identity,), "group"
            ),
        )
        coordinator.close()
        result = run("resource", "recover", "machine/db", "--launch", launch)
        assert (result.code, "RESOURCE_BUSY" in result.err) == (1, True)
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_recover_below_an_agent_is_refused(
    run: Callable[..., Result], fake_root: Callable[..., FakeRoot], place: Path
) -> None:
    """An agent does not answer for what it cannot see."""
    launch = lost_holder(place)
    fake_root({})
    result = run("resource", "recover", "machine/db", "--launch", launch)
    assert (result.code, "CAPABILITY_DENIED" in result.err) == (1, True)


@pytest.mark.clause("native-180", "native-196", "I38")
def test_recover_of_a_damaged_record_needs_its_id_and_begins_it_anew(
    run: Callable[..., Result], place: Path
) -> None:
    """The list shows it, the refusal says how to go on, the id ends it, and the bytes are kept."""
    lost_holder(place)
    folder = place / "peer-resources"
    (folder / f"{key_digest(KEY)}.json").write_bytes(b"garbled")
    listed = run("resource", "list")
    assert (listed.code, "damaged" in listed.out) == (0, True)
    assert "tieline resource recover machine/db" in listed.out
    (shape,) = run("resource", "list", "--json").json["resources"]
    refused = run("resource", "status", "machine/db")
    assert (refused.code, "tieline resource recover machine/db" in refused.err) == (5, True)
    shown = run("resource", "recover", "machine/db")
    assert shown.code == 5
    assert f"--record {shape['recordId']} --evidence TEXT" in shown.err
    assert run("resource", "recover", "machine/db", "--record", "another").code == 2
    done = run("resource", "recover", "machine/db", "--record", shape["recordId"], "--evidence", "looked")
    assert done.code == 0
    assert b"garbled" in {path.read_bytes() for path in folder.iterdir()}
    assert run("resource", "status", "machine/db", "--json").json["resources"][0]["state"] == "unconfigured"


@pytest.mark.parametrize(("record", "name"), [("index", "index.json"), ("ledger", "launches.json")])
def test_recover_of_index_or_ledger_makes_it_again(
    run: Callable[..., Result], place: Path, record: str, name: str
) -> None:
    """The refusal names the command, which ends it; a whole one is left."""
    lost_holder(place)
    (place / "peer-resources" / name).write_bytes(b"garbled")
    refused = run("resource", "list")
    assert (refused.code, f"tieline resource recover {record}" in refused.err) == (5, True)
    assert run("resource", "recover", record, "--json").json["record"] == record
    assert run("resource", "list").code == 0
    assert run("resource", "recover", record).code == 2


def test_request_outside_every_agent_names_the_command_that_needs_none(run: Callable[..., Result]) -> None:
    """A person without an agent is sent to `tieline run`."""
    result = run("resource", "request", "machine/db")
    assert (result.code, "tieline run --resource machine/db" in result.err) == (4, True)
