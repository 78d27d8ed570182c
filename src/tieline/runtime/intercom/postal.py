"""The world of one root's intercom post: its engine, its brokers' places, its sockets.

Rule 1: a guard is checked here before a message is offered to the engine at all, against what we are now.
Rule 2: the broker of the newest paths is started where none answers; that of an agent directory never is.

Source: reference/intercom.md 6.1, 6.4, 5 "Guarded send"; specification of the intercom, "Conditional native
context targeting", "Shared broker and migration".
"""

import asyncio
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tieline.engine.contract import Command
from tieline.errors import Refusal, TielineError
from tieline.model.identity import Peer
from tieline.model.moment import Moment
from tieline.shell import link
from tieline.shell.hub import Place, connect_hub
from tieline.shell.intercom import Line, Registration
from tieline.wire.intercom import mapping
from tieline.wire.intercom.client import LastAsked, MessageCame, ReceiptAsked, WakeAsked, WakeFailed

if TYPE_CHECKING:
    from tieline.runtime.intercom.intercom import Intercom

__all__ = ["AGENT", "SHARED", "Postal"]

SHARED: Final = "shared"
AGENT: Final = "agent"


class Postal:
    """The ports of one root's intercom post."""

    def __init__(self, intercom: "Intercom", places: dict[str, Place]) -> None:
        """Reach these brokers; only `SHARED` is ever started."""
        self._intercom, self._node, self._places = intercom, intercom.node, places

    def now(self) -> Moment:
        """Return the clocks."""
        return self._node.now()

    def new_id(self) -> str:
        """Return a fresh UUID."""
        return str(uuid.uuid4())

    def recipient(self, came: MessageCame) -> Peer:
        """Return the root, or the run of ours that asked what a message answers."""
        reply_to = came.message.get("replyTo")
        if isinstance(reply_to, str):
            instance = mapping.instance_of(came.sender["id"])
            for item in self._node.engine.sent(reply_to, None):
                asker = item.envelope.sender
                run = None if asker.run is None else self._node.engine.run(asker.run)
                if item.envelope.recipient.instance == instance and run is not None and run.is_live:
                    return asker
        return Peer(self._node.instance)

    def registration(self) -> Registration:
        """Return what a broker is told of us now."""
        return self._intercom.registration()

    # ------------------------------------------------------------ connecting

    def dial(self, broker: str, done: Callable[[Line | None, Refusal | None], None]) -> None:
        """Connect to a broker, or start it."""
        self._node.tasks.start(self._dial(broker, done))

    async def _dial(self, broker: str, done: Callable[[Line | None, Refusal | None], None]) -> None:
        loop = asyncio.get_running_loop()
        place = self._places[broker]
        try:
            if broker == SHARED:
                from tieline.runtime.broker.ensuring import ensure_broker  # noqa: PLC0415 - who is on it pays

                await loop.run_in_executor(None, ensure_broker, self._intercom.environment)
            sock = await loop.run_in_executor(None, connect_hub, place)
            line = await link.join(self._intercom.post, sock)
        except (TielineError, OSError) as error:
            self._intercom.dial_failed(broker, error)
            code = getattr(error, "code", "PEER_OFFLINE")
            done(None, Refusal(code, str(error), is_retryable=True))
        else:
            done(line, None)

    # ------------------------------------------------------------ what comes in

    def admits(self, broker: str, came: MessageCame) -> bool:
        """Return whether a message bears no guard, or one that holds now, whole."""
        if "guard" not in came.message:
            return True
        guard: Any = came.message["guard"]
        context = self._intercom.context
        is_holding = (
            isinstance(guard, dict)
            and not context.lineage.is_child
            and context.guard is not None
            and came.message.get("expectsReply") is False
            and guard.get("rootSessionId") == context.root
            and guard.get("peerId") == self._intercom.post.members[broker].session_id
            and guard.get("incarnation") == context.incarnation
            and guard.get("applicationGuard") == context.guard
        )
        if not is_holding:
            self._node.log.note("guarded message not taken", broker=broker)
        return is_holding

    def changed(self, broker: str) -> None:
        """We joined a broker, or lost it."""
        self._intercom.connection_changed(broker)

    def left(self, session_id: str) -> None:
        """A session is gone."""
        self._intercom.session_left(session_id)

    def arrived(self, came: MessageCame) -> None:
        """A message was taken into custody."""
        self._intercom.arrived(came)

    def turned_away(self, broker: str, came: MessageCame, refusal: Refusal) -> None:
        """A message was refused."""
        self._intercom.reads.turned_away(broker, came, refusal)

    def asked_last(self, broker: str, asked: LastAsked) -> None:
        """Somebody reads our last answer."""
        self._intercom.reads.asked_last(broker, asked)

    def asked_receipt(self, broker: str, asked: ReceiptAsked) -> None:
        """Somebody reads what became of a message to us."""
        self._intercom.reads.asked_receipt(broker, asked)

    def asked_wake(self, broker: str, asked: WakeAsked) -> None:
        """Mail waits for a parked child of ours."""
        self._intercom.wakes.asked(broker, asked)

    def wake_failed(self, told: WakeFailed) -> None:
        """The child that a question of ours waits for could not be woken."""
        self._intercom.wake_failed(told.message_id, told.detail)

    def is_waiting(self, asker: Peer, asked: Peer) -> bool:
        """Return whether a peer of ours waits for an answer of a session now."""
        return self._node.waits.is_waiting(asker, asked)

    def submit(self, command: Command) -> None:
        """Give a command to the driver."""
        self._node.driver.submit(command)

    def defer(self, callback: Callable[[], None]) -> None:
        """Call back on the loop's next turn."""
        self._node.world.defer(callback)

    def rearm(self) -> None:
        """The next deadline may have changed."""
        self._node.world.rearm()
