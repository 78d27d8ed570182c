"""How far a store is known to have come: a few bytes beside the database, written after each sync.

Rule 1: the witness is written after the commit's sync and is not synced itself. It may be behind, after
a cut of power by much; it is never ahead.
Rule 2: a database that is behind its witness lost something that was acknowledged: an older copy was put
in its place, its log was taken away, or its last commit was damaged.
Rule 3: a witness that cannot be written, or is damaged itself, accuses nobody.

SQLite cannot tell these apart: a log that ends early is to it a transaction that never happened.

Source: reference/reliability.md K17, I38; reference/open-bugs.md O46.
"""

import hashlib
import os
import struct
from typing import NamedTuple

from tieline.errors import RecoveryRequired

__all__ = ["WITNESS", "WITNESS_BYTES", "Seen", "Witness", "decode_witness", "encode_witness", "refuse_behind"]

WITNESS = "witness"
WITNESS_BYTES = 32
_MAGIC = b"tieline1"
_FIELDS = struct.Struct(">8sQQ")


class Seen(NamedTuple):
    """What was durable once: the database's generation, and its last row within."""

    generation: int
    position: int


def encode_witness(seen: Seen) -> bytes:
    """Return the file's bytes."""
    fields = _FIELDS.pack(_MAGIC, seen.generation, seen.position)
    return fields + hashlib.blake2b(fields, digest_size=8).digest()


def decode_witness(data: bytes) -> Seen | None:
    """Return what the file says, or None when it is damaged."""
    fields = data[: _FIELDS.size]
    if len(data) != WITNESS_BYTES or hashlib.blake2b(fields, digest_size=8).digest() != data[_FIELDS.size :]:
        return None
    magic, generation, position = _FIELDS.unpack(fields)
    return Seen(generation, position) if magic == _MAGIC else None


def refuse_behind(seen: Seen | None, found: Seen, name: str) -> None:
    """Return when the database holds all that was acknowledged, as far as the witness knows.

    Raises:
        RecoveryRequired: it is older than what was acknowledged.
    """
    if seen is not None and found < seen:
        raise RecoveryRequired(
            f"{name} ends at row {found.position}, but row {seen.position} was acknowledged:"
            " an older copy, or its log is missing or damaged"
        )


class Witness:
    """The held file."""

    __slots__ = ("_descriptor", "missed_count")

    def __init__(self, directory_descriptor: int) -> None:
        """Create the file, mode 0600; its bytes exist before the first message, so that a full disk has them.

        Raises:
            OSError: it exists, or cannot be made.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(WITNESS, flags, 0o600, dir_fd=directory_descriptor)
        self.missed_count = 0
        os.write(self._descriptor, encode_witness(Seen(0, 0)))
        os.fsync(self._descriptor)

    def tell(self, generation: int, position: int) -> None:
        """Note what is durable now."""
        try:
            os.pwrite(self._descriptor, encode_witness(Seen(generation, position)), 0)
        except OSError:
            # It stays behind, which is what it may be; the commit itself is on the disk.
            self.missed_count += 1

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
