"""The shared directory of the pi-peers wire, as one process reads it and keeps its own window there.

Rule 1: the key is there before the record, the record goes before the key, and the socket goes last: who
lists in between sees nothing, never a window that cannot be reached.
Rule 2: no name of a file is made of foreign text.
Rule 3: writers that know no locks share this directory. Nothing here relies on one.
Rule 4: this module asks no process and connects to no socket; `life` says who lives.

One thread at a time calls a `Registry`.

Source: specification of the pi-peers wire, "Discovery", "Freshness semantics"; reference rules 1 to 17,
3.3, U1, U2, U22 and its consequences 2 and 3.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from tieline.errors import RecoveryRequired, Refused, UsageError
from tieline.model.process import Life
from tieline.store.files import Directory, Seam, no_seam, open_directory
from tieline.store.registry.looking import RECORD_BYTES_MAX, encode_key, holds, is_token, look_at_key
from tieline.store.registry.others import Fault, Listed, Others, Seen
from tieline.store.registry.place import is_socket, open_socket_place, remove_socket, socket_inode
from tieline.store.registry.record import (
    FORMER_NAMES_MAX,
    RecordFault,
    Window,
    encode,
    key_name,
    record_name,
)

__all__ = ["Registry"]

CACHE_MS = 500
"""How long a scan answers for those after it."""
_published: dict[tuple[str, int], "Registry"] = {}
"""Which registry of this process has the window, by directory and process id: a fork owns none."""


class _Own(NamedTuple):
    """Our window as it stands in the directory."""

    window: Window
    pid: int
    record: bytes
    key: bytes
    socket_inode: int


class Registry:
    """The registry directory: our window in it, and those of others.

    Attributes:
        faults: What the last `scan` could not use.
        is_socket_missing: Whether the last `confirm` found the socket of our window gone; then it has to
            be bound anew and published again.
    """

    def __init__(
        self, directory: Path, *, life: Callable[[int, str, str], Life], seam: Seam = no_seam
    ) -> None:
        """Remember where the registry is; nothing is opened, created or read yet.

        Args:
            directory: Absolute. Must be private (0700) and ours when it is there.
            life: Says of a process id, its start and its domain, as a record bears them, who lives.
            seam: Called at every effect.
        """
        self.faults: tuple[Fault, ...] = ()
        self.is_socket_missing = False
        self._path = os.path.abspath(directory)
        self._others = Others(self._path, life, seam)
        self._seam = seam
        self._directory: Directory | None = None
        self._own: _Own | None = None
        self._cache: tuple[int, tuple[Listed, ...]] | None = None

    def close(self) -> None:
        """Let go of the directory; what is published stays."""
        if self._directory is not None:
            self._directory.close()
            self._directory = None

    @property
    def own(self) -> Window | None:
        """Our window as it is published, or None."""
        return self._own.window if self._own is not None and self._own.pid == os.getpid() else None

    @property
    def socket_directory(self) -> Path:
        """Where our socket belongs, made when it is missing: `socks` in the registry, or a short place.

        A socket named `tieline-<32 hex>.sock` is tidied away when its window is swept.

        Raises:
            Refused: it is not private, not ours, or cannot be made.

        Source: reference rules 9, U22.
        """
        self._open(create=True)
        return Path(open_socket_place(self._path, self._seam))

    # ------------------------------------------------------------ our own window

    def publish(self, window: Window, peer_token: str) -> None:
        """Show our window: its key, then its record. Its socket listens already.

        Again with another socket, it replaces what this registry has published.

        Args:
            window: Of this very process.
            peer_token: What a sender has to present: 1 to 512 visible ASCII characters.

        Raises:
            UsageError: the window is of another process or unreadable, or the token is none.
            Refused: `RESOURCE_BUSY` when this process has a window in this directory already, or one of
                another machine or container stands under our number; else as `Directory.write_atomic`.
            RecoveryRequired: as `Directory.write_atomic`.
        """
        pid = os.getpid()
        if window.pid != pid:
            raise UsageError(f"a window of process {window.pid} cannot be published by process {pid}")
        if not is_token(peer_token):
            raise UsageError("the peer token is not 1 to 512 visible ASCII characters")
        record = self._encode(window)
        holder = _published.get((self._path, pid))
        if holder is not None and holder is not self:
            raise Refused("RESOURCE_BUSY", "this process has a window in the registry already")
        directory = self._open(create=True)
        earlier = self._own if self.own is not None else None
        inode = socket_inode(window.socket_path)
        own = _Own(window, pid, record, encode_key(window, peer_token), inode)
        self._put(directory, own)
        self._own = own
        _published[self._path, pid] = self
        if earlier is not None and earlier.window.socket_path != window.socket_path:
            self._remove_key(directory, earlier)
            remove_socket(earlier.window.socket_path, earlier.socket_inode, self._seam)
        directory.remove_leftovers(time.time_ns() // 1_000_000)

    def update(self, window: Window) -> frozenset[str]:
        """Write our record anew when something changed that others act on.

        Without a flip between busy and idle, the instant of the last flip stands, whatever `window` says.
        After a rename the earlier name is among the former ones.

        Args:
            window: With the process and the address that were published.

        Returns:
            What changed: `status` (a flip), `context` (whole percent), `name`, `session`, `place`
            (working directory or project). Empty: nothing was written.

        Raises:
            UsageError: nothing is published, or under another process or address.
            Refused, RecoveryRequired: as `publish`; what was published before stands.
        """
        own = self._own
        if own is None or own.pid != os.getpid():
            raise UsageError("no window is published")
        before = own.window
        if (window.pid, window.socket_path) != (before.pid, before.socket_path):
            raise UsageError("a window with another process or address has to be published, not updated")
        changed = _changes(before, window)
        if not changed:
            return changed
        if "status" not in changed:
            window = msgspec.structs.replace(window, status_updated_ms=before.status_updated_ms)
        if "name" in changed:
            window = msgspec.structs.replace(window, former_names=_former_names(before, window))
        after = own._replace(window=window, record=self._encode(window))
        self._put(self._open(create=True), after)
        self._own = after
        return changed

    def confirm(self) -> bool:
        """Look whether record, key and socket of our window are still there, and put back what we can.

        Returns:
            Whether all was as it was published, also when nothing is. After False, record and key have
            been written again, the key first; `is_socket_missing` tells of the socket.

        Raises:
            Refused, RecoveryRequired: as `publish`.

        Source: reference, consequence 2: somebody may clean the directory under a live window.
        """
        own = self._own
        if own is None or own.pid != os.getpid():
            return True
        directory = self._open(create=True)
        self.is_socket_missing = not is_socket(own.window.socket_path, own.socket_inode)
        key = key_name(own.pid, own.window.socket_path)
        is_whole = holds(directory, key, own.key) and holds(directory, record_name(own.pid), own.record)
        if not is_whole:
            self._put(directory, own)
        return is_whole and not self.is_socket_missing

    def withdraw(self) -> None:
        """Take our window away: record, key, socket. Nothing that is not ours any more is touched.

        Raises:
            Refused: the directory is not safe any more.
        """
        own, self._own = self._own, None
        if own is None or own.pid != os.getpid():
            return
        _published.pop((self._path, own.pid), None)
        self._cache = None
        try:
            directory = self._open(create=False)
        except FileNotFoundError:
            pass  # somebody took the whole directory; the socket may lie elsewhere
        else:
            seen = self._others.look(directory, own.pid)
            # Whatever stands there with our start and our address is ours, in whatever state.
            if isinstance(seen, Seen) and _is_same_process(seen.window, own.window):
                directory.remove(record_name(own.pid), inode=seen.inode)
            self._remove_key(directory, own)
        remove_socket(own.window.socket_path, own.socket_inode, self._seam)

    def _encode(self, window: Window) -> bytes:
        try:
            data = encode(window)
        except RecordFault as error:
            raise UsageError(f"the window cannot be published: {error}") from error
        if len(data) > RECORD_BYTES_MAX:
            raise UsageError(f"the window's record is larger than {RECORD_BYTES_MAX} bytes")
        return data

    def _put(self, directory: Directory, own: _Own) -> None:
        """Write key and record, in this order, unless the name belongs to somebody else."""
        self._cache = None
        there = self._others.look(directory, own.pid)
        if isinstance(there, Seen) and there.window.pid_domain != own.window.pid_domain:
            raise Refused(
                "RESOURCE_BUSY",
                f"{record_name(own.pid)} in {self._path} is a window of another machine or container:"
                " give each its own registry directory, or remove the file",
            )
        try:
            key = key_name(own.pid, own.window.socket_path)
            if not holds(directory, key, own.key):
                directory.write_atomic(key, own.key, sync=False)
                self._seam("registry.key_written")
            directory.write_atomic(record_name(own.pid), own.record, sync=False)
        except RecoveryRequired:
            # A record is a hint and is written again: the doubt ends with this descriptor.
            self.close()
            raise

    def _remove_key(self, directory: Directory, own: _Own) -> None:
        name = key_name(own.pid, own.window.socket_path)
        if holds(directory, name, own.key):
            directory.remove(name)

    # ------------------------------------------------------------ the windows of others

    def scan(self, now_ms: int, *, fresh: bool = False) -> tuple[Listed, ...]:
        """Return the other windows, in the order of their process ids; sweep what is proven gone.

        Args:
            now_ms: Monotonic milliseconds.
            fresh: Look now. Otherwise an answer of the last 500 ms is given again, unless we changed
                something ourselves.

        Returns:
            Every readable record but that of the window this registry has published; also windows of
            other domains and those that cannot be reached: `life` and `fault` say so.

        Raises:
            Refused: the directory is not private and ours, or may not be read.
        """
        if self._cache is not None and not fresh and 0 <= now_ms - self._cache[0] < CACHE_MS:
            return self._cache[1]
        answer: tuple[Listed, ...] = ()
        self.faults = ()
        try:
            directory = self._open(create=False)
        except FileNotFoundError:
            pass  # nobody has published anything yet
        else:
            own = self.own
            own_pid = own.pid if own is not None else None
            answer, self.faults = self._others.scan(directory, now_ms, own_pid)
        self._cache = (now_ms, answer)
        return answer

    def read_record(self, pid: int) -> Listed | None:
        """Return the window of one process from its one file, read now; None when there is no usable one.

        Nothing is swept.

        Raises:
            Refused: the directory is not private and ours, or may not be read.
        """
        try:
            seen = self._others.look(self._open(create=False), pid)
        except FileNotFoundError:
            return None
        return self._others.listed(seen) if isinstance(seen, Seen) else None

    def peer_token(self, window: Window) -> str | None:
        """Return what this window wants to be shown first, read now; None when there is no usable key.

        A key that is a link, open to others, not ours, or of another process under that number is not
        used; `Listed.fault` says which.

        Raises:
            Refused: the directory is not private and ours, or may not be read.
        """
        try:
            key = look_at_key(self._open(create=False), window)
        except FileNotFoundError:
            return None
        return key.token if key.fault is None else None

    def sweep(self, listed: Listed) -> bool:
        """Remove a window that nobody answered for, with its key; for who proved it by a connection.

        Args:
            listed: As `scan` gave it, `UNPROVED`: refused, or without a socket, when it was connected to.

        Returns:
            Whether it was removed: not when its record changed since, or its process is known to live or
            to count elsewhere.
        """
        self._cache = None
        try:
            directory = self._open(create=False)
        except FileNotFoundError:
            return False
        own = self.own
        if own is not None and own.pid == listed.window.pid:
            return False
        seen = self._others.look(directory, listed.window.pid)
        if not isinstance(seen, Seen) or seen.window != listed.window:
            return False
        return self._others.remove(directory, seen, is_connect_refused=True)

    def _open(self, *, create: bool) -> Directory:
        """Return the held directory, or the one now at the path when that was removed or exchanged."""
        if self._directory is None or not self._directory.is_current():
            self.close()
            self._cache = None
            self._directory = open_directory(self._path, create=create, seam=self._seam)
        return self._directory


def _is_same_process(one: Window, other: Window) -> bool:
    return (one.process_start, one.pid_domain, one.socket_path) == (
        other.process_start,
        other.pid_domain,
        other.socket_path,
    )


def _changes(before: Window, after: Window) -> frozenset[str]:
    """Return what others act on and what differs: a busy window that only waits has not changed."""
    differs = {
        "status": before.is_busy != after.is_busy,
        "context": before.context_percent != after.context_percent,
        "name": before.name != after.name,
        "session": before.session != after.session,
        "place": (before.cwd, before.project_root) != (after.cwd, after.project_root),
    }
    return frozenset(word for word, is_changed in differs.items() if is_changed)


def _former_names(before: Window, after: Window) -> tuple[str, ...]:
    """Return every name it had but the present one, each once, the latest last."""
    names = dict.fromkeys((*before.former_names, *after.former_names))
    names.pop(before.name, None)  # the one that was left just now goes last
    kept = [name for name in (*names, before.name) if name and name != after.name]
    return tuple(kept[-FORMER_NAMES_MAX:])
