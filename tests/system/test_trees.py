"""Process trees of every shape, with every kind of death around them: held to the end, freed at the end.

The real end of a tree is known to the test alone: its last process wrote its number before it slept,
so that it ends no earlier than the sleep says, and its end is seen through a descriptor of the process.
"""

import os
import random
import select
import shlex
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.faults.launches import Launched, wait_until
from tieline.shell.process import probe
from tieline.shell.tree import LaunchEvidence, LaunchProbe, probe_launch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process trees are proven on Linux")

IS_LONG = os.environ.get("TIELINE_TEST_PROFILE") == "long"
TREES = int(os.environ.get("TIELINE_TEST_TREES", "200" if IS_LONG else "60"))
AT_ONCE = 6
FREED_S_MAX = 2.0
CLOCK_S = 0.02
"""A file's time stamp is read from a clock that steps by up to 10 ms."""

DAEMON = (
    "import os, sys\n"
    "if os.fork(): os._exit(0)\n"
    "os.setsid()\n"
    "if os.fork(): os._exit(0)\n"
    "os.closerange(0, 256)\n"
    "os.chdir('/')\n"
    "os.execv('/bin/sh', ['sh', '-c', sys.argv[1]])\n"
)

CLOSED_LEAF = (
    "import ctypes, os, re, sys, time\n"
    "ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n"
    "mark, life = re.search(r'mv .* (.*); exec sleep (.*)', sys.argv[1]).groups()\n"
    "with open(mark + '.new', 'w') as file: file.write(str(os.getpid()))\n"
    "os.rename(mark + '.new', mark)\n"
    "time.sleep(float(life))\n"
)
CLOSED = (
    "import os, sys\n"
    "if os.fork(): os._exit(0)\n"
    "os.setsid()\n"
    "if os.fork(): os._exit(0)\n"
    f"os.execve(sys.executable, ['python', '-S', '-c', {CLOSED_LEAF!r}, sys.argv[1]], {{}})\n"
)

# How the last process of the tree comes to be, with LEAF for a shell script that becomes it.
SHAPES = {
    "plain": "exec sh -c LEAF",
    "leader-first": "sh -c LEAF & exit 0",
    "double-fork": "(sh -c LEAF &) & wait; exit 0",
    "setsid": "setsid sh -c LEAF & exit 0",
    "setsid-double-fork": "setsid sh -c '(sh -c \"$0\" &)' LEAF; exit 0",
    "other-program": (
        f"exec {sys.executable} -S -c 'import os,sys; os.execv(\"/bin/sh\", sys.argv[1:])' sh -c LEAF"
    ),
    "daemon": f"exec {sys.executable} -S -c {shlex.quote(DAEMON)} LEAF",
    # The last process has a child that ends before it, and never waits for it.
    "unreaped": "sh -c 'sleep 0.1 & exec sh -c \"$0\"' LEAF & exit 0",
    "own-group": "set -m; sh -c LEAF & exit 0",
    # Without an environment, outside of the session, and closed to everybody.
    "closed": f"exec {sys.executable} -S -c {shlex.quote(CLOSED)} LEAF",
}
# Another program of this user that shows nothing of itself, as one that holds keys does.
STRANGER = "import ctypes, sys\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\nprint(flush=True)\nsys.stdin.read()\n"

DEATHS = ("nobody", "front end", "agent", "supervisor", "supervisor and front end")


AGENT = (
    "import sys; from pathlib import Path; from tests.faults.launches import Launched\n"
    "launched = Launched(Path(sys.argv[1]), ['sleep', '1.5']); launched.front.wait()"
)


class Tree(NamedTuple):
    """One tree to be grown."""

    shape: str
    death: str
    life_s: float
    death_after_s: float


class Seen(NamedTuple):
    """What the test saw of one tree.

    Attributes:
        probes: Each look of another process, with the moment after it.
        ends_after: The tree's last process cannot have ended earlier.
        ended_by: It was seen to have ended.
        freed_at: The ledger or, with the supervisor dead, a probe said so.
    """

    probes: list[tuple[float, LaunchProbe]]
    ends_after: float
    ended_by: float
    freed_at: float


def trees(count: int) -> list[Tree]:
    """Return trees that cover every pair of shape and death, then go on by a fixed seed."""
    chance = random.Random(20_261)
    pairs = [(shape, death) for death in DEATHS for shape in SHAPES]
    chosen = pairs + [chance.choice(pairs) for _ in range(count - len(pairs))]
    return [
        Tree(shape, death, round(chance.uniform(0.6, 1.2), 2), round(chance.uniform(0, 0.3), 2))
        for shape, death in chosen[:count]
    ]


def script_of(shape: str, leaf: str) -> str:
    """Return the script of a tree."""
    return SHAPES[shape].replace("LEAF", shlex.quote(leaf))


def grow(folder: Path, tree: Tree) -> Seen:
    """Grow one tree, let die who has to, and return what was seen until it was freed.

    Where the supervisor dies, somebody who is no part of the tree and shows nothing of itself runs all along.
    """
    folder.mkdir()
    mark = folder / "leaf"
    leaf = f"echo $$ > {mark}.new; mv {mark}.new {mark}; exec sleep {tree.life_s}"
    launched = Launched(folder, ["sh", "-c", script_of(tree.shape, leaf)], stderr=subprocess.DEVNULL)
    wait_until(mark.exists, 30)
    number = int(mark.read_text())
    began = mark.stat().st_mtime - (time.time() - time.monotonic())
    descriptor = os.pidfd_open(number)
    launched.wait_for("started")
    evidence = launched.evidence()
    stranger = None
    if tree.death.startswith("supervisor"):
        stranger = subprocess.Popen(
            [sys.executable, "-S", "-c", STRANGER],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert stranger.stdout is not None
        stranger.stdout.readline()
    kill_at = time.monotonic() + tree.death_after_s
    probes: list[tuple[float, LaunchProbe]] = []
    ended_by = freed_at = 0.0
    has_killed = False
    give_up = time.monotonic() + 30
    while not (ended_by and freed_at):
        now = time.monotonic()
        assert now < give_up, (tree, launched.lines(), probes[-1:])
        if not has_killed and now >= kill_at:
            has_killed = True
            let_die(tree, launched, evidence)
        looked = probe_launch(evidence)
        probes.append((time.monotonic(), looked))
        if not ended_by and select.select([descriptor], [], [], 0)[0]:
            ended_by = time.monotonic()
        freed_at = freed_at or freed(launched, tree, looked)
        time.sleep(0.01)
    os.close(descriptor)
    launched.front.wait(20)
    if stranger is not None:
        stranger.communicate(timeout=20)
    return Seen(probes, began + tree.life_s, ended_by, freed_at)


def freed(launched: Launched, tree: Tree, looked: LaunchProbe) -> float:
    """Return when the launch was freed, 0 while it is not."""
    completed = launched.told("completed")
    if completed is not None:
        return float(completed["at"])
    return time.monotonic() if looked.state == "gone" and tree.death.startswith("supervisor") else 0.0


def let_die(tree: Tree, launched: Launched, evidence: LaunchEvidence) -> None:
    """Kill with -9 whom the tree is to lose."""
    if tree.death.startswith("supervisor"):
        os.kill(evidence.supervisor.pid, signal.SIGKILL)
    if tree.death in ("front end", "agent", "supervisor and front end"):
        launched.front.kill()


@pytest.mark.timeout(300)
@pytest.mark.clause("native-192", "native-3.6.8", "K30", "I31", "I34", "O42", "mutant-16")
def test_trees_of_every_shape_are_held_to_their_end_and_freed_after_it(tmp_path: Path) -> None:
    """No tree is freed before its last process ends, and each is freed within 2 s of that."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        grown = list(
            pool.map(lambda one: (one[1], grow(tmp_path / str(one[0]), one[1])), enumerate(trees(TREES)))
        )
    wrong = []
    for tree, seen in grown:
        early = [
            at for at, looked in seen.probes if looked.state == "gone" and at < seen.ends_after - CLOCK_S
        ]
        if early or seen.freed_at < seen.ends_after - CLOCK_S:
            shown = next((looked.lines for _, looked in seen.probes if looked.state == "gone"), ())
            wrong.append(f"freed {seen.ends_after - seen.freed_at:.3f} s early: {tree} {shown}")
        if seen.freed_at - seen.ended_by > FREED_S_MAX:
            wrong.append(f"freed {seen.freed_at - seen.ended_by:.2f} s late: {tree}")
    assert wrong == []
    assert len(grown) == TREES
    late = max(seen.freed_at - seen.ended_by for _, seen in grown)
    looks = sum(len(seen.probes) for _, seen in grown)
    print(f"{len(grown)} trees, {looks} looks, freed at most {late:.2f} s late")


@pytest.mark.clause("K30", "I34", "native-189")
def test_launch_whose_agent_group_is_killed_is_held_and_freed(tmp_path: Path) -> None:
    """An agent killed with all of its process group leaves the supervisor holding until the tests end."""
    ledger_folder = tmp_path / "l"
    ledger_folder.mkdir()
    agent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            AGENT,
            str(ledger_folder),
        ],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONPATH": ".:src"},
        start_new_session=True,
    )
    wait_until(lambda: any("started" in path.read_text() for path in ledger_folder.iterdir()), 30)
    (path,) = ledger_folder.iterdir()
    launched = Launched.__new__(Launched)
    launched.ledger = path
    started_at = launched.wait_for("started")["at"]
    os.killpg(agent.pid, signal.SIGKILL)
    agent.wait()
    assert probe_launch(launched.evidence()).state == "alive"
    completed = launched.wait_for("completed")
    assert 1.5 <= completed["at"] - started_at <= 1.5 + FREED_S_MAX + 0.5


@pytest.mark.clause("native-3.6.8", "K30", "I34")
def test_zombies_that_nobody_reaps_hold_nothing(tmp_path: Path) -> None:
    """Below a first process that never reaps, a launch whose supervisor was killed ends all the same."""
    script = (
        "import sys, time; from pathlib import Path; from tests.faults.launches import Launched\n"
        "from tieline.shell.supervisor.holding import become_reaper\n"
        "become_reaper()\n"
        "Launched(Path(sys.argv[1]), ['sh', '-c', 'setsid sleep 1 & sleep 1 & exec sleep 1']).front\n"
        "time.sleep(60)\n"
    )
    ledger_folder = tmp_path / "l"
    ledger_folder.mkdir()
    first = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script, str(ledger_folder)],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONPATH": ".:src"},
    )
    try:
        wait_until(lambda: any("started" in path.read_text() for path in ledger_folder.iterdir()), 30)
        launched = Launched.__new__(Launched)
        (launched.ledger,) = ledger_folder.iterdir()
        evidence = launched.evidence()
        assert evidence.command is not None
        os.kill(evidence.supervisor.pid, signal.SIGKILL)
        assert probe_launch(evidence).state == "alive"
        wait_until(lambda: state_of(evidence.command.pid) == "Z", 10)
        wait_until(lambda: probe_launch(evidence).state == "gone", FREED_S_MAX)
        assert probe(evidence.command) == "gone"
        assert state_of(evidence.command.pid) == "Z"
    finally:
        first.kill()
        first.wait()


def state_of(pid: int) -> str:
    """Return the letter that /proc has for a process, empty when it is not there."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return ""


@pytest.mark.clause("K30", "I34", "O42")
def test_chain_of_short_lives_is_never_taken_for_an_end(tmp_path: Path) -> None:
    """A process that replaces itself every few milliseconds, outside of its session, is not overlooked."""
    mark = tmp_path / "last"
    code = (
        "import os, sys, time\n"
        "end = time.monotonic() + 3\n"
        "os.setsid()\n"
        "while time.monotonic() < end:\n"
        "    time.sleep(0.002)\n"
        "    if os.fork(): os._exit(0)\n"
        f"open({str(mark)!r}, 'w').write(str(time.monotonic()))\n"
    )
    launched = Launched(tmp_path, ["sh", "-c", f"{sys.executable} -S -c {shlex.quote(code)} & exit 0"])
    launched.wait_for("end")
    evidence = launched.evidence()
    os.kill(evidence.supervisor.pid, signal.SIGKILL)
    launched.front.wait(20)
    gone_at: list[float] = []
    while not mark.exists() or not mark.read_text():
        if probe_launch(evidence).state == "gone":
            gone_at.append(time.monotonic())
        time.sleep(0.003)
    assert [at for at in gone_at if at < float(mark.read_text())] == []
    wait_until(lambda: probe_launch(evidence).state == "gone", FREED_S_MAX)
