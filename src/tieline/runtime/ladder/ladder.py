"""The first rung: mail is pushed into the host's session, and falls to the next rung without evidence.

Theory. A host that has a door into its own session gets mail through it: an idle one is woken, a busy one
is given it at its next safe boundary. The host acknowledges nothing, so what was pushed stays in flight
until its text is seen again where the host shows it to its model, or until it is late. Then the boundaries
of the host may show it, and at last the inbox tool.

Rule 1: one push is in flight; what comes meanwhile waits, and goes out together, in order.
Rule 2: a message is pushed once. Its second way is another rung, under the same visible id.
Rule 3: an idle host is woken only with `idle_behavior = "auto"`; a pause wakes nobody; mail at the
automatic limit, of a muted sender, or passive, wakes nobody.
Rule 4: the clock of a push runs while its host could have taken it: a host at work is waited for until
its next boundary.
Rule 5: evidence is the frame's boundary, which is ours, fresh and random; never an id that a sender chose.
Rule 6: after `DEAF_MAX` pushes in a row without evidence nothing is pushed until there is some again.
Rule 7: a door may come and go, and may only be good for waking: then a host at work is not pushed to.

Source: DESIGN.md 3 "Exposure and consumption"; reference/harnesses.md 11; docs/delivery.md.
"""

import asyncio
import re
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from tieline.engine.contract import Held, Taken, Untaken
from tieline.errors import TielineError
from tieline.model.identity import Peer
from tieline.model.message import Delivery
from tieline.runtime.ladder.showing import Bounds, Prepared, prepared

if TYPE_CHECKING:
    from tieline.runtime.node import Node

__all__ = ["Ladder", "PushDoor"]

EVIDENCE_S = 10.0
"""A host that could take a push shows it to its model within this, or the next rung has it."""
BUSY_S_MAX = 3_600.0
"""A host at work that shows no boundary for so long is not waited for any more."""
LOOK_S = 0.5
"""Between two looks at whether a host at work became idle."""
PUSHED_BYTES_MAX = 24_576
"""Of one push's text: harnesses bound what one prompt may bring."""
GATHER_S = 0.02
"""A burst goes out together, and a read that waits for just this mail has it first."""
DEAF_MAX = 3
REMEMBERED_MAX = 256

Key = TypeVar("Key")
Value = TypeVar("Value")

_FRAME = re.compile(r"==== external message ([0-9a-f]{32,64}) ====")


class PushDoor(Protocol):
    """A way into the session of one harness."""

    @property
    def name(self) -> str:
        """Its name, in the log."""

    async def push(self, text: str, *, is_busy: bool) -> bool:
        """Hand `text` to the session; False when it certainly took none of it."""

    def is_busy(self) -> bool | None:
        """Return whether the session is in a turn, or None where the harness does not show that."""


class _Out(NamedTuple):
    """A push in flight; `first_ids` are of the messages that were never shown before."""

    token: str
    frames: frozenset[str]
    cursors: tuple[int, ...]
    first_ids: frozenset[str]


class Ladder:
    """The pushes of one root; it does nothing before it has a door."""

    def __init__(self, node: "Node", evidence_s: float = EVIDENCE_S) -> None:
        self._node = node
        self._evidence_s = evidence_s
        self._door: PushDoor | None = None
        self._is_begun = self._wakes_only = False
        self._news = asyncio.Event()
        self._settled = asyncio.Event()
        self._out: _Out | None = None
        self._boundary_at: float | None = None
        self._frames: OrderedDict[str, str] = OrderedDict()  # to the token of their push
        self._pushed: OrderedDict[int, None] = OrderedDict()  # cursors: each is pushed once
        self._deaf_count = 0

    @property
    def is_out(self) -> bool:
        """Whether a push waits for its evidence."""
        return self._out is not None

    def climb(self, door: PushDoor | None, *, wakes_only: bool = False) -> None:
        """Push through `door` from now on, what waits already first; None: push no more.

        With `wakes_only` it is for an idle host alone.
        """
        self._door, self._wakes_only = door, wakes_only
        self.look()
        if not self._is_begun:
            self._is_begun = True
            self._node.tasks.start(self._run())

    def look(self) -> None:
        """Look again whether something may be pushed: mail came, or the host's state changed."""
        self._news.set()

    def passed(self) -> None:
        """The host passed a boundary: a push that it has must show itself soon from here."""
        self._deaf_count = 0
        if self._boundary_at is None:
            self._boundary_at = asyncio.get_running_loop().time()
        self.look()

    async def seen(self, text: str) -> tuple[bool, int]:
        """Take the evidence that a text holds which the host shows its model.

        Returns:
            Whether a push of ours stands in it, and how many messages are consumed by this.
        """
        frames = set(_FRAME.findall(text))
        out = self._out
        tokens = {token for frame in frames if (token := self._frames.get(frame)) is not None}
        consumed = 0
        for token in sorted(tokens):  # one that is not in flight was given up, and shown after all
            if out is not None and token == out.token and self._out is out:
                consumed += await self._took(out)
            else:
                consumed += await self._node.ask_count(Taken(token))
        return bool(tokens), consumed

    async def answered(self, message_id: str) -> int:
        """The model answers a message: it has read it. Return how many messages are consumed by this.

        What was shown before may have been read before: then its answer says nothing of this push.
        """
        out = self._out
        return await self._took(out) if out is not None and message_id in out.first_ids else 0

    # ------------------------------------------------------------ pushing

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            await asyncio.sleep(GATHER_S)
            self._news.clear()
            try:
                await self._push()
            except TielineError as error:  # another reader was faster: what is left comes with the next look
                self._node.log.failure("push", error)

    async def _push(self) -> None:
        node, door = self._node, self._door
        if door is None or self._deaf_count >= DEAF_MAX or node.host.pause is not None:
            return
        is_busy = node.host.is_busy or door.is_busy() is True
        if self._wakes_only if is_busy else not node.host.is_automatic:
            return
        bounds = Bounds("push", PUSHED_BYTES_MAX, int(2 * BUSY_S_MAX * 1_000))
        shown = await prepared(node, Peer(node.instance), bounds, lambda item: self._may_go(item, is_busy))
        if shown.token is None:
            if shown.text:  # that a message waits which is too long to be shown: nothing is claimed by it
                await door.push(shown.text, is_busy=is_busy)
            return
        out = self._note(shown, shown.token)
        node.host.is_wake_out = True
        node.log.note("pushed", door=door.name, count=len(out.cursors))
        if not await door.push(shown.text, is_busy=is_busy):
            # Nothing was taken: it may go this way with a later look, but not for ever.
            for cursor in out.cursors:
                self._pushed.pop(cursor, None)
            await self._fall(out, may_come=False)
            return
        await self._wait(out, door)

    def _may_go(self, item: Held, is_busy: bool) -> bool:  # noqa: FBT001 - bound into one call
        envelope = item.envelope
        wanted = (Delivery.STEER,) if is_busy else (Delivery.STEER, Delivery.QUEUE)
        return (
            envelope.delivery in wanted
            and item.cursor not in self._pushed
            and envelope.automatic_depth < self._node.settings.limits.automatic_replies
            and not self._node.engine.is_muted(envelope.sender.id)
        )

    def _note(self, shown: Prepared, token: str) -> _Out:
        cursors = tuple(item.cursor for item in shown.held)
        frames = _FRAME.findall(shown.text)
        out = _Out(
            token,
            frozenset(frames),
            cursors,
            frozenset(item.envelope.message_id for item in shown.held if item.exposure_count == 1),
        )
        for frame in frames:
            _remember(self._frames, frame, token)
        for cursor in cursors:
            _remember(self._pushed, cursor, None)
        self._out, self._boundary_at = out, None
        self._settled.clear()
        return out

    async def _wait(self, out: _Out, door: PushDoor) -> None:
        """Wait for the evidence; without it in time, let the next rung have the mail."""
        now = asyncio.get_running_loop().time
        # A door that is slow to wake says so itself.
        evidence_s = getattr(door, "evidence_s", self._evidence_s)
        begun = idle_from = now()
        while self._out is out:
            is_busy = self._node.host.is_busy or door.is_busy() is True
            if is_busy and self._boundary_at is None:
                idle_from = now()
            since = max(idle_from, self._boundary_at or 0.0)
            if now() - since >= evidence_s or now() - begun >= BUSY_S_MAX:
                await self._fall(out)
                return
            await _within(self._settled, min(LOOK_S, evidence_s))

    async def _fall(self, out: _Out, *, may_come: bool = True) -> None:
        self._out = None
        self._deaf_count += 1
        self._node.host.is_wake_out = False
        await self._node.ask(Untaken(out.token, may_come))
        if may_come:
            self.look()

    async def _took(self, out: _Out) -> int:
        self._out = None
        self._deaf_count = 0
        self._settled.set()
        consumed = await self._node.ask_count(Taken(out.token))
        self.look()
        return consumed


def _remember(held: "OrderedDict[Key, Value]", key: Key, value: Value) -> None:
    held[key] = value
    while len(held) > REMEMBERED_MAX:
        held.popitem(last=False)


async def _within(event: asyncio.Event, seconds: float) -> None:
    """Wait for the event, at most so long."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
