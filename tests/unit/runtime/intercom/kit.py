"""Roots at a broker of this process, each with a home of its own: only the intercom is common to them."""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.unit.runtime.roots import call
from tieline.engine.brokering.contract import Drop, Put
from tieline.engine.brokering.hub import Hub
from tieline.runtime.broker.sessions import Sessions
from tieline.runtime.intercom.intercom import Intercom
from tieline.runtime.node import Node
from tieline.runtime.options import RootOptions
from tieline.runtime.root import Root
from tieline.runtime.world import now
from tieline.shell.hub import claim, place_of, serve
from tieline.wire.intercom.saying import FrameCodec

__all__ = ["Station", "intercom_of", "station", "tool", "until"]


class _Keeping:
    """A store that forgets: no test here ends the broker."""

    def commit(self, rows: list[Put | Drop]) -> None:
        """Keep nothing."""


class Station:
    """A broker, and how roots join it."""

    def __init__(self, home: Path, stack: AsyncExitStack) -> None:
        self.home, self.stack = home, stack
        self.environment = {
            **os.environ,
            "PI_INTERCOM_RUNTIME_DIR": str(home / "i"),
            "TIELINE_INTERCOM_ENABLED": "true",
        }
        self.environment.pop("PI_CODING_AGENT_DIR", None)

    async def root(
        self, alias: str, *, is_joined: bool = True, session: str = "", **environment: str
    ) -> Root:
        """Return a root under the native session `s-ALIAS`, or a named one, once the broker has it."""
        for name in (alias, "w"):
            (self.home / name).mkdir(mode=0o700, exist_ok=True)
        options = RootOptions(
            home=str(self.home / alias), workspace=str(self.home / "w"), alias=alias,
            session=session or "s-" + alias, host_pid=1,
        )  # fmt: skip
        made = Root(await Node.open(options, {**self.environment, **environment}))
        self.stack.push_async_callback(made.close)
        if is_joined:
            await intercom_of(made).roster.connected()
        return made


@asynccontextmanager
async def station(home: Path) -> AsyncIterator[Station]:
    """Give a running broker of this process."""
    async with AsyncExitStack() as stack:
        made = Station(home, stack)
        held = claim(place_of(made.environment))
        assert held is not None
        stack.callback(held.release)
        codec = FrameCodec()
        sessions = Sessions(Hub(codec, now()), codec, _Keeping(), lambda: str(uuid.uuid4()), now)
        endpoint = held.listen()
        listener = serve(sessions, endpoint.sock, lambda error: None)
        stack.push_async_callback(sessions.close)
        stack.callback(endpoint.close)
        stack.callback(listener.stop)
        inner = await stack.enter_async_context(AsyncExitStack())
        made.stack = inner
        yield made


def intercom_of(root: Root) -> Intercom:
    """Return a root's place on the intercom."""
    found: Intercom | None = root.node.intercom
    assert found is not None
    return found


async def tool(root: Root, action: str, **fields: Any) -> dict[str, Any]:
    """Call the tool as a model does; what it read is flushed."""
    return await call(root, "intercom", action=action, **fields)


async def until(is_so: Callable[[], Any], seconds: float = 5.0) -> Any:
    """Return what `is_so()` gives once it holds."""
    async with asyncio.timeout(seconds):
        while not (found := is_so()):  # noqa: ASYNC110 - nothing but a look tells it
            await asyncio.sleep(0.01)
    return found
