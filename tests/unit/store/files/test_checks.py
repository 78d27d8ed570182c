"""What makes a file ours and private, and which file systems a lock reaches."""

import errno
import os
import socket
import stat
from pathlib import Path

import pytest

from tieline.errors import RecoveryRequired, Refused
from tieline.store.files import checks


def test_file_system_kind_of_proc_is_proc() -> None:
    """The kernel's own name for the file system comes back."""
    assert checks.file_system_kind("/proc") == "proc"


def test_file_system_kind_without_a_mount_is_empty() -> None:
    """A mount that is not listed, or a line that is not one, gives no name."""
    text = "27 1 0:3 / / rw - ext4 /dev/x rw\n36 27 98:0 /m /m rw,no shared:1 - nfs4 host:/x rw\nbroken\n"
    assert checks._kind_in(text, "36") == "nfs4"
    assert checks._kind_in(text, "27") == "ext4"
    assert checks._kind_in(text, "3") == ""


@pytest.mark.clause("K35", "native-179")
@pytest.mark.parametrize("kind", ["nfs4", "9p", "virtiofs", "fuse.sshfs"])
def test_network_file_system_is_refused_by_name(
    private_home: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A file system of several machines is refused, and the text names it and the setting."""
    monkeypatch.setattr(checks, "file_system_kind", lambda path: kind)
    with pytest.raises(Refused, match=f"{kind}.*coordination_directory"):
        checks.refuse_network_file_system(str(private_home))


@pytest.mark.clause("K35")
def test_local_file_system_passes(private_home: Path) -> None:
    """The file system of this machine passes."""
    checks.refuse_network_file_system(str(private_home))


@pytest.mark.clause("native-40", "native-41", "S2", "K20")
@pytest.mark.parametrize("kind", ["link", "hard", "socket", "directory", "broad", "foreign"])
def test_file_that_is_not_private_is_refused(private_home: Path, kind: str) -> None:
    """A link, a second name, another type, another owner and an open mode are refused."""
    assert os.geteuid() != 0
    path = private_home / "f"
    path.write_text("x")
    path.chmod(0o600)
    if kind == "hard":
        (private_home / "g").hardlink_to(path)
    elif kind == "broad":
        path.chmod(0o640)
    elif kind == "foreign":
        path = Path("/etc/hostname")
    else:
        path.unlink()
        if kind == "link":
            path.symlink_to("/etc/hostname")
        elif kind == "directory":
            path.mkdir()
        else:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.bind(str(path))
    status = path.stat(follow_symlinks=False)
    assert not checks.is_private_file(status)
    with pytest.raises(Refused) as caught:
        checks.check_file(status, str(path))
    assert caught.value.code == "UNSAFE_ENDPOINT"
    assert str(path) in str(caught.value)


def test_file_private_passes_both_ways(private_home: Path) -> None:
    """The short check and the long one agree on a private file."""
    path = private_home / "f"
    path.write_text("x")
    path.chmod(0o600)
    checks.check_file(path.stat(), str(path))
    assert checks.is_private_file(path.stat())


@pytest.mark.clause("K4", "K5", "K7")
@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ELOOP, "UNSAFE_ENDPOINT"),
        (errno.ENOENT, "UNSAFE_ENDPOINT"),
        (errno.EACCES, "PERMISSION_DENIED"),
        (errno.EROFS, "PERMISSION_DENIED"),
        (errno.ENOSPC, "QUEUE_FULL"),
        (errno.EMFILE, "RESOURCE_BUSY"),
    ],
)
def test_errno_becomes_a_typed_refusal(number: int, code: str) -> None:
    """Each errno of the system becomes the code that says what helps."""
    refusal = checks.system_refusal(OSError(number, ""), "/p")
    assert isinstance(refusal, Refused)
    assert refusal.code == code


@pytest.mark.clause("K4")
def test_errno_of_the_device_requires_recovery() -> None:
    """An error of the device itself is no refusal."""
    assert isinstance(checks.system_refusal(OSError(errno.EIO, ""), "/p"), RecoveryRequired)


@pytest.mark.clause("S1", "K18")
@pytest.mark.parametrize(
    ("owner", "mode", "is_safe"),
    [
        (0, 0o755, True),
        (0, 0o1777, True),
        (0, 0o777, False),
        (0, 0o775, False),
        (None, 0o755, True),
        (None, 0o1777, False),
        (1, 0o755, False),
        (1, 0o700, False),
        (1, 0o1777, False),
    ],
)
def test_ancestor_that_another_user_could_exchange_is_refused(
    owner: int | None, mode: int, is_safe: bool
) -> None:
    """Root's and our own directories are safe when closed or root's and sticky; nobody else's are."""
    assert os.geteuid() not in (0, 1)
    uid = os.geteuid() if owner is None else owner
    status = os.stat_result((0o040000 | mode, 1, 1, 2, uid, 0, 0, 0, 0, 0))
    if is_safe:
        checks.check_ancestor(status, "/p")
        return
    with pytest.raises(Refused) as caught:
        checks.check_ancestor(status, "/p")
    assert caught.value.code == "UNSAFE_ENDPOINT"


def test_file_replaced_after_it_was_opened_is_still_ours(private_home: Path) -> None:
    """A file whose name another has just taken has no name left, and is no less private for that."""
    path = private_home / "f"
    path.write_text("x")
    path.chmod(0o600)
    with path.open() as stream:
        path.unlink()
        status = os.fstat(stream.fileno())
    assert status.st_nlink == 0
    assert checks.is_private_file(status)
    checks.check_file(status, str(path))


@pytest.mark.clause("S3", "K20", "O52")
@pytest.mark.parametrize("meanwhile", ["gone", "another", "second name", "nothing"])
def test_open_file_is_repaired_only_where_it_stands_under_its_one_name(
    private_home: Path, meanwhile: str
) -> None:
    """What was exchanged after it was opened keeps its mode: it may be a file of another place."""
    path, elsewhere = private_home / "f", private_home / "elsewhere"
    path.touch(mode=0o640)
    path.chmod(0o640)
    descriptor, directory = os.open(path, os.O_RDONLY), os.open(private_home, os.O_RDONLY)
    try:
        if meanwhile in {"gone", "another"}:
            path.rename(elsewhere)
        if meanwhile == "another":
            path.touch(mode=0o600)
        if meanwhile == "second name":
            elsewhere.hardlink_to(path)
            with pytest.raises(Refused):
                checks.repair_open_file(descriptor, str(path), "f", directory)
        else:
            done = checks.repair_open_file(descriptor, str(path), "f", directory)
            assert done is (meanwhile == "nothing")
        assert stat.S_IMODE(os.fstat(descriptor).st_mode) == (0o600 if meanwhile == "nothing" else 0o640)
    finally:
        os.close(descriptor)
        os.close(directory)
