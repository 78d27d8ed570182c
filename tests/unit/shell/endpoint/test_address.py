"""Where an endpoint is, and what a client refuses before it connects."""

import errno
import hashlib
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tieline.errors import Refused, UsageError
from tieline.shell.endpoint import address
from tieline.shell.process import PeerCredentials

INSTANCE = "11111111-1111-4111-8111-111111111111"
NAME_BYTES = len(f"/{INSTANCE}.sock")


@pytest.fixture
def listener(private_home: Path) -> Iterator[tuple[str, socket.socket]]:
    """Give the path of a private listening socket, and the socket."""
    path = f"{private_home}/{INSTANCE}.sock"
    before = os.umask(0o177)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(path)
        os.umask(before)
        sock.listen(1)
        yield path, sock


@pytest.mark.clause("native-42", "S4", "K12", "native-174")
@pytest.mark.parametrize("size", [60, 99, 100, 101, 107, 108, 4000])
@pytest.mark.parametrize("letter", ["d", "é"])
def test_socket_path_is_at_most_100_bytes(size: int, letter: str) -> None:
    """At most 100 UTF-8 bytes stay in the configured directory; one more goes to the short one."""
    room = size - NAME_BYTES - 1
    directory = "/" + (letter * room)[: room // len(letter.encode())]
    directory += "x" * (size - NAME_BYTES - len(directory.encode()))
    path = address.socket_path(directory, INSTANCE)
    assert len(os.fsencode(path)) <= 100
    if size <= 100:
        assert path == f"{directory}/{INSTANCE}.sock"
    else:
        mark = hashlib.sha256(directory.encode()).hexdigest()[:12]
        assert path.endswith(f"/ahp-{os.geteuid()}-{mark}/{INSTANCE}.sock")


@pytest.mark.clause("native-42")
def test_socket_path_with_a_long_temporary_base_is_in_tmp(monkeypatch: pytest.MonkeyPatch) -> None:
    """A temporary base that is too long itself gives way to /tmp."""
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/var/folders/" + "x" * 60)
    path = address.socket_path("/" + "d" * 90, INSTANCE)
    assert path.startswith(f"/tmp/ahp-{os.geteuid()}-")


@pytest.mark.clause("S4")
@pytest.mark.parametrize("instance", ["", "a/b", "..", "é", "x" * 129, "x" * 128])
def test_socket_path_of_no_usable_instance_is_a_usage_error(instance: str) -> None:
    """What is no instance id, or leaves no room even in /tmp, has no path."""
    with pytest.raises(UsageError):
        address.socket_path("/r", instance)


@pytest.mark.clause("native-43", "S1", "K12")
def test_target_private_and_named_after_its_instance_passes(listener: tuple[str, socket.socket]) -> None:
    """A private socket of ours in a private directory may be connected to."""
    address.verify_target(listener[0], INSTANCE)
    with address.connect(listener[0]) as sock:
        assert not sock.getblocking()


@pytest.mark.clause("native-43", "S1", "K12", "K18", "K20", "native-41")
@pytest.mark.parametrize(
    "case",
    [
        "relative",
        "name",
        "suffix",
        "instance",
        "mode",
        "file",
        "link",
        "directory mode",
        "directory link",
        "long",
        "nul",
    ],
)
def test_target_that_is_not_safe_is_refused(
    listener: tuple[str, socket.socket], private_home: Path, case: str
) -> None:
    """Every path, name, owner, mode and type that is not right is `UNSAFE_ENDPOINT`."""
    assert os.geteuid() != 0
    path, instance = Path(listener[0]), INSTANCE
    if case == "relative":
        path = Path(path.name)
    elif case == "name":
        instance = "22222222-1111-4111-8111-111111111111"
    elif case == "suffix":
        path = path.rename(private_home / f"{INSTANCE}.socket")
    elif case == "instance":
        path, instance = path.rename(private_home / "a b.sock"), "a b"
    elif case == "mode":
        path.chmod(0o666)
    elif case == "file":
        path.unlink()
        path.write_text("")
        path.chmod(0o600)
    elif case == "link":
        path.rename(private_home / "real")
        path.symlink_to(private_home / "real")
    elif case == "directory mode":
        private_home.chmod(0o755)
    elif case == "directory link":
        (private_home / "link").symlink_to(private_home)
        path = private_home / "link" / path.name
    text = str(path)
    text = {"long": "/" + "x" * 100 + text, "nul": text.replace("/1", "/\0")}.get(case, text)
    with pytest.raises(Refused) as caught:
        address.verify_target(text, instance)
    assert caught.value.code == "UNSAFE_ENDPOINT"


@pytest.mark.clause("native-210", "K12")
@pytest.mark.parametrize("missing", ["socket", "directory"])
def test_target_that_is_not_there_is_offline(private_home: Path, missing: str) -> None:
    """A missing socket or directory is an ended peer, not an unsafe one."""
    folder = private_home if missing == "socket" else private_home / "none"
    with pytest.raises(Refused) as caught:
        address.verify_target(f"{folder}/{INSTANCE}.sock", INSTANCE)
    assert caught.value.code == "PEER_OFFLINE"


@pytest.mark.clause("mutant-14", "native-44", "K13")
def test_connect_to_a_full_backlog_is_busy_and_not_stale(listener: tuple[str, socket.socket]) -> None:
    """A listener that lives and does not accept is busy; it is never taken for dead."""
    path, _ = listener
    held = [address.connect(path), address.connect(path)]  # a backlog of n admits n + 1
    with pytest.raises(Refused) as caught:
        address.connect(path, wait_ms=10)
    assert (caught.value.code, caught.value.is_retryable) == ("RESOURCE_BUSY", True)
    assert not address.is_refusing(path)
    for sock in held:
        sock.close()


@pytest.mark.clause("native-210")
def test_connect_to_a_closed_listener_is_offline(listener: tuple[str, socket.socket]) -> None:
    """A socket that nobody listens on any more refuses: offline."""
    path, sock = listener
    assert not address.is_refusing(path)
    sock.close()
    assert address.is_refusing(path)
    with pytest.raises(Refused) as caught:
        address.connect(path)
    assert caught.value.code == "PEER_OFFLINE"


@pytest.mark.clause("K7")
@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ECONNREFUSED, "PEER_OFFLINE"),
        (errno.ENOENT, "PEER_OFFLINE"),
        (errno.EAGAIN, "RESOURCE_BUSY"),
        (errno.EMFILE, "RESOURCE_BUSY"),
        (errno.EPERM, "PERMISSION_DENIED"),
        (errno.EACCES, "PERMISSION_DENIED"),
        (errno.ENOTSOCK, "UNSAFE_ENDPOINT"),
        (errno.EPROTOTYPE, "UNSAFE_ENDPOINT"),
        (errno.EIO, "PEER_OFFLINE"),
    ],
)
def test_connect_errno_becomes_its_code(number: int, code: str) -> None:
    """Each errno of a connect says its own thing."""
    assert address.connect_refusal(number).code == code


def test_connect_refused_by_a_sandbox_names_the_next_action() -> None:
    """A sandbox is told as one, with the MCP tool as the way out."""
    assert "sandbox" in address.connect_refusal(errno.EPERM).text
    assert "MCP" in address.connect_refusal(errno.EPERM).text


@pytest.mark.clause("S7", "K18", "native-3.6.19")
def test_connect_to_another_users_listener_is_refused(
    listener: tuple[str, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's word on who listens is taken before a byte is read."""
    other = PeerCredentials(1, os.geteuid() + 1, 1)
    monkeypatch.setattr(address, "peer_credentials", lambda sock: other)
    with pytest.raises(Refused) as caught:
        address.connect(listener[0])
    assert caught.value.code == "UNSAFE_ENDPOINT"
