"""The way to a broker: only to a socket of this user, and who answers there."""

import os
import socket
from pathlib import Path

import pytest

from tieline.errors import Refused
from tieline.shell.hub.place import Place
from tieline.shell.hub.reaching import connect_hub, is_answering


@pytest.fixture
def place(private_home: Path) -> Place:
    """A place in a folder of the test, where nothing is yet."""
    folder = private_home / "i"
    folder.mkdir(mode=0o700)
    return Place(f"{folder}/broker.sock", str(folder))


def test_nobody_is_told_as_offline(place: Place) -> None:
    """No name, and a name that refuses, are both nobody."""
    assert not is_answering(place)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(place.socket)
    assert not is_answering(place)
    with pytest.raises(Refused) as caught:
        connect_hub(place)
    assert caught.value.code == "PEER_OFFLINE"


def test_full_backlog_is_an_answer(place: Place) -> None:
    """A stopped broker lives: it is busy, never replaced."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place.socket)
        listener.listen(0)
        waiting: list[socket.socket] = []

        def crowd() -> None:
            while True:
                waiting.append(connect_hub(place, wait_ms=0))

        with pytest.raises(Refused) as caught:
            crowd()
        assert caught.value.code == "RESOURCE_BUSY"
        assert is_answering(place)
        for sock in waiting:
            sock.close()


@pytest.mark.clause("intercom-124", "S4")
def test_link_file_and_foreign_socket_are_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a link to a socket that would answer; a second name of it works."""
    real = f"{place.folder}/real.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(real)
        listener.listen()
        os.symlink(real, place.socket)
        with pytest.raises(Refused) as caught:
            is_answering(place)
        assert caught.value.code == "UNSAFE_ENDPOINT"
        os.unlink(place.socket)
        os.link(real, place.socket)
        assert is_answering(place)
        ours = os.geteuid()
        with monkeypatch.context() as patch:
            patch.setattr(os, "geteuid", lambda: ours + 1)
            with pytest.raises(Refused, match="not a socket of yours"):
                connect_hub(place)
    os.unlink(place.socket)
    Path(place.socket).write_text("")
    with pytest.raises(Refused, match="not a socket of yours"):
        connect_hub(place)
    os.chmod(place.folder, 0o000)
    with pytest.raises(Refused) as caught:
        is_answering(place)
    assert caught.value.code == "PERMISSION_DENIED"
    os.chmod(place.folder, 0o700)
