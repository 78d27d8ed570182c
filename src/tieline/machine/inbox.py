"""A message that we hold for a peer of ours: perhaps held for consent, accepted, prepared, consumed, replied.

Theory. Custody ends when the model's context is proven to hold the text, never when it was shown.
So exposure is a stage of its own: at most one is in flight, it may fail and come back, and only
evidence turns it into `consumed`.

Rule 1: every (stage, step) pair is in exactly one table.
Rule 2: a message that was never prepared cannot be consumed; one in flight does not expire.
Rule 3: what waits for a person's consent is not accepted: nothing but that person's word, its time or its
    recipient's end moves it.
Rule 4: this module knows neither clock nor disk nor wire; it is told.

Source: reference/native.md 2.8 "consumption protocol", 3.3; reference/reliability.md I9, I16;
reference/pi-peers-and-harness-doors.md 1.6, U16.
"""

from enum import StrEnum

from tieline.model.receipt import State

__all__ = ["BUSY", "HELD_MAX", "HELD_MS", "IGNORED", "MOVES", "STATES", "Stage", "Step", "step"]

HELD_MS = 300_000
"""How long a message waits for its person's word: five minutes, as its sender expects (U16)."""
HELD_MAX = 50
"""Messages of one mailbox that wait so; a further one is refused, for no word on another is to be lost."""


class Stage(StrEnum):
    """Where one message that we hold stands."""

    HELD = "held"  # our person is asked; custody is not taken yet
    ACCEPTED = "accepted"
    PREPARED = "prepared"  # one exposure is in flight
    CONSUMED = "consumed"
    REPLIED = "replied"
    EXPIRED = "expired"
    ENDED = "ended"  # accepted, and its recipient ended before reading
    DENIED = "denied"  # never accepted: our person said no, or its recipient ended first


class Step(StrEnum):
    """What may happen to it."""

    ACCEPT = "accept"
    DENY = "deny"
    PREPARE = "prepare"
    RELEASE = "release"
    CONSUME = "consume"
    REPLY = "reply"
    EXPIRE = "expire"
    END = "end"


MOVES: dict[tuple[Stage, Step], Stage] = {
    (Stage.HELD, Step.ACCEPT): Stage.ACCEPTED,
    (Stage.HELD, Step.DENY): Stage.DENIED,
    (Stage.HELD, Step.EXPIRE): Stage.EXPIRED,
    (Stage.HELD, Step.END): Stage.DENIED,
    (Stage.ACCEPTED, Step.PREPARE): Stage.PREPARED,
    (Stage.ACCEPTED, Step.REPLY): Stage.REPLIED,  # answered from a preview
    (Stage.ACCEPTED, Step.EXPIRE): Stage.EXPIRED,
    (Stage.ACCEPTED, Step.END): Stage.ENDED,
    (Stage.PREPARED, Step.RELEASE): Stage.ACCEPTED,
    (Stage.PREPARED, Step.CONSUME): Stage.CONSUMED,
    (Stage.PREPARED, Step.REPLY): Stage.REPLIED,
    (Stage.PREPARED, Step.END): Stage.ENDED,
    (Stage.CONSUMED, Step.REPLY): Stage.REPLIED,
    (Stage.ENDED, Step.REPLY): Stage.REPLIED,  # an answer that left before the run ended
}
"""What changes the stage."""

BUSY: frozenset[tuple[Stage, Step]] = frozenset({(Stage.PREPARED, Step.PREPARE)})
"""Another reader has it: RESOURCE_BUSY."""

_CONSENT = (Step.ACCEPT, Step.DENY)
IGNORED: frozenset[tuple[Stage, Step]] = frozenset(
    {(Stage.HELD, one) for one in (Step.PREPARE, Step.RELEASE, Step.CONSUME, Step.REPLY)}
    | {(Stage.ACCEPTED, one) for one in (*_CONSENT, Step.RELEASE, Step.CONSUME)}
    | {(Stage.PREPARED, one) for one in (*_CONSENT, Step.EXPIRE)}
    | {(Stage.CONSUMED, one) for one in Step if one is not Step.REPLY}
    | {(Stage.REPLIED, one) for one in Step}
    | {(Stage.EXPIRED, one) for one in Step}
    | {(Stage.ENDED, one) for one in Step if one is not Step.REPLY}
    | {(Stage.DENIED, one) for one in Step}
)
"""Late or repeated: the first truth stands."""

STATES: dict[Stage, State] = {
    Stage.HELD: State.PENDING,
    Stage.ACCEPTED: State.ACCEPTED,
    Stage.PREPARED: State.ACCEPTED,
    Stage.CONSUMED: State.CONSUMED,
    Stage.REPLIED: State.REPLIED,
    Stage.EXPIRED: State.EXPIRED,
    Stage.ENDED: State.ACCEPTED,
    Stage.DENIED: State.REJECTED,
}
"""What the sender is told of each stage; `ended` is accepted with the outcome TARGET_ENDED, `held` pending
with the outcome HELD."""


def step(stage: Stage, taken: Step) -> Stage | None:
    """Return the stage after `taken`, or None when nothing changes (`BUSY` and `IGNORED`)."""
    return MOVES.get((stage, taken))
