"""Which process a text record means: proof of death, and doubt where there is none."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tieline.shell import process, process_start
from tieline.shell.process_start import Life, life_of, pid_domain, process_start_text

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """Give a process that sleeps."""
    started = subprocess.Popen(["/bin/sleep", "60"])
    yield started
    started.kill()
    started.wait()


def field_22(pid: int) -> str:
    """Return the start as the contract's readers take it from the kernel, by another way than ours."""
    text = Path(f"/proc/{pid}/stat").read_text()
    return text[text.rindex(")") + 2 :].split()[19]


def lstart(pid: int, zone: str) -> str:
    """Return what `ps` prints of a process's start, computed as it does."""
    boot = next(
        int(line.split()[1]) for line in Path("/proc/stat").read_text().splitlines() if "btime" in line
    )
    moment = datetime.fromtimestamp(boot + int(field_22(pid)) / os.sysconf("SC_CLK_TCK"), UTC)
    return (moment if zone == "UTC" else moment.astimezone()).strftime("%a %b %e %H:%M:%S %Y")


@pytest.mark.clause("pi-peers-11", "pi-peers-U1")
def test_start_is_field_22_and_process_is_alive(child: subprocess.Popen[bytes]) -> None:
    """What we write is what others of this contract's family compare."""
    for pid in (os.getpid(), child.pid):
        assert process_start_text(pid) == field_22(pid)
        assert life_of(pid, field_22(pid), pid_domain()) is Life.ALIVE


@pytest.mark.clause("pi-peers-U2")
def test_domain_names_machine_and_namespace() -> None:
    """A record of this machine and this container, and of no other, is ours to judge."""
    machine = Path("/etc/machine-id")
    known = machine.read_text().strip() if machine.exists() else "unknown"
    assert pid_domain() == f"linux:{known or 'unknown'}:{os.readlink('/proc/self/ns/pid')}"


@pytest.mark.clause("pi-peers-11")
def test_process_that_ended_is_dead_before_and_after_it_is_reaped(child: subprocess.Popen[bytes]) -> None:
    """A zombie answers signal 0 and no connection."""
    started = field_22(child.pid)
    child.kill()
    deadline = time.monotonic() + 5
    while life_of(child.pid, started, pid_domain()) is not Life.DEAD:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(child.pid, 0)
    child.wait()
    assert life_of(child.pid, started, pid_domain()) is Life.DEAD
    assert process_start_text(child.pid) == ""


@pytest.mark.clause("pi-peers-11", "pi-peers-U1")
def test_number_reused_by_another_process_is_dead(child: subprocess.Popen[bytes]) -> None:
    """A start of our own form that differs proves it, although the number answers."""
    assert life_of(child.pid, str(int(field_22(child.pid)) - 1), pid_domain()) is Life.DEAD
    assert life_of(os.getpid(), "1", pid_domain()) is Life.DEAD


@pytest.mark.clause("pi-peers-U2")
@pytest.mark.parametrize("domain", ["", "darwin", "linux:other:pid:[1]", "win32:host"])
def test_other_domain_is_foreign_whatever_the_number_says(domain: str) -> None:
    """Neither a live number here nor a free one says anything of there."""
    for pid in (os.getpid(), 2**31 - 1):
        assert life_of(pid, "1", domain) is Life.FOREIGN


@pytest.mark.clause("pi-peers-U2")
def test_domain_that_cannot_be_read_judges_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a namespace of our own to compare, nothing is ours."""
    monkeypatch.setattr(process_start, "pid_domain", lambda: "")
    assert life_of(os.getpid(), "1", "") is Life.FOREIGN


@pytest.mark.clause("pi-peers-11")
def test_free_number_is_dead_in_whatever_form_its_start_is() -> None:
    """No process, no doubt."""
    for start in ("1", "", "Thu Jan  1 00:00:00 1970", "boot:1"):
        assert life_of(2**31 - 1, start, pid_domain()) is Life.DEAD


@pytest.mark.clause("pi-peers-U1")
def test_start_in_other_known_forms_is_alive(child: subprocess.Popen[bytes]) -> None:
    """The boot with its ticks, and what `ps` prints, in UTC or where it ran."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    for start in (f"{boot}:{field_22(child.pid)}", lstart(child.pid, "UTC"), lstart(child.pid, "local")):
        assert life_of(child.pid, start, pid_domain()) is Life.ALIVE


@pytest.mark.clause("pi-peers-U1")
@pytest.mark.parametrize(
    "start",
    [
        "",
        "Thu Jan  1 00:00:00 1970",
        "f3d2:1",
        "1767323046000",
        "99999999999999999999999999",
        "-1",
        "1.5",
        "１２",
        "soon",
    ],
)
def test_start_that_cannot_be_compared_is_unproved(start: str) -> None:
    """Whatever another program writes there, a live process is not taken for dead by it.

    Digits beyond the age of this boot count something else than its ticks.
    """
    assert life_of(os.getpid(), start, pid_domain()) is Life.UNPROVED


@pytest.mark.clause("pi-peers-11")
def test_process_of_another_user_is_compared_like_any_other() -> None:
    """Being refused a signal is not death."""
    with pytest.raises(PermissionError):
        os.kill(1, 0)
    assert life_of(1, field_22(1), pid_domain()) is Life.ALIVE


@pytest.mark.clause("pi-peers-11")
def test_process_that_refuses_signals_and_shows_nothing_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where /proc hides other users' processes, the refusal alone says that one is there."""
    seen_of = process.identify
    monkeypatch.setattr(process_start, "identify", lambda pid: seen_of(pid) if pid == os.getpid() else None)
    monkeypatch.setattr(process_start, "probe", lambda _: "unknown")
    for start in ("1", "soon"):
        assert life_of(1, start, pid_domain()) is Life.ALIVE


@pytest.mark.parametrize("pid", [0, -1, 2**31])
def test_number_of_no_process_is_unproved(pid: int) -> None:
    """A number that the system gives to nobody is never signalled."""
    assert life_of(pid, "1", pid_domain()) is Life.UNPROVED


@pytest.mark.clause("pi-peers-U1")
def test_start_on_macos_is_written_and_compared_as_ps_prints_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """There, `lstart` is the form that proves; digits are another one."""
    now = process.ProcessIdentity("boot", 0, os.getpid(), 1_767_323_046, None, "darwin")
    monkeypatch.setattr(process, "PLATFORM", "darwin")
    monkeypatch.setattr(process, "_boot_id", lambda: "boot")
    monkeypatch.setattr(process, "_identify_darwin", lambda _: now)
    text = process_start_text(os.getpid())
    assert text == "Fri Jan 02 03:04:06 2026"
    assert pid_domain() == "darwin"
    assert life_of(os.getpid(), text, "darwin") is Life.ALIVE
    assert life_of(os.getpid(), "Fri Jan  2 03:04:06 2026", "darwin") is Life.ALIVE
    assert life_of(os.getpid(), "Fri Jan  2 03:04:07 2026", "darwin") is Life.DEAD
    assert life_of(os.getpid(), "12345", "darwin") is Life.UNPROVED
