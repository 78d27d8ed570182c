"""`tieline.connect`: a client of the intercom that no model drives.

Theory. One socket, and nothing behind it: no root, no store, no broker started, no second try. What is to
survive is the caller's own record, written before the attempt; what is not known is reconciled by `receipt`
with the same id and target, never by sending again.

Rule 1: a send bears its id, its delivery and its whole guard, or it is not made; nothing is downgraded,
    redirected or sent without the guard.
Rule 2: an operation ends by its answer, by its time, or with the connection; a send that has no answer is
    `OutcomeUnknown`.
Rule 3: this client answers nobody: what is read of it is refused, what is sent to it is not kept.

Source: specification of the intercom, "Supported non-model client"; reference/intercom.md 5.
"""

import asyncio
import os
import uuid
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Literal, Self

from tieline.errors import OutcomeUnknown, Refused, UsageError
from tieline.runtime.intercom.reads import UNAVAILABLE
from tieline.runtime.world import now
from tieline.shell import link
from tieline.shell.hub import connect_hub, place_of
from tieline.wire.intercom.client import (
    LIST_MS,
    SEND_MS,
    ClientLink,
    Closed,
    LastAsked,
    Listed,
    ReadAnswered,
    ReceiptAsked,
    Registered,
    Sent,
    TimedOut,
)
from tieline.wire.intercom.forms import HINT_FIELDS, hint_fault, is_label, plain_letter

__all__ = ["Client", "connect"]

ANNOUNCED: Final = ("guardedDelivery", "receiptReads", "lastReads")
PAGE_UNITS_MAX: Final = 16_384
SESSION_FIELDS: Final = ("name", "cwd", "model", "rootSessionId", "incarnation")
GUARD_FIELDS: Final = ("rootSessionId", "peerId", "incarnation", "applicationGuard")
CLOSE_SECONDS: Final = 2.0

MESSAGE_FORM: Final = (
    "message_id must be a text of one line, text one without control characters but tab and line ends, "
    "delivery steer, queue or passive"
)

Delivery = Literal["steer", "queue", "passive"]


async def connect(
    *,
    spawn: Literal[False],
    session: Mapping[str, str],
    requested_id: str | None = None,
    send_timeout_s: float = SEND_MS / 1000,
    list_timeout_s: float = LIST_MS / 1000,
    on_error: Callable[[Exception], None] | None = None,
    environment: Mapping[str, str] | None = None,
) -> "Client":
    """Return a client that the broker of this user took.

    Args:
        spawn: The literal False: a missing broker is never started.
        session: `name`, `cwd`, `model` (a label), `rootSessionId` and `incarnation`, each a non-empty text.
        requested_id: An id to ask for; only the returned `session_id` says who this is.
        send_timeout_s: How long a send waits for the broker.
        list_timeout_s: How long a list or a read waits.
        on_error: Told why the connection ended, once.
        environment: Where `PI_INTERCOM_RUNTIME_DIR` is looked up; that of the process where None.

    Raises:
        UsageError: an argument is wrong.
        Refused: PEER_OFFLINE, no broker answers; UNSAFE_ENDPOINT, PERMISSION_DENIED.
    """
    if spawn is not False:
        raise UsageError("spawn must be False: this client starts no broker")
    _require_labels("session", session, SESSION_FIELDS)
    if requested_id is not None and not is_label(requested_id):
        raise UsageError("requested_id is a text to ask for, or None")
    for name, seconds in (("send_timeout_s", send_timeout_s), ("list_timeout_s", list_timeout_s)):
        if not _is_number(seconds) or not 0 < seconds < 2**31 / 1000:
            raise UsageError(f"{name} is a number of seconds above 0")
    place = place_of(os.environ if environment is None else environment)
    loop = asyncio.get_running_loop()
    sock = await loop.run_in_executor(None, connect_hub, place)
    client = Client(dict(session), requested_id, send_timeout_s, list_timeout_s, on_error)
    await client._join(sock)  # noqa: SLF001 - the one maker of clients
    return client


class Client:
    """One connection; made by `connect`, ended by `disconnect`."""

    def __init__(
        self,
        session: dict[str, str],
        requested_id: str | None,
        send_timeout_s: float,
        list_timeout_s: float,
        on_error: Callable[[Exception], None] | None,
    ) -> None:
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[tuple[str, str], asyncio.Future[Any]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._line: link.SocketLine | None = None
        self._registered: asyncio.Future[None] = self._loop.create_future()
        self._ended = asyncio.Event()
        self._is_leaving = False
        self._link = ClientLink(
            {**session, "acceptsAsks": False},
            requested_id,
            now().mono_ms,
            send_ms=max(1, round(send_timeout_s * 1000)),
            list_ms=max(1, round(list_timeout_s * 1000)),
            announced=ANNOUNCED,
        )

    async def _join(self, sock: Any) -> None:
        self._line = await link.join(self, sock)
        self._line.number = 1
        self._flush()
        try:
            await self._registered
        except asyncio.CancelledError:
            await self.disconnect()  # else the broker would list a session that nobody holds
            raise

    # ------------------------------------------------------------ what is told

    @property
    def session_id(self) -> str:
        """Our id at the broker: the only thing that says who this connection is."""
        return self._link.session_id

    @property
    def is_connected(self) -> bool:
        """Whether the connection stands; nothing is said of anybody else."""
        return self._link.is_registered and not self._is_leaving

    # ------------------------------------------------------------ operations

    async def list_sessions(self) -> list[dict[str, Any]]:
        """Return who is there, ourselves included, as the broker lists them.

        Raises:
            Refused: PEER_OFFLINE, not connected, or no answer in time.
        """
        name = str(uuid.uuid4())
        told: Listed = await self._asked("list", name, lambda: self._link.list(name, now().mono_ms))
        return list(told.rows)

    async def send(
        self,
        peer_id: str,
        *,
        message_id: str,
        text: str,
        delivery: Delivery,
        guard: Mapping[str, str],
        reply_hint: Mapping[str, str] | None = None,
        expects_reply: Literal[False] = False,
    ) -> dict[str, Any]:
        """Send a message under its guard; return the broker's word, which proves nothing of its recipient.

        Args:
            peer_id: The exact id that was advertised, the same as in `guard`.
            message_id: The caller's own id, recorded before this call.
            text: The exact text.
            delivery: steer, queue or passive.
            guard: `rootSessionId`, `peerId`, `incarnation` and `applicationGuard` of the recorded target.
            reply_hint: `tool`, `commandId` and, where wanted, `commandFingerprint`.
            expects_reply: The literal False.

        Returns:
            `{messageId, accepted, queued, reason}`; `accepted` False is a definite no.

        Raises:
            UsageError: an argument is wrong; nothing was sent.
            Refused: CAPABILITY_DENIED, the broker is too old; RESOURCE_BUSY, a send of this id waits;
                PEER_OFFLINE, not connected. Nothing was sent.
            OutcomeUnknown: it may have been taken: only `receipt` with the same id and target can tell.
        """
        if expects_reply is not False:
            raise UsageError("expects_reply must be False: this client asks nothing")
        _require_labels("guard", guard, GUARD_FIELDS)
        if guard["peerId"] != peer_id:
            raise UsageError("peerId of guard must be the target itself")
        message: dict[str, Any] = {
            "id": message_id,
            "timestamp": now().wall_ms,
            "content": {"text": text},
            "expectsReply": False,
            "delivery": delivery,
            "guard": dict(guard),
        }
        if reply_hint is not None:
            _require_hint(reply_hint, delivery)
            message["replyHint"] = dict(reply_hint)
        letter = plain_letter(message)
        if letter is None or letter.is_guard_broken:
            raise UsageError(MESSAGE_FORM)
        told: Sent = await self._asked(
            "send", message_id, lambda: self._link.send(peer_id, message, now().mono_ms)
        )
        return {
            "messageId": message_id,
            "accepted": told.kind != "failed",
            "queued": told.kind == "queued",
            "reason": told.reason,
        }

    async def receipt(self, peer_id: str, *, root_session_id: str, message_id: str) -> dict[str, Any]:
        """Return what a peer recorded of a message to it: `{receipt}`, or `{error}`.

        `publication_unavailable` and `receipt_not_found` do not say that nothing happened.

        Raises:
            Refused: CAPABILITY_DENIED, the broker is too old; PEER_OFFLINE, no answer.
        """
        body = {"rootSessionId": root_session_id, "messageId": message_id}
        _require_labels("receipt", body, tuple(body))
        return await self._read("receipt", peer_id, body)

    async def last(
        self, peer_id: str, *, entry_id: str | None = None, offset: int = 0, limit: int = PAGE_UNITS_MAX
    ) -> dict[str, Any]:
        """Return a page of a peer's last finished answer: `{entryId, text, offset, nextOffset}` or `{error}`.

        Args:
            peer_id: Its exact id.
            entry_id: The answer to go on with; None for the newest.
            offset: UTF-16 code units to skip: the `nextOffset` that was told.
            limit: Units of the page, 1 to 16,384.

        Raises:
            UsageError, Refused: as `receipt`.
        """
        if not (_is_whole(limit) and _is_whole(offset)) or not 0 < limit <= PAGE_UNITS_MAX or offset < 0:
            raise UsageError(f"limit is a whole number from 1 to {PAGE_UNITS_MAX}, offset one from 0")
        if entry_id is not None and not is_label(entry_id):
            raise UsageError("entry_id is the entryId of an earlier page, or None")
        body: dict[str, Any] = {"offset": offset, "limit": limit}
        return await self._read("last", peer_id, body if entry_id is None else {**body, "entryId": entry_id})

    async def disconnect(self) -> None:
        """Leave, and wait until the socket is closed."""
        if not self._is_leaving:
            self._is_leaving = True
            self._link.leave()
            self._flush()
            self._link.close("disconnected")
            self._drain()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._ended.wait()
        except TimeoutError:
            return  # what it said last may still be on its way; the process need not wait for that

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.disconnect()

    async def _read(self, kind: str, peer_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        if not is_label(peer_id):
            raise UsageError("peer_id is the exact id of a peer, as it is listed")
        name = str(uuid.uuid4())
        told: ReadAnswered = await self._asked(
            kind, name, lambda: self._link.read(kind, name, peer_id, body, now().mono_ms)
        )
        return told.body

    async def _asked(self, kind: str, name: str, say: Callable[[], None]) -> Any:
        """Say something and return its answer."""
        if self._is_leaving:
            raise Refused("PEER_OFFLINE", "this client was disconnected")
        say()
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting[kind, name] = future
        try:
            self._flush()
            return await future
        finally:
            self._waiting.pop((kind, name), None)

    # ------------------------------------------------------------ as a carrier of one line

    def accepted(self, line: link.SocketLine) -> None:
        """Nobody connects to a client."""
        line.close()

    def received(self, _number: int, data: bytes) -> None:
        """Bytes came in."""
        self._link.receive_data(data)
        self._drain()

    def lost(self, _number: int) -> None:
        """The socket is closed."""
        self._ended.set()
        self._link.receive_eof()
        self._drain()

    def _flush(self) -> None:
        data = self._link.data_to_send()
        if data and self._line is not None:
            self._line.write(data)
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ms = self._link.deadline_ms
        if due_ms is not None:
            delay_ms = max(1, due_ms - now().mono_ms)
            self._timer = self._loop.call_later(delay_ms / 1000, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._link.expire(now().mono_ms)
        self._drain()

    def _drain(self) -> None:
        for event in self._link.events_received():
            match event:
                case Registered():
                    self._settle(self._registered, None)
                case Listed():
                    self._settle(self._waiting.get(("list", event.request_id)), event)
                case Sent():
                    self._settle(self._waiting.get(("send", event.message_id)), event)
                case ReadAnswered():
                    self._settle(self._waiting.get((event.kind, event.request_id)), event)
                case TimedOut():
                    self._fail(event.kind, event.name, "no answer in time")
                case LastAsked():
                    self._link.answer_last(event.token, {"error": "entry_not_found"})
                case ReceiptAsked():
                    self._link.answer_receipt(event.token, {"error": UNAVAILABLE})
                case Closed():
                    self._closed(event)
                case _:
                    continue
        self._flush()

    def _closed(self, event: Closed) -> None:
        error = Refused("PEER_OFFLINE", event.reason, is_retryable=True)
        for kind, name in event.unanswered:
            self._fail(kind, name, event.reason)
        if self._line is not None:
            self._line.close()
        if not self._registered.done():
            self._registered.set_exception(error)
        elif self._on_error is not None and not self._is_leaving:
            self._on_error(error)  # last: it is the caller's, and may raise

    def _fail(self, kind: str, name: str, reason: str) -> None:
        future = self._waiting.get((kind, name))
        if future is not None and not future.done():
            is_send = kind == "send"
            text = f"the send may have been taken: {reason}"
            future.set_exception(
                OutcomeUnknown(text, name) if is_send else Refused("PEER_OFFLINE", reason, is_retryable=True)
            )

    @staticmethod
    def _settle(future: "asyncio.Future[Any] | None", told: object) -> None:
        if future is not None and not future.done():
            future.set_result(told)


# ---------------------------------------------------------------- what no broker would take


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _require_labels(what: str, given: object, names: tuple[str, ...]) -> None:
    """Refuse what is not exactly these names, each with a text of one line.

    Raises:
        UsageError: it names the field.
    """
    if not isinstance(given, Mapping) or set(given) - set(names):
        raise UsageError(f"{what} needs {', '.join(names)}, and nothing else")
    for name in names:
        if not is_label(given.get(name)):
            raise UsageError(f"{name} of {what} must be a text of one line that is not empty")


def _require_hint(hint: Mapping[str, str], delivery: object) -> None:
    """Refuse a hint that no recipient takes.

    Raises:
        UsageError: it names the field.
    """
    fault = hint_fault(hint)
    if fault:
        raise UsageError(f"reply_hint has a form that no recipient takes: {fault}")
    if set(hint) - set(HINT_FIELDS):
        raise UsageError(f"reply_hint takes {', '.join(HINT_FIELDS)}, and nothing else")
    if delivery == "passive":
        raise UsageError("a passive message takes no reply_hint: nobody acts on it")
