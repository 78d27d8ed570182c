"""What a root shows of itself, and that it stays there: its record, its sockets, its window.

Theory. A record invites, a socket takes in. Cleaners of temporary files take both away under a live root, so
every beat looks and puts back. What the host says of itself is published at once.

Rule 1: a root publishes only an endpoint that listens.
Rule 2: a beat that fails is logged; the next one tries again.

Source: reference/native.md 1C, 2.1; reference/reliability.md S6, K28; reference/open-bugs.md O29.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING

from tieline import config
from tieline.errors import TielineError
from tieline.runtime import neighbours
from tieline.runtime.tidying import tidy
from tieline.shell import link

if TYPE_CHECKING:
    from tieline.runtime.node import Node

__all__ = ["Publication"]


class Publication:
    """The outside of one root."""

    def __init__(self, node: "Node") -> None:
        """Serve on the root's endpoint from now on."""
        self._node = node
        self.server = self._serve()

    def _serve(self) -> link.Listener:
        return link.serve(self._node.switchboard, self._node.endpoint.sock, self._node.accept_failed)

    def publish(self) -> None:
        """Write presence, and the window where there is one, as the root is now."""
        node = self._node
        facts = neighbours.own_record(
            session=node.session,
            place=node.place,
            project=node.project,
            harness=node.options.harness,
            model=node.host.model,
            mode=node.options.mode,
            is_busy=node.host.is_busy,
            activity=node.host.activity or "idle",
            context_percent=node.host.context_percent,
            started_ms=node.started.wall_ms,
            message_count=node.engine.counters.get("accepted", 0),
            communication=neighbours.communication(
                instance=node.instance,
                endpoint=node.endpoint.path,
                public_key=node.key.public,
                capabilities=node.capabilities,
                alias=node.alias,
                place=node.place,
            ),
        )
        node.neighbours.publish(facts, node.now())
        node.is_published = True

    def withdraw(self) -> None:
        """Invite nobody any more, and take nobody in."""
        with contextlib.suppress(TielineError, OSError):
            self._node.neighbours.withdraw()
        if self._node.windows is not None:
            self._node.windows.withdraw()
        self.server.close()

    async def beat(self) -> None:
        """Every five seconds: publish, and bind again what a cleaner took away."""
        node = self._node
        is_tidied = False
        while True:
            await asyncio.sleep(config.HEARTBEAT_MS / 1000)
            try:
                if node.is_published and not node.is_closing:
                    self.publish()
                    if node.windows is not None:
                        node.windows.beat()
                self.rebind()
                node.desk.beat()
                if not is_tidied:
                    is_tidied = True
                    # However long it takes, the beat goes on.
                    node.tasks.start(asyncio.to_thread(self._tidy))
            except (TielineError, OSError) as error:
                node.log.failure("heartbeat", error)

    def _tidy(self) -> None:
        tidy(self._node.places, self._node.custody, self._node.settings.limits.retention_ms)

    def rebind(self) -> None:
        """Bind anew the endpoints whose names were taken away."""
        node = self._node
        if node.endpoint.missing():
            self.server.stop()
            try:
                node.endpoint = node.endpoint.republish()
            finally:  # where that failed the old socket still serves who holds its name
                self.server = self._serve()
            node.log.note("endpoint republished")
        if node.control_endpoint.missing():
            node.control.stop()
            try:
                node.control_endpoint = node.control_endpoint.republish()
            finally:
                node.control.listen(node.control_endpoint.sock)
            node.log.note("control endpoint republished")
