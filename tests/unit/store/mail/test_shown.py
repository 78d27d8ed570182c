"""What a broker shows of its rows in files."""

import hashlib
from pathlib import Path

import pytest

from tieline.engine.brokering.contract import Drop, Put
from tieline.errors import Refused
from tieline.store.mail.shown import ShownRows


@pytest.fixture
def failures() -> list[BaseException]:
    """What could not be written."""
    return []


@pytest.fixture
def shown(private_home: Path, failures: list[BaseException]) -> ShownRows:
    """Files below a folder of the test."""
    return ShownRows(str(private_home / "intercom"), failures.append)


def names(home: Path, kind: str) -> list[str]:
    folder = home / "intercom" / kind
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.mark.clause("intercom-102", "S2")
def test_open_ask_is_a_private_file_until_it_is_closed(private_home: Path, shown: ShownRows) -> None:
    """Named after its message id as JavaScript encodes it."""
    shown.follow([Put("mail", "1", b"{}"), Put("ask", "asker\na/b é!", b'{"askId":1}')])
    assert names(private_home, "pending-asks") == ["a%2Fb%20%C3%A9!.json"]
    path = private_home / "intercom" / "pending-asks" / "a%2Fb%20%C3%A9!.json"
    assert path.read_bytes() == b'{"askId":1}'
    assert path.stat().st_mode & 0o777 == 0o600
    shown.follow([Drop("ask", "asker\na/b é!"), Drop("extension_state", "x")])
    assert names(private_home, "pending-asks") == []


def test_ask_whose_id_holds_a_line_end_is_named_after_all_of_it(private_home: Path, shown: ShownRows) -> None:
    """What stands behind the line end may be another ask's id."""
    shown.follow([Put("ask", "asker\nm", b"1"), Put("ask", "asker\nx\nm", b"2")])
    assert names(private_home, "pending-asks") == ["m.json", "x%0Am.json"]


@pytest.mark.clause("intercom-102")
def test_ask_of_another_asker_with_the_same_id_keeps_its_file(private_home: Path, shown: ShownRows) -> None:
    """The file shows the newest; only that one's end removes it."""
    shown.follow([Put("ask", "one\nm", b"1"), Put("ask", "two\nm", b"2"), Drop("ask", "one\nm")])
    assert (private_home / "intercom" / "pending-asks" / "m.json").read_bytes() == b"2"
    shown.follow([Drop("ask", "two\nm")])
    assert names(private_home, "pending-asks") == []


def test_ask_with_odd_or_endless_id_stays_in_its_folder(private_home: Path, shown: ShownRows) -> None:
    """No id leads elsewhere, none is too long for a name, and half a character is one, too."""
    for message_id in ("..", "/etc/x", "x" * 300, "\ud800", ""):
        shown.follow([Put("ask", f"asker\n{message_id}", b"{}")])
    assert len(names(private_home, "pending-asks")) == 5
    assert hashlib.sha256(b"x" * 300).hexdigest() + ".json" in names(private_home, "pending-asks")
    assert "...json" in names(private_home, "pending-asks")


def test_state_of_an_extension_is_kept_with_its_former_one(private_home: Path, shown: ShownRows) -> None:
    """Named by the hash of its namespace; the same again changes nothing."""
    name = hashlib.sha256(b"a/b").hexdigest()
    for body in (b"1", b"2", b"2"):
        shown.follow([Put("extension_state", "a/b", body)])
    folder = private_home / "intercom" / "extension-state"
    assert (folder / f"{name}.json").read_bytes() == b"2"
    assert (folder / f"{name}.json.bak").read_bytes() == b"1"


def test_what_cannot_be_shown_is_told_and_stops_nothing(
    private_home: Path, shown: ShownRows, failures: list[BaseException]
) -> None:
    """The rows behind it are shown all the same."""
    (private_home / "intercom").mkdir(mode=0o700)
    (private_home / "intercom" / "pending-asks").write_text("no folder")
    shown.follow([Put("ask", "a\nm", b"1"), Put("extension_state", "n", b"1")])
    assert [type(error) for error in failures] == [Refused]
    assert len(names(private_home, "extension-state")) == 1
