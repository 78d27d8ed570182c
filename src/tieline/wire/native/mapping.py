"""Native frames and what they mean here; the only room that speaks both languages.

Rule 1: what a peer sends is read as a closed set with exact types; a member that is not in the set is
refused, most of all one that claims who sent it. The sender is the instance that the link proved.
Rule 2: what a peer answers is read leniently, because refusing a receipt for a member that we do not
know would leave an outcome unknown; what we do not understand of it is no receipt.
Rule 3: nothing of a peer's is repeated in a refusal's text.
Rule 4: `peer.send` stays the public closed set. What only Tieline ends can say travels in `tieline.*`:
`tieline.send`, `tieline.status` and `tieline.receipt` mean what their public namesakes mean, and state
durability as well.
Rule 5: this module decides nothing about messages: it knows no store, no clock and no link.

Source: reference/native.md 1G, 2.4, 2.6b, 2.8, 3.2; DESIGN.md section 1.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, assert_never

import msgspec

from tieline.engine.contract import (
    AskDirectory,
    Asked,
    AskedStatus,
    AskStatus,
    Offer,
    PushReceipt,
    ReceiptTold,
    Recorded,
    Standing,
    Transmit,
)
from tieline.engine.directory import RUNS_PER_ROOT_MAX, Run
from tieline.engine.probing import Probe
from tieline.errors import Refusal
from tieline.machine.admission import OUT_OF_SCOPE
from tieline.model.identity import Capability, Peer, is_alias, is_peer_id, is_plain_id, peer_id
from tieline.model.message import Attachment, Delivery, Envelope
from tieline.model.moment import to_iso
from tieline.model.receipt import THEIRS, Durability, Receipt, State
from tieline.wire.jsonrpc import INTEGER_MAX
from tieline.wire.native.params import (
    VERSION,
    Directory,
    Hello,
    Last,
    ReceiptParams,
    Send,
    Status,
    TielineSend,
    ToldReceipt,
    WaitProbe,
    read_params,
    wall_ms_of,
    wrong,
)

__all__ = [
    "FEATURES",
    "HELLO",
    "LAST",
    "PROBE",
    "LastAsked",
    "answered",
    "child",
    "children_told",
    "command",
    "directory_asked",
    "features_told",
    "hello",
    "hello_asked",
    "last_asked",
    "probe",
    "probe_asked",
    "receipt_told",
    "runs_told",
    "spoken",
]

HELLO: Final = "tieline.hello"
LAST: Final = "tieline.last"
PROBE: Final = "tieline.wait_probe"
FEATURES: Final = ("last", "receipt", "send", "status", "wait_probe")
"""The `tieline.*` methods that this end answers, besides the hello."""

_CAPABILITIES: Final = frozenset(item.value for item in Capability)
CURSOR_DIGITS_MAX: Final = 16
RETRYABLE_OUTCOMES: Final = frozenset({"QUEUE_FULL", "RATE_LIMITED"})


# --- what peers ask of us -------------------------------------------------------------------------


def command(
    method: str,
    params: dict[str, Any],
    *,
    asked: Asked,
    sender_instance: str,
    standing: Standing,
    own_peer: Callable[[str], Peer | None],
) -> Offer | AskedStatus | ReceiptTold | Refusal:
    """Return the command that a peer's request stands for, or why there is none.

    `sender_instance` and `standing` are what the link proved and presence says of it; `own_peer`
    finds our peer, live or ended, by its id.
    """
    match method:
        case "peer.send" | "tieline.send":
            return _offer(method, params, asked, sender_instance, standing, own_peer)
        case "peer.status" | "peer.subscribe" | "tieline.status":
            return _status(params, asked, sender_instance, is_subscription=method == "peer.subscribe")
        case "peer.receipt" | "tieline.receipt":
            read = read_params(ReceiptParams, params)
            if isinstance(read, Refusal):
                return read
            receipt = receipt_told(read.receipt)
            return wrong("receipt") if receipt is None else ReceiptTold(asked, sender_instance, receipt)
        case "peer.read":
            return Refusal("CAPABILITY_DENIED", "an inbox is read at its own root's door")
        case _ if method.startswith("resource."):
            return Refusal("CAPABILITY_DENIED", "resources are not controlled over the messaging endpoint")
        case _:
            return Refusal("METHOD_NOT_FOUND", "this end has no such method")


def _offer(
    method: str,
    params: dict[str, Any],
    asked: Asked,
    sender_instance: str,
    standing: Standing,
    own_peer: Callable[[str], Peer | None],
) -> Offer | Refusal:
    read = read_params(TielineSend if method == "tieline.send" else Send, params)
    if isinstance(read, Refusal):
        return read
    times: list[int | None] = []
    for name, text in (("createdAt", read.created_at), ("expiresAt", read.expires_at)):
        try:
            times.append(wall_ms_of(text))
        except ValueError:
            return wrong(name)
    recipient = own_peer(read.to)
    if recipient is None:
        # Outside scope the answer is the same for a peer that exists: no probing for runs.
        if not standing.is_in_scope:
            return OUT_OF_SCOPE
        return Refusal("UNKNOWN_TARGET", "this root has no such peer")
    envelope = Envelope(
        message_id=read.message_id,
        sender=Peer(sender_instance, read.sender_run_id),
        recipient=recipient,
        content=read.content,
        topic=read.topic,
        reply_to=read.reply_to,
        correlation_id=read.correlation_id,
        automatic_depth=read.automatic_depth or 0,
        created_ms=times[0],
        expires_ms=times[1],
        sender_alias=standing.alias,
        sender_project=standing.project,
    )
    if isinstance(read, TielineSend):
        if not all(is_plain_id(item.name) and is_plain_id(item.media_type) for item in read.attachments):
            return wrong("attachments")
        envelope = msgspec.structs.replace(
            envelope,
            delivery=read.delivery,
            thread=read.thread,
            replaces=read.replace,
            is_ask=read.ask,
            notify_when_idle=read.notify_when_idle,
            attachments=tuple(Attachment(item.name, item.text, item.media_type) for item in read.attachments),
        )
    return Offer(asked, sender_instance, standing, envelope)


def _status(
    params: dict[str, Any], asked: Asked, sender_instance: str, *, is_subscription: bool
) -> AskedStatus | Refusal:
    read = read_params(Status, params)
    if isinstance(read, Refusal):
        return read
    if read.sender is not None and read.sender != peer_id(sender_instance, read.sender_run_id):
        return Refusal("SCOPE_DENIED", "a receipt is told to its message's sender alone")
    return AskedStatus(
        asked,
        sender_instance,
        read.message_id,
        read.to,
        sender_run=read.sender_run_id,
        is_subscription=is_subscription,
    )


def directory_asked(
    params: dict[str, Any], live: Callable[[], list[dict[str, Any]]]
) -> dict[str, Any] | Refusal:
    """Return the answer to `peer.directory`: at most 256 of the descriptors that `live` gives."""
    read = read_params(Directory, params)
    return read if isinstance(read, Refusal) else {"peers": live()[:RUNS_PER_ROOT_MAX]}


def hello_asked(params: dict[str, Any]) -> dict[str, Any] | Refusal:
    """Return the answer to `tieline.hello`: our version and the methods that we answer."""
    read = read_params(Hello, params)
    return read if isinstance(read, Refusal) else hello()


class LastAsked(NamedTuple):
    """`tieline.last`: whose finished answer, which one (None: the last), and from where.

    `offset` counts UTF-16 units, from 0.
    """

    to: str
    entry: str | None
    offset: int


def last_asked(params: dict[str, Any]) -> LastAsked | Refusal:
    """Return what `tieline.last` asks for."""
    read = read_params(Last, params)
    return read if isinstance(read, Refusal) else LastAsked(read.to, read.entry, read.offset)


def probe_asked(params: dict[str, Any], sender_instance: str) -> Probe | Refusal:
    """Return the probe that a peer sent, its last peer proved to be one of the sender's."""
    read = read_params(WaitProbe, params)
    if isinstance(read, Refusal):
        return read
    if len(read.path) != len(read.kinds) or not all(is_peer_id(one) for one in (*read.path, read.to)):
        return wrong("path")
    if read.path[-1] != peer_id(sender_instance, read.sender_run_id):
        return wrong("senderRunId")
    return Probe(read.id, read.to, read.path, read.kinds)


# --- what we answer -------------------------------------------------------------------------------


def answered(method: str, body: Receipt | Recorded) -> dict[str, Any]:
    """Return the result of a peer's request `method`.

    The public methods answer with the public receipt, the `tieline.*` ones with its durability too.
    """
    if isinstance(body, Recorded):
        return {"recorded": True}
    if method == "peer.subscribe":
        return {"subscribed": True, "receipt": _receipt(body, is_tieline=False)}
    return _receipt(body, is_tieline=method.startswith("tieline."))


def _receipt(receipt: Receipt, *, is_tieline: bool) -> dict[str, Any]:
    shape: dict[str, Any] = {"messageId": receipt.message_id}
    if receipt.sender:
        shape["from"] = receipt.sender
    shape |= {"to": receipt.recipient, "state": receipt.state.value, "cursor": str(receipt.cursor)}
    times = (("acceptedAt", receipt.accepted_ms), ("consumedAt", receipt.consumed_ms))
    for name, wall_ms in (*times, ("repliedAt", receipt.replied_ms)):
        if wall_ms is not None:
            shape[name] = to_iso(wall_ms)
    if receipt.outcome is not None:
        shape["outcome"] = receipt.outcome
    if is_tieline and receipt.durability is not None:
        shape["durability"] = receipt.durability.value
    return shape


def child(
    instance: str, run: str, alias: str, capabilities: Iterable[str], session: str, project: str
) -> dict[str, Any]:
    """Return the descriptor of one live run of ours, as `peer.directory` lists it."""
    return {
        "peerId": peer_id(instance, run),
        "instanceId": instance,
        "sessionId": session,
        "runId": run,
        "alias": alias,
        "project": project,
        "kind": "run",
        # All that is known of a run here is that it has not ended.
        "activity": "thinking",
        "availability": "available",
        "capabilities": sorted(capabilities),
    }


# --- what we ask ----------------------------------------------------------------------------------


def hello() -> dict[str, Any]:
    """Return what `tieline.hello` says of this end, asked and answered alike."""
    return {"version": VERSION, "features": list(FEATURES)}


def probe(sent: Probe, sender: Peer) -> dict[str, Any]:
    """Return the params of a probe that a peer of ours sends."""
    params: dict[str, Any] = {
        "version": VERSION,
        "id": sent.id,
        "to": sent.to,
        "path": list(sent.path),
        "kinds": list(sent.kinds),
    }
    return params if sender.run is None else {**params, "senderRunId": sender.run}


def spoken(
    send: Transmit | AskStatus | PushReceipt | AskDirectory, *, is_tieline: bool
) -> tuple[str, dict[str, Any]]:
    """Return method and params of what the engine ordered.

    Args:
        send: The order; a message that needs a Tieline end goes to one only.
        is_tieline: The far end answered `tieline.hello` on this link.
    """
    family = "tieline." if is_tieline else "peer."
    match send:
        case Transmit():
            assert is_tieline or not send.envelope.needs_tieline, "a foreign peer cannot be told this"
            return family + "send", _send(send.envelope, is_tieline=is_tieline)
        case AskStatus():
            params: dict[str, Any] = {"messageId": send.message_id, "to": send.recipient}
            if send.sender_run is not None:
                params["senderRunId"] = send.sender_run
            return family + "status", params
        case PushReceipt():
            return family + "receipt", {"receipt": _receipt(send.receipt, is_tieline=is_tieline)}
        case AskDirectory():
            return "peer.directory", {"version": VERSION}
        case _:
            assert_never(send)


def _send(envelope: Envelope, *, is_tieline: bool) -> dict[str, Any]:
    params: dict[str, Any] = {
        "version": VERSION,
        "messageId": envelope.message_id,
        "to": envelope.recipient.id,
        "content": envelope.content,
    }
    given: dict[str, Any] = {
        "topic": envelope.topic,
        "replyTo": envelope.reply_to,
        "expiresAt": None if envelope.expires_ms is None else to_iso(envelope.expires_ms),
        "createdAt": None if envelope.created_ms is None else to_iso(envelope.created_ms),
        "senderRunId": envelope.sender.run,
        "correlationId": envelope.correlation_id,
        "automaticDepth": envelope.automatic_depth or None,
    }
    if is_tieline:
        given |= {
            "delivery": None if envelope.delivery is Delivery.STEER else envelope.delivery.value,
            "thread": envelope.thread,
            "replace": envelope.replaces or None,
            "ask": envelope.is_ask or None,
            "notifyWhenIdle": envelope.notify_when_idle or None,
            "attachments": [
                {"name": item.name, "mediaType": item.media_type, "text": item.text}
                for item in envelope.attachments
            ]
            or None,
        }
    return params | {name: value for name, value in given.items() if value is not None}


# --- what peers answer ----------------------------------------------------------------------------


def receipt_told(result: dict[str, Any] | None) -> Receipt | None:
    """Return the receipt that a peer stated, None where it states none.

    None stands also for a state that is not the recipient's to say, a cursor that is no decimal
    number, and a time that is none. A receipt without a known durability has `unstated`.
    """
    try:
        read = msgspec.convert(result, ToldReceipt)
        accepted_ms, consumed_ms, replied_ms = map(
            wall_ms_of, (read.accepted_at, read.consumed_at, read.replied_at)
        )
    except ValueError:  # msgspec's own error is one
        return None
    if read.state not in THEIRS or not _is_cursor(read.cursor):
        return None
    if not is_plain_id(read.message_id) or not is_plain_id(read.to):
        return None
    durability = Durability.UNSTATED
    if read.durability is not None and read.durability in set(Durability):
        durability = Durability(read.durability)
    return Receipt(
        message_id=read.message_id,
        sender=read.sender or "",
        recipient=read.to,
        state=read.state,
        cursor=int(read.cursor),
        accepted_ms=accepted_ms,
        consumed_ms=consumed_ms,
        replied_ms=replied_ms,
        outcome=read.outcome,
        durability=durability,
        is_retryable=read.state is State.REJECTED and read.outcome in RETRYABLE_OUTCOMES,
    )


def _is_cursor(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= CURSOR_DIGITS_MAX and int(text) <= INTEGER_MAX


def features_told(result: dict[str, Any] | None) -> frozenset[str]:
    """Return the features of ours that a far end answers too; none of a foreign peer or another version."""
    version, told = (None, None) if result is None else (result.get("version"), result.get("features"))
    if type(version) is not int or version != VERSION or not isinstance(told, list):
        return frozenset()
    return frozenset(FEATURES).intersection(item for item in told if isinstance(item, str))


def children_told(
    result: dict[str, Any], instance: str, capabilities: frozenset[str]
) -> tuple[Run, ...] | None:
    """Return the live runs that root `instance` told, None where its answer is no directory.

    Of a descriptor that breaks a rule nothing is taken; of the others only what is the run's own to
    say, its capabilities cut to those of its root. At most 256 are read.
    """
    told = result.get("peers")
    if not isinstance(told, list):
        return None
    runs = (_child_told(item, instance, capabilities) for item in told[:RUNS_PER_ROOT_MAX])
    return tuple(run for run in runs if run is not None)


def _child_told(item: object, instance: str, capabilities: frozenset[str]) -> Run | None:
    if not isinstance(item, dict) or item.get("instanceId") != instance:
        return None
    run, alias = item.get("runId"), item.get("alias")
    activity, able = item.get("activity"), item.get("capabilities")
    if not isinstance(run, str) or not is_plain_id(run) or item.get("peerId") != peer_id(instance, run):
        return None
    if not isinstance(alias, str) or not is_alias(alias) or not isinstance(activity, str):
        return None
    if not isinstance(able, list) or not all(
        isinstance(name, str) and name in _CAPABILITIES for name in able
    ):
        return None
    return Run(run, alias, activity, tuple(sorted(capabilities.intersection(able))))


def runs_told(result: dict[str, Any], instance: str) -> frozenset[str] | None:
    """Return the names of the live runs that root `instance` told, None where its answer is no directory."""
    runs = children_told(result, instance, frozenset())
    return None if runs is None else frozenset(item.run for item in runs)
