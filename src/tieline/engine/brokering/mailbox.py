"""Mail for who is gone: held in the journal until its recipient is back, or its time is over.

Rule 1: two kinds of recipients are remembered: children that said they will come back, for as long as mail
    waits for them, and sessions whose kind has a mailbox, for a day. Nobody else's mail is held.
Rule 2: what is full refuses; nothing that is held is dropped to hold more.
Rule 3: mail that was handed to a socket stays held until its far end took it all and has lived on for
    `HANDOVER_MS`: one that dies at once has perhaps read nothing. Its recipient may then see it twice, and
    never not at all.
Rule 4: a recipient gets its mail back by the same id and place among the groups; one of the second kind also
    by an explicit name and directory that it alone bears. Nothing goes back to who sent it.

Source: specification of the intercom, "Send, ask, and reply"; reference/intercom.md 1.5 "Mailbox", 4.6; 134.
"""

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from tieline.engine.brokering.contract import Codec, Delivery, Drop, Letter, Lineage, Put, Row
from tieline.engine.brokering.features import DIRECT, RECORDED, Features
from tieline.engine.brokering.sessions import Session
from tieline.engine.brokering.turn import Turn

__all__ = [
    "ABSENT_MAX",
    "ABSENT_MS",
    "HANDOVER_MS",
    "HELD_BYTES_MAX",
    "HELD_PER_CHILD_MAX",
    "HELD_RECORDED_MAX",
    "Absent",
    "Held",
    "Mailbox",
]

ABSENT_MS: Final = 86_400_000
"""How long one that left is remembered while no mail waits for it, and mail is kept for who is not parked."""
ABSENT_MAX: Final = 4_096
HELD_RECORDED_MAX: Final = 256
HELD_PER_CHILD_MAX: Final = 100
HELD_BYTES_MAX: Final = 67_108_864
HANDOVER_MS: Final = 1_000


class Absent(msgspec.Struct, kw_only=True):
    """One that left and may come back; `left_ms` is wall time. `is_parked`: a child that said so.

    `is_back`: it is live again, and this record stands only until its mail is settled.
    """

    id: str
    scope: str | None
    lineage: Lineage | None
    fields: Mapping[str, Any]
    is_parked: bool
    left_ms: int
    is_back: bool = False

    @property
    def name(self) -> str | None:
        """What it called itself; None for nothing."""
        name = self.fields.get("name")
        return name if isinstance(name, str) else None


class Held(msgspec.Struct, kw_only=True):
    """One message that waits. `until_ms` is wall time, None for no end; `handed_ms` is monotonic.

    `scope` is the recipient's. `content_key` is its letter's.
    """

    number: int
    scope: str | None
    recipient_id: str
    sender: Row
    message_id: str
    fields: Mapping[str, Any]
    is_ask: bool
    is_passive: bool
    received_ms: int
    until_ms: int | None
    content_key: str = ""
    size_bytes: int = 0
    handed_to: int | None = None
    handed_ms: int = 0


class Mailbox:
    """Who is gone, and what waits for them."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._absent: dict[str, Absent] = {}
        self._held: dict[int, Held] = {}
        self._handed: dict[int, Held] = {}
        self._last_number = 0
        self._held_bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def handover_due_ms(self) -> int | None:
        """When the next handed message is let go, monotonic milliseconds; None where none is handed."""
        first = next(iter(self._handed.values()), None)
        return None if first is None else first.handed_ms + HANDOVER_MS

    @property
    def remembers_anybody(self) -> bool:
        """Whether anybody that left is remembered."""
        return bool(self._absent)

    def __iter__(self) -> Iterator[Absent]:
        return iter(list(self._absent.values()))

    def absent(self, session_id: str) -> Absent | None:
        """Return who left under this id, or None."""
        return self._absent.get(session_id)

    def held_for(self, session_id: str) -> list[Held]:
        """Return what waits for one that left, in order."""
        return [one for one in self._held.values() if one.recipient_id == session_id]

    def left(self, session: Session, turn: Turn, *, is_parked: bool) -> None:
        """Remember one that left, where its kind is remembered."""
        before = self._absent.get(session.id)
        if before is not None and _is_back(before, session):
            before.is_back = False
        elif before is not None and self.held_for(before.id):
            return  # what waits under this id is for the one that left before, elsewhere
        if not is_parked and not session.features.has_mailbox:
            return
        if before is None and len(self._absent) >= ABSENT_MAX and not self._made_room(turn):
            return
        one = Absent(
            id=session.id,
            scope=session.scope,
            lineage=session.lineage,
            fields=session.row().fields,
            is_parked=is_parked,
            left_ms=turn.now.wall_ms,
        )
        self._absent[one.id] = one
        if is_parked:
            turn.rows.append(Put("parked", one.id, self._codec.dump(_absent_document(one))))

    def hold(self, absent: Absent, sender: Row, letter: Letter, turn: Turn) -> bool:
        """Keep a message for one that left; False where there is no room."""
        waiting = self.held_for(absent.id)
        if absent.is_parked:
            has_room = len(waiting) < HELD_PER_CHILD_MAX
        else:
            recorded = sum(one.until_ms is not None for one in self._held.values())
            has_room = recorded < HELD_RECORDED_MAX
        held = Held(
            number=self._last_number + 1,
            scope=absent.scope,
            recipient_id=absent.id,
            sender=sender,
            message_id=letter.message_id,
            fields=letter.fields,
            is_ask=letter.is_ask,
            is_passive=letter.is_passive,
            received_ms=turn.now.wall_ms,
            until_ms=None if absent.is_parked else turn.now.wall_ms + ABSENT_MS,
            content_key=letter.content_key,
        )
        body = self._codec.dump({"recipient": _absent_document(absent), **_held_document(held)})
        held.size_bytes = len(body)
        if not has_room or self._held_bytes + held.size_bytes > HELD_BYTES_MAX:
            return False
        self._last_number = held.number
        self._held[held.number] = held
        self._held_bytes += held.size_bytes
        turn.rows.append(Put("mail", _key(held), body))
        turn.undo.append(partial(self._unhold, held))
        return True

    def _unhold(self, held: Held) -> None:
        if self._held.pop(held.number, None) is not None:
            self._held_bytes -= held.size_bytes

    def inherited_by(self, session: Session, others: Iterator[Session]) -> list[Held]:
        """Return the mail that belongs to one who is back, in order; `others` are all who are live."""
        ids = {one.id for one in self._absent.values() if _is_back(one, session)}
        if session.features.has_mailbox and _is_named(session.row().fields):
            alike = [one for one in others if one is not session and _is_alike(one, session)]
            if not alike:
                ids |= {one.id for one in self._absent.values() if _is_heir(one, session)}
        return [
            one
            for one in self._held.values()
            if one.recipient_id in ids and one.handed_to is None and one.sender.session_id != session.id
        ]

    def hand_over(self, session: Session, mail: list[Held], turn: Turn) -> None:
        """Order mail to be delivered; it stays held until its socket has lived on."""
        for held in mail:
            held.handed_to, held.handed_ms = session.link, turn.now.mono_ms
            self._handed[held.number] = held
            turn.say(
                session.link,
                Delivery(held.sender, held.fields, held.received_ms, turn.now.wall_ms, is_mail=True),
            )

    def returned(self, session: Session, turn: Turn) -> None:
        """Take note that one is back; what is remembered of it goes with the last of its mail."""
        one = self._absent.get(session.id)
        if one is not None and _is_back(one, session):
            one.is_back = True
            self._forget_settled(one.id, turn)

    def link_lost(self, link: int) -> None:
        """Hold again what was handed to a socket that did not live on."""
        for held in [held for held in self._handed.values() if held.handed_to == link]:
            held.handed_to = None
            del self._handed[held.number]

    def withdraw(self, sender_id: str, message_id: str, turn: Turn) -> Held | None:
        """Let go of one message that its sender takes back, and return it; None where it is not held."""
        for held in self._held.values():
            if (
                held.sender.session_id == sender_id
                and held.message_id == message_id
                and held.handed_to is None
            ):
                self._drop(held, turn)
                turn.undo.append(partial(self._hold_again, held))
                return held
        return None

    def _hold_again(self, held: Held) -> None:
        self._held = dict(sorted({**self._held, held.number: held}.items()))
        self._held_bytes += held.size_bytes

    def settle(self, unread: Collection[int], turn: Turn) -> None:
        """Let go of what was handed over and stayed so; for links in `unread` the time starts anew."""
        for held in list(self._handed.values()):
            if held.handed_ms + HANDOVER_MS > turn.now.mono_ms:
                break
            if held.handed_to in unread:
                held.handed_ms = turn.now.mono_ms
                self._handed[held.number] = self._handed.pop(held.number)
                continue
            self._drop(held, turn)
            self._forget_settled(held.recipient_id, turn)

    def forget(self, session_id: str, turn: Turn) -> None:
        """Remember one as absent no longer, where no mail waits for it."""
        one = self._absent.pop(session_id, None)
        if one is not None and one.is_parked:
            turn.rows.append(Drop("parked", one.id))

    def _forget_settled(self, session_id: str, turn: Turn) -> None:
        one = self._absent.get(session_id)
        if one is not None and one.is_back and not self.held_for(session_id):
            self.forget(session_id, turn)

    def sweep(self, turn: Turn) -> list[Held]:
        """Let go of mail and absences whose time is over; return that mail."""
        expired = [
            one
            for one in self._held.values()
            if one.until_ms is not None and one.until_ms <= turn.now.wall_ms and one.handed_to is None
        ]
        for held in expired:
            self._drop(held, turn)
        awaited = {held.recipient_id for held in self._held.values()}
        for one in list(self._absent.values()):
            if one.left_ms + ABSENT_MS <= turn.now.wall_ms and one.id not in awaited:
                self.forget(one.id, turn)
        return expired

    def restore_absent(self, document: Any) -> None:
        """Take one that an earlier broker remembered; ValueError where it is none."""
        one = _absent_of(document)
        self._absent[one.id] = one

    def restore_held(self, document: Any) -> Held:
        """Take mail that an earlier broker held, and return it; ValueError where it is none."""
        held = _held_of(document)
        held.size_bytes = len(self._codec.dump(document))
        recipient = _absent_of(document.get("recipient"))
        self._absent.setdefault(recipient.id, recipient)
        self._held[held.number] = held
        self._held_bytes += held.size_bytes
        self._last_number = max(self._last_number, held.number)
        return held

    def _drop(self, held: Held, turn: Turn) -> None:
        del self._held[held.number]
        self._handed.pop(held.number, None)
        self._held_bytes -= held.size_bytes
        turn.rows.append(Drop("mail", _key(held)))

    def _made_room(self, turn: Turn) -> bool:
        """Forget the oldest absence that no mail waits for; False where there is none."""
        awaited = {held.recipient_id for held in self._held.values()}
        oldest = next((one for one in self._absent.values() if one.id not in awaited), None)
        if oldest is None:
            return False
        self.forget(oldest.id, turn)
        return True


def _key(held: Held) -> str:
    return f"{held.number:020d}"


def _is_back(one: Absent, session: Session) -> bool:
    """Return whether a session is the very one that left."""
    return one.id == session.id and one.scope == session.scope and one.lineage == session.lineage


def _is_heir(one: Absent, session: Session) -> bool:
    if one.is_parked or one.scope != session.scope or not _is_named(one.fields):
        return False
    return one.name == session.name and one.fields.get("cwd") == session.get("cwd")


def _is_alike(one: Session, session: Session) -> bool:
    return one.scope == session.scope and one.name == session.name and one.get("cwd") == session.get("cwd")


def _is_named(fields: Mapping[str, Any]) -> bool:
    """Return whether a name was chosen: one that stands in for none inherits nothing."""
    return bool(fields.get("name")) and not fields.get("runtimeFallbackAlias")


def _absent_document(one: Absent) -> dict[str, Any]:
    lineage = None if one.lineage is None else {"root": one.lineage.root, "parent": one.lineage.parent}
    return {
        "id": one.id,
        "scope": one.scope,
        "lineage": lineage,
        "fields": one.fields,
        "isParked": one.is_parked,
        "leftMs": one.left_ms,
    }


def _absent_of(document: Any) -> Absent:
    try:
        lineage = document["lineage"]
        return Absent(
            id=str(document["id"]),
            scope=document["scope"],
            lineage=None if lineage is None else Lineage(lineage["root"], lineage["parent"]),
            fields=dict(document["fields"]),
            is_parked=bool(document["isParked"]),
            left_ms=int(document["leftMs"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError("not an absence") from error


def _held_document(held: Held) -> dict[str, Any]:
    row = held.sender
    return {
        "number": held.number,
        "sender": {
            "fields": row.fields,
            "isPlain": row.features.needs_plain,
            "epoch": row.epoch,
            "processId": row.process_id,
            "joinedMs": row.joined_ms,
        },
        "messageId": held.message_id,
        "message": held.fields,
        "isAsk": held.is_ask,
        "isPassive": held.is_passive,
        "receivedMs": held.received_ms,
        "untilMs": held.until_ms,
        "contentKey": held.content_key,
    }


def _held_of(document: Any) -> Held:
    try:
        sender = document["sender"]
        features: Features = DIRECT if sender["isPlain"] else RECORDED
        row = Row(
            fields=dict(sender["fields"]),
            features=features,
            epoch=str(sender["epoch"]),
            process_id=int(sender["processId"]),
            joined_ms=int(sender["joinedMs"]),
        )
        until = document["untilMs"]
        return Held(
            number=int(document["number"]),
            scope=document["recipient"]["scope"],
            recipient_id=str(document["recipient"]["id"]),
            sender=row,
            message_id=str(document["messageId"]),
            fields=dict(document["message"]),
            is_ask=bool(document["isAsk"]),
            is_passive=bool(document["isPassive"]),
            received_ms=int(document["receivedMs"]),
            until_ms=None if until is None else int(until),
            content_key=str(document.get("contentKey", "")),
        )
    except (KeyError, TypeError) as error:
        raise ValueError("not held mail") from error
