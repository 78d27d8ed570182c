"""All that may be asked of a root's custody, and all that it may order.

Rule 1: an engine's `handle(command, now)` returns a `Plan` and does nothing else.
Rule 2: same commands at the same moments give the same plans, byte for byte; ids and nonces come in.
Rule 3: the shell makes `rows` durable before it carries out `sends`, answers or tells `events`.
    A plan that is not `is_urgent` may be answered at once: its rows ride in the next group;
    its `sends` still wait for every urgent row decided before it.
Rule 4: when a group could not be stored (disk full, definite), the shell restores the engine from
    the journal and hands the same commands in again, one by one; those that cannot be stored are
    answered QUEUE_FULL. When a commit is in doubt, nothing is acknowledged: a peer
    is told DELIVERY_UNKNOWN, a local asker RECOVERY_REQUIRED, and the store is reopened.

Source: reference/native.md 2.8 to 2.10, 3.3, 3.4; reference/reliability.md I1 to I30.
"""

from enum import StrEnum

import msgspec

from tieline.config import PREPARED_MS
from tieline.errors import Refusal
from tieline.model.identity import Peer
from tieline.model.message import Attachment, Delivery, Envelope
from tieline.model.receipt import Durability, Event, Receipt, State

# ---------------------------------------------------------------- values that commands carry


class Act(StrEnum):
    """Why a local send happens: it decides which budgets bind it."""

    PERSON = "person"  # a command outside every host's tree, a program's own Root: the rate alone binds
    AGENT = "agent"  # a tool call: at most `agent_sends_max` per pair and window without a user prompt
    AUTOMATIC = "automatic"  # the turn began with our wake: needs `auto` and `reply_to`, has a depth


class Standing(msgspec.Struct, frozen=True):
    """What is proven of a far end: from its advertisement and our policy, never from a frame."""

    capabilities: frozenset[str]
    is_in_scope: bool
    alias: str = ""
    project: str = ""


class Draft(msgspec.Struct, frozen=True):
    """One local send, its target resolved to an exact peer."""

    message_id: str
    sender: Peer
    recipient: Peer
    standing: Standing  # of the recipient
    content: str
    act: Act = Act.PERSON
    topic: str | None = None
    reply_to: str | None = None
    expiry_ms: int | None = None  # life asked for; None = the default
    delivery: Delivery = Delivery.STEER
    thread: str | None = None
    replaces: bool = False
    is_ask: bool = False
    notify_when_idle: bool = False
    attachments: tuple[Attachment, ...] = ()
    is_recipient_tieline: bool | None = None  # None: not known yet; False: features are refused
    may_cross: bool = False  # the recipient is known to wait for no answer of the sender any more


class Asked(msgspec.Struct, frozen=True, gc=False):
    """Which request of which link waits for an answer; opaque to the engine."""

    link: int
    request: str | int


# ---------------------------------------------------------------- commands


class Submit(msgspec.Struct, frozen=True):
    """Send a message. Answer: `Receipt` (pending, or the recorded one for a repeat) or `Refusal`."""

    draft: Draft


class Offer(msgspec.Struct, frozen=True):
    """A peer hands a message over. Answered by `Answer(asked, Receipt | Refusal)` in `sends`."""

    asked: Asked
    sender_instance: str
    standing: Standing
    envelope: Envelope  # recipient.instance is ours; `to` was mapped by `Messaging.own_peer`
    is_held: bool = False  # our person is asked first: it waits for `Consent`, and wakes nobody until then
    wire: str | None = (
        None  # over which it came; None: that of the sender's instance. A child's is its parent's
    )
    may_cross: bool = False  # nobody here waits for an answer of the sender: a question of it crosses none


class Consent(msgspec.Struct, frozen=True):
    """The person's word on a message that is held for `owner`.

    Answer: `Receipt` (accepted, or rejected with the outcome DENIED), which its sender is told too, or
    `Refusal` (UNKNOWN_TARGET: nothing of that id waits).
    """

    owner: Peer
    message_id: str
    is_accepted: bool


class Lapse(msgspec.Struct, frozen=True):
    """This root ends: what waits for its person's word expires, and its senders are told. Answer: None."""


class AskedStatus(msgspec.Struct, frozen=True):
    """peer.status or peer.subscribe. Answered in `sends` with `Receipt` or SCOPE_DENIED."""

    asked: Asked
    sender_instance: str
    message_id: str
    recipient: str
    sender_run: str | None = None
    is_subscription: bool = False


class ReceiptTold(msgspec.Struct, frozen=True):
    """peer.receipt: a recipient moved a message of ours. Answered in `sends` (`Recorded` or `Refusal`).

    On a wire that holds, a receipt that `is_held` says that the recipient's person is asked.
    """

    asked: Asked
    from_instance: str
    receipt: Receipt


class Outcome(StrEnum):
    """How one attempt of ours over a link ended."""

    ANSWERED = "answered"  # with a receipt (or a record of it)
    REFUSED = "refused"  # with a typed refusal
    WRITTEN = "written"  # transmitted whole, on a link that brings no answer: receipts may come over others
    LOST = "lost"  # transmitted, then no answer in time or the link died
    UNREACHED = "unreached"  # not one byte of it left


class Settle(msgspec.Struct, frozen=True):
    """The end of an attempt that `sends` ordered. No answer."""

    attempt: int
    outcome: Outcome
    receipt: Receipt | None = None
    refusal: Refusal | None = None
    is_gone: bool = False  # with UNREACHED: the recipient's incarnation is proven dead
    said: str | None = None  # with WRITTEN: one of `receipt.NOTES`, the word of who carries it on


class DirectoryTold(msgspec.Struct, frozen=True):
    """The end of an `AskDirectory`: the live runs of a root, or None when it could not be asked."""

    attempt: int
    runs: frozenset[str] | None


class BeginRun(msgspec.Struct, frozen=True):
    """A child execution starts.

    Answer: None or `Refusal` (QUEUE_FULL above the limit, TARGET_ENDED for a used id).
    """

    run: str
    alias: str
    capabilities: frozenset[str]


class EndRun(msgspec.Struct, frozen=True):
    """A child execution is over; its unread mail gets the outcome TARGET_ENDED. Answer: None."""

    run: str


class Expose(msgspec.Struct, frozen=True):
    """Prepare mail for the model. Answer: tuple of `Held`, oldest first, or `Refusal` (RESOURCE_BUSY).

    Only accepted, unexpired mail of `owner` that no other token has prepared is chosen, at most
    `count_max` records and `bytes_max` bytes of content (the first always fits). With `cursors`
    exactly those records, because one message id may name the mail of several senders; one that another
    token holds gives RESOURCE_BUSY. Sets `re_exposed` counts.
    """

    owner: Peer
    token: str
    rung: str  # which door: "boundary", "turn_end", "prompt", "read", "push", "cli"
    count_max: int
    bytes_max: int
    cursors: tuple[int, ...] | None = None
    with_passive: bool = True
    only_steer: bool = False
    evidence_ms: int = PREPARED_MS  # without evidence for so long, the mail is given to the next rung


class Taken(msgspec.Struct, frozen=True):
    """Evidence that the model's context holds what `token` prepared. Answer: number of records consumed.

    Writes the context journal before the consumed move, in one transaction. After the time that the reader
    named, or after `Untaken.may_come`, it still counts: for a record that another token has prepared
    meanwhile when that one is given back.
    """

    token: str


class Untaken(msgspec.Struct, frozen=True):
    """The exposure of `token` failed; custody stays accepted. Answer: number of records freed.

    With `may_come` it only shows no evidence in time.
    """

    token: str
    may_come: bool = False


class UserPrompt(msgspec.Struct, frozen=True):
    """A person began a turn of `owner`: budgets without a person start anew. Answer: None."""

    owner: Peer


class Mute(msgspec.Struct, frozen=True):
    """Silence a peer, or no longer: its mail is kept, wakes nobody, notifies nobody. Answer: None."""

    peer: str  # peer id, or alias
    is_muted: bool


class Tick(msgspec.Struct, frozen=True):
    """Time passed: retries, expiries, prepared tokens without evidence, retention. Answer: None."""


Command = (
    Submit
    | Offer
    | Consent
    | Lapse
    | AskedStatus
    | ReceiptTold
    | Settle
    | DirectoryTold
    | BeginRun
    | EndRun
    | Expose
    | Taken
    | Untaken
    | UserPrompt
    | Mute
    | Tick
)


# ---------------------------------------------------------------- what is stored


class Box(StrEnum):
    """Which side of custody a record is."""

    IN = "in"
    OUT = "out"


class MessageRow(msgspec.Struct, frozen=True):
    """A message enters a box. Its cursor is the receiver's sequence and its first event, for ever."""

    cursor: int
    box: Box
    envelope: Envelope
    digest: bytes
    at_ms: int  # wall time of admission
    expires_ms: int  # wall time, what peers are told; `moment.NEVER_MS` where mail waits until consumed
    deadline_ms: int  # monotonic, what decides; `moment.NEVER_MS` then too
    from_person: bool = True
    is_held: bool = False  # it waits for the person's consent; the moves say what became of it


class MoveRow(msgspec.Struct, frozen=True):
    """One change of one record: append-only; `cursor` is the event's. The last row of a record is its state.

    `note` is "" for a receipt's move, "prepared" or "released" for an exposure's (these two make no event).
    """

    cursor: int
    message: int  # cursor of its MessageRow
    state: State
    at_ms: int
    accepted_ms: int | None = None
    consumed_ms: int | None = None
    replied_ms: int | None = None
    outcome: str | None = None
    durability: Durability | None = None
    is_retryable: bool = False
    note: str = ""
    token: str | None = None
    exposure_count: int = 0
    recipient_cursor: int | None = None  # outbox: the cursor the recipient gave, to refuse older receipts


class ContextRow(msgspec.Struct, frozen=True):
    """External context was recorded: (dedup key, message, when). Source: reference/native.md 2.8."""

    cursor: int
    message: int
    record: str  # deterministic record id over (sender instance, from, to, message id)
    token: str
    at_ms: int


class RunRow(msgspec.Struct, frozen=True):
    """A child execution's identity, used once."""

    run: str
    alias: str
    capabilities: tuple[str, ...]
    is_live: bool
    at_ms: int


class MuteRow(msgspec.Struct, frozen=True):
    """A silenced peer."""

    peer: str
    is_muted: bool


class PruneRow(msgspec.Struct, frozen=True):
    """Forget finished records and old events: these messages with all their rows, and moves up to a cursor.

    Moves are removed only when a later move of the same record exists or the record goes too.
    """

    messages: tuple[int, ...]
    moves_through: int
    oldest_cursor: int


Row = MessageRow | MoveRow | ContextRow | RunRow | MuteRow | PruneRow


# ---------------------------------------------------------------- what is ordered


class Transmit(msgspec.Struct, frozen=True):
    """Hand our message to its recipient's root. Ends in `Settle`."""

    attempt: int
    instance: str
    envelope: Envelope
    needs_tieline: bool


class AskStatus(msgspec.Struct, frozen=True):
    """Ask the recipient what became of our message. Ends in `Settle`."""

    attempt: int
    instance: str
    message_id: str
    recipient: str
    sender_run: str | None


class PushReceipt(msgspec.Struct, frozen=True):
    """Tell a sender's root that its message moved. Ends in `Settle`."""

    attempt: int
    instance: str
    receipt: Receipt


class AskDirectory(msgspec.Struct, frozen=True):
    """Ask a root for its live runs. Ends in `DirectoryTold`."""

    attempt: int
    instance: str


class Recorded(msgspec.Struct, frozen=True):
    """The answer to a peer's receipt: it is durable here (or was already)."""


class Answer(msgspec.Struct, frozen=True):
    """Answer a remote request."""

    asked: Asked
    body: Receipt | Refusal | Recorded
    is_subscription: bool = False


Send = Transmit | AskStatus | PushReceipt | AskDirectory | Answer


class Plan(msgspec.Struct, frozen=True):
    """What one command decided."""

    answer: object = None  # for the local asker: documented at the command
    rows: tuple[Row, ...] = ()
    sends: tuple[Send, ...] = ()
    events: tuple[Event, ...] = ()
    is_urgent: bool = True  # False: may be answered before its rows are durable
    admits: bool = False  # True: takes new custody, so the journal checks physical room first


# ---------------------------------------------------------------- what is read


class Held(msgspec.Struct, frozen=True):
    """One inbox record as a reader sees it. `content` is None when only the journal still has it."""

    cursor: int  # the receiver's sequence
    envelope: Envelope
    state: State
    at_ms: int
    expires_ms: int
    receipt: Receipt
    exposure_count: int = 0
    is_prepared: bool = False
    has_content: bool = True


class Sent(msgspec.Struct, frozen=True):
    """One outbox record as a reader sees it."""

    cursor: int
    envelope: Envelope
    receipt: Receipt
    expires_ms: int
    attempt_count: int = 0
    last_refusal: Refusal | None = None  # a later local timeout does not erase it
    has_content: bool = True


class Page(msgspec.Struct, frozen=True):
    """Events after a cursor. `has_gap`: some were pruned in between."""

    events: tuple[Event, ...]
    latest_cursor: int
    oldest_cursor: int
    has_gap: bool
