"""The shared directory of resources: one document each, the launch ledger, and an index.

Files, all of them private and replaced whole: `<sha256 of the key>.json` is a resource and
`<sha256 of the key>.mark` the highest numbers it ever had; `launches.json` is the ledger; `index.json`
says which resources and how much of the ledger there ever were.

Rule 1: a change is decided on what was read under the lock, and stored only over exactly that.
Rule 2: locks are taken in one order: the namespace, then resources by name. They live on files that are
never renamed and never removed, and nobody waits while holding one.
Rule 3: what was there and is gone, damaged, or older than it was is RECOVERY_REQUIRED. Nothing starts
at 0 again, and no byte is touched.
Rule 4: the order of writing is documents, index, ledger: a command may start when `commit` has
returned, so a record that a crash kept from the ledger is one of a command that never started.
Rule 5: a directory that another program made is refused, never written.

Source: reference/native.md 2.13, 2.14, 3.5, 177 to 181; reference/reliability.md I32, I38, I50;
reference/open-bugs.md O39, O44.
"""

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from tieline.errors import RecoveryRequired, Refused
from tieline.model.resource import Document, Ledger, Mark, ResourceKey, key_digest
from tieline.store.files import Directory, Seam, no_seam, open_directory, refuse_network_file_system
from tieline.store.resources.formats import Index, decode, encode, is_ours

__all__ = ["ResourceStore", "Transaction"]

DIRECTORY: Final = "peer-resources"
INDEX: Final = "index.json"
LEDGER: Final = "launches.json"
NAMESPACE_LOCK: Final = "namespace.lock"
FILE_BYTES_MAX: Final = 4_194_304
"""Of a document and of the ledger. Source: reference/native.md 2.13."""
RESOURCES_MAX: Final = 256
LISTINGS_MAX: Final = 10
LISTING_PAUSE_S: Final = 0.005
LOCK_WAIT_MS: Final = 2_000
"""A lock is held for some writes; who waits longer is told RESOURCE_BUSY and may ask again."""


class Transaction:
    """Documents, and on request the ledger, held under their locks until the `with` block ends.

    Attributes:
        documents: As they are stored now, by resource; one that was never stored is a new one.
        ledger: As it is stored now, or None when it was not asked for.
        index: The index as it is stored now.
        data: The bytes of each document's file, empty where there is none.
        is_open: Whether the locks are held.
    """

    def __init__(self, store: "ResourceStore", index: Index) -> None:
        """Start with nothing read; the store fills it under its locks."""
        self.documents: dict[ResourceKey, Document] = {}
        self.ledger: Ledger | None = None
        self.index = index
        self.data: dict[ResourceKey, bytes] = {}
        self.is_open = True
        self._store = store

    def commit(self, documents: Mapping[ResourceKey, Document], ledger: Ledger | None = None) -> None:
        """Store what has changed; when this returns, it is on stable storage.

        Args:
            documents: The documents as decided; those that are the stored ones are passed over.
            ledger: The ledger as decided, or None to leave it.

        Raises:
            Refused: nothing was stored. `RESOURCE_BUSY` (retryable) when a document was not decided on
                what is stored; `QUEUE_FULL` when it is too large, or there are too many.
            RecoveryRequired: it was stored in part, or whether it was is in doubt: read it again.
        """
        assert self.is_open, "a transaction is committed before its locks are freed"
        self._store.write(self, documents, ledger)


class ResourceStore:
    """The resources of one coordination directory, as one process reads and changes them.

    It blocks its thread for some synced writes, and for a lock up to 2 s.
    """

    def __init__(
        self, coordination_directory: str, *, seam: Seam = no_seam, lock_wait_ms: int = LOCK_WAIT_MS
    ) -> None:
        """Remember where the resources are; nothing is opened, created or read yet.

        Args:
            coordination_directory: Absolute path of the place that roots share.
            seam: Called at every effect.
            lock_wait_ms: How long a lock is waited for.
        """
        self.path = f"{coordination_directory}/{DIRECTORY}"
        self._seam = seam
        self._lock_wait_ms = lock_wait_ms
        self._directory: Directory | None = None
        self._seen: dict[ResourceKey, Mark] = {}
        self._seen_ledger_revision = 0

    def close(self) -> None:
        """Let go of the directory."""
        if self._directory is not None:
            self._directory.close()
            self._directory = None

    def keys(self) -> tuple[ResourceKey, ...]:
        """Return every resource that was ever stored, sorted; raises as `read`."""
        directory = self._open(create=False)
        return () if directory is None else self._index(directory).resources

    def read(self, key: ResourceKey) -> Document:
        """Return one resource as it was stored at some instant of this call, without a lock.

        What is decided on it must be decided again in a transaction.

        Raises:
            Refused: the directory is not safe, not ours, or on a network file system.
            RecoveryRequired: the resource was lost, damaged, or is older than it was.
        """
        directory = self._open(create=False)
        if directory is None:
            return Document(resource=key)
        return self._load(directory, key, self._index(directory))[0]

    def read_ledger(self) -> Ledger:
        """Return the ledger likewise, without a lock; raises as `read`."""
        directory = self._open(create=False)
        return Ledger() if directory is None else self._load_ledger(directory, self._index(directory))

    @contextlib.contextmanager
    def transaction(self, keys: Iterable[ResourceKey], *, ledger: bool = False) -> Iterator[Transaction]:
        """Hold the locks of these resources, and with `ledger` that of the namespace.

        A policy, an admission to the ledger and a look at it take the ledger along; a grant does not.

        Raises:
            Refused: `RESOURCE_BUSY` (retryable) when a lock was not to be had; as for `read`.
            RecoveryRequired: as for `read`.
        """
        wanted = sorted(set(keys))
        directory = self._open(create=True)
        assert directory is not None
        with contextlib.ExitStack() as locks:
            index = self._index(directory)
            if ledger or not frozenset(wanted) <= frozenset(index.resources):
                locks.enter_context(directory.lock(NAMESPACE_LOCK, self._lock_wait_ms))
                index = self._index(directory)
            for key in wanted:
                locks.enter_context(directory.lock(f"{key_digest(key)}.lock", self._lock_wait_ms))
            held = Transaction(self, index)
            for key in wanted:
                held.documents[key], held.data[key] = self._load(directory, key, index)
            if ledger:
                held.ledger = self._load_ledger(directory, index)
            try:
                yield held
            finally:
                held.is_open = False

    def write(
        self, held: Transaction, documents: Mapping[ResourceKey, Document], ledger: Ledger | None
    ) -> None:
        """Carry out `Transaction.commit`."""
        directory = self._open(create=False)
        if directory is None:
            raise RecoveryRequired(f"{self.path} was removed")
        changed = {
            key: _next(held.documents[key], documents[key])
            for key in sorted(documents)
            if documents[key] is not held.documents[key]
        }
        index = held.index
        index = msgspec.structs.replace(index, resources=tuple(sorted({*index.resources, *changed})))
        if len(index.resources) > RESOURCES_MAX:
            raise Refused("QUEUE_FULL", f"{RESOURCES_MAX} resources are kept in {self.path}")
        if ledger is not None and ledger is not held.ledger:
            assert held.ledger is not None, "the ledger is changed under its lock"
            ledger = _next_ledger(held.ledger, ledger)
        else:
            ledger = None
        files = {
            f"{key_digest(key)}.json": _bounded(encode(document), key) for key, document in changed.items()
        }
        ledger_bytes = None if ledger is None else _bounded(encode(ledger), "the launch ledger")
        for key in changed:
            # A writer that knows no locks may have put something there meanwhile.
            if _bytes_of(directory, key) != held.data[key]:
                raise Refused("RESOURCE_BUSY", "the resource was changed outside its lock", is_retryable=True)
        writing = _Writing(directory)
        for (name, data), document in zip(files.items(), changed.values(), strict=True):
            writing.put(name, data)
            writing.put(name.removesuffix(".json") + ".mark", encode(Mark.of(document)))
        if index != held.index:
            writing.put(INDEX, encode(index))
        if ledger is not None and ledger_bytes is not None:
            writing.put(LEDGER, ledger_bytes)
            index = msgspec.structs.replace(index, ledger_revision=ledger.revision)
            writing.put(INDEX, encode(index))
            held.ledger = ledger
            self._seen_ledger_revision = ledger.revision
        held.index = index
        held.documents |= changed
        held.data |= {key: files[f"{key_digest(key)}.json"] for key in changed}
        self._seen |= {key: Mark.of(document) for key, document in changed.items()}

    # ---------------------------------------------------------------- reading

    def _open(self, *, create: bool) -> Directory | None:
        """Return the directory, verified to be ours; None when there is none and none shall be made."""
        if self._directory is not None and self._directory.is_current():
            return self._directory
        self.close()
        try:
            directory = open_directory(self.path, create=create, seam=self._seam)
        except FileNotFoundError:
            if self._seen or self._seen_ledger_revision:
                raise RecoveryRequired(f"{self.path} was removed while resources were in use") from None
            return None
        try:
            refuse_network_file_system(self.path)
            self._adopt(directory, create=create)
        except BaseException:
            directory.close()
            raise
        self._directory = directory
        return directory

    def _adopt(self, directory: Directory, *, create: bool) -> None:
        """See that the directory is ours, or empty; put the index into an empty one."""
        if self._has_index(directory) or not create:
            return
        with directory.lock(NAMESPACE_LOCK, self._lock_wait_ms):
            if not self._has_index(directory):
                directory.write_atomic(INDEX, encode(Index()), sync=True)

    def _has_index(self, directory: Directory) -> bool:
        """Return whether our index is there; what another program made is refused before any write."""
        names = [name for name in directory.names() if name.endswith(".json")]
        for _ in range(LISTINGS_MAX):
            if INDEX in names or not names:
                break
            time.sleep(LISTING_PAUSE_S)  # a listing may miss a name that is being replaced
            names = [name for name in directory.names() if name.endswith(".json")]
        if INDEX in names:
            if not is_ours(directory.read(INDEX, FILE_BYTES_MAX)):
                raise self._foreign()
            return True
        for name in names:
            if not is_ours(directory.read(name, FILE_BYTES_MAX)):
                raise self._foreign()
        if names:
            raise RecoveryRequired(f"{self.path}/{INDEX} is missing beside {len(names)} resources")
        return False

    def _foreign(self) -> Refused:
        return Refused(
            "UNSAFE_ENDPOINT",
            f"{self.path} was made by another program: set coordination_directory to a place of your own",
        )

    def _index(self, directory: Directory) -> Index:
        seen, ledger_revision = frozenset(self._seen), self._seen_ledger_revision
        try:
            index = decode(directory.read(INDEX, FILE_BYTES_MAX), Index, f"{self.path}/{INDEX}")
        except FileNotFoundError:
            if not self._has_index(directory) and not seen:
                return Index()
            raise RecoveryRequired(f"{self.path}/{INDEX} was removed") from None
        if index.ledger_revision < ledger_revision or not seen <= frozenset(index.resources):
            raise RecoveryRequired(f"{self.path}/{INDEX} is older than it was")
        return index

    def _load(self, directory: Directory, key: ResourceKey, index: Index) -> tuple[Document, bytes]:
        """Return one resource and its bytes. The mark is read first: a writer may replace both between."""
        stem = key_digest(key)
        path = f"{self.path}/{stem}"
        is_known = key in index.resources
        seen = self._seen.get(key, Mark())
        mark = Mark()
        try:
            mark = decode(directory.read(f"{stem}.mark", FILE_BYTES_MAX), Mark, f"{path}.mark")
        except FileNotFoundError:
            if is_known:
                raise RecoveryRequired(f"{path}.mark, the mark of {key}, is missing") from None
        data = _bytes_of(directory, key)
        if not data:
            if is_known or mark.revision:
                raise RecoveryRequired(f"{path}.json, the record of {key}, is missing")
            return Document(resource=key), data
        document = decode(data, Document, f"{path}.json")
        if document.resource != key:
            raise RecoveryRequired(f"{path}.json is the record of another resource")
        if not mark.admits(document) or not seen.admits(document):
            raise RecoveryRequired(f"{path}.json, the record of {key}, is older than it was")
        if is_known:
            self._seen[key] = Mark.of(document)
        return document, data

    def _load_ledger(self, directory: Directory, index: Index) -> Ledger:
        path = f"{self.path}/{LEDGER}"
        oldest = max(index.ledger_revision, self._seen_ledger_revision)
        try:
            ledger = decode(directory.read(LEDGER, FILE_BYTES_MAX), Ledger, path)
        except FileNotFoundError:
            if oldest:
                raise RecoveryRequired(f"{path} is missing") from None
            return Ledger()
        if ledger.revision < oldest:
            raise RecoveryRequired(f"{path} is older than it was")
        # The index follows the ledger by one write: what it has confirmed is what may not go back.
        self._seen_ledger_revision = oldest
        return ledger


class _Writing:
    """The files of one commit: after the first, a failure leaves it stored in part."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._has_written = False

    def put(self, name: str, data: bytes) -> None:
        try:
            self._directory.write_atomic(name, data, sync=True)
        except Refused as error:
            if not self._has_written:
                raise
            raise RecoveryRequired(f"stored in part: {error}") from error
        self._has_written = True


def _bytes_of(directory: Directory, key: ResourceKey) -> bytes:
    """Return the bytes of a resource's file, empty where there is none: no writer of ours leaves it empty."""
    try:
        return directory.read(f"{key_digest(key)}.json", FILE_BYTES_MAX)
    except FileNotFoundError:
        return b""


def _next(stored: Document, decided: Document) -> Document:
    """Return what was decided under the next revision."""
    if decided.revision != stored.revision:
        raise Refused("RESOURCE_BUSY", "the resource was decided on an older reading", is_retryable=True)
    assert Mark.of(stored).admits(decided), "the numbers of a resource only grow"
    return msgspec.structs.replace(decided, revision=stored.revision + 1)


def _next_ledger(stored: Ledger, decided: Ledger) -> Ledger:
    if decided.revision != stored.revision:
        raise Refused("RESOURCE_BUSY", "the ledger was decided on an older reading", is_retryable=True)
    return msgspec.structs.replace(decided, revision=stored.revision + 1)


def _bounded(data: bytes, name: str) -> bytes:
    if len(data) > FILE_BYTES_MAX:
        raise Refused("QUEUE_FULL", f"{name} would need more than {FILE_BYTES_MAX} bytes")
    return data
