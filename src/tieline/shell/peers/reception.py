"""What came: judged in the order of the specification, made a command, and answered by a receipt.

Theory. A connection says who may write, a frame who claims to write; neither is answered on it. What is
to be told goes to the address that the frame names, over a connection of ours, and only where a window's
own record and key say that somebody is there: a frame makes us connect nowhere else.

Rule 1: nothing is told of a message before what it became is durable.
Rule 2: a receipt counts only for a message that was sent, and only from the end that it was sent to.
Rule 3: the wrapper that came is checked and taken off; what a model reads is built from what is known.
Rule 4: receipts that cannot be told are not kept: the sender's truth is then `unknown`, which is true.

Source: reference/pi-peers-and-harness-doors.md rules 28 to 32, 35, 40 to 43, U10, U14 to U18.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from tieline.engine.contract import Answer, Asked, Offer, ReceiptTold, Recorded
from tieline.engine.intake import Arrival, Intake, Judgement
from tieline.errors import Refusal
from tieline.model.identity import Peer
from tieline.model.receipt import State
from tieline.shell.peers.ports import World
from tieline.wire.peers import mapping
from tieline.wire.peers.frames import Frame, StatusFrame, Unknown, UserFrame
from tieline.wire.peers.protocol import Grade
from tieline.wire.peers.wrapper import unwrap

__all__ = ["Reception"]

WAITING_MAX: Final = 4_096
UNDECIDED: Final = "DELIVERY_UNKNOWN"
"""What a store in doubt says of an offer."""

Tell = Callable[[str, StatusFrame], None]
"""Sends a receipt to an address, if a window is there."""


class _Waiting(NamedTuple):
    """Whom to tell what became of an offer."""

    address: str
    original: str
    is_repeat: bool


class Reception:
    """The receiving side of one post."""

    def __init__(self, world: World, intake: Intake, own: Peer, tell: Tell) -> None:
        self._world, self._intake, self._own, self._tell = world, intake, own, tell
        self._waiting: OrderedDict[Asked, _Waiting] = OrderedDict()
        self.dropped_count = self.receipts_ignored_count = 0

    def take(self, link: int, frame: Frame, grade: Grade, pid: int | None = None) -> None:
        """Take one frame of a proved connection; `pid` is the process at its other end, where it is known."""
        if isinstance(frame, UserFrame):
            self._message(link, frame, grade, pid)
            return
        judged = self._judge(frame, grade, is_malformed=False)
        if isinstance(frame, Unknown) or judged.kind not in ("accept", "hold"):
            self.dropped_count += not isinstance(frame, Unknown)
        elif isinstance(frame, StatusFrame):
            self._receipt(link, frame, pid)
        else:
            self._world.taken(frame, grade)

    def answer(self, answer: Answer) -> None:
        """Tell a sender what its message became."""
        waiting = self._waiting.pop(answer.asked, None)
        if waiting is None or isinstance(answer.body, Recorded):
            return
        body = answer.body
        if isinstance(body, Refusal) and body.code == UNDECIDED:
            return  # it may be stored or not: this wire's only true word for that is none
        is_accepted = not isinstance(body, Refusal) and body.state is State.ACCEPTED
        if is_accepted and not waiting.is_repeat and self._world.is_busy:
            self._intake.note_accepted()
        status = mapping.status(
            body,
            original=waiting.original,
            message_id=self._world.new_id(),
            address=self._world.letterhead.address,
            is_repeat=waiting.is_repeat,
        )
        if status is not None:
            self._tell(waiting.address, status)

    def _judge(self, frame: Frame, grade: Grade, *, is_malformed: bool) -> Judgement:
        """Put one frame through the pipeline."""
        world, own = self._world, self._world.letterhead.address
        is_message = isinstance(frame, UserFrame)
        hops = frame.hop_chain if isinstance(frame, UserFrame) else ()
        content = frame.content if isinstance(frame, UserFrame) else ""
        arrival = Arrival(
            address=getattr(frame, "sender", ""),
            message_id=frame.message_id,
            content_digest=hashlib.sha256(content.encode("utf-8", "surrogatepass")).digest(),
            hop_count_own=hops.count(own),
            hop_length=len(hops),
            is_child=grade.is_child,
            is_malformed=is_malformed,
            is_control=not is_message,
        )
        return self._intake.judge(arrival, world.now().mono_ms, world.policy)

    def _message(self, link: int, frame: UserFrame, grade: Grade, pid: int | None) -> None:
        body = unwrap(frame.content, frame.sender)
        judged = self._judge(frame, grade, is_malformed=body is None)
        address = frame.reply_to or frame.sender
        is_repeat = judged.kind == "repeat" and judged.earlier is not None
        if judged.kind == "repeat" and judged.earlier is not None:
            judged = judged.earlier  # told again; what was taken is asked of the record itself
        if body is None or judged.kind not in ("accept", "hold"):
            self.dropped_count += 1
            status = mapping.verdict(
                "refuse" if judged.kind == "refuse" else "drop",
                judged.reason,
                original=frame.message_id,
                message_id=self._world.new_id(),
                address=self._world.letterhead.address,
            )
            self._tell(address, status)
            return
        sender = self._world.sender(frame, grade)
        if sender is None:
            self.dropped_count += 1  # under a guessed name it would be a second message later: not taken
            return
        named = frame.in_reply_to
        original = None if named is None else self._world.sent(named, frame.sender, pid)
        envelope = mapping.envelope(
            frame,
            sender=sender.peer,
            recipient=self._own,
            body=body,
            reply_to=None if original is None else original.message_id,
            alias=sender.standing.alias,
        )
        asked = Asked(link, frame.message_id)
        self._waiting[asked] = _Waiting(address, frame.message_id, is_repeat)
        if len(self._waiting) > WAITING_MAX:
            self._waiting.popitem(last=False)
        self._world.submit(
            Offer(
                asked,
                sender.peer.instance,
                sender.standing,
                envelope,
                is_held=judged.kind == "hold",
                wire=mapping.WIRE,
            )
        )

    def _receipt(self, link: int, frame: StatusFrame, pid: int | None) -> None:
        envelope = self._world.sent(frame.original, frame.sender, pid)
        if envelope is None:
            self.receipts_ignored_count += 1
            return
        receipt = mapping.receipt(frame, sender=envelope.sender, recipient=envelope.recipient)
        if receipt is not None:
            asked = Asked(link, frame.message_id)
            self._world.submit(ReceiptTold(asked, envelope.recipient.instance, receipt))
