"""Starting a broker where none answers: the shared lock, its stale rules, and one starter at a time."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tieline.errors import Refused
from tieline.shell.hub import spawning
from tieline.shell.hub.listening import claim
from tieline.shell.hub.place import Place, place_of
from tieline.shell.hub.spawning import SPAWN_LOCK_NAME, start_if_missing

BROKER = """
import os, sys
from tieline.shell.hub.listening import claim
from tieline.shell.hub.place import place_of
held = claim(place_of(os.environ))
if held is None:
    sys.exit(0)
endpoint = held.listen()
open(os.environ["STARTS"], "a").write("x")
while not os.path.exists(os.environ["OVER"]):
    import time; time.sleep(0.02)
endpoint.close()
"""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Ground:
    """A place, a small broker, and what it leaves to be counted."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environment = {
            **os.environ,
            "PI_INTERCOM_RUNTIME_DIR": str(home / "i"),
            "STARTS": str(home / "starts"),
            "OVER": str(home / "over"),
        }
        self.place: Place = place_of(self.environment)
        self.lock = Path(self.place.records, SPAWN_LOCK_NAME)

    def start(self, *words: str) -> bool:
        command = words or (sys.executable, "-c", BROKER)
        return start_if_missing(self.place, command, self.environment, now_ms)

    @property
    def start_count(self) -> int:
        found = self.home / "starts"
        return len(found.read_text()) if found.exists() else 0

    def locked(self, text: str) -> None:
        os.makedirs(self.place.records, mode=0o700, exist_ok=True)
        self.lock.write_text(text)
        self.lock.chmod(0o644)


@pytest.fixture
def ground(private_home: Path) -> Iterator[Ground]:
    """A place whose broker, if any, ends with the test."""
    made = Ground(private_home)
    yield made
    (private_home / "over").write_text("")
    for thread in threading.enumerate():
        if thread.name == "broker":
            thread.join(10)


@pytest.fixture
def living() -> Iterator[int]:
    """The number of another living process."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


@pytest.mark.clause("intercom-126")
def test_broker_is_started_once_and_the_lock_is_given_back(ground: Ground) -> None:
    """The second call finds it; what was started is a session of its own."""
    assert ground.start()
    assert not ground.lock.exists()
    assert not ground.start()
    assert ground.start_count == 1
    pid = int(Path(ground.place.records, "broker.pid").read_text().split("\n")[0])
    assert os.getsid(pid) == pid


@pytest.mark.clause("intercom-126", "K16")
def test_simultaneous_starters_get_one_broker_and_none_fails(ground: Ground) -> None:
    """Eight threads, one lock file: one starts, all return."""
    results: list[bool] = []
    threads = [threading.Thread(target=lambda: results.append(ground.start())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [False] * 7 + [True]
    assert ground.start_count == 1


@pytest.mark.clause("intercom-126")
@pytest.mark.parametrize("text", ["2147483647\n{now}\n", "{own}\n{old}\n", "{own}\n{future}\n", "", "x\ny\n"])
def test_stale_spawn_lock_is_taken_away(ground: Ground, text: str) -> None:
    """Its maker is gone, it is ten seconds old, of another time, or cannot be read."""
    now = now_ms()
    ground.locked(text.format(own=os.getpid(), now=now, old=now - 10_001, future=now + 60_000))
    os.utime(ground.lock, (now / 1000 - 1, now / 1000 - 1))
    assert ground.start()
    assert not ground.lock.exists()


@pytest.mark.clause("intercom-126")
def test_fresh_lock_of_a_live_starter_is_waited_for_and_left(
    ground: Ground, living: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its broker is found; where none comes the call fails, and may be repeated."""
    monkeypatch.setattr(spawning, "WAIT_MS", 300)
    ground.locked(f"{living}\n{now_ms()}\n")
    with pytest.raises(Refused) as caught:
        ground.start()
    assert (caught.value.code, caught.value.is_retryable) == ("RESOURCE_BUSY", True)
    assert ground.lock.exists()
    held = claim(ground.place)
    assert held is not None
    endpoint = held.listen()
    assert not ground.start()
    assert ground.lock.exists()
    endpoint.close()
    held.release()
    assert ground.start_count == 0


def test_lock_of_a_process_that_may_not_be_signalled_is_not_stale(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Being refused is no proof of its end."""
    monkeypatch.setattr(spawning, "WAIT_MS", 200)
    ground.locked(f"1\n{now_ms()}\n")

    def refused(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refused)
    with pytest.raises(Refused):
        ground.start()


def test_lock_that_is_given_back_without_a_broker_is_taken_next(ground: Ground, living: int) -> None:
    """A starter that failed makes room for the next one."""
    ground.locked(f"{living}\n{now_ms()}\n")
    timer = threading.Timer(0.2, ground.lock.unlink)
    timer.start()
    assert ground.start()
    timer.join()


@pytest.mark.clause("intercom-125")
def test_live_process_with_a_dead_socket_is_not_started_beside(ground: Ground, living: int) -> None:
    """It fails loudly, gives the lock back, and ends nothing."""
    os.makedirs(ground.place.records, mode=0o700)
    Path(ground.place.records, "broker.pid").write_text(str(living))
    with pytest.raises(Refused, match="no second broker is started"):
        ground.start()
    assert not ground.lock.exists()
    assert ground.start_count == 0
    os.kill(living, 0)


def test_broker_that_ends_at_once_is_told_with_what_it_said(ground: Ground) -> None:
    """Its code and its first words on stderr; silence is told, too."""
    with pytest.raises(Refused, match="code 3: no luck") as caught:
        ground.start(sys.executable, "-c", "import sys; sys.stderr.write('no luck\\nmore'); sys.exit(3)")
    assert caught.value.code == "PEER_OFFLINE"
    with pytest.raises(Refused, match="it said nothing"):
        ground.start(sys.executable, "-c", "")
    assert not ground.lock.exists()


def test_broker_that_does_not_answer_in_time_is_told_and_left(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may still come; nothing is ended."""
    monkeypatch.setattr(spawning, "START_MS", 200)
    waiting = "import os, time\nwhile not os.path.exists(os.environ['OVER']): time.sleep(0.02)"
    with pytest.raises(Refused) as caught:
        ground.start(sys.executable, "-c", waiting)
    assert caught.value.is_retryable
    assert [thread.name for thread in threading.enumerate()].count("broker") == 1


@pytest.mark.clause("intercom-126")
def test_broker_that_came_while_the_lock_was_taken_is_enough(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder looks again before it starts one."""
    answers = iter([False, True])
    monkeypatch.setattr(spawning, "is_answering", lambda place: next(answers))
    assert not ground.start()
    assert not ground.lock.exists()
