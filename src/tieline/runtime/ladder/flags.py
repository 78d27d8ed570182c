"""Two files that tell a session's hooks, without a process, whether mail waits and where the root is.

`mail/SESSION.door` holds the path of the control endpoint while the root lives. `mail/SESSION` is there while
a hook has something to do: mail waits, or mail that a hook carried waits for its evidence. Where a hook is
told no session, or that of a session may change, `mail/host-PID.door` says the same of the harness's process.
A `.client` beside a `.door` is the line of `sh` that runs the client of a hook, for files that name no place
of this machine.

Rule 1: the flag may be there too long, which costs a hook its start; it is never missing for mail that waits.
Rule 2: a file is a hint: the root decides what a hook is answered.
Rule 3: all go with the root, but not those that its successor put there; those of a root that was killed go
when the next one opens its own.

Source: reference/harnesses.md 10, 11; DESIGN.md 3.
"""

import os
import re
import shlex
import sys
from typing import TYPE_CHECKING, Final

import tieline
from tieline.errors import RecoveryRequired, TielineError
from tieline.model.identity import Peer
from tieline.model.receipt import State
from tieline.runtime.ladder.showing import WAITING_SEEN_MAX
from tieline.store.files import Directory, open_directory

if TYPE_CHECKING:
    from tieline.runtime.node import Node

__all__ = ["DOOR_SUFFIX", "FOLDER", "Flags", "is_file_name"]

FOLDER: Final = "mail"
"""Below the private home."""
DOOR_SUFFIX: Final = ".door"
HOST_PREFIX: Final = "host-"
CLIENT_SUFFIX: Final = ".client"
CLIENT: Final = os.path.join(os.path.dirname(tieline.__file__), "shims", "hook.py")
LOOK_S: Final = 3_600.0
SWEPT_MAX: Final = 256
PATH_BYTES_MAX: Final = 4_096
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")


def is_file_name(session: str) -> bool:
    """Return whether a session's id may be the name of a file."""
    return _NAME.fullmatch(session) is not None


class Flags:
    """The files of the session of one root."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._session = self._host = ""
        self._folder: Directory | None = None
        self._is_up = False
        self.is_owed = False
        """Whether mail that a hook carried waits for its evidence, which the next hook is."""

    def open(self, session: str) -> None:
        """Stand for this session from now on; the files of the one before go."""
        if session == self._session or not is_file_name(session):
            return
        try:
            folder = self._opened()
            self._take_away()
            self._session = session
            self._write_door(folder, session)
        except TielineError as error:  # hooks then find their root the long way
            self._node.log.failure("flags", error)
            return
        self.look()

    def open_host(self, pid: int) -> None:
        """Let the hooks of this process of the harness find the root, whichever session it has."""
        try:
            folder, self._host = self._opened(), f"{HOST_PREFIX}{pid}"
            self._write_door(folder, self._host)
        except TielineError as error:
            self._node.log.failure("flags", error)

    def _opened(self) -> Directory:
        if self._folder is None:
            self._folder = open_directory(os.path.join(self._node.places.home, FOLDER), create=True)
            self._sweep(self._folder)
            self._node.tasks.start(self._run())
        return self._folder

    def _write_door(self, folder: Directory, name: str) -> None:
        folder.write_atomic(name + DOOR_SUFFIX, self._node.who()["control"].encode(), sync=False)
        line = shlex.join([sys.executable, "-I", "-S", CLIENT]) + ' "$f.door" "$@"\n'
        folder.write_atomic(name + CLIENT_SUFFIX, line.encode(), sync=False)

    def look(self) -> None:
        """Raise the flag or take it down, as things are now."""
        folder, wanted = self._folder, self.is_owed or self._is_mail_waiting()
        if folder is None or not self._session or wanted == self._is_up:
            return
        try:
            if wanted:
                folder.write_atomic(self._session, b"", sync=False)
            else:
                folder.remove(self._session)
            self._is_up = wanted
        except TielineError as error:
            self._node.log.failure("flags", error)

    def _is_mail_waiting(self) -> bool:
        node = self._node
        held = node.engine.held(Peer(node.instance), unread_only=True, count_max=WAITING_SEEN_MAX)
        return any(
            not item.is_prepared and item.state is State.ACCEPTED and item.cursor not in node.host.excerpted
            for item in held
        )

    async def _run(self) -> None:
        """Look again with every event of the mailbox; take the files away at the end."""
        owner = Peer(self._node.instance)
        try:
            while True:
                watch = self._node.arrival(owner)
                self.look()
                await watch.wait(LOOK_S)
        finally:
            self._take_away()
            if self._folder is not None:
                if self._host and self._is_our_door(self._folder, self._host):
                    self._folder.remove(self._host + DOOR_SUFFIX)
                    self._folder.remove(self._host + CLIENT_SUFFIX)
                self._folder.close()
                self._folder = None

    def _take_away(self) -> None:
        if self._folder is not None and self._session and self._is_our_door(self._folder, self._session):
            self._folder.remove(self._session)
            self._folder.remove(self._session + DOOR_SUFFIX)
            self._folder.remove(self._session + CLIENT_SUFFIX)
        self._session, self._is_up = "", False

    def _is_our_door(self, folder: Directory, name: str) -> bool:
        """Return whether no successor in the same session or host has put its own there meanwhile."""
        try:
            endpoint = folder.read(name + DOOR_SUFFIX, PATH_BYTES_MAX).decode()
        except (FileNotFoundError, ValueError, TielineError):
            return True
        return endpoint == str(self._node.who()["control"])

    def _sweep(self, folder: Directory) -> None:
        """Remove what roots left that ended without a word: their endpoints are gone."""
        for name in [name for name in folder.names() if name.endswith(DOOR_SUFFIX)][:SWEPT_MAX]:
            try:
                path = folder.read(name, PATH_BYTES_MAX)
            except (FileNotFoundError, RecoveryRequired):
                continue  # another root was faster
            if not os.path.exists(path):
                folder.remove(name)
                folder.remove(name.removesuffix(DOOR_SUFFIX))
                folder.remove(name.removesuffix(DOOR_SUFFIX) + CLIENT_SUFFIX)
