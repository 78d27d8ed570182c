"""A second place that remembers what a resource was last stored with: `resource-witness/`.

The records of `peer-resources` name each other, so that the loss of one is seen by the others. When all of
them go together, or come back together from an older copy, nothing inside tells it. A witness of each
resource lies in a directory beside: the numbers, the policy, and the commands that hold the resource, with
the evidence of their processes. `launches.json` there says how far the launch ledger had come.

Rule 1: a witness is written after the record that it is about. It may be older than that, never newer.
Rule 2: a witness that is lost or damaged harms nobody by itself: the next commit writes it again.
Rule 3: this module decides nothing; it keeps and returns.

Source: reference/native.md 3.5 "epoch vs fence"; reference/reliability.md I31, I34, I38.
"""

from typing import Final

from tieline.errors import RecoveryRequired
from tieline.model.resource import ResourceKey, key_digest
from tieline.store.files import Directory, Seam, open_directory
from tieline.store.resources.formats import Index, Witness, decode, encode

__all__ = ["Witnesses"]

DIRECTORY: Final = "resource-witness"
LEDGER: Final = "launches.json"
FILE_BYTES_MAX: Final = 4_194_304


class Witnesses:
    """The witnesses of one coordination directory."""

    def __init__(self, coordination_directory: str, seam: Seam) -> None:
        """Remember where they are; nothing is opened, created or read yet."""
        self.path = f"{coordination_directory}/{DIRECTORY}"
        self._seam = seam
        self._directory: Directory | None = None

    def close(self) -> None:
        """Let go of the directory."""
        if self._directory is not None:
            self._directory.close()
            self._directory = None

    def read(self, key: ResourceKey) -> Witness | None:
        """Return what is remembered of a resource, None when nothing is, or nothing that can be read.

        Raises:
            Refused: the directory is not safe; VERSION_SKEW.
        """
        witness = self._decoded(f"{key_digest(key)}.json")
        return witness if witness is not None and witness.resource == key else None

    def others(self, known: frozenset[ResourceKey]) -> tuple[Witness, ...]:
        """Return what is remembered of every resource that is not among `known`; raises as `read`."""
        directory = self._open(create=False)
        if directory is None:
            return ()
        passed = {f"{key_digest(key)}.json" for key in known} | {LEDGER}
        found = (self._decoded(name) for name in directory.names() if name not in passed)
        return tuple(witness for witness in found if witness is not None)

    def ledger_revision(self) -> int:
        """Return how far the ledger had come at least, 0 when nothing is remembered; raises as `read`."""
        directory = self._open(create=False)
        if directory is None:
            return 0
        try:
            return decode(directory.read(LEDGER, FILE_BYTES_MAX), Index, LEDGER).ledger_revision
        except (FileNotFoundError, RecoveryRequired):
            return 0

    def bytes_of(self, key: ResourceKey) -> bytes:
        """Return the file of a resource's witness as it is, empty where there is none."""
        directory = self._open(create=False)
        try:
            return b"" if directory is None else directory.read(f"{key_digest(key)}.json", FILE_BYTES_MAX)
        except FileNotFoundError:
            return b""

    def open_for_writing(self) -> Directory:
        """Return the directory, made where it is missing.

        Raises:
            Refused, RecoveryRequired: as `open_directory`.
        """
        directory = self._open(create=True)
        assert directory is not None, "it was made"
        return directory

    @staticmethod
    def file_of(witness: Witness) -> tuple[str, bytes]:
        """Return name and bytes of a witness."""
        return f"{key_digest(witness.resource)}.json", encode(witness)

    def _decoded(self, name: str) -> Witness | None:
        directory = self._open(create=False)
        if directory is None:
            return None
        try:
            return decode(directory.read(name, FILE_BYTES_MAX), Witness, f"{self.path}/{name}")
        except (FileNotFoundError, RecoveryRequired):
            return None  # the record itself is judged without it, and writes it again

    def _open(self, *, create: bool) -> Directory | None:
        if self._directory is not None and self._directory.is_current():
            return self._directory
        self.close()
        try:
            self._directory = open_directory(self.path, create=create, seam=self._seam)
        except FileNotFoundError:
            return None
        return self._directory
