"""config.toml: what is read, what is refused, and that nothing at its name holds the reader."""

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tieline.errors import Refused, TielineError, UsageError
from tieline.runtime import configuration
from tieline.runtime.configuration import BYTES_MAX, configuration_text, replace_configuration, swept


@pytest.fixture
def path(private_home: Path) -> Path:
    """Where the configuration is."""
    return private_home / "config.toml"


def refusal(path: Path) -> TielineError:
    """Return what reading it raises."""
    with pytest.raises(TielineError) as caught:
        configuration_text(str(path.parent))
    return caught.value


def test_text_that_is_absent_is_empty_and_a_link_is_followed(path: Path) -> None:
    """No file is no setting; a link leads to the file; one that leads nowhere is an error."""
    assert configuration_text(str(path.parent)) == ""
    (path.parent / "kept").write_text("# ü\n")
    path.symlink_to("kept")
    assert configuration_text(str(path.parent)) == "# ü\n"
    (path.parent / "kept").unlink()
    assert "leads nowhere" in str(refusal(path))


@pytest.mark.timeout(10)
@pytest.mark.parametrize("kind", ["pipe", "endless", "directory"])
def test_text_of_no_regular_file_is_refused_at_once(path: Path, kind: str) -> None:
    """A pipe holds nobody, an endless device fills no memory, a directory is no file."""
    if kind == "pipe":
        os.mkfifo(path, 0o600)
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    error = refusal(path)
    assert (type(error), error.code) == (UsageError, "USAGE")
    assert "not a regular file" in str(error)


def test_text_longer_than_the_bound_is_refused(path: Path) -> None:
    """The last byte that is taken is the bound's."""
    path.write_text("#" * BYTES_MAX)
    assert len(configuration_text(str(path.parent))) == BYTES_MAX
    path.write_text("#" * (BYTES_MAX + 1))
    assert "larger than" in str(refusal(path))


def test_text_that_is_not_utf_8_names_its_line(path: Path) -> None:
    """Bytes that are no text are refused with the line on which they stand."""
    path.write_bytes(b"# a\n\xff\xfe")
    assert str(refusal(path)).endswith("config.toml, line 2: not UTF-8")


@pytest.mark.clause("S1")
def test_text_that_others_may_write_is_refused(path: Path) -> None:
    """Who may write it decides with whom the agents speak; a group that cannot enter the home may not."""
    path.write_text("# a")
    path.chmod(0o666)
    error = refusal(path)
    assert (type(error), error.code) == (Refused, "UNSAFE_ENDPOINT")
    assert "0666" in str(error)
    path.chmod(0o664)
    assert configuration_text(str(path.parent)) == "# a"
    path.parent.chmod(0o750)
    assert refusal(path).code == "UNSAFE_ENDPOINT"
    path.parent.chmod(0o700)


def test_text_below_a_closed_or_wrong_home_is_refused_as_that(private_home: Path) -> None:
    """A home that may not be entered, and one that is a file, are named, never taken for an absent one."""
    home = private_home / "h"
    home.mkdir(mode=0o000)
    assert refusal(home / "config.toml").code == "PERMISSION_DENIED"
    home.rmdir()
    home.write_text("")
    assert refusal(home / "config.toml").code == "UNSAFE_ENDPOINT"


def test_replace_keeps_mode_and_link_and_leaves_nothing_beside(path: Path) -> None:
    """A link keeps leading to its file, which keeps its mode; nothing else is there afterwards."""
    kept = path.parent / "kept"
    kept.write_text("# a\n")
    kept.chmod(0o640)
    path.symlink_to("kept")
    replace_configuration(str(path.parent), "# b\n", "# a\n")
    assert (path.is_symlink(), kept.read_text(), kept.stat().st_mode & 0o777) == (True, "# b\n", 0o640)
    assert sorted(os.listdir(path.parent)) == ["config.toml", "kept"]


def test_replace_makes_a_private_file_and_removes_it(path: Path) -> None:
    """A new home and file are the person's alone; an empty configuration is no file."""
    home = path.parent / "new"
    replace_configuration(str(home), "# a\n", "")
    assert (home.stat().st_mode & 0o777, (home / "config.toml").stat().st_mode & 0o777) == (0o700, 0o600)
    replace_configuration(str(home), "", "# a\n")
    assert not home.exists()
    (path.parent / "other").write_text("")
    replace_configuration(str(path.parent), "# a\n", "")
    replace_configuration(str(path.parent), "", "# a\n")
    assert os.listdir(path.parent) == ["other"]


def test_replace_of_what_somebody_changed_meanwhile_is_refused(path: Path) -> None:
    """Two writers lose nothing: the later one is told."""
    path.write_text("# theirs\n")
    path.chmod(0o600)
    with pytest.raises(UsageError, match="changed by somebody else"):
        replace_configuration(str(path.parent), "# ours\n", "# a\n")
    assert path.read_text() == "# theirs\n"


def test_replace_in_a_home_that_may_not_be_written_is_refused(path: Path) -> None:
    """The refusal has its code, and nothing is left half written."""
    path.parent.chmod(0o500)
    try:
        with pytest.raises(Refused) as caught:
            replace_configuration(str(path.parent), "# a\n", "")
        assert caught.value.code == "PERMISSION_DENIED"
    finally:
        path.parent.chmod(0o700)
    assert not path.exists()


def test_replace_clears_away_what_a_killed_writer_left(path: Path) -> None:
    """Of a living process it stays, and so does what only looks alike."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    home = str(path.parent)
    for text, was in (("# a\n", ""), ("", "# a\n")):
        for name in (f"{gone.pid}.new", f"{os.getpid()}0.x", "x.new", f"{os.getppid()}.new"):
            (path.parent / f"config.toml.{name}").write_text("")
        replace_configuration(home, text, was)
        left = {one.name for one in path.parent.iterdir()} - {"config.toml"}
        assert left == {
            f"config.toml.{name}" for name in (f"{os.getpid()}0.x", "x.new", f"{os.getppid()}.new")
        }
    swept(str(path.parent / "gone" / "f"), ".new")


def test_two_that_replace_at_once_do_it_one_after_the_other(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later one is told that the file is another by now; it does not overwrite what it never read."""
    read = configuration.configuration_text

    def slow(home: str) -> str:
        text = read(home)
        time.sleep(0.05)
        return text

    monkeypatch.setattr(configuration, "configuration_text", slow)
    told: list[str] = []

    def write(text: str) -> None:
        try:
            replace_configuration(str(path.parent), text, "")
        except UsageError as error:
            told.append(str(error))

    threads = [threading.Thread(target=write, args=(f"# {name}\n",)) for name in "abc"]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(told) == 2
