"""Reading one file of the registry: what a key says, and what is not believed of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.store.registry.conftest import DOMAIN, OTHER, START, TOKEN, own_window, put, put_key
from tieline.store.files import Directory, open_directory
from tieline.store.registry import RecordFault, key_name
from tieline.store.registry.looking import (
    encode_key,
    holds,
    is_token,
    look_at_key,
    read_key_file,
    read_record_file,
)

WINDOW = own_window("/s", pid=OTHER)


@pytest.fixture
def directory(place: Path) -> Iterator[Directory]:
    """Give the registry's directory, held."""
    with open_directory(str(place), create=False) as opened:
        yield opened


@pytest.mark.clause("pi-peers-5", "pi-peers-6")
def test_key_written_is_the_contracts_and_is_read_again(place: Path, directory: Directory) -> None:
    """Three fields, none of them a child token."""
    name = key_name(OTHER, "/s")
    put(place, name, encode_key(WINDOW, TOKEN).decode())
    expected = f'{{"peerToken":"{TOKEN}","procStart":"{START}","pidDomain":"{DOMAIN}"}}\n'
    assert (place / name).read_text() == expected
    key = look_at_key(directory, WINDOW)
    assert (key.is_there, key.token, key.fault) == (True, TOKEN, None)
    assert (key.process_start, key.pid_domain) == (START, DOMAIN)
    assert key.inode == (place / name).stat().st_ino


@pytest.mark.clause("pi-peers-U9")
@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("a", True),
        ("~" * 512, True),
        ("", False),
        ("a" * 513, False),
        ("a b", False),
        ("a\n", False),
        ("ä", False),
    ],
)
def test_token_is_opaque_and_one_word(text: str, is_one: bool) -> None:
    """Any visible word is a token; none can break the line that bears it."""
    assert is_token(text) is is_one


@pytest.mark.clause("pi-peers-12")
def test_key_missing_is_not_there(directory: Directory) -> None:
    """Only a missing file is missing."""
    key = look_at_key(directory, WINDOW)
    assert (key.is_there, key.token, key.inode) == (False, "", 0)


@pytest.mark.clause("pi-peers-5")
@pytest.mark.parametrize(
    "contents", ["", "{", "[]", "{}", {"peerToken": ""}, {"peerToken": "a\nb"}, {"peerToken": ["x"]}]
)
def test_key_without_usable_token_is_there_and_faulty(
    place: Path, directory: Directory, contents: object
) -> None:
    """A broken key is a reason to tell, not one to sweep."""
    put(place, key_name(OTHER, "/s"), contents)
    key = look_at_key(directory, WINDOW)
    assert key.is_there
    assert key.fault
    assert key.token == ""


@pytest.mark.parametrize("kind", ["link", "open to others", "second name", "too large"])
def test_key_that_is_not_private_is_there_and_not_used(
    place: Path, directory: Directory, private_home: Path, kind: str
) -> None:
    """A token is taken from a private file of ours alone."""
    name = key_name(OTHER, "/s")
    good = put(private_home, "good.key", {"peerToken": TOKEN})
    if kind == "link":
        (place / name).symlink_to(good)
    elif kind == "second name":
        (place / name).hardlink_to(good)
    else:
        fields = {"peerToken": TOKEN, "more": "x" * 5_000 if kind == "too large" else ""}
        put(place, name, fields, mode=0o644 if kind == "open to others" else 0o600)
    key = look_at_key(directory, WINDOW)
    assert key.is_there
    assert "not used" in (key.fault or "")
    assert key.token == ""


@pytest.mark.clause("pi-peers-5")
def test_key_of_an_earlier_process_under_the_same_number_is_not_used(
    place: Path, directory: Directory
) -> None:
    """A crash leftover with the same address does not win."""
    put_key(place, OTHER, "/s", procStart="499", pidDomain=DOMAIN)
    assert look_at_key(directory, WINDOW).fault == "its key file is of another process"
    assert read_key_file(directory, key_name(OTHER, "/s")).fault is None


def test_fault_of_a_key_never_shows_its_token(place: Path, directory: Directory) -> None:
    """A reason may be shown to anybody."""
    put(place, key_name(OTHER, "/s"), {"peerToken": "secret word"})
    assert "secret" not in (look_at_key(directory, WINDOW).fault or "")


def test_record_file_open_to_others_is_read(place: Path, directory: Directory) -> None:
    """Its directory is private; not every writer makes the file so."""
    path = put(place, "7.json", "data", mode=0o644)
    assert read_record_file(directory, "7.json") == (b"data", path.stat().st_ino)


def test_record_file_too_large_is_a_fault(place: Path, directory: Directory) -> None:
    """No file makes a reader take more than it needs."""
    put(place, "7.json", "x" * 65_537)
    with pytest.raises(RecordFault, match="larger"):
        read_record_file(directory, "7.json")


def test_contents_are_held_only_by_a_private_file_with_exactly_these(
    place: Path, directory: Directory
) -> None:
    """Changed, opened to others, or gone: it is to be written again."""
    assert not holds(directory, "a", b"data")
    path = put(place, "a", "data")
    assert holds(directory, "a", b"data")
    assert not holds(directory, "a", b"dat")
    path.chmod(0o640)
    assert not holds(directory, "a", b"data")
