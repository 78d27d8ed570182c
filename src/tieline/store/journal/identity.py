"""Which saved session an inbox belongs to: identity.json.

Rule 1: the file is whole or absent; it is written, synced, before the first message may be stored, and
last of all files, so that a directory without it never held one.
Rule 2: a saved session recurs and never routes; this file only says which one an instance served.

Source: reference/native.md 175, 183; reference/reliability.md I6.
"""

import msgspec

from tieline.errors import RecoveryRequired, Refused
from tieline.store.files import Directory

__all__ = ["IDENTITY", "Identity", "read_identity", "write_identity"]

IDENTITY = "identity.json"
IDENTITY_BYTES_MAX = 65_536
IDENTITY_VERSION = 1


class Identity(msgspec.Struct, frozen=True, rename="camel"):
    """One instance's life: what it served, and the process that was it.

    `process` is what the shell knows of the process (boot, process id, start), opaque here;
    `created_ms` is wall time.
    """

    instance_id: str
    session_id: str
    process: dict[str, str | int]
    created_ms: int
    version: int = IDENTITY_VERSION


_decode = msgspec.json.Decoder(Identity).decode


def write_identity(directory: Directory, identity: Identity) -> None:
    """Store `identity`, synced, as a whole.

    Raises:
        Refused: nothing changed; the disk is full, or what stands there is not ours.
        RecoveryRequired: whether it was stored is in doubt.
    """
    directory.write_atomic(IDENTITY, msgspec.json.format(msgspec.json.encode(identity)) + b"\n", sync=True)


def read_identity(directory: Directory, instance: str) -> Identity:
    """Return the identity stored in the directory of `instance`.

    Raises:
        FileNotFoundError: there is none.
        RecoveryRequired: it is damaged, or another instance's.
        Refused: `VERSION_SKEW`, a newer version wrote it.
    """
    data = directory.read(IDENTITY, IDENTITY_BYTES_MAX)
    try:
        identity = _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RecoveryRequired(f"{directory.path}/{IDENTITY} is damaged: {error}") from error
    if identity.version > IDENTITY_VERSION:
        raise Refused(
            "VERSION_SKEW", f"{directory.path}/{IDENTITY} is of version {identity.version}: update this one"
        )
    if identity.instance_id != instance:
        raise RecoveryRequired(f"{directory.path}/{IDENTITY} names instance {identity.instance_id}")
    return identity
