"""The shared directory of resources: one document each, the launch ledger, and an index.

Files, all of them private and replaced whole: `<sha256 of the key>.json` is a resource and
`<sha256 of the key>.mark` the highest numbers it ever had; `launches.json` is the ledger; `index.json`
says which resources and how much of the ledger there ever were.

Rule 1: a change is decided on what was read under the lock, and stored only over exactly that.
Rule 2: locks are taken in one order: the namespace, then resources by name. They live on files that are
never renamed and never removed, and nobody waits while holding one.
Rule 3: the order of writing is documents, index, ledger, witnesses: a command may start when `commit` has
returned, so a record that a crash kept from the ledger is one of a command that never started.
Rule 4: what takes a damaged record's place is stored after its bytes were put aside, whole.

Source: reference/native.md 2.13, 2.14, 3.5, 177 to 181; reference/reliability.md I32, I38, I50;
reference/open-bugs.md O39, O44.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from tieline.errors import RecoveryRequired, Refused
from tieline.model.resource import Document, Ledger, Mark, ResourceKey, key_digest
from tieline.store.files import Directory, Lock, Seam, no_seam
from tieline.store.resources import salvage
from tieline.store.resources.formats import Index, Witness, encode
from tieline.store.resources.reading import (
    FILE_BYTES_MAX,
    INDEX,
    LEDGER,
    LOCK_MARK,
    LOCK_WAIT_MS,
    NAMESPACE_LOCK,
    Reader,
    bytes_of,
    mark_lock,
    raw,
)
from tieline.store.resources.salvage import Damage
from tieline.store.resources.witnesses import Witnesses

__all__ = ["ResourceStore", "Transaction"]

RESOURCES_MAX: Final = 256
LedgerChange = Callable[[Damage, Ledger], Ledger]
WHOLE_ACTION: Final = "go on; `tieline doctor` names what is damaged"
KNOWN_ACTION: Final = "use one of the names that are there: `tieline resource list` shows them"
LINE_ACTION: Final = "wait until some of those in line have ended; `tieline resource status` shows them"


class Transaction:
    """Documents, and on request the ledger, held under their locks until the `with` block ends.

    Attributes:
        documents: As they are stored now, by resource; one that was never stored is a new one.
        ledger: As it is stored now, or None when it was not asked for.
        index: The index as it is stored now.
        data: The bytes of each document's file, empty where there is none.
        locks: The held locks by file name.
        is_open: Whether the locks are held.
    """

    def __init__(self, store: "ResourceStore", index: Index) -> None:
        """Start with nothing read; the store fills it under its locks."""
        self.documents: dict[ResourceKey, Document] = {}
        self.ledger: Ledger | None = None
        self.index = index
        self.data: dict[ResourceKey, bytes] = {}
        self.locks: dict[str, Lock] = {}
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


class ResourceStore(Reader):
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
        super().__init__(coordination_directory, seam, lock_wait_ms)

    @contextlib.contextmanager
    def transaction(self, keys: Iterable[ResourceKey], *, ledger: bool = False) -> Iterator[Transaction]:
        """Hold the locks of these resources, and with `ledger` that of the namespace.

        A policy, an admission to the ledger and a look at it take the ledger along; a grant does not.

        Raises:
            Refused: `RESOURCE_BUSY` (retryable) when a lock was not to be had; as for `read`.
            RecoveryRequired: as for `read`.
        """
        wanted = sorted(set(keys))
        with self._locked(wanted, ledger=ledger) as (directory, held):
            for key in wanted:
                held.documents[key], held.data[key] = self._load(
                    directory, key, held.index, self._witnesses.read(key)
                )
            if ledger:
                held.ledger = self._load_ledger(directory, held.index, self._witnesses.ledger_revision())
            yield held

    @contextlib.contextmanager
    def _locked(self, wanted: list[ResourceKey], *, ledger: bool) -> Iterator[tuple[Directory, Transaction]]:
        """Hold the locks, with nothing but the index read."""
        directory = self._open(create=True)
        assert directory is not None
        with contextlib.ExitStack() as locks:
            index = self._index(directory)
            names = [f"{key_digest(key)}.lock" for key in wanted]
            if ledger or not frozenset(wanted) <= frozenset(index.resources):
                names.insert(0, NAMESPACE_LOCK)
            taken = {name: locks.enter_context(directory.lock(name, self._lock_wait_ms)) for name in names}
            held = Transaction(self, self._index(directory))
            held.locks = taken
            try:
                yield directory, held
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
            refused = Refused("QUEUE_FULL", f"{RESOURCES_MAX} resources are kept in {self.path}")
            raise refused.advising(KNOWN_ACTION)
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
            if bytes_of(directory, key) != held.data[key]:
                raise Refused("RESOURCE_BUSY", "the resource was changed outside its lock", is_retryable=True)
        witness_directory = self._witnesses.open_for_writing() if changed or ledger is not None else directory
        writing = _Writing()
        for (name, data), document in zip(files.items(), changed.values(), strict=True):
            writing.put(directory, name, data)
            writing.put(directory, name.removesuffix(".json") + ".mark", encode(Mark.of(document)))
        if index != held.index:
            writing.put(directory, INDEX, encode(index))
        if ledger is not None and ledger_bytes is not None:
            writing.put(directory, LEDGER, ledger_bytes)
            index = msgspec.structs.replace(index, ledger_revision=ledger.revision)
            writing.put(directory, INDEX, encode(index))
            # A hint: after a power cut no command is left that a forgotten revision could hide.
            writing.put(witness_directory, LEDGER, encode(index), sync=False)
            held.ledger = ledger
            self._seen_ledger_revision = ledger.revision
        for document in changed.values():
            writing.put(witness_directory, *Witnesses.file_of(self._witness(document, held.ledger)))
        if changed or ledger is not None:
            self._mark_locks(held)
        held.index = index
        held.documents |= changed
        held.data |= {key: files[f"{key_digest(key)}.json"] for key in changed}
        self._seen |= {key: Mark.of(document) for key, document in changed.items()}

    def _witness(self, document: Document, ledger: Ledger | None) -> Witness:
        """Return what is to be remembered of a resource beside its record."""
        key = document.resource
        if ledger is None:
            before = self._witnesses.read(key)
            launches = before.launches if before is not None else ()
        else:
            launches = tuple(
                launch for launch in ledger.launches if any(one == key for one, _ in launch.resources)
            )
        return Witness(
            key, Mark.of(document), document.policy, document.enrolment, document.blockers, launches
        )

    def _mark_locks(self, held: Transaction) -> None:
        """Note in the lock files, in place, that records were stored under them."""
        for lock in held.locks.values():
            mark_lock(lock, LOCK_MARK, self._seam)

    # ---------------------------------------------------------------- damage

    def damage(self, key: ResourceKey) -> Damage | None:
        """Return what is known of a resource whose record cannot be believed, None where it can.

        Raises:
            Refused: the directory is not safe, not ours, or on a network file system.
            RecoveryRequired: the index is lost, damaged or older than it was.
        """
        directory = self._open(create=False)
        if directory is not None:
            self._index(directory)  # whose damage is not this resource's
        try:
            self.read(key)
        except RecoveryRequired as error:
            return self._damage(directory, key, str(error))
        return None

    def damages(self) -> tuple[Damage, ...]:
        """Return every resource whose record cannot be believed; raises as `damage`."""
        return tuple(one for key in self.keys() if (one := self.damage(key)) is not None)

    def _damage(self, directory: Directory | None, key: ResourceKey, text: str) -> Damage:
        stem = key_digest(key)
        data, mark = (raw(directory, f"{stem}.{suffix}") for suffix in ("json", "mark"))
        return salvage.damage_of(
            key, text, data, mark, self._witnesses.read(key), self._seen.get(key, Mark())
        )

    def mend(
        self, key: ResourceKey, record_id: str, note: str, now_ms: int, ledger: LedgerChange
    ) -> Document:
        """Put a new record in a damaged one's place, and return it; the damaged bytes are kept aside.

        Args:
            key: The resource.
            record_id: Of the damage that was answered for.
            note: Who answered, and on what evidence.
            now_ms: Wall time.
            ledger: Given the damage and the ledger as stored now, returns the ledger to store.

        Raises:
            Refused: INVALID_PARAMS when it is not damaged, or otherwise than when it was looked at; what
                `ledger` raises; as for `transaction`.
            RecoveryRequired: index or ledger are damaged.
        """
        with self._locked([key], ledger=True) as (directory, held):
            found = self.damage(key)
            if found is None:
                raise Refused("INVALID_PARAMS", f"the record of {key} is whole: there is nothing to recover")
            if found.record_id != record_id:
                refused = Refused("INVALID_PARAMS", f"the record of {key} is not the one that was looked at")
                raise refused.advising(f"look again: `tieline resource recover {key}` shows its record id")
            stored = self._load_ledger(directory, held.index, self._witnesses.ledger_revision())
            held.ledger, decided = stored, ledger(found, stored)
            stem = key_digest(key)
            for suffix in ("json", "mark"):
                self._keep_aside(directory, f"{stem}.{suffix}")
            document = salvage.restored(found, note, now_ms)
            numbers = {name: getattr(document, name) for name in Mark.__struct_fields__}
            held.documents[key] = Document(resource=key, **numbers)
            held.data[key] = raw(directory, f"{stem}.json")
            held.commit({key: document}, decided)
            return held.documents[key]

    def rebuild_index(self) -> Index:
        """Make the index again from the records and the witnesses; return it.

        Raises:
            Refused: INVALID_PARAMS when it is whole; the directory is not ours, or not safe.
        """
        with contextlib.ExitStack() as stack:
            directory = stack.enter_context(self._open_without_index())
            stack.enter_context(directory.lock(NAMESPACE_LOCK, self._lock_wait_ms))
            before = salvage.readable(raw(directory, INDEX), Index)
            ledger = salvage.readable(raw(directory, LEDGER), Ledger)
            found = {document.resource for document in self._documents(directory)}
            found |= {witness.resource for witness in self._witnesses.others(frozenset())}
            found |= set(before.resources if before is not None else ())
            known = (
                self._witnesses.ledger_revision(),
                before.ledger_revision if before is not None else 0,
                ledger.revision if ledger is not None else 0,
            )
            index = salvage.rebuilt_index(found, max(known))
            if index == before:
                refused = Refused("INVALID_PARAMS", "the index is whole: there is nothing to recover")
                raise refused.advising(WHOLE_ACTION)
            self._keep_aside(directory, INDEX)
            directory.write_atomic(INDEX, encode(index), sync=True)
        return index

    def rebuild_ledger(self) -> Ledger:
        """Make the ledger again from all that names a command; return it.

        Raises:
            Refused: INVALID_PARAMS when it is whole; as for `transaction`.
            RecoveryRequired: the index is damaged.
        """
        with self._locked([], ledger=True) as (directory, held):
            witnessed = self._witnesses.ledger_revision()
            with contextlib.suppress(RecoveryRequired):
                self._load_ledger(directory, held.index, witnessed)
                refused = Refused("INVALID_PARAMS", "the ledger is whole: there is nothing to recover")
                raise refused.advising(WHOLE_ACTION)
            ledger = salvage.rebuilt_ledger(
                salvage.readable(raw(directory, LEDGER), Ledger),
                self._witnesses.others(frozenset()),
                self._documents(directory),
                max(held.index.ledger_revision, self._seen_ledger_revision, witnessed),
            )
            self._keep_aside(directory, LEDGER)
            held.ledger = Ledger(revision=ledger.revision)
            held.commit({}, ledger)
            return ledger

    def _documents(self, directory: Directory) -> list[Document]:
        """Return every document that can be read, believed or not."""
        names = [name for name in directory.names() if name.endswith(".json") and name != LEDGER]
        found = (salvage.readable(raw(directory, name), Document) for name in names)
        return [document for document in found if document is not None]

    def _keep_aside(self, directory: Directory, name: str) -> None:
        """Store a copy of a file's bytes under a name of its own; nothing where there is none."""
        data = raw(directory, name)
        if data:
            digest = hashlib.sha256(data).hexdigest()[:12]
            directory.write_atomic(f"{name}.{digest}.kept", data, sync=True)


class _Writing:
    """The files of one commit: after the first, a failure leaves it stored in part."""

    def __init__(self) -> None:
        self._has_written = False

    def put(self, directory: Directory, name: str, data: bytes, *, sync: bool = True) -> None:
        try:
            directory.write_atomic(name, data, sync=sync)
        except Refused as error:
            if not self._has_written:
                raise
            raise RecoveryRequired(f"stored in part: {error}").advising(error.action) from error
        self._has_written = True


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
        refused = Refused("QUEUE_FULL", f"{name} would need more than {FILE_BYTES_MAX} bytes")
        raise refused.advising(LINE_ACTION)
    return data
