"""A message we sent, until its receipt is final.

Theory. What we know of a sent message grows: first our own two words for it (pending, unknown), then
the recipient's (accepted, consumed, replied, rejected, expired). Nothing that the recipient stated
is ever taken back by something older, weaker or local.

Rule 1: what we know of a sent message changes in this module's functions, nowhere else.
Rule 2: every (state, state) pair is in exactly one of the tables; a pair that is ignored is no error:
    late and repeated receipts are normal.
Rule 3: a time once stated never changes.
Rule 4: that a recipient asks its person is its word, and no custody: our word stays `unknown`, with HELD.
Rule 5: how far it came on its way is kept beside `unknown`, and never becomes less.
Rule 6: this module knows neither clock nor disk nor wire; it is told.

Source: reference/native.md 2.6b, 3.3, 3.4 "head retry"; reference/reliability.md I4, I15, I19, I20.
"""

import zlib

import msgspec

from tieline.config import RETRY_FIRST_MS, RETRY_LAST_MS
from tieline.errors import Refusal
from tieline.model.receipt import HELD, NOTES, THEIRS, Durability, Receipt, State

__all__ = [
    "ENDED",
    "IGNORED",
    "KEPT_CODES",
    "LINK_CODES",
    "MOVES",
    "NOT_DELIVERED",
    "OUTCOME_ONLY",
    "REENTRY",
    "TRANSIENT_CODES",
    "Known",
    "lost",
    "reenter",
    "refused",
    "retry_delay_ms",
    "step",
    "undelivered",
]

_P, _U, _A, _C = State.PENDING, State.UNKNOWN, State.ACCEPTED, State.CONSUMED
_R, _J, _E = State.REPLIED, State.REJECTED, State.EXPIRED

MOVES: frozenset[tuple[State, State]] = frozenset(
    {(_P, _U)}
    | {(_P, _A), (_P, _C), (_P, _R), (_P, _J), (_P, _E)}
    | {(_U, _A), (_U, _C), (_U, _R), (_U, _J), (_U, _E)}
    | {(_A, _C), (_A, _R), (_A, _E)}
    | {(_C, _R)}
)
"""What changes the state."""

OUTCOME_ONLY: frozenset[tuple[State, State]] = frozenset({(_A, _A)})
"""The state stays; the outcome may become TARGET_ENDED."""

REENTRY: frozenset[tuple[State, State]] = frozenset({(_J, _P)})
"""Only the sender, with the same id and content, and only when the refusal was retryable."""

IGNORED: frozenset[tuple[State, State]] = frozenset(
    {(_P, _P), (_U, _P), (_U, _U)}
    | {(_A, _P), (_A, _U), (_A, _J)}  # a refusal after custody was taken is late or false
    | {(_C, _P), (_C, _U), (_C, _A), (_C, _C), (_C, _J), (_C, _E)}
    | {(_R, _P), (_R, _U), (_R, _A), (_R, _C), (_R, _R), (_R, _J), (_R, _E)}
    | {(_J, _U), (_J, _A), (_J, _C), (_J, _R), (_J, _J), (_J, _E)}
    | {(_E, _P), (_E, _U), (_E, _A), (_E, _C), (_E, _R), (_E, _J), (_E, _E)}
)
"""Late, weaker or repeated: the first truth stands."""

ENDED = "TARGET_ENDED"
NOT_DELIVERED = "NOT_DELIVERED"

KEPT_CODES = frozenset({"PEER_OFFLINE", "DELIVERY_UNKNOWN", "INVALID_RPC", "RECOVERY_REQUIRED"})
"""Refusals that leave the intent as it is: they do not say that the recipient holds nothing."""

TRANSIENT_CODES = frozenset({"QUEUE_FULL", "RATE_LIMITED"})
"""Definite refusals that the same message id may overcome later."""

LINK_CODES = TRANSIENT_CODES | {"AUTHENTICATION_FAILED"}
"""Refusals that a link may state without looking at any record: they end one attempt, and say nothing of
an earlier one that was never answered and may have been taken."""


class Known(msgspec.Struct, frozen=True, gc=False):
    """What we know of one sent message; times in wall milliseconds, `recipient_cursor` the recipient's."""

    state: State = State.PENDING
    accepted_ms: int | None = None
    consumed_ms: int | None = None
    replied_ms: int | None = None
    outcome: str | None = None
    durability: Durability | None = None
    is_retryable: bool = False
    recipient_cursor: int | None = None


def step(known: Known, receipt: Receipt, unstated: Durability = Durability.UNSTATED) -> Known | None:
    """Return what is known after the recipient's receipt, or None when it changes nothing.

    None is also the answer to a receipt that is older by the recipient's own cursor, and to one
    whose state is not the recipient's to say. `unstated` is the durability of its storage where the
    receipt names none.
    """
    if receipt.is_held:
        if known.state not in (State.PENDING, State.UNKNOWN) or known.outcome == HELD:
            return None
        return msgspec.structs.replace(known, state=State.UNKNOWN, outcome=HELD)
    if receipt.is_note:
        if known.state is not State.UNKNOWN or _rank(receipt.outcome) <= _rank(known.outcome):
            return None
        return msgspec.structs.replace(known, outcome=receipt.outcome)
    pair = (known.state, receipt.state)
    if receipt.state not in THEIRS or pair in IGNORED or pair in REENTRY:
        return None
    if known.recipient_cursor is not None and receipt.cursor < known.recipient_cursor:
        return None
    if pair in OUTCOME_ONLY:
        if known.outcome is not None or receipt.outcome != ENDED:
            return None
        return msgspec.structs.replace(known, outcome=ENDED, recipient_cursor=receipt.cursor)
    assert pair in MOVES
    return Known(
        state=receipt.state,
        accepted_ms=_first(known.accepted_ms, receipt.accepted_ms),
        consumed_ms=_first(known.consumed_ms, receipt.consumed_ms),
        replied_ms=_first(known.replied_ms, receipt.replied_ms),
        outcome=receipt.outcome,
        durability=known.durability or receipt.durability or unstated,
        is_retryable=receipt.is_retryable and receipt.state is State.REJECTED,
        recipient_cursor=receipt.cursor,
    )


def lost(known: Known, said: str | None = None) -> Known | None:
    """Return what is known after a transmission that got no answer of the recipient, or None when more is.

    `said` is the word of who carries it on, one of `NOTES`.
    """
    if (known.state, State.UNKNOWN) not in MOVES:
        return None
    return msgspec.structs.replace(known, state=State.UNKNOWN, outcome=said or known.outcome)


def _rank(outcome: str | None) -> int:
    """Return how much a note says: -1 for what is none."""
    return NOTES.index(outcome) if outcome in NOTES else -1


def refused(known: Known, refusal: Refusal) -> Known | None:
    """Return what is known after a typed refusal, or None when it leaves the intent as it is."""
    if refusal.code in KEPT_CODES or (known.state, State.REJECTED) not in MOVES:
        return None
    if known.state is State.UNKNOWN and refusal.code in LINK_CODES:
        return None
    return msgspec.structs.replace(
        known,
        state=State.REJECTED,
        outcome=refusal.code,
        is_retryable=refusal.is_retryable or refusal.code in TRANSIENT_CODES,
    )


def undelivered(known: Known) -> Known | None:
    """Return what is known once it is proven that the recipient never took it, or None."""
    if (known.state, State.EXPIRED) not in MOVES or known.state is State.ACCEPTED:
        return None
    return msgspec.structs.replace(known, state=State.EXPIRED, outcome=NOT_DELIVERED)


def reenter(known: Known) -> Known | None:
    """Return what is known when the sender tries the same id again, or None where that is not allowed."""
    if (known.state, State.PENDING) not in REENTRY or not known.is_retryable:
        return None
    return Known()


def retry_delay_ms(message_id: str, failure_count: int) -> int:
    """Return how long to wait after the `failure_count`-th failure in a row (from 1).

    0.5 s doubling to 30 s, less up to a quarter. The jitter comes from the message id, so that many
    senders do not return in step and one history replays exactly.
    """
    full = min(RETRY_FIRST_MS << min(failure_count - 1, 16), RETRY_LAST_MS)
    share = zlib.crc32(f"{message_id}:{failure_count}".encode()) & 0xFFFF
    return full - full * share // (4 * 0xFFFF)


def _first(known: int | None, told: int | None) -> int | None:
    return told if known is None else known
