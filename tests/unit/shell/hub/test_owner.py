"""Which process a broker's record names, and when it is proven to be another one."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tieline.shell.hub import owner
from tieline.shell.hub.owner import Record, is_live, own_record, parse_record

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the second line is Linux's")

SAYING = "from tieline.shell.hub.owner import own_record; import sys; sys.stdout.buffer.write(own_record());"


@pytest.fixture
def other() -> Iterator[tuple["subprocess.Popen[bytes]", Record]]:
    """Another living process, and what it writes of itself."""
    with subprocess.Popen(
        [sys.executable, "-c", SAYING + "sys.stdout.flush(); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        data = process.stdout.readline() + process.stdout.readline()
        record = parse_record(data)
        assert record is not None
        yield process, record
        process.kill()


@pytest.mark.clause("intercom-130")
def test_own_record_has_number_and_life_in_two_lines() -> None:
    """The form of the later revision: its first line alone is what older readers take."""
    data = own_record()
    first, second, rest = data.decode().split("\n")
    assert (first, rest) == (str(os.getpid()), "")
    words = second.split(" ")
    assert words[0] == "linux-v1"
    assert words[1] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert words[2:4] == [os.readlink("/proc/self/ns/pid"), os.readlink("/proc/self/ns/time")]
    stat = Path("/proc/self/stat").read_text()
    assert words[4] == stat[stat.rindex(")") + 2 :].split()[19]


@pytest.mark.clause("intercom-130")
@pytest.mark.parametrize("shown", ["", "NStgid:\t{pid}\t7\n", "NStgid:\t7\n"])
def test_record_in_a_nested_namespace_has_no_second_line(shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There the number that others see is another one."""
    reading = owner._read
    text = f"Name:\tx\n{shown.format(pid=os.getpid())}".encode()
    monkeypatch.setattr(owner, "_read", lambda at, name: text if name == "status" else reading(at, name))
    assert own_record() == f"{os.getpid()}\n".encode()


def test_record_on_another_system_has_no_second_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not known is not written."""
    monkeypatch.setattr(owner.process, "PLATFORM", "darwin")
    assert own_record() == f"{os.getpid()}\n".encode()


@pytest.mark.parametrize("data", [b"", b"x\n", b"-1\n", b"0\n", b"99999999999\n", b"\xff\n", "١\n".encode()])
def test_record_without_a_number_says_nothing(data: bytes) -> None:
    """It names no process."""
    assert parse_record(data) is None


@pytest.mark.clause("intercom-130")
@pytest.mark.parametrize("second", ["", "linux-v2 a pid:[1] time:[1] 1\n", "linux-v1 a pid:[1] time:[1]\n"])
def test_record_with_another_second_line_has_no_life(second: str) -> None:
    """The number still counts; of an old broker it comes without a line end."""
    assert parse_record(f"17\n{second}".encode()) == Record(17, None)
    assert parse_record(b"17") == Record(17, None)


@pytest.mark.clause("intercom-125", "intercom-130", "I36")
def test_living_process_is_live_with_and_without_its_life(
    other: tuple["subprocess.Popen[bytes]", Record],
) -> None:
    """A number alone keeps blocking."""
    _, record = other
    assert is_live(record)
    assert is_live(record._replace(life=None))


@pytest.mark.clause("intercom-130", "I36")
def test_reused_number_is_proven_by_boot_namespace_or_start(
    other: tuple["subprocess.Popen[bytes]", Record],
) -> None:
    """Each difference alone proves it; another time namespace makes the start incomparable."""
    _, record = other
    life = record.life
    assert life is not None
    for changed in (
        life._replace(boot="0"),
        life._replace(pid_namespace="pid:[1]"),
        life._replace(start_ticks=life.start_ticks + 1),
    ):
        assert not is_live(record._replace(life=changed))
    assert is_live(record._replace(life=life._replace(time_namespace="time:[1]")))
    shifted = life._replace(time_namespace="time:[1]", start_ticks=1)
    assert is_live(record._replace(life=shifted))


@pytest.mark.clause("intercom-130")
def test_number_of_a_thread_is_proven_to_be_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of some process has the number now; the group it belongs to says so."""
    parent = os.getppid()
    record = parse_record(own_record().replace(str(os.getpid()).encode(), str(parent).encode(), 1))
    assert record is not None
    reading = owner._read
    monkeypatch.setattr(
        owner, "_read", lambda at, name: b"Tgid:\t1\n" if name == "status" else reading(at, name)
    )
    assert not is_live(record)


@pytest.mark.clause("intercom-125")
def test_ended_process_is_gone_also_before_its_parent_collected_it(
    other: tuple["subprocess.Popen[bytes]", Record],
) -> None:
    """A number that only waits to be collected runs nothing."""
    process, record = other
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    os.kill(process.pid, 0)  # the number is still taken
    assert not is_live(record)
    assert not is_live(record._replace(life=None))
    process.wait()
    assert not is_live(record)


@pytest.mark.clause("intercom-125", "I36")
def test_process_that_may_not_be_signalled_or_read_is_live(monkeypatch: pytest.MonkeyPatch) -> None:
    """Being refused proves nothing; nor does a process of another user whose folder cannot be read."""

    def refused(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refused)
    assert is_live(Record(1, None))
    monkeypatch.setattr(owner, "_differs", lambda record, pinned: int("x"))
    assert is_live(Record(1, None))
    monkeypatch.setattr(os, "open", refused)
    assert is_live(Record(1, None))


def test_record_of_our_own_number_is_somebody_elses_past() -> None:
    """We have not written one yet."""
    record = parse_record(own_record())
    assert record is not None
    assert not is_live(record)
