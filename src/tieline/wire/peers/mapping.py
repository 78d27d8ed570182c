"""pi-peers frames and what they mean here; the only room that speaks both languages.

Rule 1: what this wire cannot say is not said: a receipt without a word of its own gives None, and what a
window could not read is refused before it leaves.
Rule 2: a status means no more than it says: "delivered" is accepted by a queue in memory unless the far
end states more, and never that a model read it.
Rule 3: who sent a frame is decided by the caller, from the connection and the registry; no field of a
frame becomes a peer here.
Rule 4: this module knows no connection, no registry and no clock.

Source: spec/pi-peers.md, "Frames"; reference/pi-peers-and-harness-doors.md 28 to 35, U10, U13.
"""

from typing import Final, Literal

from tieline.errors import ProtocolError, Refusal
from tieline.model.identity import Peer
from tieline.model.message import Delivery, Envelope
from tieline.model.receipt import Durability, Receipt, State
from tieline.wire.peers.frames import LINE_BYTES_MAX, Status, StatusFrame, UserFrame, encode, is_message_id
from tieline.wire.peers.wrapper import wrap

__all__ = ["WIRE", "departure", "envelope", "receipt", "status", "user_frame", "verdict"]

WIRE: Final = "pi-peers"

_DELIVERY_OF: Final = {"now": Delivery.STEER, "next": Delivery.QUEUE}

_OUTCOME_OF_REASON: Final = {
    "rate-limited": "RATE_LIMITED",
    "queue-full": "QUEUE_FULL",
    "duplicate": "DUPLICATE",
    "malformed-wrapper": "MALFORMED_WRAPPER",
    "hop-limit": "HOP_LIMIT",
}
"""Why a window dropped a message; the words beyond the specification's one are those of reference U13."""
_REASON_OF_OUTCOME: Final = {outcome: reason for reason, outcome in _OUTCOME_OF_REASON.items()}

_STATE_OF_STATUS: Final[dict[Status, tuple[State, str | None]]] = {
    "held": (State.PENDING, "HELD"),
    "delivered": (State.ACCEPTED, None),
    "denied": (State.REJECTED, "DENIED"),
    "expired": (State.EXPIRED, "HELD_EXPIRED"),
    "refused": (State.REJECTED, "REFUSED"),
    "dropped": (State.REJECTED, "DROPPED"),
}
_DURABILITIES: Final = {str(word): word for word in Durability}

Kind = Literal["accept", "hold", "drop", "refuse"]
_STATUS_OF_KIND: Final[dict[Kind, Status]] = {
    "accept": "delivered",
    "hold": "held",
    "drop": "dropped",
    "refuse": "refused",
}


def envelope(
    frame: UserFrame, *, sender: Peer, recipient: Peer, body: str, reply_to: str | None, alias: str
) -> Envelope:
    """Return the message that a frame carries.

    Args:
        frame: As it came.
        sender: Whom the caller found behind the connection.
        recipient: The peer of ours whose window it is.
        body: The text out of its wrapper.
        reply_to: The message it answers, where the caller knows that one; a frame's own word is a claim.
        alias: What the sender is called in lists.
    """
    return Envelope(
        message_id=frame.message_id,
        sender=sender,
        recipient=recipient,
        content=body,
        reply_to=reply_to,
        sender_alias=alias,
        delivery=_DELIVERY_OF[frame.priority],
    )


def departure(frame: UserFrame) -> Refusal | None:
    """Return why no window could read `frame`, or None.

    A window hangs up on an id that is no UUID and on a line past its bound, and says nothing; that must be
    known before anything is written.
    """
    if not is_message_id(frame.message_id):
        return Refusal("INVALID_PARAMS", "a message to a pi-peers window needs a UUID as its message id")
    try:
        encode(frame)
    except ProtocolError:
        return Refusal(
            "MESSAGE_TOO_LARGE", f"with its wrapper the text passes a line of {LINE_BYTES_MAX} bytes"
        )
    return None


def user_frame(message: Envelope, *, address: str, pid: int, session: str, name: str) -> UserFrame:
    """Return the frame that carries `message`, wrapped, from our window at `address`."""
    return UserFrame(
        message_id=message.message_id,
        sender=address,
        pid=pid,
        session=session,
        name=name,
        hop_chain=(address,),
        priority="now" if message.delivery is Delivery.STEER else "next",
        content=wrap(address, name, message.content),
        in_reply_to=message.reply_to,
    )


def receipt(told: StatusFrame, *, sender: Peer, recipient: Peer) -> Receipt | None:
    """Return what a status says of the message that `sender`, ours, sent to the window `recipient`.

    Returns:
        None where it speaks of several messages: take it apart with `StatusFrame.each` first.
    """
    if told.also:
        return None
    state, outcome = _STATE_OF_STATUS[told.status]
    if told.status == "dropped":
        outcome = _OUTCOME_OF_REASON.get(told.reason, outcome)
    durability = None
    if state is State.ACCEPTED:
        durability = _DURABILITIES.get(told.durability or "", Durability.VOLATILE)
    return Receipt(
        message_id=told.original,
        sender=sender.id,
        recipient=recipient.id,
        state=state,
        cursor=0,
        outcome=outcome,
        durability=durability,
    )


def status(
    body: Receipt | Refusal, *, original: str, message_id: str, address: str, is_repeat: bool = False
) -> StatusFrame | None:
    """Return the status that tells the sender of `original` what became of it.

    Args:
        body: Our receipt, or why nothing was taken.
        original: The id of the message it speaks of.
        message_id: A new UUID for the frame itself.
        address: Our window.
        is_repeat: The message came again: what was accepted once is "delivered" again, read or not.

    Returns:
        None where this wire has no word for it: read, answered, gone unread after it was delivered.
    """
    word, reason, durability = _words(body, is_repeat=is_repeat)
    if word is None:
        return None
    return StatusFrame(message_id, address, original, word, reason, durability)


def verdict(kind: Kind, reason: str, *, original: str, message_id: str, address: str) -> StatusFrame:
    """Return the status that tells the sender what was decided about `original` before custody.

    Args:
        kind: What was decided.
        reason: The wire's own word for why; written behind "dropped:" where it was dropped.
        original: The id of the message it speaks of.
        message_id: A new UUID for the frame itself.
        address: Our window.
    """
    return StatusFrame(message_id, address, original, _STATUS_OF_KIND[kind], reason)


def _words(body: Receipt | Refusal, *, is_repeat: bool) -> tuple[Status | None, str, str | None]:
    """Return status, reason and durability; no status where there is no word."""
    if isinstance(body, Refusal):
        return _refused(body.code)
    match body.state:
        case State.PENDING if body.outcome == "HELD":
            return "held", "", None
        case State.ACCEPTED:
            return "delivered", "", str(body.durability) if body.durability else None
        case State.CONSUMED | State.REPLIED if is_repeat:
            return "delivered", "", str(body.durability) if body.durability else None
        case State.REJECTED if body.outcome == "DENIED":
            return "denied", "", None
        case State.REJECTED:
            return _refused(body.outcome or "")
        case State.EXPIRED if body.accepted_ms is None:
            return "expired", "", None
        case _:
            return None, "", None


def _refused(code: str) -> tuple[Status, str, None]:
    reason = _REASON_OF_OUTCOME.get(code)
    if reason is not None:
        return "dropped", reason, None
    return "refused", code.lower().replace("_", "-"), None
