"""Show that a witness remembers, and that its loss alone harms nobody."""

from pathlib import Path

import pytest

from tieline.errors import Refused
from tieline.model.resource import Mark, ResourceKey, key_digest
from tieline.store.files import no_seam
from tieline.store.resources.formats import Index, Witness, encode
from tieline.store.resources.witnesses import Witnesses

KEY = ResourceKey("machine/tests")
OTHER = ResourceKey("machine/web")


def stored(home: Path, *witnesses: Witness) -> Witnesses:
    made = Witnesses(str(home / "h"), no_seam)
    directory = made.open_for_writing()
    for witness in witnesses:
        directory.write_atomic(*made.file_of(witness), sync=True)
    return made


def test_reading_where_nothing_is_makes_nothing(private_home: Path) -> None:
    """Whoever only looks leaves no directory behind."""
    witnesses = Witnesses(str(private_home / "h"), no_seam)
    assert (witnesses.read(KEY), witnesses.others(frozenset())) == (None, ())
    assert (witnesses.ledger_revision(), witnesses.bytes_of(KEY)) == (0, b"")
    assert not (private_home / "h").exists()


def test_witness_written_is_read_and_others_are_told_apart(private_home: Path) -> None:
    """Each is found by its resource; what is known already is not read again."""
    first, second = Witness(KEY, Mark(fence=3)), Witness(OTHER, Mark(fence=4))
    witnesses = stored(private_home, first, second)
    assert witnesses.read(KEY) == first
    assert witnesses.others(frozenset({KEY})) == (second,)
    assert witnesses.bytes_of(KEY) == encode(first)
    witnesses.close()
    assert Witnesses(str(private_home / "h"), no_seam).read(OTHER) == second


def test_damaged_witness_is_none(private_home: Path) -> None:
    """What cannot be read, or is another resource's, is not remembered; the other one still is."""
    witnesses = stored(private_home, Witness(KEY, Mark()), Witness(OTHER, Mark()))
    folder = private_home / "h" / "resource-witness"
    (folder / f"{key_digest(KEY)}.json").write_bytes(b"{")
    assert witnesses.read(KEY) is None
    assert [one.resource for one in witnesses.others(frozenset())] == [OTHER]
    (folder / f"{key_digest(KEY)}.json").write_bytes(encode(Witness(OTHER, Mark())))
    assert witnesses.read(KEY) is None


def test_ledger_revision_is_remembered(private_home: Path) -> None:
    """How far the ledger had come is known beside it; a garbled note of that is none."""
    witnesses = stored(private_home)
    witnesses.open_for_writing().write_atomic("launches.json", encode(Index(ledger_revision=6)), sync=False)
    assert witnesses.ledger_revision() == 6
    (private_home / "h" / "resource-witness" / "launches.json").write_bytes(b"")
    assert witnesses.ledger_revision() == 0


def test_directory_open_to_others_is_refused(private_home: Path) -> None:
    """What others could write is no witness."""
    witnesses = stored(private_home)
    witnesses.close()
    (private_home / "h" / "resource-witness").chmod(0o755)
    with pytest.raises(Refused, match="open to others"):
        witnesses.read(KEY)
