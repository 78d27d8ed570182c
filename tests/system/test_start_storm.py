"""Many roots at once, and roots whose surroundings are taken away."""

import asyncio
import contextlib
import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.system.kit.attached import Attached, left_files
from tests.system.kit.hostile import HostilePeer

pytestmark = pytest.mark.asyncio


@pytest.mark.timeout(180)
@pytest.mark.clause("K16", "K31", "I44", "S6")
async def test_thirty_two_roots_started_at_once_are_all_listed_and_leave_nothing(private_home: Path) -> None:
    """One lock, one directory: each listens and is listed; of ten killed the next root takes the names."""
    roots = await asyncio.gather(*(Attached.start(private_home, f"agent{number}") for number in range(32)))
    try:
        ids = {root.who["peerId"] for root in roots}
        assert len(ids) == 32
        for root in (roots[0], roots[31]):
            shown = (await root.call("list_peers", scope="machine"))["peers"]
            assert {peer["peerId"] for peer in shown} == ids - {root.who["peerId"]}
        sent = await roots[0].call("send_peer_message", to="agent31", content="x")
        assert sent["state"] == "accepted"
        killed, ended = roots[1:11], [roots[0], *roots[11:]]
        for root in killed:
            await root.end(signal.SIGKILL)
        await asyncio.gather(*(root.leave() for root in ended))
        left = left_files(private_home)
        for root in ended:
            assert not any(root.who["instanceId"] in name for names in left.values() for name in names)
        sweeper = await Attached.start(private_home, "sweeper")
        async with asyncio.timeout(20):
            while len(left_files(private_home)["peer-runtime"]) > 3:  # noqa: ASYNC110 - nothing tells it
                await asyncio.sleep(0.1)
        await sweeper.leave()
        assert left_files(private_home) == {"active-agents": [], "peer-runtime": []}
    finally:
        for root in roots:
            await root.discard()


@pytest.mark.clause("O29", "S6")
async def test_root_whose_socket_or_directory_was_removed_is_reached_within_six_seconds(
    private_home: Path,
) -> None:
    """A cleaner takes the sockets, then the whole runtime directory: the owner publishes the same again."""
    alice, bob = await asyncio.gather(
        Attached.start(private_home, "alice"), Attached.start(private_home, "bob")
    )
    try:
        assert (await alice.call("send_peer_message", to="bob", content="1"))["state"] == "accepted"
        for taking in (
            lambda: [os.unlink(bob.who[name]) for name in ("endpoint", "control")],
            lambda: shutil.rmtree(private_home / "peer-runtime"),
        ):
            taking()
            # The link that was open goes on meanwhile.
            assert (await alice.call("send_peer_message", to="bob", content="2"))["state"] == "accepted"
            async with asyncio.timeout(6.5):
                while not names_of(bob) <= set(left_files(private_home)["peer-runtime"]):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            late = await Attached.start(private_home, "late")
            assert (await late.call("send_peer_message", to="bob", content="3"))["state"] == "accepted"
            await late.leave()
        assert len((await bob.call("peer_messages"))["messages"]) == 5
    finally:
        await alice.leave()
        await bob.leave()


@pytest.mark.clause("K7", "O32")
async def test_root_out_of_descriptors_serves_its_links_and_recovers(private_home: Path) -> None:
    """A hundred connections and no descriptor: no spin, no flood, an open link is served; then all."""
    bob = await Attached.start(private_home, "bob", descriptors=64)
    peer = await HostilePeer.start(private_home, "peer")
    links = [await peer.dial("bob") for _ in range(30)]
    assert "result" in await links[-1].send("before")
    begun_ticks = ticks(bob.process.pid)
    crowd = [await asyncio.open_unix_connection(bob.who["endpoint"]) for _ in range(100)]
    await asyncio.sleep(1.5)
    assert "result" in await links[-1].send("during")
    spent_s = (ticks(bob.process.pid) - begun_ticks) / os.sysconf("SC_CLK_TCK")
    assert spent_s < 0.5
    told = (private_home / "logs" / f"{bob.who['instanceId']}.log").read_text().count("accept: OSError")
    assert 1 <= told <= 4
    for _, writer in crowd:
        writer.transport.abort()
    for link in links[:20]:
        link.writer.transport.abort()
    again = None
    async with asyncio.timeout(2):
        while again is None:  # the dead of the backlog are met first: who comes among them tries again
            with contextlib.suppress(ConnectionError):
                again = await peer.dial("bob")
    assert "result" in await again.send("after")
    assert len((await bob.call("peer_messages"))["messages"]) == 3
    await peer.close()
    assert await bob.leave() <= 5


def names_of(root: Attached) -> set[str]:
    """Return the names of a root's two sockets."""
    return {os.path.basename(root.who[name]) for name in ("endpoint", "control")}


def ticks(pid: int) -> int:
    """Return the processor time that a process has used, in clock ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
