"""What an ended instance left: its unread mail, its unsettled sends, and their removal.

Rule 1: nothing is shown or removed while the instance may live: its lock must be free, and is held
meanwhile.
Rule 2: reading is done in a private copy, and the originals are shown to be unchanged, byte for byte.
Rule 3: nothing is moved to another instance and nothing is marked; who reads here may read again.
Rule 4: what cannot be read is kept and named. Only a store that was read to its end may be removed.

Source: reference/native.md 182 to 185, 3.4 "recoverUnread", "old instance directories";
reference/reliability.md I6, I50, K17, K26; DESIGN.md 8.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tieline.engine.contract import Box, ContextRow, MessageRow, MoveRow, Row
from tieline.errors import RecoveryRequired, Refused, TielineError, UsageError
from tieline.model.identity import is_instance
from tieline.model.message import Envelope
from tieline.model.receipt import Durability, Receipt, State
from tieline.store.files import Directory, Lock, check_file, open_directory
from tieline.store.journal import database
from tieline.store.journal.database import DATABASE, LOG, telling_damage
from tieline.store.journal.identity import IDENTITY, Identity, read_identity
from tieline.store.journal.journal import LOCK
from tieline.store.journal.witness import WITNESS, WITNESS_BYTES, Seen, decode_witness, refuse_behind

__all__ = [
    "Ended",
    "EndedSend",
    "Recovered",
    "Unread",
    "directory_path",
    "ended",
    "forget",
    "housekeep",
    "recover",
]

MESSAGES = "peer-messages"
FORGOTTEN_SUFFIX = ".forgotten"
"""No instance id has a dot: a directory of this name is one whose removal was interrupted."""
COPY_BYTES = 1_048_576
UNSETTLED = frozenset({State.PENDING, State.UNKNOWN})


class Unread(msgspec.Struct, frozen=True):
    """One message that the ended instance accepted and never saw consumed; ids are the original ones.

    Attributes:
        cursor: The ended receiver's sequence.
        is_expired: It ran out, marked so or by `now_ms`; it may still be worth reading.
        is_exposed: It was prepared for a model, and no evidence says whether the model took it.
    """

    cursor: int
    envelope: Envelope
    receipt: Receipt
    at_ms: int
    expires_ms: int
    is_expired: bool
    is_exposed: bool


class EndedSend(msgspec.Struct, frozen=True):
    """One message that the ended instance sent.

    Attributes:
        is_unsettled: Nobody retries it any more: unknown, sender ended, ask the recipient.
    """

    cursor: int
    envelope: Envelope
    receipt: Receipt
    at_ms: int
    expires_ms: int
    is_unsettled: bool


class Recovered(msgspec.Struct, frozen=True):
    """What one ended instance left, for review."""

    identity: Identity
    unread: tuple[Unread, ...]
    sends: tuple[EndedSend, ...]
    message_count: int
    last_ms: int  # wall time of the latest row

    @property
    def unsettled(self) -> tuple[EndedSend, ...]:
        """The sends of which the recipient must be asked."""
        return tuple(send for send in self.sends if send.is_unsettled)


class Ended(msgspec.Struct, frozen=True):
    """One ended instance in a list; `damage` says why its counts are not known, "" when they are."""

    instance: str
    session: str
    created_ms: int
    last_ms: int
    message_count: int
    unread_count: int
    unsettled_count: int
    damage: str = ""


def directory_path(home: str, instance: str) -> str:
    """Return the private directory of `instance` below `home`.

    Raises:
        UsageError: `instance` is no instance id.
    """
    if not is_instance(instance):
        raise UsageError(f"{instance!r} is not an instance id", "INVALID_PARAMS")
    return f"{home}/{MESSAGES}/{instance}"


# ---------------------------------------------------------------- reading


def recover(home: str, instance: str, *, session: str | None = None, now_ms: int = 0) -> Recovered:
    """Return what an ended instance left, moving and marking nothing.

    Args:
        home: TIELINE_HOME, absolute.
        instance: The ended one.
        session: The saved session that asks, when it does; the instance must have served it.
        now_ms: Wall time, for `is_expired`; 0 flags only what was marked.

    Raises:
        Refused: `STILL_ALIVE`; `UNKNOWN_TARGET` when there is no such directory; `SCOPE_DENIED` when it
            served another saved session; `VERSION_SKEW` when a newer version wrote it.
        RecoveryRequired: a file is damaged or missing, named; all bytes are kept.

    Source: reference/native.md 183, 184, 3.4 "recoverUnread".
    """
    with _held(home, instance) as directory:
        identity = _identity(directory, instance)
        if session is not None and session != identity.session_id:
            raise Refused("SCOPE_DENIED", f"instance {instance} served another saved session")
        return _folded(identity, _rows(directory, instance), now_ms)


@contextmanager
def _held(home: str, instance: str) -> Iterator[Directory]:
    """Give the directory of an ended instance, its lock held."""
    try:
        directory = open_directory(directory_path(home, instance), create=False)
    except FileNotFoundError:
        raise Refused("UNKNOWN_TARGET", f"no instance {instance} left anything here") from None
    with directory, _lock(directory):
        yield directory


def _lock(directory: Directory) -> Lock:
    if LOCK not in directory.names():
        # A new file in its place would say "free", whoever holds the old one.
        raise RecoveryRequired(f"{directory.path}/{LOCK} is missing: whether its owner lives is not known")
    try:
        return directory.lock(LOCK, 0)
    except Refused as refused:
        if refused.code == "RESOURCE_BUSY":
            raise Refused("STILL_ALIVE", f"the owner of {directory.path} is running") from refused
        raise


def _identity(directory: Directory, instance: str) -> Identity:
    try:
        return read_identity(directory, instance)
    except FileNotFoundError:
        raise RecoveryRequired(f"{directory.path}/{IDENTITY} is missing") from None


def _rows(directory: Directory, instance: str) -> Sequence[Row]:
    """Return the rows of a copy, after the originals were seen to be what they were before."""
    present = directory.names()
    for name in (DATABASE, LOG, WITNESS):
        if name not in present:
            raise RecoveryRequired(f"{directory.path}/{name} is missing")
    private = tempfile.mkdtemp(prefix="tieline-")
    try:
        before = [_copy(directory, name, f"{private}/{name}") for name in (DATABASE, LOG)]
        seen = decode_witness(directory.read(WITNESS, WITNESS_BYTES))
        rows = _rows_of_copy(f"{os.path.realpath(private)}/{DATABASE}", instance, seen)
        if before != [_copy(directory, name, os.devnull) for name in (DATABASE, LOG)]:
            raise RecoveryRequired(f"{directory.path}/{DATABASE} changed while it was read")
        return rows
    finally:
        shutil.rmtree(private)


def _rows_of_copy(path: str, instance: str, seen: Seen | None) -> Sequence[Row]:
    with telling_damage(DATABASE):
        connection = database.connect(path, None)
    try:
        stored = database.read_verified(connection, path, None, instance)
        refuse_behind(seen, Seen(database.generation(connection), stored.position), DATABASE)
        return stored.rows
    finally:
        connection.close()


def _copy(directory: Directory, name: str, target: str) -> str:
    """Copy one private file of the directory to `target`; return the SHA-256 of what was read."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    digest = hashlib.sha256()
    try:
        source = os.open(name, flags, dir_fd=directory.fd)
        try:
            check_file(os.fstat(source), f"{directory.path}/{name}")
            with open(target, "wb", opener=_private_opener) as copy:
                while data := os.read(source, COPY_BYTES):
                    digest.update(data)
                    copy.write(data)
        finally:
            os.close(source)
    except OSError as error:
        raise RecoveryRequired(f"{directory.path}/{name} cannot be copied: {error}") from error
    return digest.hexdigest()


def _private_opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


# ---------------------------------------------------------------- what the rows say


def _folded(identity: Identity, rows: Sequence[Row], now_ms: int) -> Recovered:
    """Return what the last row of each message says of it."""
    messages: dict[int, MessageRow] = {}
    moves: dict[int, MoveRow] = {}
    recorded: set[int] = set()
    last_ms = identity.created_ms
    for row in rows:
        match row:
            case MessageRow():
                messages[row.cursor] = row
                last_ms = max(last_ms, row.at_ms)
            case MoveRow():
                moves[row.message] = row
                last_ms = max(last_ms, row.at_ms)
            case ContextRow():
                recorded.add(row.message)
            case _:
                continue
    unread: list[Unread] = []
    sends: list[EndedSend] = []
    for cursor, message in messages.items():
        move = moves.get(cursor)
        receipt = _receipt(message, move)
        if message.box is Box.OUT:
            is_unsettled = receipt.state in UNSETTLED
            sends.append(
                EndedSend(cursor, message.envelope, receipt, message.at_ms, message.expires_ms, is_unsettled)
            )
        elif receipt.state in (State.ACCEPTED, State.EXPIRED) and cursor not in recorded:
            is_expired = receipt.state is State.EXPIRED or 0 < message.expires_ms <= now_ms
            is_exposed = move is not None and move.note == "prepared"
            unread.append(
                Unread(
                    cursor,
                    message.envelope,
                    receipt,
                    message.at_ms,
                    message.expires_ms,
                    is_expired,
                    is_exposed,
                )
            )
    return Recovered(identity, tuple(unread), tuple(sends), len(messages), last_ms)


def _receipt(message: MessageRow, move: MoveRow | None) -> Receipt:
    """Return the receipt that the ended instance would show of one message."""
    envelope = message.envelope
    peers = (envelope.message_id, envelope.sender.id, envelope.recipient.id)
    is_ours = message.box is Box.IN
    if move is None:
        state = State.ACCEPTED if is_ours else State.PENDING
        accepted_ms = message.at_ms if is_ours else None
        durability = Durability.SYNCED if is_ours else None
        return Receipt(*peers, state, message.cursor, accepted_ms, durability=durability)
    accepted_ms = message.at_ms if is_ours and move.accepted_ms is None else move.accepted_ms
    return Receipt(
        *peers,
        move.state,
        move.cursor,
        accepted_ms,
        move.consumed_ms,
        move.replied_ms,
        move.outcome,
        Durability.SYNCED if is_ours else move.durability,
        move.is_retryable,
    )


# ---------------------------------------------------------------- lists and removal


def ended(home: str, *, now_ms: int = 0) -> list[Ended]:
    """Return every ended instance below `home`, by id; those that live, or are being made, are left out.

    A damaged one is listed with what is wrong; nothing is changed.
    """
    found = []
    for instance in _instances(home):
        try:
            recovered = recover(home, instance, now_ms=now_ms)
        except Refused as refused:
            if refused.code in ("STILL_ALIVE", "UNKNOWN_TARGET"):
                continue
            found.append(Ended(instance, "", 0, 0, 0, 0, 0, damage=str(refused)))
        except TielineError as error:
            found.append(Ended(instance, "", 0, 0, 0, 0, 0, damage=str(error)))
        else:
            identity = recovered.identity
            found.append(
                Ended(
                    instance,
                    identity.session_id,
                    identity.created_ms,
                    recovered.last_ms,
                    recovered.message_count,
                    len(recovered.unread),
                    len(recovered.unsettled),
                )
            )
    return found


def _instances(home: str) -> list[str]:
    try:
        with open_directory(f"{home}/{MESSAGES}", create=False) as directory:
            return [name for name in directory.names() if is_instance(name)]
    except FileNotFoundError:
        return []


def forget(home: str, instance: str, *, with_unread: bool) -> None:
    """Remove the directory of an ended instance.

    Args:
        home: TIELINE_HOME, absolute.
        instance: The ended one.
        with_unread: Also when mail in it was never read, or a send was never settled.

    Raises:
        Refused: `UNREAD_MAIL`; else as `recover`.
        RecoveryRequired: it cannot be read, so that nobody knows what would be lost; it is kept.
    """
    with _held(home, instance) as directory:
        recovered = _folded(_identity(directory, instance), _rows(directory, instance), 0)
        if not with_unread and (recovered.unread or recovered.unsettled):
            raise Refused(
                "UNREAD_MAIL",
                f"instance {instance} left {len(recovered.unread)} unread and"
                f" {len(recovered.unsettled)} unsettled messages",
            )
        _remove(home, instance)


def housekeep(home: str, retention_ms: int, now_ms: int) -> list[str]:
    """Remove ended instances whose records are all final and past retention; return their ids.

    A message that ran out with its owner is final: nobody can consume, retry or settle it any more.
    What is damaged, newer or alive stays. A store that was written to within the retention is not even
    read: every root that starts looks here, and hundreds may have ended today.

    Source: DESIGN.md 8 "Housekeeping"; reference/native.md 3.4 "old instance directories".
    """
    removed = []
    for instance in _instances(home):
        if now_ms - retention_ms <= _written_ms(home, instance) <= now_ms:
            continue
        try:
            with _held(home, instance) as directory:
                if _final_ms(directory, instance, now_ms) + retention_ms < now_ms:
                    _remove(home, instance)
                    removed.append(instance)
        except TielineError:
            # It is listed by `ended` with what is wrong; removing what cannot be read is nobody's to do.
            continue
    _finish_removals(home)
    return removed


def _written_ms(home: str, instance: str) -> int:
    """Return the wall time of the last write to a store's files, 0 for one that was never finished."""
    latest_ms = 0
    try:
        for name in (IDENTITY, DATABASE, LOG):
            status = os.stat(f"{directory_path(home, instance)}/{name}", follow_symlinks=False)
            latest_ms = max(latest_ms, status.st_mtime_ns // 1_000_000)
    except OSError:
        return 0
    return latest_ms


def _final_ms(directory: Directory, instance: str, now_ms: int) -> int:
    """Return the wall time from which every record is final."""
    present = directory.names()
    if IDENTITY not in present:
        # Its making was interrupted. Without a witness not even its tables were complete.
        if WITNESS in present and _rows(directory, instance):
            raise RecoveryRequired(f"{directory.path}/{IDENTITY} is missing")
        return os.fstat(directory.fd).st_mtime_ns // 1_000_000
    recovered = _folded(_identity(directory, instance), _rows(directory, instance), now_ms)
    open_ms = [unread.expires_ms for unread in recovered.unread if unread.receipt.state is State.ACCEPTED]
    open_ms += [send.expires_ms for send in recovered.unsettled]
    return max([recovered.last_ms, *open_ms])


def _remove(home: str, instance: str) -> None:
    """Take the directory out of the way by one rename, then remove it; interrupted, the rest comes later."""
    path = directory_path(home, instance)
    try:
        os.rename(path, path + FORGOTTEN_SUFFIX)
        _remove_forgotten(Path(path + FORGOTTEN_SUFFIX))
    except OSError as error:
        raise RecoveryRequired(f"{path} cannot be removed: {error}") from error


def _finish_removals(home: str) -> None:
    for path in Path(f"{home}/{MESSAGES}").glob("*" + FORGOTTEN_SUFFIX):
        _remove_forgotten(path)


def _remove_forgotten(path: Path) -> None:
    """Remove the files of a directory that holds no directories, then itself."""
    with open_directory(str(path), create=False) as directory:
        for name in os.listdir(directory.fd):
            os.unlink(name, dir_fd=directory.fd)
    path.rmdir()
