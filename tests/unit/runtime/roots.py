"""Real roots in one process, each in the same private home, for the tests of the runtime."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tieline.engine.contract import Act
from tieline.model.identity import Peer
from tieline.runtime.calls import Actor
from tieline.runtime.options import RootOptions
from tieline.runtime.root import Root, open_root


@asynccontextmanager
async def two(home: Path, **options: Any) -> AsyncIterator[tuple[Root, Root]]:
    """Give `alice` and `bob`, who see each other."""
    work = home / "w"
    work.mkdir(exist_ok=True)
    made = [
        await open_root(
            RootOptions(home=str(home / "h"), workspace=str(work), alias=alias, host_pid=1, **options)
        )
        for alias in ("alice", "bob")
    ]
    try:
        yield made[0], made[1]
    finally:
        for root in made:
            await root.close()


def host_of(root: Root) -> Actor:
    """Return the root's host as an actor."""
    return Actor(Peer(root.node.instance), Act.AGENT, "attach", is_host=True)


async def call(root: Root, method: str, actor: Actor | None = None, **params: Any) -> dict[str, Any]:
    """Call an operation as the host does; what it prepared is flushed."""
    reply = await root.operations.call(actor or host_of(root), method, params)
    if reply.taken is not None:
        await root.operations.flushed(reply.taken)
    return reply.result
