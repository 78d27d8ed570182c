"""May we take it: the ordered checks before custody, and a verdict with a code.

Rule 1: the checks run in the order of the table; the first no is the answer. Scope is asked before
    every option of the message, so that no option can go round it.
Rule 2: a no stores nothing and is never remembered: what configuration or time can cure is cured.
Rule 3: texts carry numbers of ours, never words of the peer.
Rule 4: this module measures nothing; the facts come in.

Source: reference/native.md 1H 83-89, 2.8, 2.9, 3.4; reference/reliability.md I4, I7, I8, I25, I28, I29, S16.
"""

from collections.abc import Callable
from enum import StrEnum

import msgspec

from tieline.errors import Refusal

__all__ = [
    "ARRIVAL",
    "DEPARTURE",
    "OUT_OF_SCOPE",
    "PRELIMINARY",
    "Bucket",
    "Facts",
    "Target",
    "refilled",
    "verdict",
]


class Target(StrEnum):
    """What is known here of the peer that a message is for."""

    LIVE = "live"
    ENDED = "ended"
    UNKNOWN = "unknown"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that a verdict depends on, measured beforehand."""

    malformed: str | None = None  # a sentence that names the field
    is_in_scope: bool = True
    may_send: bool = True
    may_receive: bool = True
    unsaid: tuple[str, ...] = ()  # options of the message that the far end cannot be told
    target: Target = Target.LIVE
    is_conflict: bool = False  # the id names another content here
    conversation: Refusal | None = None  # what the rules of replies and automatic sends say
    content_bytes: int = 0
    content_bytes_max: int = 0
    life_ms: int = 1  # what is left of it
    asked_life_ms: int = 1  # what was asked at its creation
    life_ms_max: int = 1
    depth: int = 0
    chain_count: int = 0  # automatic messages of this correlation that are stored here
    automatic_max: int = 1
    is_depth_bound: bool = False
    pair_count: int = 0  # sends of the pair without a person
    pair_max: int = 1
    is_pair_bound: bool = False
    has_token: bool = True  # of the sender's rate
    wait_ms: int = 0  # until our own pace lets it go
    is_repeat: bool = False  # the recipient has these very words already, and would drop them
    unread_count: int = 0
    unread_max: int = 1
    held_count: int = 0  # that wait for the person's consent
    held_max: int = 1
    stored_bytes: int = 0  # with this message and every reserve
    stored_bytes_max: int = 0


OUT_OF_SCOPE = Refusal("SCOPE_DENIED", "the peer is outside the allowed scope")
"""One value for every hidden peer, whether it exists or not: a second wording would tell which (S17)."""


def _form(facts: Facts) -> Refusal | None:
    return None if facts.malformed is None else Refusal("INVALID_PARAMS", facts.malformed)


def _scope(facts: Facts) -> Refusal | None:
    return None if facts.is_in_scope else OUT_OF_SCOPE


def _sending(facts: Facts) -> Refusal | None:
    return None if facts.may_send else Refusal("CAPABILITY_DENIED", "the sender lacks message.send")


def _receiving(facts: Facts) -> Refusal | None:
    return None if facts.may_receive else Refusal("CAPABILITY_DENIED", "the recipient lacks message.receive")


def _options(facts: Facts) -> Refusal | None:
    if not facts.unsaid:
        return None
    return Refusal("CAPABILITY_DENIED", "the recipient cannot be told: " + ", ".join(facts.unsaid))


def _liveness(facts: Facts) -> Refusal | None:
    if facts.target is Target.UNKNOWN:
        return Refusal("UNKNOWN_TARGET", "no such peer here")
    if facts.target is Target.ENDED:
        return Refusal("TARGET_ENDED", "that run has ended")
    return None


def _duplicate(facts: Facts) -> Refusal | None:
    if facts.is_conflict:
        return Refusal("MESSAGE_ID_CONFLICT", "this message id names another message")
    return None


def _conversation(facts: Facts) -> Refusal | None:
    return facts.conversation


def _size(facts: Facts) -> Refusal | None:
    if facts.content_bytes <= facts.content_bytes_max:
        return None
    return Refusal("MESSAGE_TOO_LARGE", f"{facts.content_bytes} bytes of at most {facts.content_bytes_max}")


def _expiry(facts: Facts) -> Refusal | None:
    if facts.life_ms <= 0:
        return Refusal("INVALID_PARAMS", "the message has expired")
    if facts.asked_life_ms <= 0:
        return Refusal("INVALID_PARAMS", "the life of a message is at least 1 ms")
    if max(facts.life_ms, facts.asked_life_ms) > facts.life_ms_max:
        return Refusal("INVALID_PARAMS", f"the life of a message is at most {facts.life_ms_max} ms")
    return None


def _budget(facts: Facts) -> Refusal | None:
    if facts.is_depth_bound and (
        facts.depth > facts.automatic_max or facts.chain_count >= facts.automatic_max
    ):
        return Refusal(
            "AUTOMATIC_REPLY_LIMIT", f"this conversation has its {facts.automatic_max} automatic messages"
        )
    if facts.is_pair_bound and facts.pair_count >= facts.pair_max:
        return Refusal("AUTOMATIC_REPLY_LIMIT", f"{facts.pair_max} sends to this peer without a person")
    return None


def _rate(facts: Facts) -> Refusal | None:
    if facts.has_token:
        return None
    return Refusal("RATE_LIMITED", "too many new messages from this sender", is_retryable=True)


def _pace(facts: Facts) -> Refusal | None:
    if facts.wait_ms <= 0:
        return None
    seconds = -(-facts.wait_ms // 1000)
    why = "this peer was just sent the same text" if facts.is_repeat else "this peer would drop it"
    hint = "merge what you have to say into one message, then retry"
    return Refusal("RATE_LIMITED", f"{why}; wait {seconds} s: {hint}", is_retryable=True)


def _room(facts: Facts) -> Refusal | None:
    if facts.unread_count >= facts.unread_max:
        text = f"the inbox holds {facts.unread_count} of {facts.unread_max} unread messages"
        return Refusal("QUEUE_FULL", text, is_retryable=True)
    if facts.held_count >= facts.held_max:
        text = f"{facts.held_count} of {facts.held_max} messages wait for the person's consent"
        return Refusal("QUEUE_FULL", text, is_retryable=True)
    if facts.stored_bytes > facts.stored_bytes_max:
        text = f"the store would hold {facts.stored_bytes} of {facts.stored_bytes_max} bytes"
        return Refusal("QUEUE_FULL", text, is_retryable=True)
    return None


Check = Callable[[Facts], Refusal | None]

PRELIMINARY: tuple[Check, ...] = (_scope, _sending)
"""What is asked before the sender's root is troubled with a question."""

ARRIVAL: tuple[Check, ...] = (
    _scope,
    _sending,
    _form,
    _liveness,
    _receiving,
    _duplicate,
    _conversation,
    _size,
    _expiry,
    _budget,
    _rate,
    _room,
)
"""A peer hands a message over."""

DEPARTURE: tuple[Check, ...] = (
    _scope,
    _sending,
    _receiving,
    _options,
    _form,
    _conversation,
    _size,
    _expiry,
    _budget,
    _room,
    _pace,
)
"""One of our own peers sends. Rate is the recipient's to charge; the pace of a wire that drops is ours."""


def verdict(checks: tuple[Check, ...], facts: Facts) -> Refusal | None:
    """Return the first no of `checks`, or None when custody may be taken."""
    for check in checks:
        refusal = check(facts)
        if refusal is not None:
            return refusal
    return None


class Bucket(msgspec.Struct, frozen=True, gc=False):
    """A sender's rate: `level` thousandths of a message left at monotonic `at_ms`."""

    level: float
    at_ms: int


def refilled(bucket: Bucket | None, now_ms: int, per_second: float, burst: int) -> Bucket:
    """Return the bucket at `now_ms` (monotonic); None is a sender never seen, whose bucket is full.

    Rates whose thousandth part is a binary fraction, such as 0.5, are counted exactly.
    """
    if bucket is None:
        return Bucket(burst * 1000, now_ms)
    gained = max(0, now_ms - bucket.at_ms) * per_second
    return Bucket(min(burst * 1000, bucket.level + gained), max(now_ms, bucket.at_ms))
