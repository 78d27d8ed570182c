"""The windows of others: how they are found in the registry, and what is swept of them.

Rule 1: a file is removed on proof only: its process is dead, its key was gone at two looks, or nobody
answered at its socket while nothing says that it lives. All of that is looked at again immediately before.
Rule 2: another domain, a start that cannot be compared, and what cannot be read are left alone.
Rule 3: a key is removed for what the key itself says, or together with the record of the same process.

Source: specification of the pi-peers wire, "Discovery"; reference rules 11, 12, 16, U1, U2.
"""

import os
import re
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from tieline.model.process import Life
from tieline.store.files import Directory, Seam
from tieline.store.registry.looking import Key, look_at_key, read_key_file, read_record_file
from tieline.store.registry.place import is_swept_name, remove_socket, socket_inode
from tieline.store.registry.record import RecordFault, Window, key_name, read, record_name

__all__ = ["Fault", "Listed", "Others", "Seen"]

KEYLESS_GRACE_MS = 1_000
"""A live window whose key is missing is swept at a look this much later than the first: a writer that
publishes its record first is not cut off while it does."""
RECORDS_MAX = 4_096
"""Records, and key files, that one scan reads; more on one machine is a defect of somebody's clean-up."""

_RECORD_NAME = re.compile(r"([1-9][0-9]{0,9})\.json", re.ASCII)
_KEY_NAME = re.compile(r"([1-9][0-9]{0,9})\.[^/]+\.key", re.ASCII)


class Fault(NamedTuple):
    """A file that cannot be used, for the doctor to show; it was left where it is."""

    file_name: str
    reason: str


class Listed(msgspec.Struct, frozen=True, gc=False):
    """One window as it was found.

    Attributes:
        window: What its record says.
        life: What is proven of its process.
        has_key: Whether its key file is there; that it can be used says `fault`.
        fault: Why it cannot be written to, for a person, or None.
    """

    window: Window
    life: Life
    has_key: bool
    fault: str | None = None


class Seen(NamedTuple):
    """A record at one look, and its key."""

    window: Window
    data: bytes
    inode: int
    key: Key


class Others:
    """What is known of other windows between two looks, and the sweep."""

    def __init__(self, path: str, life: Callable[[int, str, str], Life], seam: Seam) -> None:
        """Remember whom to ask.

        Args:
            path: Of the registry, absolute.
            life: As for `Registry`.
            seam: Called at every effect.
        """
        self._path = path
        self._life = life
        self._seam = seam
        self._keyless: dict[int, tuple[int, int]] = {}  # pid: inode of the record, first look

    def scan(
        self, directory: Directory, now_ms: int, own_pid: int | None
    ) -> tuple[tuple[Listed, ...], tuple[Fault, ...]]:
        """Return every window but that of `own_pid`, and what could not be used; sweep what is gone."""
        names = os.listdir(directory.fd)
        pids = sorted(int(match[1]) for name in names if (match := _RECORD_NAME.fullmatch(name)))
        found: list[Listed] = []
        faults: list[Fault] = []
        if len(pids) > RECORDS_MAX:
            faults.append(Fault("", f"{len(pids)} records; only the first {RECORDS_MAX} were read"))
        keyless, self._keyless = self._keyless, {}
        for pid in pids[:RECORDS_MAX]:
            seen = self.look(directory, pid) if pid != own_pid else None
            if isinstance(seen, RecordFault):
                faults.append(Fault(record_name(pid), str(seen)))
            if not isinstance(seen, Seen):
                continue
            listed = self.listed(seen)
            is_sweepable = self._is_sweepable(listed, seen, keyless.get(pid), now_ms)
            if is_sweepable and self.remove(directory, seen):
                continue
            if listed.has_key and listed.fault is not None:
                faults.append(Fault(key_name(pid, seen.window.socket_path), listed.fault))
            found.append(listed)
        self._tidy_keys(directory, names, found, own_pid)
        return tuple(found), tuple(faults)

    def listed(self, seen: Seen) -> Listed:
        """Return a window with what is proven of its process now."""
        window = seen.window
        life = self._life(window.pid, window.process_start, window.pid_domain)
        return Listed(window, life, seen.key.is_there, seen.key.fault)

    def _is_sweepable(self, listed: Listed, seen: Seen, earlier: tuple[int, int] | None, now_ms: int) -> bool:
        """Return whether it is proven that nobody can be reached there."""
        if listed.life is Life.DEAD:
            return True
        if listed.life is not Life.ALIVE or listed.has_key:
            return False
        first_ms = earlier[1] if earlier is not None and earlier[0] == seen.inode else now_ms
        self._keyless[listed.window.pid] = (seen.inode, first_ms)
        return now_ms - first_ms >= KEYLESS_GRACE_MS

    def look(self, directory: Directory, pid: int) -> Seen | RecordFault | None:
        """Return a record and its key as they are now, why it cannot be used, or None for no record."""
        try:
            data, inode = read_record_file(directory, record_name(pid))
            window = read(data, pid)
        except FileNotFoundError:
            return None
        except RecordFault as fault:
            return fault
        return Seen(window, data, inode, look_at_key(directory, window))

    def remove(self, directory: Directory, seen: Seen, *, is_connect_refused: bool = False) -> bool:
        """Remove a record, its key and its socket, after another look at all that decides it.

        Args:
            directory: The registry.
            seen: As it was judged; a record that was replaced since stays.
            is_connect_refused: Nobody answered at its socket: that removes what is `UNPROVED`.

        Returns:
            Whether the record was removed.
        """
        pid = seen.window.pid
        self._seam("registry.sweep")
        again = self.look(directory, pid)
        if not isinstance(again, Seen) or (again.inode, again.data) != (seen.inode, seen.data):
            return False
        life = self._life(pid, again.window.process_start, again.window.pid_domain)
        is_keyless = life is Life.ALIVE and not again.key.is_there and not is_connect_refused
        if life is not Life.DEAD and not is_keyless and not (is_connect_refused and life is Life.UNPROVED):
            return False
        if not directory.remove(record_name(pid), inode=again.inode):
            return False
        key = again.key
        # The next process under this number may have put its own key there by now.
        if key.is_there and key.inode and key.process_start in ("", again.window.process_start):
            directory.remove(key_name(pid, again.window.socket_path), inode=key.inode)
        if life is not Life.ALIVE and is_swept_name(self._path, again.window.socket_path):
            path = again.window.socket_path
            remove_socket(path, socket_inode(path), self._seam)
        return True

    def _tidy_keys(
        self, directory: Directory, names: list[str], found: list[Listed], own_pid: int | None
    ) -> None:
        """Remove the keys of processes that are proven dead by what the key itself says."""
        in_use = {key_name(one.window.pid, one.window.socket_path) for one in found}
        matches = [match for name in names if (match := _KEY_NAME.fullmatch(name)) and name not in in_use]
        for match in matches[:RECORDS_MAX]:
            pid = int(match[1])
            if pid == own_pid:
                continue
            key = read_key_file(directory, match[0])
            if self._life(pid, key.process_start, key.pid_domain) is Life.DEAD:
                self._seam("registry.sweep_key")
                directory.remove(match[0], inode=key.inode)
