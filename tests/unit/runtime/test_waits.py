"""Who waits for whom: while a block lasts; rings over roots found, told to all, and gone when broken."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.runtime.roots import call, host_of, two
from tieline.errors import Refusal, Refused
from tieline.model.identity import Peer
from tieline.model.resource import Claimant, Document, Policy, ResourceKey, Ticket
from tieline.runtime.intercom.asks import Ask
from tieline.runtime.node import Node
from tieline.runtime.root import Root
from tieline.runtime.waits import GRANT_MS
from tieline.shell.process import self_identity

pytestmark = pytest.mark.asyncio

A, B, C = Peer("a"), Peer("b"), Peer("c")


async def until(holds: Callable[[], bool]) -> None:
    """Wait until it holds, for at most ten seconds."""
    for _ in range(500):
        if holds():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come to hold")


async def question(root: Root, to: str) -> str:
    """Send a message that its author can wait on, and return its id."""
    sent = await call(root, "send_peer_message", to=to, content="and you?")
    return str(sent["messageId"])


async def test_wait_lasts_as_long_as_the_last_block(private_home: Path) -> None:
    """Two waits of one pair are two; the end of one is not the end of both."""
    async with two(private_home) as (alice, _):
        waits = alice.node.waits
        with waits.waiting(A, B):
            with waits.waiting(A, B):
                assert waits.is_waiting(A, B)
            assert waits.is_waiting(A, B)
            assert not waits.is_waiting(A, C)
            assert not waits.is_waiting(B, A)
        assert not waits.is_waiting(A, B)
        await asyncio.sleep(0)
        assert not waits.known


async def test_wait_of_nobody_yet_may_be_of_anybody(private_home: Path) -> None:
    """Until the target is known each could be it; a failure in between ends it, too."""
    async with two(private_home) as (alice, _):
        waits = alice.node.waits
        with contextlib.suppress(KeyError), waits.waiting(A, None):
            assert waits.is_waiting(A, B)
            assert waits.is_waiting(A, C)
            {}["no such target"]
        assert not waits.is_waiting(A, B)


@pytest.mark.clause("I30")
async def test_two_models_that_wait_for_each_other_are_both_told_at_once(private_home: Path) -> None:
    """Each wait of `peer_messages` for an answer counts; the ring ends both, with words and ways out."""
    async with two(private_home) as (alice, bob):
        ids = await question(alice, "bob"), await question(bob, "alice")
        told: list[dict[str, Any]] = await asyncio.wait_for(
            asyncio.gather(
                call(alice, "peer_messages", replyTo=ids[0], waitMs=30_000),
                call(bob, "peer_messages", replyTo=ids[1], waitMs=30_000),
            ),
            10,
        )
        for root, other, answer in ((alice, 1, told[0]), (bob, 0, told[1])):
            (event,) = [one for one in answer["events"] if one["type"] == "wait_cycle"]
            assert event["to"] == Peer(root.node.instance).id
            assert "timedOut" not in answer
            assert answer["text"].startswith("A ring of waits")
            acts = {way["act"]: way["subject"] for way in event["ways"]}
            assert acts == {"answer": ids[other], "give_up": ids[1 - other]}
        again = await call(alice, "peer_messages", replyTo=ids[0], waitMs=50)
        assert again["timedOut"] is True  # told once
        await asyncio.sleep(0)
        assert alice.node.waits.cycles == bob.node.waits.cycles == ()


async def test_ring_that_is_answered_is_shown_no_more(private_home: Path) -> None:
    """A ring shows at every end while it stands; the answer that breaks it takes it away everywhere."""
    async with two(private_home) as (alice, bob):
        ids = await question(alice, "bob"), await question(bob, "alice")
        seen: list[dict[str, Any]] = []
        bob.node.subscribe(lambda _kind, params: seen.append(params.get("event", {})))
        with alice.node.waits.waiting(Peer(alice.node.instance), Peer(bob.node.instance), ids[0]):
            asking = asyncio.ensure_future(
                call(bob, "peer_messages", replyTo=ids[1], waitMs=30_000, consume=False)
            )
            await until(lambda: bool(alice.node.waits.cycles and bob.node.waits.cycles))
            await until(lambda: any(one.get("state") == "standing" for one in seen))
            (ill,) = [check for check in alice.node.checks() if not check["ok"]]
            assert (ill["name"], ":alice waits for :bob" in ill["text"]) == ("waits", True)
            view = (await call(alice, "local.waits"))["cycles"]
            assert [one["alias"] for one in view[0]["peers"]].count("alice") == 1
            await call(alice, "local.reply", messageId=ids[1], content="here")
            assert (await asking)["messages"][0]["content"] == "here"
        await asyncio.sleep(0.05)
        assert [one["state"] for one in seen if one["type"] == "wait_cycle"] == ["standing", "broken"]
        assert (await call(bob, "local.waits"))["cycles"] == []
        assert (await call(alice, "local.waits"))["cycles"] == []


async def test_question_that_nobody_returns_is_a_wait_and_no_ring(private_home: Path) -> None:
    """One who waits is an edge at its own root alone; nothing is told to anybody."""
    async with two(private_home) as (alice, bob):
        message_id = await question(alice, "bob")
        waiting = asyncio.ensure_future(call(alice, "peer_messages", replyTo=message_id, waitMs=1_500))
        await asyncio.sleep(0.4)
        (wait,) = (await call(alice, "local.waits"))["waits"]
        assert (wait["waiterAlias"], wait["awaitedAlias"], wait["kind"]) == ("alice", "bob", "ask")
        assert wait["subject"] == message_id
        assert (await bob.waits())["waits"] == []
        listed = await call(alice, "list_peers")
        assert listed["self"]["waitsFor"] == [Peer(bob.node.instance).id]
        assert "waitsFor" not in listed["peers"][0]
        assert all(check["ok"] for check in alice.node.checks())
        assert (await waiting)["timedOut"] is True


async def test_watch_of_waits_ends_with_the_change(private_home: Path) -> None:
    """`local.waits` with the generation that was seen comes back when something is another."""
    async with two(private_home) as (alice, _):
        before = await call(alice, "local.waits")
        assert before["self"] == host_of(alice).peer.id
        watching = asyncio.ensure_future(call(alice, "local.waits", after=before["generation"], waitMs=5_000))
        await asyncio.sleep(0.05)
        assert not watching.done()
        with alice.node.waits.waiting(A, B, "m"):
            after = await asyncio.wait_for(watching, 2)
            assert after["generation"] > before["generation"]
            assert [one["subject"] for one in after["waits"]] == ["m"]


async def test_probe_of_a_stranger_is_answered_alike_and_leads_nowhere(private_home: Path) -> None:
    """Whether our peer waits, exists or not: the answer is empty, nothing is passed on, no ring is named."""
    async with two(private_home) as (alice, bob):
        message_id = await question(alice, "bob")
        own, other = Peer(alice.node.instance).id, Peer(bob.node.instance).id
        far = alice.node.neighbours.far(bob.node.instance)
        assert far is not None
        with alice.node.waits.waiting(Peer(alice.node.instance), Peer(bob.node.instance), message_id):
            await asyncio.sleep(0)
            for to, path in ((own, [other]), (own, [own, other]), (Peer("nobody").id, [other])):
                params = {"id": "x", "to": to, "path": path, "kinds": ["ask"] * len(path)}
                assert alice.node.waits.probed(params, far) == {}
            forged = {"id": "x", "to": own, "path": [Peer("carol").id], "kinds": ["ask"]}
            refused = alice.node.waits.probed(forged, far)
            assert isinstance(refused, Refusal)
            assert refused.code == "INVALID_PARAMS"
            outside = replace(far, standing=replace(far.standing, is_in_scope=False))
            refused = alice.node.world.probed({}, outside)
            assert isinstance(refused, Refusal)
            assert refused.code == "SCOPE_DENIED"
            assert alice.node.waits.cycles == ()


async def test_far_end_that_knows_no_probes_is_asked_once(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A foreign end, or an older one of ours, is probed no more; the wait itself is known here."""
    async with two(private_home) as (alice, bob):
        message_id = await question(alice, "bob")
        asked: list[str] = []

        async def ask_peer(_instance: str, method: str, _params: dict[str, Any]) -> dict[str, Any]:
            asked.append(method)
            raise Refused("CAPABILITY_DENIED", "no Tieline end")

        monkeypatch.setattr(alice.node, "ask_peer", ask_peer)
        with alice.node.waits.waiting(Peer(alice.node.instance), Peer(bob.node.instance), message_id):
            await asyncio.sleep(1.2)
        assert asked == ["tieline.wait_probe"]
        monkeypatch.setattr(bob.node.switchboard, "features", lambda _instance: frozenset({"send"}))
        monkeypatch.setattr(bob.node, "ask_peer", ask_peer)
        with bob.node.waits.waiting(Peer(bob.node.instance), Peer(alice.node.instance), message_id):
            await asyncio.sleep(0.4)
        assert len(asked) == 1


async def test_ring_that_was_not_flushed_is_told_again(private_home: Path) -> None:
    """What a read lost is told by the next one; what it delivered is not."""
    async with two(private_home) as (alice, bob):
        ids = await question(alice, "bob"), await question(bob, "alice")
        own = Peer(alice.node.instance), Peer(bob.node.instance)
        with alice.node.waits.waiting(*own, ids[0]), bob.node.waits.waiting(*reversed(own), ids[1]):
            await until(lambda: bool(alice.node.waits.unread(own[0])))
            first = await alice.operations.call(host_of(alice), "peer_messages", {"replyTo": ids[0]})
            assert [one["type"] for one in first.result["events"]] == ["wait_cycle"]
            assert first.taken is not None
            assert alice.node.waits.unread(own[0]) == []
            await alice.operations.unflushed(first.taken)
            assert len((await call(alice, "peer_messages", replyTo=ids[0]))["events"]) == 1
            assert (await call(alice, "peer_messages", replyTo=ids[0]))["events"] == []


class Joined:
    """A root that is on another wire, where a session asked it something."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.intercom = SimpleNamespace(asks=SimpleNamespace(waiting=lambda _now_ms: self.asked))
        self.asked: list[Ask] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)


async def test_session_of_another_wire_that_waits_for_us_closes_a_ring(private_home: Path) -> None:
    """No probe goes there; what this root knows by itself is seen, also when it comes or ends in between."""
    async with two(private_home) as (alice, _):
        joined = Joined(alice.node)
        waits = alice.node.waits
        waits._node = joined  # type: ignore[assignment]
        own, session = Peer(alice.node.instance), Peer("intercom:0123")
        with waits.waiting(own, session, "m-1"):
            await asyncio.sleep(0.1)
            assert waits.cycles == ()
            now_ms = alice.node.now().mono_ms
            joined.asked = [Ask("m-2", "s", session.id, "pi", "?", None, now_ms)]
            await until(lambda: bool(waits.cycles))
            (ring,) = waits.cycles
            assert {wait.subject for wait in ring.waits} == {"m-1", "m-2"}
            generation = waits.generation
            await asyncio.sleep(1.2)
            assert waits.generation == generation  # the same wait is no change
            joined.asked = []
            await until(lambda: not waits.cycles)


async def test_free_resource_that_is_not_granted_waits_for_its_controller(private_home: Path) -> None:
    """After a while the request is a wait for who grants it, although nothing was written meanwhile."""
    async with two(private_home) as (alice, bob):
        own, other = Peer(alice.node.instance), Peer(bob.node.instance)
        claimant = Claimant(own.id, own.instance, "alice", self_identity())
        at_ms = alice.node.now().wall_ms - GRANT_MS + 300
        ticket = Ticket("r-1", 1, claimant, "build", at_ms)
        document = Document(
            ResourceKey("machine/x"), policy=Policy(other.id, (own.id,), "strict"), tickets=(ticket,)
        )
        alice.node.waits.take_documents([document])
        await asyncio.sleep(0.05)
        assert alice.node.waits.known == ()
        await until(lambda: bool(alice.node.waits.known))
        (wait,) = alice.node.waits.known
        assert (wait.awaited, wait.kind, wait.request) == (other.id, "resource", "r-1")


async def test_root_of_one_command_looks_at_resources_only_where_they_were_used(private_home: Path) -> None:
    """Who only asks leaves no trace there; who waits for what another holds learns it by being asked."""
    async with two(private_home, mode="command") as (alice, bob):
        folder = Path(alice.node.places.coordination) / "peer-resources"
        assert (await alice.waits())["waits"] == []
        assert not folder.exists()
        for root in (alice, bob):
            await call(
                root,
                "coordinate_resource",
                operation="request",
                resource="machine/x",
                requestId=root.node.alias,
                reason="r",
            )
        (wait,) = (await bob.waits())["waits"]
        assert (wait["waiterAlias"], wait["awaitedAlias"], wait["subject"]) == ("bob", "alice", "machine/x")
