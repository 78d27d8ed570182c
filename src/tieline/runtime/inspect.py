"""What doors show of a root beyond its tools: who it is, what happened, whether it is well.

Rule: everything shown comes from the engine's records, never from a body's claims.

Source: DESIGN.md 4, 8; reference/native.md 1M; reference/reliability.md S22.
"""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tieline import __version__, text
from tieline.engine.contract import Held, Sent
from tieline.engine.messaging import Messaging
from tieline.errors import Refusal
from tieline.model.identity import Peer
from tieline.model.moment import to_iso
from tieline.model.receipt import Event
from tieline.runtime import render, rings

if TYPE_CHECKING:
    from tieline.runtime.intercom.intercom import Intercom
    from tieline.runtime.node import Node
    from tieline.runtime.windows import Windows

__all__ = ["checks", "event_names", "events_after", "history", "rendered", "wake", "who"]

PREVIEW_COLUMNS = 100
EVENTS_SHOWN_MAX = 10_000
WAKE_IDS_MAX = 32


def rendered(
    messages: Sequence[Held], new_boundary: Callable[[], str], bytes_max: int, count_max: int
) -> text.Rendered:
    """Return mail as a model may read it: labelled, external, bounded, each frame under a fresh boundary."""
    shown = [
        text.Shown(
            message_id=item.envelope.message_id,
            sender_peer_id=item.envelope.sender.id,
            sender_alias=item.envelope.sender_alias,
            sender_project=item.envelope.sender_project,
            sender_run=item.envelope.sender.run,
            topic=item.envelope.topic,
            correlation_id=item.envelope.correlation_id,
            reply_to=item.envelope.reply_to,
            automatic_depth=item.envelope.automatic_depth,
            thread=item.envelope.thread,
            delivery=str(item.envelope.delivery),
            created_at=to_iso(
                item.envelope.created_ms if item.envelope.created_ms is not None else item.at_ms
            ),
            content=item.envelope.content,
            re_exposed=item.exposure_count > item.is_prepared,  # a prepared one counts this exposure, too
            is_ask=item.envelope.is_ask,
            attachments=tuple((part.name, part.text) for part in item.envelope.attachments),
        )
        for item in messages
    ]
    return text.model_context(
        shown, lambda _message: new_boundary(), bytes_max=bytes_max, count_max=count_max
    )


def history(engine: Messaging, cursor: int) -> list[dict[str, Any]]:
    """Return the moves of one record, oldest first."""
    return [render.event(item) for item in engine.moves(cursor)]


def events_after(engine: Messaging, owners: Sequence[Peer], after: int) -> list[Event]:
    """Return the events of every local mailbox after a cursor, in order."""
    found: list[Event] = []
    for owner in owners:
        page = engine.page(owner, after, EVENTS_SHOWN_MAX)
        if not isinstance(page, Refusal):
            found.extend(page.events)
    found.sort(key=lambda item: item.cursor)
    return found


def event_names(node: "Node", event: Event) -> dict[str, Any]:
    """Return what makes an event readable for a person: the other end's alias, topic and a preview."""
    record = _record_of(node, event)
    if record is None:
        return {}
    envelope = record.envelope
    shape: dict[str, Any] = {}
    if record.has_content:  # what memory let go is not shown as an empty text
        shape["preview"] = text.printable(envelope.content, PREVIEW_COLUMNS)
    if envelope.sender_alias:
        shape["fromAlias"] = text.printable(envelope.sender_alias, 80)
    if envelope.sender_project:
        shape["fromProject"] = text.printable(envelope.sender_project, 80)
    if envelope.topic:
        shape["topic"] = text.printable(envelope.topic, 80)
    return shape


def wake(engine: Messaging, arrived: Held) -> dict[str, Any]:
    """Return what a host is told of the mail that waits in a mailbox: how much, and the ids of the oldest."""
    owner = arrived.envelope.recipient
    counts = engine.inbox_counts(owner)
    held = engine.held(owner, unread_only=True, count_max=WAKE_IDS_MAX + counts.prepared)
    waiting = [item.envelope.message_id for item in held if not item.is_prepared]
    return {
        "reason": "mail",
        "count": counts.unread - counts.prepared,
        "generation": engine.arrival_generation,
        "delivery": str(arrived.envelope.delivery),
        "messageIds": waiting[:WAKE_IDS_MAX],
        "to": owner.id,
        "runId": owner.run,
    }


def _record_of(node: "Node", event: Event) -> Held | Sent | None:
    """Return the record that an event is about: its id, its sender and its recipient name it together."""
    owner = node.engine.own_peer(event.recipient)
    if owner is not None:
        held = node.engine.held(
            owner, from_peer=event.sender, message_id=event.message_id, unread_only=False, count_max=1
        )
        if held:
            return held[0]
    for item in node.engine.sent(event.message_id, None):
        if (item.receipt.sender, item.receipt.recipient) == (event.sender, event.recipient):
            return item
    return None


def who(node: "Node") -> dict[str, Any]:
    """Return who a root is and where its things are."""
    host = node.host_identity
    return {
        "version": 1,
        "product": f"tieline/{__version__}",
        "instanceId": node.instance,
        "peerId": Peer(node.instance).id,
        "alias": node.alias,
        "sessionId": node.session,
        "endpoint": node.endpoint.path,
        "control": node.control_endpoint.path,
        "home": node.places.home,
        "coordinationDirectory": node.places.coordination,
        "scope": str(node.settings.scope),
        "workspace": node.place.workspace,
        "project": node.project,
        "pid": os.getpid(),
        "hostPid": host.pid if host is not None else None,
        "runs": [
            {"runId": item.run, "alias": item.alias, "peerId": Peer(node.instance, item.run).id}
            for item in node.engine.live_runs()
        ],
        "busy": node.host.is_busy,
        "paused": node.host.pause,
        "enabled": True,
        "published": node.is_published,
        "unread": node.engine.inbox_counts(Peer(node.instance)).unread,
    }


def checks(node: "Node") -> list[dict[str, Any]]:
    """Return what is well with a root and what is not, each with the next action."""
    # Admission counts the reserves, too: what is kept for the ends of open records is not room.
    used = node.engine.storage_bytes + node.engine.worst_case_bytes
    limit = node.settings.limits.storage_bytes
    room = f"{used} of {limit} bytes are used"
    found = [
        _well("store", "the journal accepts mail")
        if not node.driver.is_in_doubt
        else _ill(
            "store",
            "the journal is in doubt after a disk error",
            "free or repair the disk, then restart this agent; `tieline recover` shows its mail",
        ),
        _well("room", room)
        if used < limit * 9 // 10
        else _ill("room", room, "let agents read their mail, or raise limits.storage_bytes"),
        _well("endpoint", f"listening at {node.endpoint.path}")
        if not node.endpoint.missing()
        else _ill("endpoint", "the socket's name is gone", "it is made again within five seconds"),
        _well("presence", "published")
        if node.is_published
        else _ill("presence", "not published yet", "the host has not told its session"),
    ]
    if node.book.presence_faults:
        unread = f"{node.book.presence_faults} presence files cannot be read"
        found.append(_ill("directory", unread, "see `tieline doctor`"))
    if node.waits.cycles:
        names = rings.names(node)
        said = "; ".join(rings.sentence(cycle, names) for cycle in node.waits.cycles)
        advice = "answer a question of the ring, or end a command that waits in it"
        found.append(_ill("waits", f"a ring of waits, in which nobody goes on: {said}", advice))
    if node.windows is not None:
        found.append(_window_check(node.windows))
    if node.intercom is not None:
        found += _intercom_checks(node.intercom)
    return found


def _intercom_checks(intercom: "Intercom") -> list[dict[str, Any]]:
    """Return whether a root is on the intercom, and what a person should know of its brokers."""
    if intercom.fault:
        found = [
            _ill("intercom", f"not joined: {intercom.fault}", "correct that variable and restart this agent")
        ]
    elif intercom.post.is_connected:
        found = [_well("intercom", f"{text.printable(intercom.name, 80)}, known there as {intercom.peer}")]
    else:
        why = "; ".join(intercom.faults.values()) or "not published yet"
        found = [_ill("intercom", f"no broker has this root: {why}", "it is tried again within 30 seconds")]
    advice = "finish accepted work there, then reload every session of the older extension"
    if intercom.has_older_broker:
        found.append(_ill("intercom broker", intercom.warnings[0], advice))
    return found


def _window_check(windows: "Windows") -> dict[str, Any]:
    """Return whether a root has its place among windows; what others left there, the machine's checks say."""
    if windows.address:
        said = f"{text.printable(windows.name, 80)} [{windows.ref}], listening at {windows.address}"
        return _well("window", said)
    return _ill(
        "window",
        "this root has no window",
        "see the log: the registry is not private, or another root of this process has the window",
    )


def _well(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "ok": True, "text": text}


def _ill(name: str, text: str, action: str) -> dict[str, Any]:
    return {"name": name, "ok": False, "text": text, "action": action}
