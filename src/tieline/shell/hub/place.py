"""Where a broker's socket, process record and spawn lock are, for each revision that looks for them.

Rule 1: the place follows from the environment, the user and the kind alone; nothing is created or looked at.
Rule 2: a place that a person named is taken as it is or refused; there is no second choice.

Source: reference/intercom.md 6.1; specification of the intercom, "Shared broker and migration".
"""

import hashlib
import os
import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from tieline.errors import UsageError

__all__ = ["VARIABLE", "Paths", "Place", "agent_directory", "place_of"]

VARIABLE: Final = "PI_INTERCOM_RUNTIME_DIR"
AGENT_VARIABLE: Final = "PI_CODING_AGENT_DIR"
SOCKET_NAME: Final = "broker.sock"
PATH_BYTES_MAX: Final = 100
"""The kernel takes 107 on Linux and 103 on macOS; all revisions agree on this one."""
MARK_CHARACTERS: Final = 16
SHORT_ROOT: Final = "/tmp"  # noqa: S108 - what is made there is verified, private and ours
BLANK: Final = " \t\n\v\f\r\u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    map(chr, range(0x2000, 0x200B))
)
"""What JavaScript's `trim` takes away."""


class Paths(StrEnum):
    """Whose rules say where the broker is."""

    SHARED = "shared"
    """One broker for the user: the newest revision, and ours."""
    AGENT = "agent"
    """One for each agent directory: the socket in the temporary directory, the records with the settings."""
    FOLDER = "folder"
    """One for each agent directory, with everything in it: the ancestor."""


class Place(msgspec.Struct, frozen=True):
    """Absolute paths of one broker.

    Attributes:
        socket: Where it listens.
        records: The directory of `broker.pid` and `broker.spawn.lock`.
        is_named: Whether a person named the directory: then its mode is theirs to set.
        is_agents: Whether the records lie in an agent's own directory, which others may read.
    """

    socket: str
    records: str
    is_named: bool = False
    is_agents: bool = False

    @property
    def folder(self) -> str:
        """The private directory that holds the socket."""
        return self.socket.rpartition("/")[0]


def place_of(environment: Mapping[str, str], paths: Paths = Paths.SHARED) -> Place:
    """Return where a broker is for those who go by `paths`.

    Raises:
        UsageError: `PI_INTERCOM_RUNTIME_DIR` is not an absolute path, or is too long for a socket in it.
    """
    if paths is Paths.SHARED:
        return _shared(environment)
    agent = agent_directory(environment)
    records = os.path.abspath(f"{agent}/intercom")
    if paths is Paths.FOLDER:
        return _checked(Place(f"{records}/{SOCKET_NAME}", records))
    # The spelling of the agent directory decides, as it does for those who look for this socket.
    mark = hashlib.sha256(f"{os.geteuid()}:{agent}".encode("utf-8", "surrogateescape")).hexdigest()
    name = f"pi-intercom-{mark[:MARK_CHARACTERS]}/{SOCKET_NAME}"
    socket = os.path.abspath(f"{_temporary(environment)}/{name}")
    if len(os.fsencode(socket)) > PATH_BYTES_MAX:
        socket = f"{SHORT_ROOT}/{name}"
    return Place(socket, records, is_agents=True)


def agent_directory(environment: Mapping[str, str]) -> str:
    """Return the agent directory as the extension spells it: `PI_CODING_AGENT_DIR`, or `~/.pi/agent`."""
    given = environment.get(AGENT_VARIABLE, "").strip(BLANK)
    home = environment.get("HOME") or os.path.expanduser("~")
    if given == "~":
        return home
    if given.startswith("~/"):
        return os.path.join(home, given[2:])
    return given or os.path.join(home, ".pi", "agent")


def _shared(environment: Mapping[str, str]) -> Place:
    named = environment.get(VARIABLE)
    if named is None:
        folder = f"{_shared_root(environment).rstrip('/')}/pi-intercom-{os.geteuid()}"
        return _checked(Place(f"{folder}/{SOCKET_NAME}", folder))
    if not named.startswith("/") or "\0" in named or not named.strip("/"):
        raise UsageError(
            f"{VARIABLE} is {named!r}: it must be an absolute path of a private directory, or not be set"
        )
    folder = named.rstrip("/")
    return _checked(Place(f"{folder}/{SOCKET_NAME}", folder, is_named=True))


def _checked(place: Place) -> Place:
    length = len(os.fsencode(place.socket))
    if length > PATH_BYTES_MAX:
        raise UsageError(
            f"{place.socket} has {length} bytes, a socket may have {PATH_BYTES_MAX}: name a shorter directory"
            f" in {VARIABLE}"
        )
    return place


def _shared_root(environment: Mapping[str, str]) -> str:
    """Return the directory that all sessions of this user share, whatever their HOME and TMPDIR."""
    if not hasattr(sys, "getandroidapilevel"):
        return SHORT_ROOT
    prefix = environment.get("PREFIX", "")
    return f"{prefix}{SHORT_ROOT}" if prefix else _temporary(environment)


def _temporary(environment: Mapping[str, str]) -> str:
    """Return the temporary directory as Node names it."""
    named = [environment[name] for name in ("TMPDIR", "TMP", "TEMP") if environment.get(name)]
    found = named[0] if named else SHORT_ROOT
    return found[:-1] if len(found) > 1 and found.endswith("/") else found
