"""The way to a private directory: what is refused, and that nothing is changed then."""

import os
import stat
from pathlib import Path

import pytest

from tieline.errors import Refused, UsageError
from tieline.store.files import open_directory


def refused(path: Path | str, *, create: bool = True) -> Refused:
    """Open what must be refused as unsafe; return the refusal."""
    with pytest.raises(Refused) as caught:
        open_directory(str(path), create=create)
    assert caught.value.code == "UNSAFE_ENDPOINT"
    return caught.value


@pytest.mark.clause("native-39", "S1", "S2")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o177])
def test_directory_made_under_any_umask_is_private(private_home: Path, umask: int) -> None:
    """Every directory that is made has mode 0700, whatever the umask is."""
    assert os.geteuid() != 0
    before = os.umask(umask)
    try:
        with open_directory(str(private_home / "a" / "b"), create=True) as directory:
            assert directory.is_current()
    finally:
        os.umask(before)
    assert stat.S_IMODE((private_home / "a").stat().st_mode) == 0o700
    assert stat.S_IMODE((private_home / "a" / "b").stat().st_mode) == 0o700


@pytest.mark.clause("S1", "native-39")
@pytest.mark.parametrize("mode", [0o701, 0o710, 0o720, 0o750, 0o755, 0o770, 0o777, 0o1777])
def test_directory_open_to_others_is_refused_and_kept(private_home: Path, mode: int) -> None:
    """A directory with any group or other bit is refused with the remedy, and its mode stays."""
    assert os.geteuid() != 0
    place = private_home / "d"
    place.mkdir()
    place.chmod(mode)
    assert "chmod 700" in str(refused(place))
    assert stat.S_IMODE(place.stat().st_mode) == mode


@pytest.mark.clause("S1", "O28", "K18")
@pytest.mark.parametrize("path", ["/usr", "/tmp", "/proc/self"])
def test_directory_of_another_owner_is_refused(path: str) -> None:
    """A directory that is not ours is refused by owner before it is opened."""
    assert os.geteuid() != 0
    refused(path)


@pytest.mark.clause("S1", "native-41", "O28", "K20")
@pytest.mark.parametrize("target", ["real", "missing"])
def test_directory_that_is_a_link_is_refused_and_nothing_made(private_home: Path, target: str) -> None:
    """A link at the last part is refused, dangling or not; nothing appears at its target."""
    (private_home / "real").mkdir(mode=0o700)
    (private_home / "link").symlink_to(private_home / target)
    assert "link" in str(refused(private_home / "link"))
    assert not (private_home / "missing").exists()


@pytest.mark.clause("S1")
@pytest.mark.parametrize("kind", ["file", "fifo"])
def test_directory_that_is_something_else_is_refused(private_home: Path, kind: str) -> None:
    """A file or a pipe in the place of a directory is refused and stays."""
    place = private_home / "d"
    if kind == "file":
        place.write_text("mine")
    else:
        os.mkfifo(place)
    refused(place)
    refused(place / "below")
    assert place.exists()


@pytest.mark.clause("S1")
@pytest.mark.parametrize(
    ("mode", "is_safe"), [(0o755, True), (0o711, True), (0o775, False), (0o757, False), (0o1777, False)]
)
def test_ancestor_writable_by_others_is_refused(private_home: Path, mode: int, is_safe: bool) -> None:
    """An ancestor that others may write is refused, unless it is root's and sticky, as /tmp is."""
    assert os.geteuid() != 0
    above = private_home / "above"
    above.mkdir()
    above.chmod(mode)
    if is_safe:
        open_directory(str(above / "d"), create=True).close()
    else:
        refused(above / "d")
        assert not (above / "d").exists()


@pytest.mark.clause("O54", "S1")
def test_ancestor_that_is_our_own_link_is_followed(private_home: Path) -> None:
    """A link of our own among the ancestors leads on, relative or absolute, also upwards."""
    (private_home / "real").mkdir(mode=0o700)
    (private_home / "real" / "up").symlink_to("../real")
    (private_home / "there").symlink_to(private_home / "real")
    with open_directory(str(private_home / "there" / "up" / "d"), create=True) as directory:
        assert directory.inode == (private_home / "real" / "d").stat().st_ino


def test_ancestors_that_link_in_a_circle_are_refused(private_home: Path) -> None:
    """A circle of links ends with a refusal."""
    (private_home / "a").symlink_to(private_home / "b")
    (private_home / "b").symlink_to(private_home / "a")
    refused(private_home / "a" / "d")


@pytest.mark.clause("S1", "K20")
def test_ancestor_reached_through_a_foreign_link_is_refused(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link that another user owns is not followed."""
    (private_home / "link").symlink_to(private_home)
    real = os.stat

    def foreign(path: str, **options: object) -> os.stat_result:
        status = real(path, **options)  # type: ignore[arg-type]
        if path == "link":
            return os.stat_result([*status[:4], os.geteuid() + 1, *status[5:10]])
        return status

    monkeypatch.setattr(os, "stat", foreign)
    assert "link" in str(refused(private_home / "link" / "d"))


def test_directory_missing_without_create_raises_not_found(private_home: Path) -> None:
    """What is not there is told as such, so that a reader can say "nothing yet"."""
    with pytest.raises(FileNotFoundError):
        open_directory(str(private_home / "none"), create=False)
    assert not (private_home / "none").exists()


@pytest.mark.parametrize("path", ["relative", "", "/a\0b"])
def test_directory_path_not_absolute_is_a_usage_error(path: str) -> None:
    """Only an absolute path names a directory."""
    with pytest.raises(UsageError):
        open_directory(path, create=True)


def test_directory_root_is_refused() -> None:
    """The root directory is nobody's private directory."""
    refused("/")


@pytest.mark.clause("K35")
def test_directory_in_a_place_without_permission_says_so(private_home: Path) -> None:
    """A parent that may not be written is `PERMISSION_DENIED`, not a changed mode."""
    assert os.geteuid() != 0
    (private_home / "closed").mkdir(mode=0o500)
    with pytest.raises(Refused) as caught:
        open_directory(str(private_home / "closed" / "d"), create=True)
    assert caught.value.code == "PERMISSION_DENIED"


@pytest.mark.clause("K1")
def test_directory_made_by_another_meanwhile_is_taken(private_home: Path) -> None:
    """Two that make the same directory both get it."""
    place = private_home / "d"

    def other(seam: str) -> None:
        if seam == "files.make_directory":
            place.mkdir(mode=0o700)

    with open_directory(str(place), create=True, seam=other) as directory:
        assert directory.inode == place.stat().st_ino
