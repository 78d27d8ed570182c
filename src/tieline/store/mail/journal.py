"""The mail journal of one broker: rows under a kind and a key, each commit whole and on stable storage.

Rule 1: `commit` answers after the sync; what it was given is then there, all of it, whatever ends next.
Rule 2: after a failure of the device nothing more is written: whether the last rows are kept is in doubt.
Rule 3: damage is told by the file's name and leaves the bytes as they are.
Rule 4: this module knows nothing of what the rows mean.

It lies beside the socket, where the next broker of the same sessions looks, whatever its HOME is. Where that
is a file system in memory, it survives the end of the broker and not that of the machine.

One thread at a time calls a journal.

Source: reference/intercom.md 4.6, 6.3; reference/reliability.md F1, F2, F4, K4, K17.
"""

import os
import re
from collections.abc import Iterable
from typing import Final

import apsw

from tieline.engine.brokering.contract import Drop, Put
from tieline.errors import RecoveryRequired, Refused
from tieline.store.files import Directory, Seam, no_seam
from tieline.store.files.checks import SPACE_ACTION
from tieline.store.journal.database import connect, is_full, refuse_damaged_log, telling_damage

__all__ = ["NAME", "MailJournal"]

NAME: Final = "tieline-mail.db"
APPLICATION_ID: Final = 0x7469656D
SCHEMA_VERSION: Final = 1
LOG_PAGES: Final = 256
"""How many pages the log grows by before they are moved into the file."""
_SCHEMA: Final = (
    "CREATE TABLE held(kind TEXT NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL, "
    "number INTEGER PRIMARY KEY AUTOINCREMENT, UNIQUE(kind, key)) STRICT"
)
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PUT: Final = (
    "INSERT INTO held(kind, key, body) VALUES (?, ?, ?)"
    " ON CONFLICT(kind, key) DO UPDATE SET body = excluded.body"
)
_DROP: Final = "DELETE FROM held WHERE kind = ? AND key = ?"


_HALF: Final = re.compile("[\ud800-\udfff]")
_ESCAPE: Final = re.compile(r"\\(?:\\|(d[89a-f][0-9a-f]{2}))")


class MailJournal:
    """An open journal, which no other process can open meanwhile."""

    def __init__(self, connection: apsw.Connection, path: str, seam: Seam) -> None:
        """Take over the connection that `open` made and verified."""
        self._connection, self._path, self._seam = connection, path, seam
        self._doubt = ""

    @classmethod
    def open(cls, directory: Directory, *, seam: Seam = no_seam) -> "MailJournal":
        """Return the journal in this directory, made when it is missing.

        Raises:
            RecoveryRequired: it is damaged, not a mail journal, or open elsewhere; it is left as it is.
            Refused: VERSION_SKEW, a newer version wrote it; UNSAFE_ENDPOINT, it is not a private file of this
                user.
            UsageError: the library is not safe to keep mail with.
        """
        path = os.path.join(os.path.realpath(directory.path), NAME)
        is_new = _make_file(directory)
        with telling_damage(path):
            connection = connect(path, None)
        try:
            with telling_damage(path):
                connection.wal_autocheckpoint(LOG_PAGES)
                if is_new or _is_empty(connection):
                    with connection:
                        connection.pragma("application_id", APPLICATION_ID)
                        connection.pragma("user_version", SCHEMA_VERSION)
                        connection.execute(_SCHEMA)
                _verify(connection, path)
                refuse_damaged_log(connection, path, None)
            os.fsync(directory.fd)
        except BaseException:
            connection.close()
            raise
        return cls(connection, path, seam)

    def load(self) -> list[Put]:
        """Return all that is kept, in the order in which it was first put.

        Rows of a kind that this version does not know are among them: they are not its own to judge.

        Raises:
            RecoveryRequired: it cannot be read.
        """
        with telling_damage(self._path):
            rows = list(self._connection.execute("SELECT kind, key, body FROM held ORDER BY number"))
        return [Put(kind, _unescaped(key), bytes(body)) for kind, key, body in rows]

    def commit(self, rows: Iterable[Put | Drop]) -> None:
        """Keep and drop these rows, in their order, in one synced transaction.

        Raises:
            Refused: QUEUE_FULL, the disk, a quota or a limit on a file's size leaves no room; nothing of it
                was kept.
            RecoveryRequired: whether it was kept is in doubt; nothing more is written until it is reopened.
        """
        if self._doubt:
            raise RecoveryRequired(self._doubt)
        self._seam("mail.before_commit")
        try:
            with self._connection:
                for row in rows:
                    if isinstance(row, Put):
                        self._connection.execute(_PUT, (row.kind, _escaped(row.key), row.body))
                    else:
                        self._connection.execute(_DROP, (row.kind, _escaped(row.key)))
        except apsw.Error as error:
            if is_full(self._connection, error):
                text = f"no space to keep mail in {self._path}; nothing was changed"
                raise Refused("QUEUE_FULL", text, is_retryable=True).advising(SPACE_ACTION) from error
            self._doubt = f"whether {self._path} keeps the last rows is in doubt: {error}"
            raise RecoveryRequired(self._doubt) from error
        self._seam("mail.committed")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _escaped(key: str) -> str:
    """Return a key as the library takes it, which takes no half of a surrogate pair; a session may."""
    return _HALF.sub(lambda found: f"\\{ord(found[0]):04x}", key.replace("\\", "\\\\"))


def _unescaped(key: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else "\\", key)


def _make_file(directory: Directory) -> bool:
    """Make the file, private from its first instant; return whether it was missing."""
    try:
        descriptor = os.open(NAME, _CREATE, 0o600, dir_fd=directory.fd)
    except FileExistsError:
        directory.repair(NAME)
        return False
    except OSError as error:
        text = f"{directory.path}/{NAME} cannot be made: {error.strerror}"
        raise Refused("PERMISSION_DENIED", text) from error
    os.close(descriptor)
    return True


def _is_empty(connection: apsw.Connection) -> bool:
    """Return whether an earlier broker ended before the tables were made."""
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    return bool(tables == 0 and connection.pragma("user_version") == 0)


def _verify(connection: apsw.Connection, path: str) -> None:
    version = connection.pragma("user_version")
    if connection.pragma("application_id") != APPLICATION_ID or not isinstance(version, int):
        raise RecoveryRequired(f"{path} is not a mail journal")
    if version > SCHEMA_VERSION:
        raise Refused(
            "VERSION_SKEW", f"{path} has schema {version}, this version knows {SCHEMA_VERSION}: update it"
        )
    for (says,) in connection.execute("PRAGMA integrity_check(1)"):
        if says != "ok":
            raise RecoveryRequired(f"{path} is damaged: {str(says).splitlines()[-1]}")
