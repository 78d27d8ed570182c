"""One root from its opening to its end."""

import asyncio
import contextlib
import os
import shutil
from pathlib import Path
from uuid import UUID

import pytest

from tests.unit.runtime.roots import call, host_of, two
from tieline import Refused, UsageError
from tieline.engine.contract import Tick
from tieline.errors import Refusal
from tieline.model.identity import Capability, Peer
from tieline.runtime.node import Node
from tieline.runtime.options import RootOptions
from tieline.runtime.root import open_root

pytestmark = pytest.mark.asyncio


def options(home: Path, **more: object) -> RootOptions:
    """Return options of a root of this test."""
    return RootOptions(home=str(home / "h"), workspace=str(home), host_pid=1, **more)  # type: ignore[arg-type]


@pytest.mark.clause("native-2", "native-8")
async def test_node_that_is_switched_off_opens_nothing(private_home: Path) -> None:
    """Disabled communication makes no directory, no socket, no presence; a wrong seam neither."""
    with pytest.raises(Refused) as caught:
        await Node.open(options(private_home), {"TIELINE_ENABLED": "false"})
    assert caught.value.code == "COMMUNICATION_DISABLED"
    with pytest.raises(UsageError):
        await Node.open(options(private_home), {"TIELINE_TEST_SEAM": "x"})
    assert not os.listdir(private_home)


@pytest.mark.clause("K28", "native-45", "S14")
async def test_node_closed_leaves_no_socket_no_presence_and_no_task(private_home: Path) -> None:
    """What a root published goes with it, and a store that holds no mail; closing twice is once."""
    before = asyncio.all_tasks()
    root = await open_root(options(private_home, alias="alice"))
    node = root.node
    assert sorted(os.listdir(node.places.runtime)) == [
        f"{node.instance}.control",
        f"{node.instance}.owner",
        f"{node.instance}.sock",
        "tieline-endpoints.lock",
    ]
    assert len(os.listdir(node.places.active_agents)) == 1
    await root.close()
    await root.close()
    assert os.listdir(node.places.runtime) == ["tieline-endpoints.lock"]
    assert os.listdir(node.places.active_agents) == []
    assert os.listdir(node.places.stores) == os.listdir(node.places.logs) == []
    assert asyncio.all_tasks() == before
    refusal = await node.ask(Tick())
    assert isinstance(refusal, Refusal)


@pytest.mark.clause("K28")
async def test_node_closing_joins_what_was_admitted(private_home: Path) -> None:
    """A message that was being stored when its root was told to end is in its store afterwards."""
    async with two(private_home) as (alice, bob):
        sending = [
            asyncio.get_running_loop().create_task(alice.send("bob", str(number), wait_s=0))
            for number in range(8)
        ]
        await asyncio.gather(*sending)
        await bob.close()
        left = set()
        with contextlib.suppress(Refused):  # where nothing had arrived, nothing is left
            found = await alice.recover(bob.node.instance)
            left = {item.envelope.message_id for item in found.unread}
        told = [item for task in sending for item in alice.node.engine.sent(task.result()["messageId"], None)]
        accepted = {item.envelope.message_id for item in told if item.receipt.state == "accepted"}
        assert accepted <= left


@pytest.mark.clause("O29", "S6")
async def test_node_whose_names_were_taken_away_publishes_them_again(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sockets, then the whole runtime directory, removed under a live root: it is reached again."""
    monkeypatch.setattr("tieline.config.HEARTBEAT_MS", 50)
    async with two(private_home) as (alice, bob):
        await alice.send("bob", "one")
        circuits = alice.node.switchboard.counters["circuits_opened"]
        for taking in (
            lambda: [os.unlink(bob.who()[name]) for name in ("endpoint", "control")],
            lambda: shutil.rmtree(bob.node.places.runtime),
        ):
            taking()
            async with asyncio.timeout(5):
                while bob.node.endpoint.missing() or bob.node.control_endpoint.missing():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await alice.send("bob", "over the link that stayed")
            assert alice.node.switchboard.counters["circuits_opened"] == circuits
            for name in ("endpoint", "control"):
                assert (os.stat(bob.who()[name]).st_mode & 0o777) == 0o600
                _, writer = await asyncio.open_unix_connection(bob.who()[name])
                writer.close()
        bob.node.switchboard.close()
        bob.node.switchboard.is_closed = False
        await alice.send("bob", "over a new link")
        assert len(await bob.inbox()) == 4


@pytest.mark.clause("native-138", "S15", "native-139")
async def test_node_lets_each_peer_do_only_what_it_may(private_home: Path) -> None:
    """A run's token names that run alone; capabilities are the peer's own; an ended run may nothing."""
    async with two(private_home) as (_alice, bob):
        node, own = bob.node, Peer(bob.node.instance)
        run = await call(bob, "host.run_begin", run="r-1", capabilities=["message.receive"])
        assert node.acting_peer(host_of(bob), None) == own
        assert node.acting_peer(host_of(bob), run["token"]) == Peer(node.instance, "r-1")
        node.require(own, Capability.SEND)
        node.require(Peer(node.instance, "r-1"), Capability.RECEIVE)
        for peer, capability, code in (
            (own, Capability.CONTROL, "CAPABILITY_DENIED"),
            (Peer(node.instance, "r-1"), Capability.SEND, "CAPABILITY_DENIED"),
            (Peer(node.instance, "r-2"), Capability.RECEIVE, "TARGET_ENDED"),
        ):
            with pytest.raises(Refused) as caught:
                node.require(peer, capability)
            assert caught.value.code == code
        await call(bob, "host.run_end", run="r-1")
        for attempt in (
            lambda: node.acting_peer(host_of(bob), run["token"]),
            lambda: node.acting_peer(host_of(bob), ""),
        ):
            with pytest.raises(Refused) as caught:
                attempt()
            assert caught.value.code == "TARGET_ENDED"


async def test_node_publishes_when_its_host_named_the_session(private_home: Path) -> None:
    """Withheld presence is seen by nobody; under its session it is; a new session moves it."""
    hidden = await open_root(options(private_home, alias="hidden", is_published=False))
    async with hidden, await open_root(options(private_home, alias="seer")) as seer:
        assert await seer.peers() == []
        await hidden.publish("s-1")
        assert [peer["sessionId"] for peer in await seer.peers()] == ["s-1"]
        await call(hidden, "host.state", session="s-2")
        assert [peer["sessionId"] for peer in await seer.peers()] == ["s-2"]
        assert len(os.listdir(hidden.node.places.active_agents)) == 2


async def test_node_ids_of_messages_sort_by_time_and_never_repeat(private_home: Path) -> None:
    """A fresh UUID each time, later ones after earlier ones, tokens of 128 bits."""
    async with await open_root(options(private_home, alias="alice")) as root:
        ids = [root.node.new_message_id() for _ in range(100)]
        assert len(set(ids)) == 100
        assert [item[:13] for item in ids] == sorted(item[:13] for item in ids)
        assert {UUID(item).version for item in ids} == {7}
        assert len(bytes.fromhex(root.node.new_token())) == 16


async def test_node_asks_another_root_and_tells_a_foreign_one_apart(private_home: Path) -> None:
    """An unknown method of a far end is CAPABILITY_DENIED here; an absent root is offline."""
    async with two(private_home) as (alice, bob):
        assert await alice.node.is_tieline(alice.node.instance, True)
        assert await alice.node.is_tieline(bob.node.instance, False) is None
        assert await alice.node.is_tieline(bob.node.instance, True)
        with pytest.raises(Refused) as caught:
            await alice.node.ask_peer(bob.node.instance, "no.such", {})
        assert caught.value.code == "CAPABILITY_DENIED"
        with pytest.raises(Refused) as caught:
            await alice.node.ask_peer("absent-1", "peer.directory", {"version": 1})
        assert caught.value.code == "PEER_OFFLINE"
