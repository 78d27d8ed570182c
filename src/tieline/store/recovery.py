"""What an ended instance left: its unread mail and its unsettled sends, read for review.

Rule 1: nothing is shown while the instance may live: its lock must be free, and is held meanwhile.
Rule 2: reading is done in a private copy, and the originals are shown to be unchanged, byte for byte.
Rule 3: nothing is moved to another instance and nothing is marked; who reads here may read again.
Rule 4: what cannot be read is named, and nothing of it is shown: what a damaged store seems to hold may be
old, or twice, or never accepted.

Source: reference/native.md 182 to 185, 3.4 "recoverUnread"; reference/reliability.md I6, I50, K17, K26;
DESIGN.md 8.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from tieline.engine.contract import Box, ContextRow, MessageRow, MoveRow, Row
from tieline.errors import RecoveryRequired, Refused, TielineError, UsageError
from tieline.model.identity import is_instance
from tieline.model.message import Envelope
from tieline.model.receipt import HELD, Durability, Receipt, State
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
    "folded",
    "free_lock",
    "held",
    "identity_of",
    "instances",
    "is_unfinished",
    "nothing_left",
    "recover",
    "stored_rows",
]

MESSAGES = "peer-messages"
COPY_BYTES = 1_048_576
UNFINISHED_BYTES_MAX = 262_144
LISTED_ADVICE = "use a whole instance id as `tieline recover --all` lists it"
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
        is_unsettled: Nobody retries it any more: unknown, sender ended, ask the recipient. That bytes may
            have left is nowhere recorded before they do, so what the sender called pending is unknown here.
        is_expired: Unsettled, and its time is over: the recipient took it before that, or never will.
    """

    cursor: int
    envelope: Envelope
    receipt: Receipt
    at_ms: int
    expires_ms: int
    is_unsettled: bool
    is_expired: bool = False


class Recovered(msgspec.Struct, frozen=True):
    """What one ended instance left, for review.

    Attributes:
        held: What waited for the person's word when it ended: it never arrived, and nobody asks any more.
    """

    identity: Identity
    unread: tuple[Unread, ...]
    sends: tuple[EndedSend, ...]
    message_count: int
    last_ms: int  # wall time of the latest row
    held: tuple[Unread, ...] = ()

    @property
    def unsettled(self) -> tuple[EndedSend, ...]:
        """The sends of which the recipient must be asked."""
        return tuple(send for send in self.sends if send.is_unsettled)


class Ended(msgspec.Struct, frozen=True):
    """One ended instance in a list; `damage` says why its counts are not known, "" when they are.

    What is not known is None, never 0: nobody can say what a damaged store holds.
    """

    instance: str
    session: str
    created_ms: int
    last_ms: int
    message_count: int | None
    unread_count: int | None
    unsettled_count: int | None
    held_count: int | None
    damage: str = ""


def directory_path(home: str, instance: str) -> str:
    """Return the private directory of `instance` below `home`.

    Raises:
        UsageError: `instance` is no instance id.
    """
    if not is_instance(instance):
        error = UsageError(f"{instance[:64]!r} is not an instance id", "INVALID_PARAMS")
        raise error.advising(LISTED_ADVICE)
    return f"{home}/{MESSAGES}/{instance}"


def nothing_left(instance: str) -> Refused:
    """Return the refusal for an instance without a directory; it says where the others are listed."""
    refused = Refused("UNKNOWN_TARGET", f"no instance {instance} left anything here")
    return refused.advising(LISTED_ADVICE)


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
    with held(home, instance) as directory:
        identity = identity_of(directory, instance)
        if session is not None and session != identity.session_id:
            raise Refused("SCOPE_DENIED", f"instance {instance} served another saved session")
        return folded(identity, stored_rows(directory, instance), now_ms)


@contextmanager
def held(home: str, instance: str) -> Iterator[Directory]:
    """Give the directory of an ended instance, its lock held."""
    try:
        directory = open_directory(directory_path(home, instance), create=False)
    except FileNotFoundError:
        raise nothing_left(instance) from None
    with directory, free_lock(directory):
        yield directory


def free_lock(directory: Directory) -> Lock:
    """Return the held lock of an ended instance.

    Raises:
        Refused: `STILL_ALIVE`.
        RecoveryRequired: there is no lock file, so that nobody knows.
    """
    if LOCK not in directory.names():
        # A new file in its place would say "free", whoever holds the old one.
        raise RecoveryRequired(f"{directory.path}/{LOCK} is missing: whether its owner lives is not known")
    try:
        return directory.lock(LOCK, 0)
    except Refused as refused:
        if refused.code == "RESOURCE_BUSY":
            raise Refused("STILL_ALIVE", f"the owner of {directory.path} is running") from refused
        raise


def identity_of(directory: Directory, instance: str) -> Identity:
    """Return the identity of an instance.

    Raises:
        RecoveryRequired: it is missing; else as `journal.identity.read_identity`.
    """
    try:
        return read_identity(directory, instance)
    except FileNotFoundError:
        raise RecoveryRequired(f"{directory.path}/{IDENTITY} is missing") from None


def stored_rows(directory: Directory, instance: str) -> Sequence[Row]:
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


def folded(identity: Identity, rows: Sequence[Row], now_ms: int) -> Recovered:
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
    held: list[Unread] = []
    sends: list[EndedSend] = []
    for cursor, message in messages.items():
        move = moves.get(cursor)
        receipt = _receipt(message, move)
        if message.box is Box.OUT:
            sends.append(_send(message, receipt, now_ms))
        elif cursor in recorded:
            continue
        elif receipt.outcome == HELD:
            held.append(_unread(message, move, receipt, now_ms))
        elif (
            receipt.state in (State.ACCEPTED, State.EXPIRED)
            and receipt.accepted_ms is not None  # what waited for a person's consent never arrived
        ):
            unread.append(_unread(message, move, receipt, now_ms))
    return Recovered(identity, tuple(unread), tuple(sends), len(messages), last_ms, tuple(held))


def _unread(message: MessageRow, move: MoveRow | None, receipt: Receipt, now_ms: int) -> Unread:
    return Unread(
        message.cursor,
        message.envelope,
        receipt,
        message.at_ms,
        message.expires_ms,
        is_expired=receipt.state is State.EXPIRED or 0 < message.expires_ms <= now_ms,
        is_exposed=move is not None and move.note == "prepared",
    )


def _send(message: MessageRow, receipt: Receipt, now_ms: int) -> EndedSend:
    is_unsettled = receipt.state in UNSETTLED
    return EndedSend(
        message.cursor,
        message.envelope,
        msgspec.structs.replace(receipt, state=State.UNKNOWN) if is_unsettled else receipt,
        message.at_ms,
        message.expires_ms,
        is_unsettled,
        is_unsettled and 0 < message.expires_ms <= now_ms,
    )


def _receipt(message: MessageRow, move: MoveRow | None) -> Receipt:
    """Return the receipt that the ended instance would show of one message."""
    envelope = message.envelope
    peers = (envelope.message_id, envelope.sender.id, envelope.recipient.id)
    is_ours = message.box is Box.IN
    if move is None and message.is_held:
        return Receipt(*peers, State.PENDING, message.cursor, outcome=HELD)
    if move is None:
        state = State.ACCEPTED if is_ours else State.PENDING
        accepted_ms = message.at_ms if is_ours else None
        durability = Durability.SYNCED if is_ours else None
        return Receipt(*peers, state, message.cursor, accepted_ms, durability=durability)
    is_taken = is_ours and not message.is_held
    accepted_ms = message.at_ms if is_taken and move.accepted_ms is None else move.accepted_ms
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


# ---------------------------------------------------------------- lists


def ended(home: str, *, now_ms: int = 0) -> list[Ended]:
    """Return every ended instance below `home`, by id; those that live, or never held mail, are left out.

    A damaged one is listed with what is wrong; nothing is changed.
    """
    found = []
    for instance in instances(home):
        try:
            if is_unfinished(home, instance):
                continue
            recovered = recover(home, instance, now_ms=now_ms)
        except FileNotFoundError:
            continue  # it went between the list and the look
        except Refused as refused:
            if refused.code in ("STILL_ALIVE", "UNKNOWN_TARGET"):
                continue
            found.append(Ended(instance, "", 0, 0, None, None, None, None, damage=str(refused)))
        except TielineError as error:
            found.append(Ended(instance, "", 0, 0, None, None, None, None, damage=str(error)))
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
                    len(recovered.held),
                )
            )
    return found


def instances(home: str) -> list[str]:
    """Return the names below `home` that may be an instance's directory."""
    try:
        with open_directory(f"{home}/{MESSAGES}", create=False) as directory:
            return [name for name in directory.names() if is_instance(name)]
    except FileNotFoundError:
        return []


def is_unfinished(home: str, instance: str) -> bool:
    """Return whether the making of a directory was cut off, so that it never held mail.

    Raises:
        RecoveryRequired: it holds mail and lost its identity, or cannot be read.
    """
    with open_directory(directory_path(home, instance), create=False) as directory:
        present = directory.names()
        if IDENTITY in present:
            return False
        files = [name for name in (DATABASE, LOG) if name in present]
        size_bytes = sum(os.stat(name, dir_fd=directory.fd).st_size for name in files)
    if WITNESS not in present:
        # Its tables were not complete. A store that has taken a message is larger: its files are grown first.
        if size_bytes > UNFINISHED_BYTES_MAX:
            raise RecoveryRequired(f"{directory.path}/{IDENTITY} and {WITNESS} are missing")
        return True
    with held(home, instance) as directory:
        if stored_rows(directory, instance):
            raise RecoveryRequired(f"{directory.path}/{IDENTITY} is missing")
    return True
