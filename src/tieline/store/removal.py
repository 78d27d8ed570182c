"""Taking away what ended instances left: on request, when nothing of it counts any more, or it was empty.

Rule 1: nothing is removed while the instance may live: its lock must be free, and is held meanwhile.
Rule 2: only a store that was read to its end is removed, or one that has no identity.json: that is written
before the first message may be stored. What cannot be read is kept.
Rule 3: a removal that was cut off is never seen as a damaged instance; the next one ends it.
Rule 4: an instance's log goes with its store.

Source: reference/native.md 3.4 "old instance directories"; reference/reliability.md I6, K1; DESIGN.md 8.
"""

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from tieline.engine.contract import MessageRow
from tieline.errors import RecoveryRequired, Refused, TielineError
from tieline.model.identity import is_instance
from tieline.model.receipt import State
from tieline.store.files import Directory, open_directory
from tieline.store.journal.database import DATABASE, LOG
from tieline.store.journal.identity import IDENTITY
from tieline.store.journal.journal import LOCK
from tieline.store.journal.witness import WITNESS, WITNESS_BYTES, decode_witness
from tieline.store.recovery import (
    MESSAGES,
    Recovered,
    directory_path,
    folded,
    free_lock,
    held,
    identity_of,
    instances,
    is_unfinished,
    nothing_left,
    stored_rows,
)

__all__ = ["discard", "forget", "housekeep"]

FORGOTTEN_SUFFIX = ".forgotten"
"""No instance id has a dot: a directory of this name is one whose removal was interrupted."""
LOGS = "logs"
UNFINISHED_MS_MIN = 600_000
"""A directory without identity.json is being made, which takes milliseconds, or its making was cut off."""


def forget(home: str, instance: str, *, with_unread: bool, now_ms: int) -> Recovered | None:
    """Remove what an ended instance left, its log as well.

    Args:
        home: TIELINE_HOME, absolute.
        instance: The ended one.
        with_unread: Also when mail in it was never read, or a send was never settled.
        now_ms: Wall time.

    Returns:
        What was removed; None for one that never held mail, because its making was cut off.

    Raises:
        Refused: `UNREAD_MAIL`; `RESOURCE_BUSY` for one that may still be in the making; else as `recover`.
        RecoveryRequired: it cannot be read, so that nobody knows what would be lost; it is kept.
    """
    try:
        was_never_made = is_unfinished(home, instance)
    except FileNotFoundError:
        raise nothing_left(instance) from None
    if was_never_made:
        if not _remove_unfinished(home, instance, now_ms):
            text = f"instance {instance} is being made, or was until less than ten minutes ago"
            raise Refused("RESOURCE_BUSY", text, is_retryable=True)
        return None
    with held(home, instance) as directory:
        recovered = folded(identity_of(directory, instance), stored_rows(directory, instance), 0)
        if not with_unread and (recovered.unread or recovered.unsettled):
            raise Refused(
                "UNREAD_MAIL",
                f"instance {instance} left {len(recovered.unread)} messages that nobody read and"
                f" {len(recovered.unsettled)} sends of which it is not known whether they arrived",
            )
        _remove(home, instance)
    return recovered


def discard(home: str, instance: str) -> bool:
    """Remove an ended instance that stored no message, its log as well; return whether it was one.

    Raises:
        Refused, RecoveryRequired: as `recover`; it is kept.
    """
    with held(home, instance) as directory:
        present = directory.names()
        if (IDENTITY in present or WITNESS in present) and any(
            isinstance(row, MessageRow) for row in stored_rows(directory, instance)
        ):
            return False
        _remove(home, instance)
    return True


def housekeep(home: str, retention_ms: int, now_ms: int) -> list[str]:
    """Remove ended instances whose records are all final and past retention; return their ids.

    Those that hold no message, or whose making was cut off ten minutes ago, go at once. A message that ran
    out with its owner is final: nobody can consume, retry or settle it any more. What is damaged, newer or
    alive stays. A store with messages that was written to within the retention is not even read: every root
    that starts looks here, and hundreds may have ended today.

    Source: DESIGN.md 8 "Housekeeping"; reference/native.md 3.4 "old instance directories".
    """
    removed = []
    for instance in instances(home):
        try:
            if _is_over(home, instance, retention_ms, now_ms):
                removed.append(instance)
        except (TielineError, FileNotFoundError):
            # It is listed by `ended` with what is wrong; removing what cannot be read is nobody's to do.
            continue
    _finish_removals(home)
    _remove_old_logs(home, retention_ms, now_ms)
    return removed


def _is_over(home: str, instance: str, retention_ms: int, now_ms: int) -> bool:
    """Remove one instance if that may be; return whether it was."""
    if _remove_unfinished(home, instance, now_ms):
        return True
    with open_directory(directory_path(home, instance), create=False) as directory:
        seen = decode_witness(directory.read(WITNESS, WITNESS_BYTES))
    if seen is not None and seen.position == 0 and discard(home, instance):
        return True
    if now_ms - retention_ms <= _written_ms(home, instance) <= now_ms:
        return False
    with held(home, instance) as directory:
        if _final_ms(directory, instance, now_ms) + retention_ms >= now_ms:
            return False
        _remove(home, instance)
    return True


def _remove_unfinished(home: str, instance: str, now_ms: int) -> bool:
    """Remove a directory whose making was cut off; return whether it was one, and old or unlocked enough."""
    if not is_unfinished(home, instance):
        return False
    with open_directory(directory_path(home, instance), create=False) as directory:
        if now_ms - os.fstat(directory.fd).st_mtime_ns // 1_000_000 < UNFINISHED_MS_MIN:
            return False
        # Its maker takes the lock first of all; where there is none after ten minutes, nobody will.
        with free_lock(directory) if LOCK in directory.names() else nullcontext():
            _remove(home, instance)
    return True


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
    recovered = folded(identity_of(directory, instance), stored_rows(directory, instance), now_ms)
    open_ms = [unread.expires_ms for unread in recovered.unread if unread.receipt.state is State.ACCEPTED]
    open_ms += [send.expires_ms for send in recovered.unsettled]
    return max([recovered.last_ms, *open_ms])


def _remove(home: str, instance: str) -> None:
    """Take the directory out of the way by one rename, then remove it; interrupted, the rest comes later."""
    path = directory_path(home, instance)
    _remove_logs(home, lambda name, _: name == instance)
    try:
        os.rename(path, path + FORGOTTEN_SUFFIX)
        _remove_forgotten(Path(path + FORGOTTEN_SUFFIX))
    except OSError as error:
        raise RecoveryRequired(f"{path} cannot be removed: {error}") from error


def _remove_logs(home: str, may_go: Callable[[str, int], bool]) -> None:
    """Remove the log files of which `may_go` (instance, wall time of the last line) says so."""
    try:
        with open_directory(f"{home}/{LOGS}", create=False) as directory:
            for name in directory.names():
                instance, mark, _ = name.partition(".log")
                if not mark or not is_instance(instance):
                    continue
                written_ms = os.stat(name, dir_fd=directory.fd).st_mtime_ns // 1_000_000
                if may_go(instance, written_ms):
                    directory.remove(name)
    except FileNotFoundError:
        return  # nothing was logged, or another removed it


def _remove_old_logs(home: str, retention_ms: int, now_ms: int) -> None:
    """Remove the logs of instances that left nothing else, past retention."""
    stored = set(instances(home))
    _remove_logs(home, lambda name, written_ms: name not in stored and written_ms + retention_ms < now_ms)


def _finish_removals(home: str) -> None:
    for path in Path(f"{home}/{MESSAGES}").glob("*" + FORGOTTEN_SUFFIX):
        _remove_forgotten(path)


def _remove_forgotten(path: Path) -> None:
    """Remove the files of a directory that holds no directories, then itself."""
    with open_directory(str(path), create=False) as directory:
        for name in os.listdir(directory.fd):
            os.unlink(name, dir_fd=directory.fd)
    path.rmdir()
