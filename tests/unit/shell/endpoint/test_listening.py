"""Binding, publishing again, and taking away no more than one's own."""

import json
import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tieline.errors import Refused
from tieline.shell.endpoint import CONTROL_SUFFIX, Endpoint, bind_endpoint, connect, hosts, socket_path
from tieline.shell.process import ProcessIdentity, self_identity

INSTANCE = "11111111-1111-4111-8111-111111111111"


@pytest.fixture
def runtime(private_home: Path) -> str:
    """Give the path of a runtime directory that does not exist yet."""
    return str(private_home / "r")


@pytest.fixture
def endpoint(runtime: str) -> Iterator[Endpoint]:
    """Give a bound endpoint."""
    bound = bind_endpoint(runtime, INSTANCE, owner=self_identity())
    yield bound
    bound.close()


def other_process() -> ProcessIdentity:
    """Return the identity of a process that lives and is not this one."""
    return msgspec.structs.replace(self_identity(), pid=1, pid_namespace=1)


def dead_process() -> ProcessIdentity:
    """Return an identity that is proven gone."""
    return msgspec.structs.replace(self_identity(), boot_id="another")


@pytest.mark.clause("native-39", "S4", "O30", "native-2")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_endpoint_under_any_umask_is_private_and_answers(runtime: str, umask: int) -> None:
    """Directory 0700, socket 0600, owner file 0600, and a client is served."""
    before = os.umask(umask)
    try:
        endpoint = bind_endpoint(runtime, INSTANCE, owner=self_identity())
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    assert stat.S_IMODE(Path(runtime).stat().st_mode) == 0o700
    for name in os.listdir(runtime):
        assert stat.S_IMODE(Path(runtime, name).stat().st_mode) == 0o600
    assert endpoint.path == f"{runtime}/{INSTANCE}.sock"
    with connect(endpoint.path):
        accepted, _ = endpoint.sock.accept()
        accepted.close()
    assert not endpoint.sock.get_inheritable()
    assert endpoint.close()


@pytest.mark.clause("S4", "O30")
def test_socket_has_its_mode_from_the_first_instant(runtime: str) -> None:
    """Already before it listens the socket is closed to others: the mode comes with the bind."""
    seen: list[int] = []

    def look(seam: str) -> None:
        if seam == "endpoint.bound":
            seen.append(stat.S_IMODE(Path(runtime, f"{INSTANCE}.sock").stat().st_mode))

    before = os.umask(0)
    try:
        bind_endpoint(runtime, INSTANCE, owner=self_identity(), seam=look).close()
    finally:
        os.umask(before)
    assert seen == [0o600]


@pytest.mark.clause("S6", "native-44")
def test_owner_is_written_before_the_socket_exists_and_under_the_lock(runtime: str) -> None:
    """Whoever sees a socket can read whose it is, and no sweep runs in between."""
    order: list[str] = []

    def look(seam: str) -> None:
        order.append(seam)
        if seam == "endpoint.bind":
            assert Path(runtime, f"{INSTANCE}.owner").exists()
            assert not Path(runtime, f"{INSTANCE}.sock").exists()

    bind_endpoint(runtime, INSTANCE, owner=self_identity(), seam=look).close()
    parts = [seam for seam in order if seam.startswith(("endpoint.", "files.lock", "files.unlocked"))]
    assert parts[:6] == [
        "files.lock_opened",
        "files.locked",
        "endpoint.owner_written",
        "endpoint.bind",
        "endpoint.bound",
        "endpoint.listening",
    ]
    assert parts[6] == "files.unlocked"


@pytest.mark.clause("O25", "K16", "mutant-13")
def test_endpoint_that_lives_is_not_taken_over(endpoint: Endpoint, runtime: str) -> None:
    """A second start is refused; the first keeps its inode and goes on serving."""
    for owner in (self_identity(), other_process()):
        with pytest.raises(Refused) as caught:
            bind_endpoint(runtime, INSTANCE, owner=owner)
        assert caught.value.code == "RESOURCE_BUSY"
    assert not endpoint.missing()
    with connect(endpoint.path):
        endpoint.sock.accept()[0].close()
    assert [host.owner for host in hosts(runtime)] == [self_identity()]


@pytest.mark.clause("O25", "K12", "native-44")
@pytest.mark.parametrize("kind", ["listening", "file", "link", "directory"])
def test_name_that_is_taken_by_something_else_is_refused(runtime: str, kind: str) -> None:
    """An unrelated live listener, a file, a link or a directory at the name stays where it is."""
    Path(runtime).mkdir(mode=0o700)
    path = Path(runtime, f"{INSTANCE}.sock")
    with socket.socket(socket.AF_UNIX) as other:
        if kind == "listening":
            other.bind(str(path))
            other.listen()
            path.chmod(0o600)
        elif kind == "file":
            path.write_text("mine")
        elif kind == "link":
            path.symlink_to("/etc/hostname")
        else:
            path.mkdir()
        before = path.stat(follow_symlinks=False).st_ino
        with pytest.raises(Refused):
            bind_endpoint(runtime, INSTANCE, owner=self_identity())
        assert path.stat(follow_symlinks=False).st_ino == before


@pytest.mark.clause("K12")
def test_dead_socket_at_our_own_name_is_replaced(runtime: str) -> None:
    """What our own dead predecessor left at the name is replaced, under the lock."""
    Path(runtime).mkdir(mode=0o700)
    before = os.umask(0o177)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(f"{runtime}/{INSTANCE}.sock")
    os.umask(before)
    endpoint = bind_endpoint(runtime, INSTANCE, owner=self_identity())
    assert not endpoint.missing()
    endpoint.close()


def test_two_endpoints_of_one_instance_share_an_owner_file(runtime: str) -> None:
    """Native and control endpoint stand in one owner file, and it goes with the last of them."""
    me = self_identity()
    native = bind_endpoint(runtime, INSTANCE, owner=me, host=other_process())
    control = bind_endpoint(runtime, INSTANCE, CONTROL_SUFFIX, owner=me, host=other_process())
    (found,) = hosts(runtime)
    assert found.host == other_process()
    assert found.sockets == {".sock": native.path, ".control": control.path}
    assert native.close()
    (found,) = hosts(runtime)
    assert found.sockets == {".control": control.path}
    assert control.close()
    assert hosts(runtime) == []
    assert os.listdir(runtime) == ["tieline-endpoints.lock"]


@pytest.mark.clause("O29", "S6", "native-43")
@pytest.mark.parametrize("lost", ["socket", "lock", "owner", "directory"])
def test_endpoint_whose_name_was_lost_is_published_again(runtime: str, lost: str) -> None:
    """After a cleaner took the socket, or all of the directory, the same owner listens there again."""
    first = bind_endpoint(runtime, INSTANCE, owner=self_identity())
    with connect(first.path) as client:
        accepted, _ = first.sock.accept()
        names = os.listdir(runtime) if lost == "directory" else [f"{INSTANCE}.sock"]
        names += {"lock": ["tieline-endpoints.lock"], "owner": [f"{INSTANCE}.owner"]}.get(lost, [])
        for name in names:
            Path(runtime, name).unlink()
        if lost == "directory":
            Path(runtime).rmdir()
        assert first.missing()
        second = first.republish()
        assert not second.missing()
        assert second.path == first.path
        with connect(second.path):
            second.sock.accept()[0].close()
        with accepted:
            accepted.sendall(b"still")
            client.setblocking(True)
            assert client.recv(5) == b"still"
    assert [host.owner for host in hosts(runtime)] == [self_identity()]
    assert second.close()


@pytest.mark.clause("O29", "K16")
def test_endpoint_whose_name_another_took_is_not_published_again(endpoint: Endpoint, runtime: str) -> None:
    """A listener that stands at the name by now is left alone."""
    Path(endpoint.path).unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(endpoint.path)
        other.listen()
        Path(endpoint.path).chmod(0o600)
        with pytest.raises(Refused):
            endpoint.republish()


@pytest.mark.clause("native-43", "S6", "mutant-13")
def test_close_leaves_what_another_put_in_its_place(runtime: str) -> None:
    """Only the inode that was bound is unlinked."""
    endpoint = bind_endpoint(runtime, INSTANCE, owner=self_identity())
    Path(endpoint.path).unlink()
    Path(endpoint.path).write_text("other")
    assert endpoint.missing()
    assert endpoint.close() is False
    assert Path(endpoint.path).read_text() == "other"


@pytest.mark.clause("K29")
def test_close_in_a_child_takes_nothing_away(endpoint: Endpoint) -> None:
    """A forked child that closes down leaves its parent's endpoint."""
    child = os.fork()
    if child == 0:
        os._exit(int(endpoint.close()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not endpoint.missing()
    with connect(endpoint.path):
        endpoint.sock.accept()[0].close()


@pytest.mark.clause("native-42", "S4", "native-174")
def test_endpoint_of_a_long_directory_is_in_a_private_short_one(private_home: Path) -> None:
    """A directory too long for a socket keeps owner file and lock; the socket goes to the short one."""
    runtime = str(private_home / ("d" * 90))
    endpoint = bind_endpoint(runtime, INSTANCE, owner=self_identity())
    folder = Path(endpoint.path).parent
    assert endpoint.path == socket_path(runtime, INSTANCE)
    assert len(endpoint.path) <= 100
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert sorted(os.listdir(runtime)) == [f"{INSTANCE}.owner", "tieline-endpoints.lock"]
    with connect(endpoint.path):
        endpoint.sock.accept()[0].close()
    assert endpoint.close()
    assert not folder.exists()


@pytest.mark.clause("O28", "S1", "K18")
@pytest.mark.parametrize("kind", ["open", "link"])
def test_short_directory_that_was_prepared_by_another_is_refused(private_home: Path, kind: str) -> None:
    """A short directory that is not private, or leads elsewhere, is refused and kept."""
    assert os.geteuid() != 0
    runtime = str(private_home / ("d" * 90))
    folder = Path(socket_path(runtime, INSTANCE)).parent
    if kind == "open":
        folder.mkdir()
        folder.chmod(0o777)
    else:
        folder.symlink_to(private_home)
    try:
        with pytest.raises(Refused) as caught:
            bind_endpoint(runtime, INSTANCE, owner=self_identity())
        assert caught.value.code == "UNSAFE_ENDPOINT"
        assert str(folder) in str(caught.value)
        assert INSTANCE + ".sock" not in os.listdir(private_home)
    finally:
        if kind == "open":
            folder.rmdir()
        else:
            folder.unlink()


@pytest.mark.clause("K16", "O25")
def test_many_starts_at_once_give_one_owner(runtime: str) -> None:
    """Of 16 that bind the same name at once exactly one listens; the others are refused."""
    barrier = threading.Barrier(16)
    bound: list[Endpoint] = []
    refused: list[str] = []

    def start() -> None:
        barrier.wait()
        try:
            bound.append(bind_endpoint(runtime, INSTANCE, owner=self_identity()))
        except Refused as error:
            refused.append(error.code)

    starters = [threading.Thread(target=start) for _ in range(16)]
    for starter in starters:
        starter.start()
    for starter in starters:
        starter.join()
    assert len(bound) == 1
    assert refused == ["RESOURCE_BUSY"] * 15
    assert not bound[0].missing()
    bound[0].close()


@pytest.mark.clause("S5", "O31")
def test_endpoint_is_neither_abstract_nor_a_port(endpoint: Endpoint) -> None:
    """The socket is a Unix socket with a path."""
    assert endpoint.sock.family == socket.AF_UNIX
    assert endpoint.sock.getsockname() == endpoint.path


def test_owner_file_says_what_others_need(endpoint: Endpoint, runtime: str) -> None:
    """The owner file is plain JSON with version, instance, owner, host and sockets."""
    members = json.loads(Path(runtime, f"{INSTANCE}.owner").read_text())
    assert members["version"] == 1
    assert members["instance"] == INSTANCE
    assert members["owner"]["pid"] == os.getpid()
    assert members["host"] is None
    assert members["sockets"] == {".sock": endpoint.path}
