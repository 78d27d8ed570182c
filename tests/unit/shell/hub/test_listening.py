"""The right to be the one broker of a place: who gets it, who does not, and what is taken away."""

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tieline.errors import Refused
from tieline.shell.hub.listening import LOCK_NAME, HubEndpoint, claim
from tieline.shell.hub.owner import own_record
from tieline.shell.hub.place import Paths, Place, place_of
from tieline.shell.hub.reaching import is_answering


@pytest.fixture
def place(private_home: Path) -> Place:
    """A place in a folder of the test."""
    return place_of({"PI_INTERCOM_RUNTIME_DIR": str(private_home / "i")})


@pytest.fixture
def living() -> Iterator[int]:
    """The number of another living process."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


def left_behind(place: Place, record: bytes | None) -> int:
    """Leave a socket that refuses, and a record; return the socket's inode."""
    os.makedirs(place.folder, mode=0o700, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(place.socket)
    if record is not None:
        Path(place.records, "broker.pid").write_bytes(record)
    return os.stat(place.socket).st_ino


@pytest.mark.clause("intercom-123", "S4")
def test_claimed_place_answers_privately_and_leaves_only_its_lock(place: Place) -> None:
    """Socket and record 0600; both go at the end, and the next one comes at once."""
    held = claim(place)
    assert held is not None
    endpoint = held.listen()
    assert is_answering(place)
    assert not endpoint.is_missing()
    os.link(place.socket, f"{place.folder}/kept")
    record = Path(place.records, "broker.pid")
    assert record.read_bytes() == own_record()
    assert {path.stat().st_mode & 0o777 for path in (record, Path(place.socket))} == {0o600}
    endpoint.close()
    os.rename(f"{place.folder}/kept", place.socket)  # the same inode, which we gave up
    endpoint.close()
    assert os.path.exists(place.socket)
    os.unlink(place.socket)
    held.release()
    assert os.listdir(place.folder) == [LOCK_NAME]
    again = claim(place)
    assert again is not None
    again.release()


@pytest.mark.clause("intercom-126", "K16")
def test_second_claim_beside_a_live_broker_takes_nothing(place: Place) -> None:
    """It learns that one answers; socket and record are the first one's still."""
    held = claim(place)
    assert held is not None
    endpoint = held.listen()
    inode = os.stat(place.socket).st_ino
    assert claim(place) is None
    assert os.stat(place.socket).st_ino == inode
    endpoint.close()
    held.release()


@pytest.mark.clause("intercom-126")
def test_claim_beside_a_broker_of_another_maker_takes_nothing(place: Place, living: int) -> None:
    """It holds no lock of ours; that it answers is enough, whatever its record says."""
    os.makedirs(place.folder, mode=0o700)
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(place.socket)
        theirs.listen()
        for record in (None, b"", f"{living}".encode()):
            if record is not None:
                Path(place.records, "broker.pid").write_bytes(record)
            assert claim(place) is None
        assert is_answering(place)


@pytest.mark.clause("intercom-126", "K16")
def test_claim_waits_for_one_that_is_about_to_answer_and_no_longer(place: Place) -> None:
    """A starter that lost finds the winner listening; one that never listens is told as busy."""
    held = claim(place)
    assert held is not None
    with pytest.raises(Refused) as caught:
        claim(place, wait_ms=50)
    assert caught.value.code == "RESOURCE_BUSY"
    endpoints: list[HubEndpoint] = []
    timer = threading.Timer(0.1, lambda: endpoints.append(held.listen()))
    timer.start()
    assert claim(place) is None
    timer.join()
    endpoints[0].close()
    held.release()


@pytest.mark.clause("intercom-125")
def test_live_process_with_a_dead_socket_stops_the_start(place: Place, living: int) -> None:
    """Nothing is ended and nothing removed; the text names the process."""
    inode = left_behind(place, f"{living}\n".encode())
    with pytest.raises(Refused, match=f"process {living}") as caught:
        claim(place)
    assert caught.value.code == "RESOURCE_BUSY"
    assert str(living) in caught.value.action
    assert os.stat(place.socket).st_ino == inode
    assert Path(place.records, "broker.pid").exists()
    os.kill(living, 0)


@pytest.mark.clause("intercom-130")
@pytest.mark.parametrize("record", [None, b"", b"garbage", b"2147483647", b"%d\n"])
def test_dead_brokers_socket_is_replaced(place: Place, record: bytes | None) -> None:
    """Nobody has its number, or it has none; or this very process has the number now."""
    inode = left_behind(place, record and record.replace(b"%d", str(os.getpid()).encode()))
    with socket.socket(socket.AF_UNIX) as keeping_the_inode:
        keeping_the_inode.bind(f"{place.folder}/other")
    os.link(place.socket, f"{place.folder}/kept")
    held = claim(place)
    assert held is not None
    endpoint = held.listen()
    assert os.stat(place.socket).st_ino != inode
    assert is_answering(place)
    endpoint.close()
    held.release()


@pytest.mark.clause("intercom-123")
def test_what_is_no_socket_of_ours_is_refused_and_left(place: Place) -> None:
    """A file, and a socket that somebody began to listen at after the claim."""
    held = claim(place)
    assert held is not None
    Path(place.socket).write_text("x")
    with pytest.raises(Refused) as caught:
        held.listen()
    assert caught.value.code == "UNSAFE_ENDPOINT"
    assert Path(place.socket).read_text() == "x"
    os.unlink(place.socket)
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(place.socket)
        theirs.listen()
        with pytest.raises(Refused) as caught:
            held.listen()
        assert caught.value.code == "RESOURCE_BUSY"
        assert is_answering(place)
    held.release()


def test_claim_of_a_directory_that_went_does_not_listen(place: Place) -> None:
    """A directory that another made since is another's place."""
    held = claim(place)
    assert held is not None
    shutil.rmtree(place.folder)
    os.mkdir(place.folder, 0o700)
    with pytest.raises(Refused) as caught:
        held.listen()
    assert caught.value.code == "UNSAFE_ENDPOINT"
    assert os.listdir(place.folder) == []
    held.release()


def test_listening_that_fails_at_its_record_leaves_no_socket(place: Place) -> None:
    """A broker that cannot say who it is does not answer."""
    held = claim(place)
    assert held is not None
    Path(place.records, "broker.pid").mkdir()
    with pytest.raises(Refused):
        held.listen()
    assert not os.path.exists(place.socket)
    held.release()


@pytest.mark.clause("S6")
def test_ending_broker_takes_nothing_that_another_put_in_its_place(place: Place) -> None:
    """A cleaner, or a broker of another maker, took the names meanwhile."""
    held = claim(place)
    assert held is not None
    endpoint = held.listen()
    os.rename(place.socket, f"{place.folder}/was")
    assert endpoint.is_missing()
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(place.socket)
        theirs.listen()
        assert endpoint.is_missing()
        Path(place.records, "new").write_bytes(b"1\n")
        os.rename(f"{place.records}/new", f"{place.records}/broker.pid")
        endpoint.close()
        assert is_answering(place)
        assert Path(place.records, "broker.pid").read_bytes() == b"1\n"
    held.release()


@pytest.mark.clause("intercom-122")
def test_agents_place_has_its_record_beside_the_settings(private_home: Path, living: int) -> None:
    """Socket in the temporary directory, record in the agent directory; both go."""
    environment = {"TMPDIR": str(private_home), "PI_CODING_AGENT_DIR": str(private_home / "a")}
    place = place_of(environment, Paths.AGENT)
    held = claim(place)
    assert held is not None
    endpoint = held.listen()
    assert Path(place.records, "broker.pid").read_bytes() == own_record()
    endpoint.close()
    assert not Path(place.records, "broker.pid").exists()
    Path(place.records).chmod(0o777)
    with pytest.raises(Refused):
        held.listen()
    Path(place.records).chmod(0o700)
    (Path(place.records) / "broker.pid").mkdir()
    with pytest.raises(Refused):
        held.listen()
    held.release()
    (Path(place.records) / "broker.pid").rmdir()
    Path(place.records, "broker.pid").write_text(str(living))
    with pytest.raises(Refused, match=str(living)):
        claim(place)
