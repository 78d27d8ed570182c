"""The right to be the one broker of a place, and the socket that comes with it.

Theory. The kernel's lock of one file, held for as long as the broker lives, decides between brokers of ours:
of any number that start at once one gets it, the others find that one listening. Brokers of other makers know
no such lock: they are seen by their socket, which answers, and by their record, which names a live process.

Rule 1: a socket is removed only while it refuses connections, and by the inode that was judged.
Rule 2: a live process named by the record, with a socket that does not answer, stops the start. Nothing is
    ended, and nothing of that process is removed.
Rule 3: the record is written once the socket answers: a live process with a dead socket is never us.
Rule 4: at the end the name goes before the socket is closed, and only what is still ours goes.

Source: reference/intercom.md 6.2, 6.3, 6.4; reference/reliability.md F9, S6, K12, K16.
"""

import contextlib
import os
import socket
import stat
import time

from tieline.errors import RecoveryRequired, Refused
from tieline.shell.endpoint.address import is_refusing
from tieline.shell.endpoint.listening import listen_private
from tieline.shell.hub.directories import open_records, open_runtime, read_record
from tieline.shell.hub.owner import PID_NAME, is_live, own_record, parse_record
from tieline.shell.hub.place import SOCKET_NAME, Place
from tieline.shell.hub.reaching import is_answering
from tieline.store.files import Directory, Lock, Seam, no_seam

__all__ = ["LOCK_NAME", "Claim", "HubEndpoint", "claim", "refuse_beside_live"]

LOCK_NAME = "tieline-broker.lock"
BACKLOG = 1_024
"""A whole machine's sessions may come back at once after a broker ended; the system may keep fewer."""
WAIT_MS = 5_000
POLL_SECONDS = 0.02


class HubEndpoint:
    """A broker's listening, non-blocking socket, and its names.

    Attributes:
        sock: Listens; accepting is the caller's.
    """

    def __init__(
        self, sock: socket.socket, place: Place, inode: int, runtime: Directory, records: Directory
    ) -> None:
        self.sock, self._place = sock, place
        self._inode, self._runtime, self._records = inode, runtime, records
        self._is_closed = False
        self._record_inode = records.write_atomic(PID_NAME, own_record(), sync=False)

    def is_missing(self) -> bool:
        """Return whether the socket's name is gone or leads elsewhere."""
        try:
            status = os.stat(self._place.socket, follow_symlinks=False)
        except OSError:
            return True
        return status.st_ino != self._inode or not self._runtime.is_current()

    def close(self) -> None:
        """Take the names away that are still ours, then stop listening; a second call does nothing."""
        if self._is_closed:
            return  # an inode that we gave up may be another's by now
        self._is_closed = True
        for directory, name, inode in (
            (self._runtime, SOCKET_NAME, self._inode),
            (self._records, PID_NAME, self._record_inode),
        ):
            # What somebody removed, or a directory that went, leaves nothing to take away.
            with contextlib.suppress(OSError, Refused, RecoveryRequired):
                directory.remove(name, inode=inode)
        self.sock.close()
        if self._records is not self._runtime:
            self._records.close()


class Claim:
    """The right to be the broker of one place, until `release`.

    Attributes:
        runtime: The private directory that holds the socket.
    """

    def __init__(self, place: Place, runtime: Directory, lock: Lock, seam: Seam) -> None:
        self.runtime = runtime
        self._place, self._lock, self._seam = place, lock, seam

    def listen(self) -> HubEndpoint:
        """Return the socket, which answers from now on, with its record written.

        Raises:
            Refused: UNSAFE_ENDPOINT, PERMISSION_DENIED, RESOURCE_BUSY, QUEUE_FULL.
        """
        place = self._place
        if not self.runtime.is_current():
            raise Refused("UNSAFE_ENDPOINT", f"{place.folder} was removed, or another took its place")
        records = self.runtime if not place.is_agents else open_records(place, seam=self._seam)
        try:
            self._vacate()
            sock, status = listen_private(self.runtime, SOCKET_NAME, place.socket, BACKLOG, self._seam)
            try:
                self._seam("hub.listening")
                return HubEndpoint(sock, place, status.st_ino, self.runtime, records)
            except BaseException:
                sock.close()
                self.runtime.remove(SOCKET_NAME, inode=status.st_ino)
                raise
        except BaseException:
            if records is not self.runtime:
                records.close()
            raise

    def _vacate(self) -> None:
        """Remove what a broker left that is proven to be gone."""
        try:
            status = os.stat(SOCKET_NAME, dir_fd=self.runtime.fd, follow_symlinks=False)
        except FileNotFoundError:
            return
        path = self._place.socket
        if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.geteuid():
            raise Refused("UNSAFE_ENDPOINT", f"{path} is not a socket of yours: remove it")
        if not is_refusing(path):
            raise Refused("RESOURCE_BUSY", f"{path} is in use: another broker listens there")
        self.runtime.remove(SOCKET_NAME, inode=status.st_ino)

    def release(self) -> None:
        """Let another broker come."""
        self._lock.release()
        self.runtime.close()


def claim(place: Place, *, wait_ms: int = WAIT_MS, seam: Seam = no_seam) -> Claim | None:
    """Return the right to be the broker, or None where one answers already.

    Blocks its thread while another process is about to become it, or about to leave.

    Raises:
        Refused: UNSAFE_ENDPOINT, the directory is not safe; RESOURCE_BUSY, a live process is named as the
            broker and does not answer, or one that holds the lock does not within `wait_ms`.
    """
    runtime = open_runtime(place, seam=seam)
    try:
        lock = _locked(place, runtime, wait_ms)
        if lock is None or is_answering(place):
            if lock is not None:
                lock.release()
            runtime.close()
            return None
        try:
            refuse_beside_live(place)
        except BaseException:
            lock.release()
            raise
    except BaseException:
        runtime.close()
        raise
    return Claim(place, runtime, lock, seam)


def _locked(place: Place, runtime: Directory, wait_ms: int) -> Lock | None:
    deadline = time.monotonic() + wait_ms / 1000
    while True:
        try:
            return runtime.lock(LOCK_NAME, 0)
        except Refused as error:
            if error.code != "RESOURCE_BUSY":
                raise
            if is_answering(place):
                return None
            if time.monotonic() >= deadline:
                raise
        time.sleep(POLL_SECONDS)


def refuse_beside_live(place: Place) -> None:
    """Return where no live process is named as the broker, whose socket does not answer.

    Raises:
        Refused: RESOURCE_BUSY, one is; UNSAFE_ENDPOINT, the record is not a file of this user.
    """
    try:
        with open_records(place, create=False) as records:
            found = read_record(records, PID_NAME)
    except FileNotFoundError:
        return
    record = None if found is None else parse_record(found[0])
    if record is not None and is_live(record):
        text = (
            f"process {record.pid}, which {place.records}/{PID_NAME} names as the broker, is alive but its"
            " socket does not answer: no second broker is started beside it, and nothing was ended"
        )
        raise Refused("RESOURCE_BUSY", text).advising(
            f"look at process {record.pid}: end it yourself if it is a broker, else remove the file"
        )
