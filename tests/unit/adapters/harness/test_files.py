"""A harness's files are replaced whole, keep their mode, and are refused where they may not be written."""

import os
import subprocess
from pathlib import Path

import pytest

from tieline.adapters.harness.files import BYTES_MAX, missing_folders, read, remove_folders, replace
from tieline.errors import Refused, UsageError


def test_replace_keeps_mode_and_link(home: Path) -> None:
    """A link keeps leading to its file."""
    real, link = home / "real", home / "link"
    real.write_text("a\r\n")
    real.chmod(0o640)
    link.symlink_to(real)
    assert read(str(link)) == "a\n".replace("\n", "\r\n")
    replace(str(link), "b", "a\r\n")
    assert (link.is_symlink(), real.read_text(), real.stat().st_mode & 0o777) == (True, "b", 0o640)
    assert sorted(os.listdir(home)) == ["link", "real"]


def test_replace_makes_folders_that_go_again(home: Path) -> None:
    """A folder with something of another in it stays."""
    path = str(home / "a" / "b" / "c")
    folders = missing_folders(path)
    assert folders == [str(home / "a"), str(home / "a" / "b")]
    replace(path, "x", None)
    assert Path(path).stat().st_mode & 0o777 == 0o600
    (home / "a" / "other").write_text("")
    replace(path, None, "x")
    remove_folders(folders)
    assert sorted(os.listdir(home / "a")) == ["other"]
    (home / "a" / "other").unlink()
    remove_folders([*folders, str(home / "a" / "b" / "gone")])
    assert not (home / "a").exists()


def test_replace_of_a_read_only_file_is_refused(home: Path) -> None:
    """Whoever made it so meant it."""
    path = home / "f"
    path.write_text("a")
    path.chmod(0o444)
    with pytest.raises(Refused, match="read-only") as refused:
        replace(str(path), "b", "a")
    assert "make it writable" in refused.value.action
    path.chmod(0o644)
    home.chmod(0o500)
    with pytest.raises(Refused, match="nothing can be written"):
        replace(str(path), "b", "a")
    home.chmod(0o700)
    with pytest.raises(Refused, match="not a folder"):
        replace(str(path / "below"), "b", None)


def test_replace_of_what_somebody_wrote_meanwhile_is_refused(home: Path) -> None:
    """Nothing of theirs is lost."""
    path = home / "f"
    path.write_text("theirs")
    with pytest.raises(UsageError, match="somebody else"):
        replace(str(path), "b", "a")
    assert path.read_text() == "theirs"


def test_read_of_what_is_no_text_file_says_what_it_is(home: Path) -> None:
    """A pipe does not hold the reader."""
    os.mkfifo(home / "pipe")
    (home / "folder").mkdir()
    (home / "dangling").symlink_to(home / "nowhere")
    (home / "latin").write_bytes(b"a\n\xe9")
    (home / "closed").write_text("x")
    (home / "closed").chmod(0)
    with (home / "large").open("wb") as file:
        file.truncate(BYTES_MAX + 1)
    for name, word in (
        ("pipe", "regular"),
        ("folder", "regular"),
        ("dangling", "nowhere"),
        ("latin", "line 2"),
        ("large", "larger"),
    ):
        with pytest.raises(UsageError, match=word):
            read(str(home / name))
    with pytest.raises(Refused):
        read(str(home / "closed"))
    assert read(str(home / "absent")) is None


def test_what_a_killed_writer_left_goes_with_the_next_writing(home: Path) -> None:
    """Of a living process it stays, and so does what only looks alike."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    path = home / "f"
    for name in (
        f"f.{gone.pid}.tieline",
        f"f.{os.getppid()}.tieline",
        "f.x.tieline",
        f"g.{gone.pid}.tieline",
    ):
        (home / name).write_text("")
    replace(str(path), "now", None)
    (home / f"f.{gone.pid}.tieline").write_text("")
    replace(str(path), None, "now")
    path.write_text("now")
    left = sorted(one.name for one in home.iterdir())
    assert left == sorted(["f", f"f.{os.getppid()}.tieline", "f.x.tieline", f"g.{gone.pid}.tieline"])
