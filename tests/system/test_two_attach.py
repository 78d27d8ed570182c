"""Two hosts' roots in two processes: they meet, they leave, they die."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.system.kit.attached import Attached, ended_stores, left_files
from tieline.shell.endpoint import owner_state

pytestmark = pytest.mark.asyncio


@pytest.mark.clause("native-26", "native-69", "native-1", "native-4")
async def test_two_hosts_list_each_other_exchange_and_leave_nothing(private_home: Path) -> None:
    """Listed, sent, read, replied, told; the end of the input ends each within 5 s, names and all."""
    alice, bob = await asyncio.gather(
        Attached.start(private_home, "alice"), Attached.start(private_home, "bob")
    )
    for one, other in ((alice, bob), (bob, alice)):
        listed = await one.call("list_peers", scope="machine")
        assert [peer["peerId"] for peer in listed["peers"]] == [other.who["peerId"]]
    sent = await alice.call("send_peer_message", to="bob", content="hello")
    assert (sent["state"], sent["durability"]) == ("accepted", "synced")
    read = await bob.call("peer_messages", waitMs=5_000)
    assert [(item["content"], item["from"]) for item in read["messages"]] == [("hello", alice.who["peerId"])]
    assert read["messages"][0]["authority"] == "external"
    await bob.call("send_peer_message", to="alice", content="hi", replyTo=sent["messageId"])
    answer = await alice.call("peer_messages", replyTo=sent["messageId"], waitMs=5_000)
    assert [item["content"] for item in answer["messages"]] == ["hi"]
    status = await alice.call("local.status", messageId=sent["messageId"])
    assert status["sent"][0]["receipt"]["state"] == "replied"
    assert {event["method"] for event in bob.events} == {"peer_update"}
    assert await alice.leave() <= 5
    assert left_files(private_home)["active-agents"] != []
    assert (await bob.call("list_peers", scope="machine"))["peers"] == []
    assert await bob.leave() <= 5
    assert left_files(private_home) == {"active-agents": [], "peer-runtime": []}


@pytest.mark.clause("K28", "O33", "K33")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_host_door_ended_by_a_signal_leaves_in_order(
    private_home: Path, number: signal.Signals
) -> None:
    """A signal, also while a wait is pending: gone within 5 s, its names taken away."""
    alice, bob = await asyncio.gather(
        Attached.start(private_home, "alice"), Attached.start(private_home, "bob")
    )
    await bob.say("peer_messages", waitMs=30_000, **{"from": "alice"})
    await asyncio.sleep(0.1)
    assert await bob.end(number) <= 5
    assert [name for name in left_files(private_home)["peer-runtime"] if bob.who["instanceId"] in name] == []
    assert (await alice.call("list_peers", scope="machine"))["peers"] == []
    assert await alice.leave() <= 5
    assert left_files(private_home) == {"active-agents": [], "peer-runtime": []}


@pytest.mark.clause("native-43", "native-44", "S6", "K12", "O34")
async def test_killed_root_leaves_a_name_that_only_a_proof_takes_away(private_home: Path) -> None:
    """SIGKILL leaves the socket; a stopped root's is never taken; the next root sweeps the dead."""
    dead, stopped = await asyncio.gather(
        Attached.start(private_home, "dead"), Attached.start(private_home, "stopped")
    )
    foreign = private_home / "peer-runtime" / "foreign-1.sock"
    os.mknod(foreign, 0o600 | 0o140000)  # a socket's name that nobody's owner file speaks for
    await dead.end(signal.SIGKILL)
    stopped.process.send_signal(signal.SIGSTOP)
    runtime = str(private_home / "peer-runtime")
    assert owner_state(runtime, dead.who["instanceId"]) == "gone"
    assert owner_state(runtime, stopped.who["instanceId"]) == "alive"
    next_root = await Attached.start(private_home, "next")
    try:
        refused = await next_root.call("send_peer_message", to=dead.who["peerId"], content="x")
        assert refused.get("state") != "accepted"
        async with asyncio.timeout(15):  # the first heartbeat tidies
            while dead.who["instanceId"] in str(left_files(private_home)["peer-runtime"]):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        names = left_files(private_home)["peer-runtime"]
        assert f"{stopped.who['instanceId']}.sock" in names
        assert "foreign-1.sock" in names
        assert not any(dead.who["instanceId"] in name for name in left_files(private_home)["active-agents"])
        stopped.process.send_signal(signal.SIGCONT)
        sent = await next_root.call("send_peer_message", to="stopped", content="awake?")
        assert sent["state"] == "accepted"
    finally:
        stopped.process.send_signal(signal.SIGCONT)
        await next_root.leave()
        await stopped.leave()
        await dead.discard()


@pytest.mark.clause("K13", "native-32")
async def test_stopped_recipient_makes_no_false_receipt(private_home: Path) -> None:
    """A send to a stopped root ends open within its own budget; continued, the root accepts it once."""
    alice, bob = await asyncio.gather(
        Attached.start(private_home, "alice"), Attached.start(private_home, "bob")
    )
    try:
        bob.process.send_signal(signal.SIGSTOP)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        sent = await alice.call("send_peer_message", to=bob.who["peerId"], content="x")
        assert loop.time() - begun < 5
        assert sent["state"] in {"pending", "unknown"}
        bob.process.send_signal(signal.SIGCONT)
        async with asyncio.timeout(15):
            while True:
                status = await alice.call("local.status", messageId=sent["messageId"])
                if status["sent"][0]["receipt"]["state"] == "accepted":
                    break
                await asyncio.sleep(0.1)
        assert len((await bob.call("peer_messages"))["messages"]) == 1
    finally:
        bob.process.send_signal(signal.SIGCONT)
        await alice.leave()
        await bob.leave()


@pytest.mark.clause("K1", "I1", "I2")
@pytest.mark.parametrize(
    "seam",
    [
        "journal.before_commit:1",
        "journal.synced:1",
        "journal.after_commit:2",
        "node.telling:2",
        "world.sending:2",
    ],
)
async def test_recipient_process_killed_at_a_seam_has_what_it_acknowledged(
    private_home: Path, seam: str
) -> None:
    """The real door, killed at a named place: what its sender was told is in its store, once."""
    bob = await Attached.start(private_home, "bob", TIELINE_TEST_SEAM=seam)
    alice = await Attached.start(private_home, "alice")
    accepted = []
    for number in range(3):
        sent = await alice.call("send_peer_message", to=bob.who["peerId"], content=f"n{number}")
        if sent.get("state") == "accepted":
            accepted.append(sent["messageId"])
        if bob.process.returncode is not None:
            break
    async with asyncio.timeout(5):
        assert await bob.process.wait() == -signal.SIGKILL
    assert await alice.leave() <= 5
    with ended_stores(private_home) as stores:
        held = [item.envelope.message_id for item in stores[bob.who["instanceId"]].unread]
    assert len(held) == len(set(held))
    assert set(accepted) <= set(held)
    await bob.discard()
