"""identity.json: which saved session an inbox belongs to."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tieline.errors import RecoveryRequired, Refused
from tieline.store.files import Directory, open_directory
from tieline.store.journal.identity import IDENTITY, Identity, read_identity, write_identity

KNOWN = Identity("i-1", "session", {"pid": 5, "boot": "b"}, 7)


@pytest.fixture
def directory(private_home: Path) -> Iterator[Directory]:
    """Give a private directory."""
    with open_directory(str(private_home / "d"), create=True) as opened:
        yield opened


@pytest.mark.clause("native-175")
def test_identity_written_reads_back_equal(directory: Directory) -> None:
    """What was associated is what is read."""
    write_identity(directory, KNOWN)
    assert read_identity(directory, "i-1") == KNOWN


@pytest.mark.clause("native-183", "I6")
def test_identity_of_another_instance_is_refused(directory: Directory) -> None:
    """A file that was put in from elsewhere is not believed."""
    write_identity(directory, KNOWN)
    with pytest.raises(RecoveryRequired, match="i-1"):
        read_identity(directory, "i-2")


@pytest.mark.clause("O44", "K17")
def test_identity_cut_at_any_length_is_refused(directory: Directory, private_home: Path) -> None:
    """No beginning of the file passes for the whole."""
    write_identity(directory, KNOWN)
    path = private_home / "d" / IDENTITY
    whole = path.read_bytes()
    for length in range(len(whole.rstrip())):
        path.write_bytes(whole[:length])
        with pytest.raises(RecoveryRequired):
            read_identity(directory, "i-1")


@pytest.mark.clause("O47")
@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e308", "true", '"10"', "null"])
def test_identity_with_a_wrong_number_is_refused(
    directory: Directory, private_home: Path, value: str
) -> None:
    """A number that is none never becomes a time."""
    write_identity(directory, KNOWN)
    path = private_home / "d" / IDENTITY
    path.write_text(path.read_text().replace('"createdMs": 7', f'"createdMs": {value}'))
    with pytest.raises(RecoveryRequired):
        read_identity(directory, "i-1")


@pytest.mark.clause("K26")
def test_identity_of_a_newer_version_is_refused_as_newer(directory: Directory, private_home: Path) -> None:
    """A newer file is not damage."""
    write_identity(directory, KNOWN)
    path = private_home / "d" / IDENTITY
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(Refused) as refused:
        read_identity(directory, "i-1")
    assert refused.value.code == "VERSION_SKEW"
