"""The socket of a window: private from its first instant, and checked before it is dialled."""

import os
import socket
from pathlib import Path

import pytest

from tieline.errors import Refused
from tieline.shell.endpoint import bind_window, verify_window


@pytest.mark.clause("pi-peers-9", "S4", "S6")
def test_bind_window_listens_privately_and_takes_only_its_own_name_away(private_home: Path) -> None:
    """0600 in a 0700 directory; a name that leads elsewhere is told, and left alone."""
    path = private_home / "socks" / "tieline-0.sock"
    endpoint = bind_window(str(path))
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert not endpoint.missing()
    with pytest.raises(Refused) as caught:
        bind_window(str(path))
    assert caught.value.code == "UNSAFE_ENDPOINT"
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    path.unlink()
    path.write_text("another's")
    assert endpoint.missing()
    endpoint.close()
    assert path.read_text() == "another's"
    path.unlink()
    again = bind_window(str(path))
    again.close()
    assert not path.exists()


def test_window_whose_directory_went_is_missing_and_closes(private_home: Path) -> None:
    """A cleaner took everything; closing takes nothing more."""
    path = private_home / "socks" / "tieline-0.sock"
    endpoint = bind_window(str(path))
    path.unlink()
    path.parent.rmdir()
    assert endpoint.missing()
    endpoint.close()


def test_bind_window_in_a_broad_directory_is_refused(private_home: Path) -> None:
    """Others could put something in the name's place."""
    (private_home / "socks").mkdir(mode=0o755)
    os.chmod(private_home / "socks", 0o777)
    with pytest.raises(Refused):
        bind_window(str(private_home / "socks" / "tieline-0.sock"))


@pytest.mark.clause("pi-peers-23")
def test_verify_window_takes_a_socket_of_ours_and_nothing_else(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another's mode is its own choice; a link, a file, an odd path or another owner is refused."""
    path = private_home / "w.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        os.chmod(path, 0o755)
        verify_window(str(path))
        (private_home / "link").symlink_to(path)
        (private_home / "file").write_text("")
        (private_home / "shut").mkdir(mode=0o000)
        for wrong, code in (
            (private_home / "link", "UNSAFE_ENDPOINT"),
            (private_home / "file", "UNSAFE_ENDPOINT"),
            (private_home / "shut" / "x", "UNSAFE_ENDPOINT"),
            ("w.sock", "UNSAFE_ENDPOINT"),
            (f"/{'x' * 120}", "UNSAFE_ENDPOINT"),
            ("/a\0b", "UNSAFE_ENDPOINT"),
            (private_home / "none", "PEER_OFFLINE"),
            (private_home / "file" / "x", "PEER_OFFLINE"),
        ):
            with pytest.raises(Refused) as caught:
                verify_window(str(wrong))
            assert caught.value.code == code, wrong
        (private_home / "shut").chmod(0o700)
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(Refused) as caught:
            verify_window(str(path))
        assert caught.value.code == "UNSAFE_ENDPOINT"
