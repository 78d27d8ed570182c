"""A root killed at any instant: what it acknowledged is there, whole and once."""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.memory import memory_folder
from tests.faults.rows import message, move
from tieline.engine.contract import MessageRow, Row
from tieline.model.receipt import State
from tieline.store.journal.journal import SEAMS, Journal
from tieline.store.recovery import recover

INSTANCE = "ended-1"


@pytest.fixture
def home() -> Iterator[Path]:
    """Give TIELINE_HOME, in memory: a kill leaves what the system holds, synced or not."""
    with memory_folder() as folder:
        yield folder / "h"


def rows_of(number: int) -> list[Row]:
    """Return the rows of one commit: a message, and the end of an earlier one."""
    rows: list[Row] = [message(2 * number, size=300 + number * 37 % 9_000)]
    if number > 3:
        rows.append(move(2 * number + 1, 2 * (number - 3), State.CONSUMED))
    return rows


def write(home: Path, acknowledgements: int, seam: Callable[[str], None]) -> None:
    """Commit until killed, telling each number once it is durable."""
    journal = Journal.open(str(home / "peer-messages" / INSTANCE), INSTANCE, "s", seam=seam)
    os.write(acknowledgements, b"0\n")
    for number in range(1, 12):
        journal.commit(rows_of(number), admits=True, reserve_bytes=number * 2_048)
        os.write(acknowledgements, b"%d\n" % number)
        if number == 5:
            journal.checkpoint()
        if number == 8:
            journal.reopen()
    journal.close()


def killed(home: Path, child: Callable[[int], None], *, after_s: float | None) -> list[int]:
    """Run `child` in a fork, kill it after a time when one is given, and return what it acknowledged."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            child(writing)
        finally:
            os._exit(0)
    os.close(writing)
    if after_s is not None:
        time.sleep(after_s)
        os.kill(process, signal.SIGKILL)
    with os.fdopen(reading, "rb") as stream:
        told = stream.read()
    os.waitpid(process, 0)
    return [int(line) for line in told.split()]


def check(home: Path, told: list[int]) -> None:
    """Assert that all that was acknowledged is there, once, in order, and at most one commit more."""
    if not told:
        return
    recovered = recover(str(home), INSTANCE)
    assert recover(str(home), INSTANCE) == recovered
    last = told[-1]
    messages = recovered.message_count
    assert last <= messages <= last + 1
    expected = [row for number in range(1, messages + 1) for row in rows_of(number)]
    consumed = {
        row.message for row in expected if not isinstance(row, MessageRow) and hasattr(row, "message")
    }
    arrived = [row for row in expected if isinstance(row, MessageRow) and row.cursor not in consumed]
    assert [unread.envelope for unread in recovered.unread] == [row.envelope for row in arrived]
    assert [unread.cursor for unread in recovered.unread] == [row.cursor for row in arrived]


def journal_seams(home: Path, met: set[str]) -> None:
    """Add to `met` the seams that a whole life of `write` passes."""
    sink = os.open(os.devnull, os.O_WRONLY)
    write(home, sink, met.add)
    os.close(sink)
    shutil.rmtree(home)


@pytest.mark.clause("K1", "I1", "I2", "I50", "O43")
def test_journal_killed_at_every_seam_keeps_what_it_acknowledged(home: Path) -> None:
    """Killed at the n-th passing of any seam, for every n: all acknowledged commits are there."""
    met: set[str] = set()
    journal_seams(home, met)
    assert met >= set(SEAMS)
    number = 0
    while True:

        def child(writing: int, stop: int = number) -> None:
            passed = 0

            def seam(name: str) -> None:
                nonlocal passed
                if passed == stop:
                    os.kill(os.getpid(), signal.SIGKILL)
                passed += 1

            write(home, writing, seam)
            (home / "ended").touch()

        told = killed(home, child, after_s=None)
        check(home, told)
        is_ended = (home / "ended").exists()
        shutil.rmtree(home, ignore_errors=True)
        if is_ended:
            break
        number += 1
    assert number > 50


@pytest.mark.clause("K1", "I1")
def test_journal_killed_at_random_keeps_what_it_acknowledged(home: Path) -> None:
    """Killed at a random instant, 100 times: all acknowledged commits are there, and no row is half."""
    chance = random.Random(11)
    begun = time.monotonic()
    killed(home, lambda writing: write(home, writing, lambda _: None), after_s=None)
    whole_s = time.monotonic() - begun
    shutil.rmtree(home)
    acknowledged = ended = 0
    for _ in range(100):
        told = killed(
            home, lambda writing: write(home, writing, lambda _: None), after_s=chance.random() * whole_s
        )
        check(home, told)
        acknowledged += len(told)
        ended += told[-1:] == [11]
        shutil.rmtree(home, ignore_errors=True)
    print(f"100 kills, {acknowledged} acknowledged, {ended} after the last commit")
    assert acknowledged > 100
    assert ended < 90


@pytest.mark.clause("K29")
def test_journal_lock_is_not_kept_by_a_child(private_home: Path) -> None:
    """A child that outlives its root does not make the root seem alive."""
    place = private_home / "peer-messages" / INSTANCE
    journal = Journal.open(str(place), INSTANCE, "s")
    journal.commit([message(1)], admits=True)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    os.close(reading)
    journal.close()
    assert recover(str(private_home), INSTANCE).message_count == 1
    os.close(writing)
    os.waitpid(child, 0)
