"""How far a store is known to have come."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tieline.errors import RecoveryRequired
from tieline.store.journal.witness import (
    WITNESS,
    Seen,
    Witness,
    decode_witness,
    encode_witness,
    refuse_behind,
)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    """Give a descriptor of an empty directory."""
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def test_witness_told_twice_says_the_latest(directory: int, tmp_path: Path) -> None:
    """The file says what was told last, in place."""
    witness = Witness(directory)
    witness.tell(1, 5)
    witness.tell(2, 6)
    witness.close()
    witness.close()
    assert decode_witness((tmp_path / WITNESS).read_bytes()) == Seen(2, 6)


@pytest.mark.clause("S2")
def test_witness_is_private_and_never_taken_over(directory: int, tmp_path: Path) -> None:
    """The file is made with mode 0600 under any umask, and one that exists is refused."""
    before = os.umask(0)
    try:
        Witness(directory).close()
    finally:
        os.umask(before)
    assert (tmp_path / WITNESS).stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        Witness(directory)


@pytest.mark.clause("K17")
def test_witness_with_any_bit_flipped_accuses_nobody() -> None:
    """Every flip is noticed, and a damaged witness says nothing."""
    data = encode_witness(Seen(3, 77))
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert decode_witness(bytes(flipped)) is None
    assert decode_witness(data[:-1]) is None
    refuse_behind(None, Seen(0, 0), "f")


@pytest.mark.clause("K17", "I38")
@pytest.mark.parametrize("found", [Seen(3, 76), Seen(2, 99)])
def test_store_behind_its_witness_is_refused(found: Seen) -> None:
    """A store that lost an acknowledged row, or is an older copy, is damaged."""
    with pytest.raises(RecoveryRequired, match="row 77"):
        refuse_behind(Seen(3, 77), found, "f")


@pytest.mark.parametrize("found", [Seen(3, 77), Seen(3, 78), Seen(4, 0)])
def test_store_level_with_or_ahead_of_its_witness_is_believed(found: Seen) -> None:
    """The witness may be behind, as after a power cut."""
    refuse_behind(Seen(3, 77), found, "f")


def test_witness_that_cannot_be_written_is_counted(directory: int) -> None:
    """A failed note stays behind and is counted; it fails no commit."""
    witness = Witness(directory)
    descriptor = witness._descriptor
    read_only = os.open(WITNESS, os.O_RDONLY, dir_fd=directory)
    os.dup2(read_only, descriptor)
    witness.tell(1, 1)
    assert witness.missed_count == 1
    witness.close()
    os.close(read_only)
