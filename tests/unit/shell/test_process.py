"""Which process is which, and three answers to whether it lives."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest

from tieline.errors import Refused
from tieline.shell import process
from tieline.shell.process import ProcessIdentity, identify, probe, self_identity

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """Give a process that sleeps."""
    started = subprocess.Popen(["/bin/sleep", "60"])
    yield started
    started.kill()
    started.wait()


def identity_of(started: "subprocess.Popen[bytes]") -> ProcessIdentity:
    """Return the identity of a process that is known to live."""
    identity = identify(started.pid)
    assert identity is not None
    return identity


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait at most 5 s for something that another process brings about."""
    deadline = time.monotonic() + 5
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def changed(identity: ProcessIdentity, **changes: object) -> ProcessIdentity:
    """Return the identity with other parts."""
    return msgspec.structs.replace(identity, **changes)


@pytest.mark.clause("I36")
def test_identity_of_self_is_alive_and_stable() -> None:
    """This process is alive to itself, under one identity that survives JSON."""
    identity = self_identity()
    assert identity == self_identity()
    assert identity.pid == os.getpid()
    assert probe(identity) == "alive"
    assert msgspec.json.decode(msgspec.json.encode(identity), type=ProcessIdentity) == identity


@pytest.mark.clause("I36", "O34")
def test_process_killed_is_gone_before_and_after_it_is_reaped(child: subprocess.Popen[bytes]) -> None:
    """A zombie has ended, although its number still answers signal 0."""
    identity = identity_of(child)
    assert probe(identity) == "alive"
    child.kill()
    wait_until(lambda: probe(identity) == "gone")
    os.kill(child.pid, 0)
    assert identify(child.pid) is None
    child.wait()
    assert probe(identity) == "gone"


@pytest.mark.clause("K13", "I36")
def test_process_stopped_is_alive(child: subprocess.Popen[bytes]) -> None:
    """A stopped process is alive."""
    identity = identity_of(child)
    os.kill(child.pid, signal.SIGSTOP)
    assert probe(identity) == "alive"
    os.kill(child.pid, signal.SIGCONT)


@linux
def test_process_whose_first_thread_ended_is_alive() -> None:
    """A process whose leader thread left while another runs is shown as a zombie and lives."""
    code = (
        "import ctypes, threading, time\n"
        "def run():\n    print('x', flush=True)\n    time.sleep(60)\n"
        "threading.Thread(target=run).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert started.stdout is not None
        started.stdout.read(1)
        wait_until(lambda: (status := process._read_status(started.pid)) is not None and status.state == "Z")
        assert probe(identity_of(started)) == "alive"
    finally:
        started.kill()
        started.wait()
        started.stdout.close()


@pytest.mark.clause("K3", "I36", "O36")
def test_identity_of_another_boot_is_gone() -> None:
    """After a reboot nothing of the boot before lives, whatever has its number now."""
    assert probe(changed(self_identity(), boot_id="11111111-0000-4000-8000-000000000000")) == "gone"


@pytest.mark.clause("K11", "O36", "mutant-16", "native-14")
def test_identity_with_equal_ticks_and_another_pidfd_is_gone() -> None:
    """A reused number with an equal start time is another process: the kernel's own number differs."""
    identity = self_identity()
    if identity.pidfd_inode is None:
        pytest.skip("this kernel does not number pidfds")
    assert probe(changed(identity, pidfd_inode=identity.pidfd_inode - 1)) == "gone"
    assert probe(changed(identity, start_ticks=1)) == "alive"


@pytest.mark.clause("K11", "O36", "mutant-16")
def test_identity_with_other_ticks_and_no_pidfd_is_gone() -> None:
    """Where the kernel's number was not recorded, another start time proves another process."""
    assert probe(changed(self_identity(), pidfd_inode=None, start_ticks=1)) == "gone"


UNKNOWN: list[dict[str, object]] = [
    {"boot_id": ""},
    {"pid_namespace": 0},
    {"pid_namespace": 1},
    {"platform": "other"},
    {"pid": 0},
    {"pid": -1},
    {"pid": 2**31},
    {"pidfd_inode": None, "time_namespace": 1},
    {"pidfd_inode": None, "time_namespace": 1, "start_ticks": 1},
]


@linux
@pytest.mark.clause("I36", "O34", "K11", "mutant-16")
@pytest.mark.parametrize("changes", UNKNOWN, ids=range(len(UNKNOWN)))
def test_identity_with_an_unknown_part_is_unknown(changes: dict[str, object]) -> None:
    """A part that cannot be compared leaves life and death open."""
    assert probe(changed(self_identity(), **changes)) == "unknown"


@linux
@pytest.mark.clause("O36", "I36")
def test_identity_recorded_without_pidfd_on_a_kernel_with_them_is_unknown() -> None:
    """Equal number and start time alone are neither the holder nor its death."""
    if self_identity().pidfd_inode is None:
        pytest.skip("this kernel does not number pidfds")
    assert probe(changed(self_identity(), pidfd_inode=None)) == "unknown"


@linux
@pytest.mark.clause("I36")
def test_identity_without_numbered_pidfds_on_both_sides_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """On an older kernel number, boot, namespace and start time are what there is."""
    monkeypatch.setattr(process, "_has_numbered_pidfds", lambda: False)
    identity = self_identity()
    assert identity.pidfd_inode is None
    assert probe(identity) == "alive"


@linux
@pytest.mark.clause("I36")
@pytest.mark.parametrize("hidden", ["_is_proc_ours", "_read_status"])
def test_process_that_proc_does_not_show_is_unknown_while_it_exists(
    monkeypatch: pytest.MonkeyPatch, hidden: str, child: subprocess.Popen[bytes]
) -> None:
    """A /proc that is foreign or hides others proves nothing about a number that exists."""
    identity = identity_of(child)
    monkeypatch.setattr(process, hidden, lambda *arguments: None)
    assert probe(identity) == "unknown"
    assert identify(child.pid) is None


@linux
def test_boot_that_cannot_be_read_leaves_all_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without our own boot id nothing is proven gone."""
    identity = self_identity()
    monkeypatch.setattr(process, "_boot_id", lambda: "")
    assert probe(identity) == "unknown"


@pytest.mark.parametrize("pid", [0, -1, 2**31, 2**31 - 1])
def test_identify_of_no_process_is_none(pid: int) -> None:
    """A number that no process can have, or none has, has no identity."""
    assert identify(pid) is None


@linux
def test_identity_of_a_process_with_a_hostile_name_is_read() -> None:
    """A process that calls itself `) Z 0 (` is still read right."""
    code = (
        "import time; open('/proc/self/comm', 'w').write(') Z 0 ('); print('x', flush=True); time.sleep(60)"
    )
    started = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert started.stdout is not None
        started.stdout.read(1)
        status = process._read_status(started.pid)
        assert status is not None
        assert status.parent == os.getpid()
        assert not status.is_ended
    finally:
        started.kill()
        started.wait()
        started.stdout.close()


def test_ancestors_begin_with_the_parent_and_end() -> None:
    """The chain starts at the nearest and is bounded."""
    code = (
        "import os\nfrom tieline.shell.process import ancestors\n"
        "print(*[one.pid for one in ancestors(os.getpid())])"
    )
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, env={"PYTHONPATH": path}, text=True
    )
    found = [int(word) for word in done.stdout.split()]
    assert found[0] == os.getpid()
    assert found[1:] == [one.pid for one in process.ancestors(os.getpid())]
    assert len(found) <= 64


def test_ancestors_in_a_circle_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain that a race bent into a circle still ends."""
    monkeypatch.setattr(process, "_parent_linux", lambda pid: os.getpid())
    monkeypatch.setattr(process, "_parent_darwin", lambda pid: os.getpid())
    assert len(process.ancestors(os.getpid())) == process.ANCESTORS_MAX


@pytest.mark.clause("S7")
def test_credentials_of_both_ends_are_the_kernels() -> None:
    """Either end is told the other's process and user."""
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        found = process.peer_credentials(ours)
        assert (found.pid, found.uid, found.gid) == (os.getpid(), os.geteuid(), os.getegid())
        assert process.peer_identity(ours) == self_identity()


@linux
@pytest.mark.clause("S7", "K11")
def test_identity_of_a_dead_far_end_is_none(private_home: object) -> None:
    """A far end that has ended has no identity, although the connection is still there."""
    listener = socket.socket(socket.AF_UNIX)
    path = f"{private_home}/s"
    listener.bind(path)
    listener.listen()
    code = f"import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect({path!r})\n"
    subprocess.run([sys.executable, "-c", code], check=True)
    accepted, _ = listener.accept()
    with listener, accepted:
        assert process.peer_credentials(accepted).uid == os.geteuid()
        assert process.peer_identity(accepted) is None


@linux
@pytest.mark.clause("S14")
def test_process_made_undumpable_hides_its_memory_and_shows_its_identity() -> None:
    """After the call others of this user read neither environment nor memory, and still probe it."""
    assert os.geteuid() != 0
    code = (
        "import time\nfrom tieline.shell.process import make_undumpable, self_identity\nimport msgspec\n"
        "assert make_undumpable()\n"
        "print(msgspec.json.encode(self_identity()).decode(), flush=True)\ntime.sleep(60)\n"
    )
    path = os.pathsep.join(entry for entry in sys.path if entry)
    started = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env={"PYTHONPATH": path, "SECRET": "x"}
    )
    try:
        assert started.stdout is not None
        identity = msgspec.json.decode(started.stdout.readline(), type=ProcessIdentity)
        for name in ("environ", "mem", "maps"):
            with pytest.raises(PermissionError), open(f"/proc/{started.pid}/{name}", "rb") as stream:
                stream.read(1)
        assert probe(identity) == "alive"
        assert identify(started.pid) == identity
    finally:
        started.kill()
        started.wait()
        started.stdout.close()


@pytest.mark.clause("native-46", "native-217")
@pytest.mark.parametrize(("platform", "is_supported"), [("linux", True), ("darwin", True), ("win32", False)])
def test_platform_without_private_endpoints_is_refused(
    monkeypatch: pytest.MonkeyPatch, platform: str, is_supported: bool
) -> None:
    """Linux and macOS pass; another system is refused by its name."""
    monkeypatch.setattr(process, "PLATFORM", platform)
    if is_supported:
        process.require_supported_platform()
        return
    with pytest.raises(Refused, match=platform) as caught:
        process.require_supported_platform()
    assert caught.value.code == "UNSUPPORTED_PLATFORM"


def test_identity_on_macos_is_read_from_ps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `ps` prints there becomes an identity; a zombie and no process become none."""
    monkeypatch.setattr(process, "PLATFORM", "darwin")
    monkeypatch.setattr(process, "_boot_id", lambda: "boot")
    lines = {"5": "S    Fri Jan  2 03:04:05 2026", "6": "Z    Fri Jan  2 03:04:05 2026", "7": ""}
    monkeypatch.setattr(process, "_run", lambda *command: lines[command[-1]])
    identity = identify(5)
    assert identity == ProcessIdentity("boot", 0, 5, 1_767_323_045, None, "darwin")
    assert probe(identity) == "alive"
    assert probe(changed(identity, start_ticks=1)) == "gone"
    assert identify(6) is None
    assert identify(7) is None
