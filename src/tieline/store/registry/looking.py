"""Reading one file of the registry, and the key that belongs to a record.

Rule 1: a record may be open to others, for its directory is not, and not every writer makes it private. A
key may not. Neither may be a link, or of another user.
Rule 2: a key of another process under the same number and address is not the window's key.
Rule 3: a token is opaque, and stands in no message.

Source: specification of the pi-peers wire, "Discovery", "Handshake"; reference rules 5, 6, 12, 23, 3.3
(11), U9.
"""

import os
from typing import NamedTuple

import msgspec

from tieline.errors import RecoveryRequired, Refused
from tieline.store.files import Directory, check_file
from tieline.store.registry.record import RecordFault, Window, key_name

__all__ = ["Key", "encode_key", "holds", "is_token", "look_at_key", "read_key_file", "read_record_file"]

RECORD_BYTES_MAX = 65_536
KEY_BYTES_MAX = 4_096
TOKEN_CHARS_MAX = 512
# Without O_NONBLOCK a pipe planted at the name would hold the reader for ever.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Key(NamedTuple):
    """A key file at one look.

    `fault` says why the token cannot be used, None when it can; `inode` is 0 when the file was not read.
    """

    is_there: bool
    token: str = ""
    fault: str | None = None
    process_start: str = ""
    pid_domain: str = ""
    inode: int = 0


def is_token(text: str) -> bool:
    """Return whether a text may be a token: 1 to 512 visible ASCII characters."""
    return 0 < len(text) <= TOKEN_CHARS_MAX and text.isascii() and text.isprintable() and " " not in text


def encode_key(window: Window, peer_token: str) -> bytes:
    """Return the contents of the window's key file; it never holds a child token."""
    fields = {
        "peerToken": peer_token,
        "procStart": window.process_start,
        "pidDomain": window.pid_domain,
    }
    return msgspec.json.encode(fields) + b"\n"


def read_record_file(directory: Directory, name: str) -> tuple[bytes, int]:
    """Return the contents of a record's file and its inode.

    Raises:
        FileNotFoundError: there is none.
        RecordFault: it is a link, not a regular file of ours, too large, or cannot be read.
    """
    try:
        descriptor = os.open(name, _READ, dir_fd=directory.fd)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise RecordFault(f"it is a link, or cannot be opened: {os.strerror(error.errno or 0)}") from error
    try:
        status = os.fstat(descriptor)
        check_file(status, "it", is_broad_allowed=True)
        # A regular file gives all that was asked for; fewer bytes are its end.
        data = os.read(descriptor, RECORD_BYTES_MAX + 1)
    except Refused as error:
        raise RecordFault(str(error)) from error
    except OSError as error:
        raise RecordFault(f"it cannot be read: {os.strerror(error.errno or 0)}") from error
    finally:
        os.close(descriptor)
    if len(data) > RECORD_BYTES_MAX:
        raise RecordFault(f"it is larger than {RECORD_BYTES_MAX} bytes")
    return data, status.st_ino


def look_at_key(directory: Directory, window: Window) -> Key:
    """Return the key file of this window as it is now."""
    key = read_key_file(directory, key_name(window.pid, window.socket_path))
    if key.fault is not None:
        return key
    is_other = bool(key.process_start and window.process_start and key.process_start != window.process_start)
    return key._replace(fault="its key file is of another process") if is_other else key


def read_key_file(directory: Directory, name: str) -> Key:
    """Return what the key file of this name says."""
    try:
        data, status = directory.read_with_status(name, KEY_BYTES_MAX)
    except FileNotFoundError:
        return Key(is_there=False, fault="its key file is missing")
    except (Refused, RecoveryRequired) as error:
        return Key(is_there=True, fault=f"its key file is not used: {error}")
    key = Key(is_there=True, inode=status.st_ino)
    try:
        fields = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return key._replace(fault="its key file is not JSON")
    if not isinstance(fields, dict):
        return key._replace(fault="its key file is not a JSON object")
    key = key._replace(
        process_start=_text(fields.get("procStart")), pid_domain=_text(fields.get("pidDomain"))
    )
    token = _text(fields.get("peerToken"))
    if not is_token(token):
        return key._replace(fault="its key file has no usable peerToken")
    return key._replace(token=token)


def holds(directory: Directory, name: str, data: bytes) -> bool:
    """Return whether a private file of ours at `name` has exactly these contents."""
    try:
        return directory.read(name, RECORD_BYTES_MAX) == data
    except (FileNotFoundError, Refused, RecoveryRequired):
        return False


def _text(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**64:
        return str(value)
    return value if isinstance(value, str) else ""
