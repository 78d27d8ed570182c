"""Taking away what ended roots left behind."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.runtime.roots import two
from tieline.runtime.tidying import tidy
from tieline.shell.endpoint import owner_state

pytestmark = pytest.mark.asyncio

LIVE = """
import asyncio, sys
from tieline.runtime.options import RootOptions
from tieline.runtime.root import open_root
async def live():
    root = await open_root(RootOptions(home=sys.argv[1], workspace=sys.argv[2], alias="dead", host_pid=1))
    if sys.argv[3] == "mail":
        await root.send(root.who()["peerId"], "kept")
    print(root.node.instance, flush=True)
    await asyncio.sleep(60)
asyncio.run(live())
"""


@pytest.mark.clause("K12", "S6", "native-44", "native-35", "I7")
@pytest.mark.parametrize("left", ["mail", "nothing"])
async def test_tidying_takes_what_is_proven_dead_and_nothing_else(private_home: Path, left: str) -> None:
    """A killed root's sockets and owner file and its presence go at once; living roots keep all."""
    async with two(private_home) as (alice, _bob):
        places = alice.node.places
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", LIVE, places.home, str(private_home / "w"), left, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        dead = (await process.stdout.readline()).decode().strip()
        living = {name for name in os.listdir(places.runtime) if dead not in name}
        process.send_signal(signal.SIGKILL)
        await process.wait()
        assert owner_state(places.runtime, dead) == "gone"
        (record,) = [name for name in os.listdir(places.active_agents) if dead in name]
        await asyncio.to_thread(tidy, places, alice.node.custody, 86_400_000)
        assert set(os.listdir(places.runtime)) == living
        assert record not in os.listdir(places.active_agents)
        assert len(os.listdir(places.active_agents)) == 2
        # Mail is never taken away with a name; a store that never held any goes at once, with its log.
        assert (dead in os.listdir(places.stores)) == (left == "mail")
        assert (f"{dead}.log" in os.listdir(places.logs)) == (left == "mail")
        assert [peer["alias"] for peer in await alice.peers()] == ["bob"]


async def test_tidying_shares_no_handle_with_the_loop(private_home: Path) -> None:
    """Roots are listed and published while another thread tidies, again and again."""
    async with two(private_home) as (alice, _bob):
        done = asyncio.Event()

        async def tidying() -> None:
            for _ in range(30):
                await asyncio.to_thread(tidy, alice.node.places, alice.node.custody, 0)
            done.set()

        task = asyncio.get_running_loop().create_task(tidying())
        while not done.is_set():
            await alice.publish()
            assert [peer["alias"] for peer in await alice.peers()] == ["bob"]
        await task
