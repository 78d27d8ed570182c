"""Show that of many processes racing for one grant exactly one gets it, every time.

Each process decides under the lock as the product does, and measures for itself whether anybody else is
inside: by a file that only one can create, and by what the store says of the holder.

Source: reference/reliability.md I31; reference/open-bugs.md O39.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tieline.engine.coordination import (
    AutoGrant,
    Begin,
    Claim,
    Complete,
    Facts,
    Started,
    admit,
    drain_launch,
    handle,
)
from tieline.engine.coordination.commands import Command
from tieline.errors import Refusal, Refused
from tieline.model.identity import Capability, Peer, Principal
from tieline.model.moment import Moment
from tieline.model.resource import Claimant, Launch, Ledger, Probe, ResourceKey, Ticket, TicketState
from tieline.shell.process import probe, self_identity
from tieline.store.resources import ResourceStore

KEY = ResourceKey("machine/race")
RACER_COUNT = 32
IS_LONG = os.environ.get("TIELINE_TEST_PROFILE") == "long"
ROUND_COUNT = int(os.environ.get("TIELINE_TEST_ROUNDS", "1000" if IS_LONG else "100"))
LOCK_WAIT_MS = 30_000
NOW = Moment(1_000_000, 1_000)
"""The race is not about time: no right lapses in it."""


class Turn(NamedTuple):
    """What one racer saw in one round: whether it holds, under which fence, and what was wrong."""

    is_holder: bool
    fence: int
    fault: str


class Racer:
    """One process that claims, takes its grant, runs and ends, again and again."""

    def __init__(self, home: str, number: int) -> None:
        self.identity = self_identity()
        self.who = Principal(Peer(f"racer-{number}"), frozenset({Capability.REQUEST.value}), f"r{number}")
        self.claimant = Claimant(self.who.peer.id, self.who.peer.instance, f"r{number}", self.identity)
        self.store = ResourceStore(home, lock_wait_ms=LOCK_WAIT_MS)
        self.inside = os.path.join(home, "inside")
        self.count = 0
        self.launch_id = ""
        self.claim()

    def act(self, command: Command, ledger_step: object = None) -> Ticket | None:
        """Decide one command under the locks, store it, and return our own ticket."""
        with self.store.transaction([KEY], ledger=ledger_step is not None) as held:
            before = held.documents[KEY]
            starters = {one.claimant.starter for one in before.tickets}
            facts = Facts(
                boot_id=self.identity.boot_id,
                processes={one: probe(one) for one in starters | {self.identity}},
            )
            after, outcome = handle(before, command, facts, NOW)
            assert outcome.refusal is None, outcome.refusal
            ledger: Ledger | Refusal | None = None
            if ledger_step == "admit":
                assert held.ledger is not None
                ledger = admit(held.ledger, self.launch(after.fence), {KEY: after})
            elif ledger_step == "drain":
                assert held.ledger is not None
                ledger = drain_launch(held.ledger, self.launch_id, self.launch_id, Probe("gone"))
            assert not isinstance(ledger, Refusal), ledger
            held.commit({KEY: after}, ledger)
            return after.launched(self.launch_id)

    def launch(self, fence: int) -> Launch:
        return Launch(
            self.launch_id, self.launch_id, "d", "race", "w", self.claimant, 1, self.identity.boot_id,
            resources=((KEY, fence),),
        )  # fmt: skip

    def claim(self) -> None:
        self.count += 1
        self.launch_id = f"{self.who.alias}-{self.count}"
        self.act(Claim(self.who, self.claimant, self.launch_id, "d", "race", "race", self.launch_id))

    def race(self) -> Turn:
        """Try for the grant; whoever gets it is inside when this returns."""
        ticket = self.act(AutoGrant(self.who))
        if ticket is None or ticket.state is not TicketState.RESERVED or ticket.reservation is None:
            return Turn(is_holder=False, fence=0, fault="")
        fence = ticket.reservation.fence
        self.act(Begin(self.who, self.launch_id, self.launch_id, "d", {KEY: fence}), "admit")
        self.act(Started(self.launch_id, self.launch_id, {KEY: fence}, (self.identity,), "group"))
        try:
            os.close(os.open(self.inside, os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return Turn(is_holder=True, fence=fence, fault="somebody-else-is-inside")
        return Turn(is_holder=True, fence=fence, fault=self.not_the_holder(fence))

    def leave(self, fence: int) -> str:
        """End the command, give the resource back, and queue again; return what was wrong."""
        fault = self.not_the_holder(fence)
        os.unlink(self.inside)
        self.act(Complete(self.launch_id, self.launch_id, {KEY: fence}, Probe("gone")), "drain")
        self.claim()
        return fault

    def not_the_holder(self, fence: int) -> str:
        holder = self.store.read(KEY).holder
        is_ours = holder is not None and holder.launch_id == self.launch_id
        right = holder.reservation if holder is not None else None
        return "" if is_ours and right is not None and right.fence == fence else "the-store-names-another"


def work(home: str, number: int) -> None:
    """Race for as long as the parent says so; one line in, one line out."""
    racer = Racer(home, number)
    print("ready", flush=True)
    fence = 0
    for line in sys.stdin:
        if line == "race\n":
            turn = racer.race()
            fence = turn.fence
            print(int(turn.is_holder), turn.fence, turn.fault or "-", flush=True)
        else:
            print(racer.leave(fence) or "-", flush=True)


@pytest.mark.clause("I31", "O39", "native-187", "mutant-29")
@pytest.mark.timeout(900)
def test_processes_racing_one_grant_never_overlap(private_home: Path) -> None:
    """In every round one of 32 processes is inside, alone, under a fence that nobody had before."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    code = "import sys; from tests.system.test_resource_race import work; work(sys.argv[1], int(sys.argv[2]))"
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(private_home), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        for number in range(RACER_COUNT)
    ]
    try:
        assert {answer(one) for one in racers} == {"ready"}
        fences: list[int] = []
        for _ in range(ROUND_COUNT):
            for one in racers:
                tell(one, "race")
            turns = [answer(one).split() for one in racers]
            winners = [one for one, turn in zip(racers, turns, strict=True) if turn[0] == "1"]
            assert [turn for turn in turns if turn[2] != "-"] == []
            assert len(winners) == 1
            fences += [int(turn[1]) for turn in turns if turn[0] == "1"]
            tell(winners[0], "leave")
            assert answer(winners[0]) == "-"
        assert fences == list(range(1, ROUND_COUNT + 1))
    finally:
        for one in racers:
            one.communicate()


def tell(racer: "subprocess.Popen[str]", word: str) -> None:
    assert racer.stdin is not None
    racer.stdin.write(f"{word}\n")
    racer.stdin.flush()


def answer(racer: "subprocess.Popen[str]") -> str:
    assert racer.stdout is not None
    return racer.stdout.readline().strip()


def test_waiting_for_a_lock_too_long_is_told_and_changes_nothing(private_home: Path) -> None:
    """A racer that cannot get the lock is told to try again."""
    slow = ResourceStore(str(private_home))
    quick = ResourceStore(str(private_home), lock_wait_ms=10)
    with slow.transaction([KEY]), pytest.raises(Refused, match="another process"), quick.transaction([KEY]):
        raise AssertionError("two hold one lock")
    slow.close()
    quick.close()
