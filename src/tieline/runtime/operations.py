"""The one table of operations that every door of a root offers: tools, host methods, local methods.

Rule 1: a door frames and flushes; what an operation does is here, once, for all doors.
Rule 2: params are closed: an unknown field is INVALID_PARAMS, and nothing happened.
Rule 3: what a read returns is consumed only when the door says that its bytes were flushed.

Source: reference/native.md 1O, 2.12, 137; DESIGN.md 3, 4; docs/attach.md.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from tieline.engine.contract import Act, Taken, Untaken
from tieline.errors import Refused
from tieline.model.identity import Peer
from tieline.runtime import (
    composing,
    conversations,
    coordination_tools,
    hosting,
    local,
    records,
    tools,
    waits,
)
from tieline.runtime.calls import Actor, Reply
from tieline.runtime.intercom import methods

if TYPE_CHECKING:
    from tieline.runtime.node import Node

__all__ = ["Act", "Actor", "Operations", "Reply"]

Handler = Callable[["Node", Actor, Any, str | None], Awaitable[Reply]]

TABLE: dict[str, tuple[type[msgspec.Struct], Handler]] = {
    **tools.TABLE,
    **coordination_tools.TABLE,
    **hosting.TABLE,
    **local.TABLE,
    **records.TABLE,
    **waits.TABLE,
    **conversations.TABLE,
    **composing.TABLE,
    **methods.TABLE,
}
"""Method name to (params, what it does)."""

# Prepared while this module is loaded, in one thread: two roots of one process that are the first to be asked
# the same at one instant would end it.
for _shape, _ in TABLE.values():
    msgspec.json.Decoder(_shape)


class Operations:
    """What a door calls."""

    def __init__(self, node: "Node") -> None:
        self._node = node

    @property
    def root_actor(self) -> Actor:
        """The root itself, as its host acts through a door."""
        return Actor(Peer(self._node.instance), Act.AGENT, "attach", is_host=True)

    async def call(self, actor: Actor, method: str, params: object, *, call_id: str | None = None) -> Reply:
        """Carry out one operation.

        Args:
            actor: Who acts, as the door proved it.
            method: A name of `TABLE`.
            params: The request's params: an object, or None.
            call_id: The host's id of a tool call; equal calls with equal ids send one message.

        Raises:
            Refused: nothing was taken; METHOD_NOT_FOUND, INVALID_PARAMS or the operation's own codes.
            OutcomeUnknown: only the same message id may ask again.
            RecoveryRequired: the store is in doubt.
        """
        entry = TABLE.get(method)
        if entry is None:
            raise Refused("METHOD_NOT_FOUND", f"this door has no method {method[:64]!r}")
        shape, handler = entry
        try:
            asked = msgspec.convert({} if params is None else params, shape, strict=True)
        except msgspec.ValidationError as error:
            raise Refused("INVALID_PARAMS", str(error)) from None
        return await handler(self._node, actor, asked, call_id)

    async def flushed(self, token: str) -> int:
        """The bytes that carried what `token` prepared reached the reader: it is consumed."""
        self._node.desk.settle(token, is_taken=True)
        self._node.waits.settle(token, is_taken=True)
        return await self._node.ask_count(Taken(token))

    async def unflushed(self, token: str) -> int:
        """They did not: custody stays as it was."""
        self._node.desk.settle(token, is_taken=False)
        self._node.waits.settle(token, is_taken=False)
        return await self._node.ask_count(Untaken(token))

    def subscribe(self, callback: Callable[[str, dict[str, Any]], None]) -> Callable[[], None]:
        """Call `callback(kind, params)` for what happens from now on; returns how to end that."""
        return self._node.subscribe(callback)
