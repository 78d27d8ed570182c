"""What happened among a person's agents: the records of every root of this user, put together by message.

Theory. A message is in two journals, its sender's and its recipient's, and each knows a part: the one that
it left, the other that it was read. A reader asks each live root for what is behind the place it read up
to, reads a copy of what ended roots left, and joins the two ends by what names a message: its sender's
instance, its id, its recipient. So a message is one line, with every receipt of both ends.

Rule 1: nothing is moved, marked or consumed; a root that does not answer, or a store that cannot be read,
    is named and the rest is shown.
Rule 2: of a message whose recipient's record is known, that record says where it stands.
Rule 3: a search goes from the newest line back and ends with the page; it reads at most `SEARCH_BYTES` of
    text, and the page says where to search on. Measured at 10,000 messages of 300 characters: 2 to 4 ms for
    what nobody wrote; an index of all words takes 200 ms to make, and 20 ms for a word of one letter.
Rule 4: memory is bounded: the oldest lines go, and the page says that there were more.

Source: DESIGN.md 2, 8; reference/native.md 2.8, 182 to 185.
"""

import asyncio
import hashlib
import os
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from tieline.engine.contract import Box, MessageRow, MoveRow
from tieline.errors import RecoveryRequired, Refused, TielineError
from tieline.model.identity import Peer
from tieline.model.message import Envelope
from tieline.model.receipt import HELD, State
from tieline.runtime.client import Client
from tieline.runtime.locate import survey
from tieline.runtime.records import Read, moves_of
from tieline.runtime.timeline.values import (
    PeerName,
    ReceiptStep,
    TimelineEntry,
    TimelinePage,
    TimelineQuery,
)
from tieline.store import recovery
from tieline.store.journal.database import DATABASE, LOG

__all__ = ["Timeline", "timeline"]

LINES_MAX: Final = 20_000
TEXT_BYTES_MAX: Final = 67_108_864
SEARCH_BYTES: Final = 16_777_216
LIMIT_MAX: Final = 1_000
ROOTS_MAX: Final = 256
ENDED_MAX: Final = 64
"""Ended roots that are read, those that wrote last."""
ANSWER_S: Final = 3.0
REFRESH_S: Final = 20.0


async def timeline(home: str, coordination: str, query: TimelineQuery) -> TimelinePage:
    """Return what happened, read anew; a screen keeps a `Timeline` instead.

    Args:
        home: TIELINE_HOME, absolute: where ended roots left their journals.
        coordination: The directory that the roots share.
        query: What is looked for.
    """
    reader = Timeline(home, coordination)
    await asyncio.to_thread(reader.refresh, query.since_ms)
    return reader.page(query)


class _Line:
    """One message while its ends are put together."""

    __slots__ = ("arrived", "haystack", "left", "place", "receiving", "sending", "size_bytes")

    def __init__(self) -> None:
        self.left: MessageRow | None = None
        self.arrived: MessageRow | None = None
        self.sending: dict[int, MoveRow] = {}
        self.receiving: dict[int, MoveRow] = {}
        self.place: tuple[int, str] = (0, "")
        self.haystack: str | None = None
        self.size_bytes = 0

    @property
    def row(self) -> MessageRow:
        """The record that speaks for it."""
        found = self.left or self.arrived
        assert found is not None, "a line begins with a record"
        return found


class _Place(NamedTuple):
    """Up to where a live root was read."""

    message_after: int = 0
    move_after: int = 0


class Timeline:
    """The lines of every root, kept up to date by `refresh`; one thread at a time calls it."""

    def __init__(self, home: str, coordination: str) -> None:
        """Name the directories; nothing is read before the first `refresh`."""
        self._home, self._coordination = home, coordination
        self._lines: dict[tuple[str, str, str], _Line] = {}
        self._of_record: dict[tuple[str, int], tuple[_Line, Box]] = {}
        self._early: dict[tuple[str, int], list[MoveRow]] = {}
        self._places: dict[str, _Place] = {}
        self._ended: set[str] = set()
        self._names: dict[str, str] = {}
        self._order: list[_Line] = []
        self._faults: tuple[str, ...] = ()
        self._is_cut = False
        self._is_changed = False

    # ------------------------------------------------------------ reading

    def refresh(self, since_ms: int = 0) -> bool:
        """Read what is new; blocks. Return whether anything was.

        Args:
            since_ms: What ended roots left is read where they wrote after this moment.
        """
        faults: list[str] = []
        until = time.monotonic() + REFRESH_S
        try:
            roots = [
                root for root in survey(self._coordination).roots if root.life != "gone" and root.control
            ]
        except TielineError as error:
            faults.append(f"the roots cannot be seen: {error}")
            roots = []
        if len(roots) > ROOTS_MAX:
            faults.append(f"{len(roots) - ROOTS_MAX} roots were not asked: at most {ROOTS_MAX} are")
        for root in roots[:ROOTS_MAX]:
            if root.alias:
                self._names[Peer(root.instance).id] = root.alias
            if time.monotonic() >= until:
                faults.append(f"{root.alias or root.instance} was not asked: the time was over")
                continue
            try:
                self._ask(root.instance, root.control, until)
            except TielineError as error:
                if error.code != "NO_ROOT":  # it ended between the list and the look
                    faults.append(f"{root.alias or root.instance} did not answer: {error}")
        faults += self._read_ended({root.instance for root in roots}, since_ms)
        self._faults = tuple(faults)
        is_changed, self._is_changed = self._is_changed, False
        if is_changed:
            self._arrange()
        return is_changed

    def _ask(self, instance: str, control: str, until: float) -> None:
        """Read what a live root stored since it was read last."""
        with Client(control) as client:
            while time.monotonic() < until:
                place = self._places.get(instance, _Place())
                asked = {"messageAfter": place.message_after, "moveAfter": place.move_after}
                read = msgspec.convert(client.call("local.records", asked, ANSWER_S), Read)
                self._names.update(read.names)
                self._take(instance, read.messages, read.moves)
                self._places[instance] = _Place(read.message_after, read.move_after)
                if read.is_last:
                    return

    def _read_ended(self, live: set[str], since_ms: int) -> list[str]:
        """Read copies of what ended roots left; each once, as it changes no more."""
        faults: list[str] = []
        try:
            waiting = [one for one in recovery.instances(self._home) if one not in live | self._ended]
        except (TielineError, OSError) as error:
            return [f"what ended roots left cannot be listed: {error}"]
        written = {one: _written_ms(recovery.directory_path(self._home, one)) for one in waiting}
        wanted = sorted((one for one in waiting if written[one] >= since_ms), key=lambda one: -written[one])
        if len(wanted) > ENDED_MAX:
            faults.append(f"{len(wanted) - ENDED_MAX} roots that ended earlier were not read")
        for instance in wanted[:ENDED_MAX]:
            try:
                with recovery.held(self._home, instance) as directory:
                    rows = recovery.stored_rows(directory, instance)
            except Refused as refused:
                if refused.code not in ("STILL_ALIVE", "UNKNOWN_TARGET"):
                    faults.append(f"what {instance} left was not read: {refused}")
                continue
            except (RecoveryRequired, OSError) as error:
                faults.append(f"what {instance} left cannot be read: {error}")
                self._ended.add(instance)
                continue
            self._ended.add(instance)
            place = self._places.pop(instance, _Place())
            messages = [
                row for row in rows if isinstance(row, MessageRow) and row.cursor > place.message_after
            ]
            moves = moves_of(row for row in rows if isinstance(row, MoveRow))
            self._take(instance, messages, moves)
            self._is_changed = True  # what was sent and not settled is now another's word
        return faults

    def _take(self, instance: str, messages: Iterable[MessageRow], moves: Iterable[MoveRow]) -> None:
        for row in messages:
            self._is_changed = True
            envelope = row.envelope
            key = (envelope.sender.instance, envelope.message_id, envelope.recipient.id)
            line = self._lines.setdefault(key, _Line())
            if row.box is Box.OUT:
                line.left = row
            else:
                line.arrived = row
                if envelope.sender_alias:
                    self._names.setdefault(envelope.sender.id, envelope.sender_alias)
            line.haystack = None
            line.place = (line.row.at_ms, _digest(key))
            line.size_bytes = len(line.row.envelope.content)
            self._of_record[instance, row.cursor] = line, row.box
            for move in self._early.pop((instance, row.cursor), ()):
                self._move(line, row.box, move)
        for move in moves:
            found = self._of_record.get((instance, move.message))
            if found is not None:
                self._is_changed = True
                self._move(*found, move)
            elif len(self._early) < LINES_MAX:
                self._early.setdefault((instance, move.message), []).append(move)

    @staticmethod
    def _move(line: _Line, box: Box, move: MoveRow) -> None:
        (line.sending if box is Box.OUT else line.receiving)[move.cursor] = move

    def _arrange(self) -> None:
        """Sort the lines, and let the oldest go where there is no room for all."""
        self._order = sorted(self._lines.values(), key=lambda line: line.place)
        size_bytes = sum(line.size_bytes for line in self._order)
        while self._order and (len(self._order) > LINES_MAX or size_bytes > TEXT_BYTES_MAX):
            excess = max(1, len(self._order) - LINES_MAX)
            gone, self._order = self._order[:excess], self._order[excess:]
            size_bytes -= sum(line.size_bytes for line in gone)
            self._is_cut = True
        if len(self._order) < len(self._lines):
            kept = set(map(id, self._order))
            self._lines = {key: line for key, line in self._lines.items() if id(line) in kept}
            self._of_record = {key: one for key, one in self._of_record.items() if id(one[0]) in kept}

    # ------------------------------------------------------------ looking

    def page(self, query: TimelineQuery) -> TimelinePage:
        """Return the newest lines that fit, from what was read last.

        Raises:
            Refused: INVALID_PARAMS, a limit or cursor that is none.
        """
        if not 1 <= query.limit <= LIMIT_MAX:
            raise Refused("INVALID_PARAMS", f"limit is a whole number from 1 to {LIMIT_MAX}")
        before = None if query.before is None else _place_of(query.before)
        needle, peer = query.text.casefold(), query.peer.removeprefix(":")
        found: list[TimelineEntry] = []
        read_bytes = 0
        last: _Line | None = None
        is_cut = False
        for line in reversed(self._order):
            at_ms = line.place[0]
            if at_ms < query.since_ms:
                break
            if (before is not None and line.place >= before) or (
                query.until_ms is not None and at_ms >= query.until_ms
            ):
                continue
            if len(found) == query.limit or read_bytes > SEARCH_BYTES:
                is_cut = len(found) < query.limit
                assert last is not None, "something was looked at"
                return TimelinePage(
                    tuple(reversed(found)), _cursor(last.place), self._faults, is_cut, len(self._order)
                )
            last = line
            if peer and not self._is_about(line, peer):
                continue
            if needle:
                haystack = self._haystack(line)
                read_bytes += len(haystack)
                if needle not in haystack:
                    continue
            if not query.states or self._standing(line)[0] in query.states:
                found.append(self._entry(line))
        return TimelinePage(tuple(reversed(found)), None, self._faults, self._is_cut, len(self._order))

    def _is_about(self, line: _Line, peer: str) -> bool:
        envelope = line.row.envelope
        ids = envelope.sender.id, envelope.recipient.id
        return peer in ids or peer in (self._names.get(ids[0]), self._names.get(ids[1]))

    def _haystack(self, line: _Line) -> str:
        if line.haystack is None:
            envelope = line.row.envelope
            ids = envelope.sender.id, envelope.recipient.id
            words = [envelope.message_id, *ids, *(self._names.get(one, "") for one in ids)]
            line.haystack = "\n".join((envelope.content, envelope.topic or "", *words)).casefold()
        return line.haystack

    def _entry(self, line: _Line) -> TimelineEntry:
        row = line.row
        envelope = row.envelope
        state, outcome, durability = self._standing(line)
        return TimelineEntry(
            at_ms=row.at_ms,
            message_id=envelope.message_id,
            sender=self._name(envelope, envelope.sender),
            recipient=self._name(envelope, envelope.recipient),
            topic=envelope.topic,
            text=envelope.content,
            state=state,
            outcome=outcome,
            reply_to=envelope.reply_to,
            correlation=envelope.chain,
            thread=envelope.thread,
            receipts=_steps(line),
            wire=_wire(envelope),
            root=envelope.sender.instance if line.left is not None else envelope.recipient.instance,
            is_ask=envelope.is_ask,
            is_ended=envelope.sender.instance in self._ended,
            durability=durability,
            place=_cursor(line.place),
        )

    def _standing(self, line: _Line) -> tuple[str, str | None, str | None]:
        """Return state, outcome and durability; rule 2."""
        if line.arrived is not None:
            last = _last(line.receiving)
            if last is not None:
                return str(last.state), last.outcome, "synced"
            return ("pending", HELD, None) if line.arrived.is_held else ("accepted", None, "synced")
        last = _last(line.sending)
        is_ended = line.row.envelope.sender.instance in self._ended
        if last is None:
            return "unknown" if is_ended else "pending", None, None
        # Whether bytes of it left is nowhere recorded before they do: nobody knows any more.
        state = "unknown" if is_ended and last.state is State.PENDING else str(last.state)
        return state, last.outcome, None if last.durability is None else str(last.durability)

    def _name(self, envelope: Envelope, peer: Peer) -> PeerName:
        told = envelope.sender_alias if peer == envelope.sender else ""
        return PeerName(peer.id, self._names.get(peer.id) or told)


def _wire(envelope: Envelope) -> str:
    """Return the wire that a message took: a foreign one where either end is on it."""
    return envelope.sender.wire if envelope.sender.wire != "native" else envelope.recipient.wire


def _steps(line: _Line) -> tuple[ReceiptStep, ...]:
    """Return the receipts of both ends, each state once, as its own end said it first."""
    found: dict[tuple[str, str | None], ReceiptStep] = {}
    steps: list[ReceiptStep] = []
    if line.left is not None:
        steps.append(ReceiptStep("pending", line.left.at_ms))
    if line.arrived is not None:
        held = line.arrived.is_held
        steps.append(
            ReceiptStep("pending" if held else "accepted", line.arrived.at_ms, HELD if held else None)
        )
    for moves in (line.receiving, line.sending):
        steps += [
            ReceiptStep(str(moves[at].state), moves[at].at_ms, moves[at].outcome) for at in sorted(moves)
        ]
    for step in steps:
        found.setdefault((step.state, step.outcome), step)
    return tuple(sorted(found.values(), key=lambda step: step.at_ms))


def _last(moves: dict[int, MoveRow]) -> MoveRow | None:
    return moves[max(moves)] if moves else None


def _digest(key: tuple[str, str, str]) -> str:
    return hashlib.sha256("\0".join(key).encode("utf-8", "replace")).hexdigest()[:12]


def _cursor(place: tuple[int, str]) -> str:
    return f"{place[0]}-{place[1]}"


def _place_of(cursor: str) -> tuple[int, str]:
    at, dash, digest = cursor.partition("-")
    if not dash or not at.isascii() or not at.isdigit() or len(at) > 16:
        raise Refused("INVALID_PARAMS", "before is a cursor as a page of the timeline gives it")
    return int(at), digest


def _written_ms(directory: str) -> int:
    """Return when a store was written last, wall milliseconds; 0 where that cannot be seen."""
    found = 0
    for name in (DATABASE, LOG):
        try:
            found = max(found, os.stat(f"{directory}/{name}").st_mtime_ns // 1_000_000)
        except OSError:
            continue
    return found
