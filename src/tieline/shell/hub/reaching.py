"""The way to a broker: what is checked before a connection, and whether anybody answers.

Rule 1: only a socket of this user is connected to, seen by its own name: a link to one is refused.
Rule 2: a full backlog belongs to a broker that lives.

Source: reference/intercom.md 6.2, 6.4; reference/reliability.md F9, S7.
"""

import os
import socket
import stat

from tieline.errors import Refused
from tieline.shell.endpoint import connect
from tieline.shell.hub.place import Place

__all__ = ["connect_hub", "is_answering"]

CONNECT_WAIT_MS = 500


def connect_hub(place: Place, *, wait_ms: int = CONNECT_WAIT_MS) -> socket.socket:
    """Return a connected, non-blocking socket to the broker, whose user is this one.

    Args:
        place: Where it is.
        wait_ms: How long to go on while its backlog is full; blocks its thread meanwhile.

    Raises:
        Refused: PEER_OFFLINE, nobody listens; RESOURCE_BUSY, it does not accept now; UNSAFE_ENDPOINT, what
            stands there is not a socket of this user; PERMISSION_DENIED.
    """
    try:
        status = os.stat(place.socket, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        raise Refused("PEER_OFFLINE", "no intercom broker runs", is_retryable=True) from None
    except OSError as error:
        raise Refused("PERMISSION_DENIED", f"{place.socket}: {error.strerror}") from error
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.geteuid():
        raise Refused("UNSAFE_ENDPOINT", f"{place.socket} is not a socket of yours")
    return connect(place.socket, wait_ms=wait_ms)


def is_answering(place: Place) -> bool:
    """Return whether a broker listens there, also one that is stopped or slow.

    Raises:
        Refused: UNSAFE_ENDPOINT, PERMISSION_DENIED: as `connect_hub`.
    """
    try:
        connect_hub(place, wait_ms=0).close()
    except Refused as error:
        if error.code == "RESOURCE_BUSY":
            return True
        if error.code == "PEER_OFFLINE":
            return False
        raise
    return True
