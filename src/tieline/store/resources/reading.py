"""What the shared directory of resources holds, and whether it can be believed.

Rule 1: what was there and is gone, damaged, or older than it was is RECOVERY_REQUIRED, with what ends it.
Nothing starts at 0 again, and no byte is touched. A damaged resource keeps no other from going on.
Rule 2: a directory that another program made is refused, never written. One that bears any mark of ours,
in a record or in a lock file, is ours, whatever became of its index.
Rule 3: without a lock it is read in the order opposite to writing: witness, index, mark, document. What is
read later is never older.

Source: reference/native.md 2.13, 3.5, 177 to 181; reference/reliability.md I38, I50.
"""

import os
import time
from typing import Final

from tieline.errors import RecoveryRequired, Refused, TielineError
from tieline.model.resource import Document, Ledger, Mark, ResourceKey, key_digest
from tieline.store.files import Directory, Lock, Seam, open_directory, refuse_network_file_system
from tieline.store.resources import salvage
from tieline.store.resources.formats import Index, Witness, decode, encode, is_ours
from tieline.store.resources.witnesses import Witnesses

__all__ = ["Reader", "bytes_of", "mark_lock", "raw"]

DIRECTORY: Final = "peer-resources"
INDEX: Final = "index.json"
LEDGER: Final = "launches.json"
NAMESPACE_LOCK: Final = "namespace.lock"
FILE_BYTES_MAX: Final = 4_194_304
"""Of a document and of the ledger. Source: reference/native.md 2.13."""
LISTINGS_MAX: Final = 10
LISTING_PAUSE_S: Final = 0.005
LOCK_WAIT_MS: Final = 2_000
"""A lock is held for some writes; who waits longer is told RESOURCE_BUSY and may ask again."""
OWN_MARK: Final = b"tieline"
"""What the namespace's lock file holds from the first index on: the directory is ours."""
LOCK_MARK: Final = b"tieline used\n"
"""What a lock file holds once a record was stored under it: the record may not be missing from then on."""
KEPT_BYTES_MAX: Final = 67_108_864
"""Of a damaged file that is put aside; our own writers leave none above 4 MiB."""
INDEX_ACTION: Final = (
    "nothing is granted meanwhile, what runs goes on; `tieline resource recover index` makes it again from"
    " the records, and keeps the bytes"
)
LEDGER_ACTION: Final = (
    "nothing is granted meanwhile, what runs goes on; `tieline resource recover ledger` makes it again from"
    " all that names a command, and keeps the bytes"
)
FOREIGN_ACTION: Final = "set coordination_directory in config.toml to a place of your own"


class Reader:
    """The records of one coordination directory, as they are read.

    Attributes:
        path: The shared directory.
    """

    def __init__(self, coordination_directory: str, seam: Seam, lock_wait_ms: int) -> None:
        """Remember where the resources are; nothing is opened, created or read yet."""
        self.path = f"{coordination_directory}/{DIRECTORY}"
        self._seam = seam
        self._lock_wait_ms = lock_wait_ms
        self._directory: Directory | None = None
        self._witnesses = Witnesses(coordination_directory, seam)
        self._seen: dict[ResourceKey, Mark] = {}
        self._seen_ledger_revision = 0

    def close(self) -> None:
        """Let go of the directory."""
        self._witnesses.close()
        self._let_go()

    def keys(self) -> tuple[ResourceKey, ...]:
        """Return every resource that was ever stored, sorted; raises as `read`."""
        directory = self._open(create=False)
        known = () if directory is None else self._index(directory).resources
        others = self._witnesses.others(frozenset(known))
        return tuple(sorted({*known, *(witness.resource for witness in others)}))

    def read(self, key: ResourceKey) -> Document:
        """Return one resource as it was stored at some instant of this call, without a lock.

        What is decided on it must be decided again in a transaction.

        Raises:
            Refused: the directory is not safe, not ours, or on a network file system.
            RecoveryRequired: the resource was lost, damaged, or is older than it was.
        """
        directory = self._open(create=False)
        witness = self._witnesses.read(key)
        if directory is None:
            if witness is not None:
                raise self._gone(f"{self.path} was removed, and with it the record of {key}", key)
            return Document(resource=key)
        return self._load(directory, key, self._index(directory), witness)[0]

    def read_ledger(self) -> Ledger:
        """Return the ledger likewise, without a lock; raises as `read`."""
        directory = self._open(create=False)
        revision = self._witnesses.ledger_revision()
        if directory is None:
            return salvage.rebuilt_ledger(None, self._witnesses.others(frozenset()), (), 0)
        return self._load_ledger(directory, self._index(directory), revision)

    def _let_go(self) -> None:
        if self._directory is not None:
            self._directory.close()
            self._directory = None

    def _open(self, *, create: bool) -> Directory | None:
        """Return the directory, verified to be ours; None when there is none and none shall be made."""
        if self._directory is not None and self._directory.is_current():
            return self._directory
        self._let_go()
        try:
            directory = open_directory(self.path, create=create, seam=self._seam)
        except FileNotFoundError:
            if self._seen or self._seen_ledger_revision:
                raise self._lost_index(f"{self.path} was removed while resources were in use") from None
            return None
        try:
            refuse_network_file_system(self.path)
            self._adopt(directory, create=create)
        except BaseException:
            directory.close()
            raise
        self._directory = directory
        return directory

    def _open_without_index(self) -> Directory:
        """Return the directory, made where it is missing, whatever became of its index; raises as `read`."""
        directory = open_directory(self.path, create=True, seam=self._seam)
        try:
            refuse_network_file_system(self.path)
            self._refuse_foreign(directory)
        except BaseException:
            directory.close()
            raise
        return directory

    def _refuse_foreign(self, directory: Directory) -> None:
        if _records(directory) and not is_ours(raw(directory, INDEX)) and not any(_marks(directory)):
            raise self._foreign()

    def _adopt(self, directory: Directory, *, create: bool) -> None:
        """See that the directory is ours, or empty; put the index into an empty one.

        Where witnesses are left of another one, it names their resources: those are lost, not new.
        """
        if self._has_index(directory) or not create:
            return
        with directory.lock(NAMESPACE_LOCK, self._lock_wait_ms) as lock:
            if not self._has_index(directory):
                known = (witness.resource for witness in self._witnesses.others(frozenset()))
                index = salvage.rebuilt_index(known, 0)
                directory.write_atomic(INDEX, encode(index), sync=True)
                mark_lock(lock, OWN_MARK, self._seam)

    def _has_index(self, directory: Directory) -> bool:
        """Return whether our index is there; what another program made is refused before any write."""
        names = _records(directory)
        for _ in range(LISTINGS_MAX):
            if INDEX in names or not names:
                break
            time.sleep(LISTING_PAUSE_S)  # a listing may miss a name that is being replaced
            names = _records(directory)
        if INDEX in names and is_ours(raw(directory, INDEX)):
            return True
        is_used, is_marked = _marks(directory)
        if INDEX in names and is_marked:
            return True  # a damaged one: reading it says so
        if names and not is_marked:
            raise self._foreign()
        if is_used:
            raise self._lost_index(f"{self.path}/{INDEX} is missing beside records and locks of ours")
        return False

    def _foreign(self) -> TielineError:
        text = f"{self.path} was made by another program: set coordination_directory to a place of your own"
        return Refused("UNSAFE_ENDPOINT", text).advising(FOREIGN_ACTION)

    def _lost_index(self, text: str) -> TielineError:
        return RecoveryRequired(text).advising(INDEX_ACTION)

    def _gone(self, text: str, key: ResourceKey) -> TielineError:
        return RecoveryRequired(text).advising(salvage.recover_action(key))

    def _index(self, directory: Directory) -> Index:
        seen = frozenset(self._seen)
        try:
            index = decode(directory.read(INDEX, FILE_BYTES_MAX), Index, f"{self.path}/{INDEX}")
        except FileNotFoundError:
            if not self._has_index(directory) and not seen:
                return Index()
            raise self._lost_index(f"{self.path}/{INDEX} was removed") from None
        except RecoveryRequired as error:
            raise self._lost_index(str(error)) from error
        if index.ledger_revision < self._oldest_ledger(index) or not seen <= frozenset(index.resources):
            raise self._lost_index(f"{self.path}/{INDEX} is older than it was")
        return index

    def _oldest_ledger(self, index: Index) -> int:
        """Return how far the ledger must have come at least; 0 in a directory that was made anew.

        There it begins with what the witnesses know, above every revision that was seen.
        """
        seen = self._seen_ledger_revision
        if index.ledger_revision == 0 and 0 < seen <= self._witnesses.ledger_revision():
            return 0
        return max(index.ledger_revision, seen)

    def _load(
        self, directory: Directory, key: ResourceKey, index: Index, witness: Witness | None
    ) -> tuple[Document, bytes]:
        """Return one resource and its bytes. The mark is read first: a writer may replace both between."""
        try:
            return self._believe(directory, key, index, witness)
        except RecoveryRequired as error:
            error.advising(salvage.recover_action(key))
            raise

    def _believe(
        self, directory: Directory, key: ResourceKey, index: Index, witness: Witness | None
    ) -> tuple[Document, bytes]:
        stem = key_digest(key)
        path = f"{self.path}/{stem}"
        is_known = key in index.resources
        seen = [self._seen.get(key, Mark())] + ([witness.mark] if witness is not None else [])
        mark = Mark()
        try:
            mark = decode(directory.read(f"{stem}.mark", FILE_BYTES_MAX), Mark, f"{path}.mark")
        except FileNotFoundError:
            if is_known and bytes_of(directory, key):
                raise RecoveryRequired(f"{path}.mark, the mark of {key}, is missing") from None
        data = bytes_of(directory, key)
        if not data:
            # A lock file that a record was stored under outlives it, and so does the witness.
            was_stored = is_known or mark.revision or witness is not None
            if was_stored or raw(directory, f"{stem}.lock") == LOCK_MARK:
                raise RecoveryRequired(f"{path}.json, the record of {key}, is missing")
            return Document(resource=key), data
        document = decode(data, Document, f"{path}.json")
        if document.resource != key:
            raise RecoveryRequired(f"{path}.json is the record of another resource")
        if not all(one.admits(document) for one in (mark, *seen)):
            raise RecoveryRequired(f"{path}.json, the record of {key}, is older than it was")
        if is_known:
            self._seen[key] = Mark.of(document)
        return document, data

    def _load_ledger(self, directory: Directory, index: Index, witnessed_revision: int) -> Ledger:
        path = f"{self.path}/{LEDGER}"
        oldest = self._oldest_ledger(index)
        try:
            ledger = decode(directory.read(LEDGER, FILE_BYTES_MAX), Ledger, path)
        except FileNotFoundError:
            if oldest:
                raise RecoveryRequired(f"{path} is missing").advising(LEDGER_ACTION) from None
            if not witnessed_revision:
                return Ledger()
            # The whole place was made anew: commands of before are known by their witnesses alone.
            return salvage.rebuilt_ledger(None, self._witnesses.others(frozenset()), (), witnessed_revision)
        except RecoveryRequired as error:
            error.advising(LEDGER_ACTION)
            raise
        if ledger.revision < max(oldest, witnessed_revision):
            raise RecoveryRequired(f"{path} is older than it was").advising(LEDGER_ACTION)
        # The index follows the ledger by one write: what it has confirmed is what may not go back.
        self._seen_ledger_revision = max(oldest, self._seen_ledger_revision)
        return ledger


def _records(directory: Directory) -> list[str]:
    return [name for name in directory.names() if name.endswith((".json", ".mark"))]


def raw(directory: Directory | None, name: str) -> bytes:
    """Return a file's bytes, empty where there is none."""
    try:
        return b"" if directory is None else directory.read(name, KEPT_BYTES_MAX)
    except FileNotFoundError:
        return b""


def bytes_of(directory: Directory, key: ResourceKey) -> bytes:
    """Return the bytes of a resource's file, empty where there is none: no writer of ours leaves it empty."""
    try:
        return directory.read(f"{key_digest(key)}.json", FILE_BYTES_MAX)
    except FileNotFoundError:
        return b""


def mark_lock(lock: Lock, mark: bytes, seam: Seam) -> None:
    """Note in a lock file, in place, what it stands for; a longer note stays."""
    if os.fstat(lock.fd).st_size < len(mark):
        seam("resources.mark_lock")
        os.pwrite(lock.fd, mark, 0)


def _marks(directory: Directory) -> tuple[bool, bool]:
    """Return whether anything but the index shows that records were stored here, and that it is ours."""
    is_ours_at_all = False
    for name in directory.names():
        if name != INDEX and name.endswith((".json", ".mark")) and is_ours(raw(directory, name)):
            return True, True
        if name.endswith(".lock"):
            held = raw(directory, name)
            if held == LOCK_MARK:
                return True, True
            is_ours_at_all = is_ours_at_all or held == OWN_MARK
    return False, is_ours_at_all
