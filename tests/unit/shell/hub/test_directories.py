"""The directories of a broker: ours and private, or refused."""

import os
from pathlib import Path

import pytest

from tieline.errors import Refused
from tieline.shell.hub.directories import open_records, open_runtime, read_record
from tieline.shell.hub.place import Paths, Place, place_of


def derived(folder: Path) -> Place:
    """A place whose directory follows from the user, in a folder of the test."""
    return Place(f"{folder}/broker.sock", str(folder))


@pytest.mark.clause("intercom-123", "S1")
def test_runtime_directory_is_made_private_and_a_loose_one_is_tightened(private_home: Path) -> None:
    """0700 when it is made, and again when somebody loosened it."""
    folder = private_home / "pi-intercom"
    open_runtime(derived(folder)).close()
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    open_runtime(derived(folder)).close()
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.clause("intercom-123", "intercom-131")
def test_named_directory_open_to_others_is_refused_and_left(private_home: Path) -> None:
    """A person's own directory is not ours to change."""
    folder = private_home / "named"
    folder.mkdir(mode=0o755)
    with pytest.raises(Refused) as caught:
        open_runtime(place_of({"PI_INTERCOM_RUNTIME_DIR": str(folder)}))
    assert caught.value.code == "UNSAFE_ENDPOINT"
    assert folder.stat().st_mode & 0o777 == 0o755


@pytest.mark.clause("intercom-123", "S1")
def test_runtime_directory_that_is_a_link_or_a_file_is_refused_and_left(private_home: Path) -> None:
    """What the link leads to is not touched, and the link stays."""
    target, link, file = private_home / "target", private_home / "link", private_home / "file"
    target.mkdir(mode=0o777)
    target.chmod(0o777)
    link.symlink_to(target)
    file.write_text("x")
    for path in (link, file):
        with pytest.raises(Refused) as caught:
            open_runtime(derived(path))
        assert caught.value.code == "UNSAFE_ENDPOINT"
    assert link.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o777
    assert file.read_text() == "x"


@pytest.mark.clause("intercom-123", "S1")
def test_foreign_runtime_directory_is_refused_and_left(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user made it first: nothing is tightened, emptied or removed."""
    folder = private_home / "theirs"
    folder.mkdir(mode=0o755)
    (folder / "kept").write_text("x")
    ours = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: ours + 1)
    for opening in (open_runtime, open_records):
        with pytest.raises(Refused) as caught:
            opening(derived(folder))
        assert caught.value.code == "UNSAFE_ENDPOINT"
    assert (folder / "kept").read_text() == "x"
    assert folder.stat().st_mode & 0o777 == 0o755


@pytest.mark.clause("intercom-122")
def test_records_of_an_agent_may_be_read_by_others_and_lie_behind_a_link(private_home: Path) -> None:
    """The extension keeps them 0755, and settings are often linked; what anybody may write is refused."""
    agent = private_home / "agent"
    place = place_of({"PI_CODING_AGENT_DIR": str(agent), "HOME": "/h"}, Paths.AGENT)
    with pytest.raises(FileNotFoundError):
        open_records(place, create=False)
    real = private_home / "dotfiles"
    real.mkdir()
    agent.mkdir()
    (agent / "intercom").symlink_to(real)
    real.chmod(0o755)
    with open_records(place) as records:
        assert records.is_current()
        assert records.path == os.path.realpath(real)
    real.chmod(0o775)  # what the usual umask of a user with a group alone leaves
    open_records(place).close()
    real.chmod(0o757)
    with pytest.raises(Refused, match="0757"):
        open_records(place)
    real.chmod(0o000)
    with pytest.raises(Refused) as caught:
        open_records(place)
    assert caught.value.code == "PERMISSION_DENIED"
    real.chmod(0o700)
    (agent / "intercom").unlink()
    (agent / "intercom").write_text("")
    with pytest.raises(Refused, match="not a directory"):
        open_records(place, create=False)


def test_record_of_any_mode_is_read_and_a_link_is_refused(private_home: Path) -> None:
    """The extension's lock is 0644; a pipe or link is nobody's record."""
    folder = private_home / "r"
    with open_runtime(derived(folder)) as directory:
        assert read_record(directory, "none") is None
        (folder / "loose").write_text("12\n")
        (folder / "loose").chmod(0o644)
        found = read_record(directory, "loose")
        assert found is not None
        assert found[0] == b"12\n"
        (folder / "link").symlink_to(folder / "loose")
        os.mkfifo(folder / "pipe")
        for name in ("link", "pipe"):
            with pytest.raises(Refused) as caught:
                read_record(directory, name)
            assert caught.value.code == "UNSAFE_ENDPOINT"
