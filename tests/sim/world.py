"""One history: roots, a hostile peer, a network, disks and people, run from a plan.

Theory. Two phases. In the first everything may fail that the plan names. Then everything is healed, and
whatever is still open must end within a bounded simulated time.

Rule 1: all chance comes from the plan's seed; nothing here iterates over a set.
Rule 2: nothing here decides about messages.

Source: reference/reliability.md 2.1, 2.4 I51; section 1 "TigerBeetle".
"""

import random
from typing import Any

from tests.sim import actions
from tests.sim.clock import Clock
from tests.sim.disk import Disk, FakeDisk, RealDisk
from tests.sim.frames import outline_row
from tests.sim.history import History
from tests.sim.hostile import Hostile
from tests.sim.network import Network
from tests.sim.plan import Plan
from tests.sim.root import CAPABILITIES, PROJECT, SimRoot, advertised
from tieline.config import Scope
from tieline.engine.contract import Standing
from tieline.engine.directory import Place, Root
from tieline.model.identity import Availability, Peer
from tieline.shell.switchboard import Far
from tieline.wire.native.protocol import Advertised

__all__ = ["HEALED_MS", "SimWorld"]

HEALED_MS = 400_000
"""Longest life of a message here, two waits of a retry, and the patience for an exposure without evidence."""


class SimWorld:
    """All of one history. `run` returns it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.clock: Clock = Clock()
        self.history = History()
        self.chance = random.Random(f"world/{plan.seed}")
        self.network = Network(self.clock, self.history, random.Random(f"network/{plan.seed}"))
        self.roots: list[SimRoot | None] = [None] * plan.roots
        self.dead: list[SimRoot] = []
        self.disks: list[tuple[str, Disk]] = []
        self.hostile: Hostile | None = None
        self.messages: list[tuple[str, Peer, Peer, str, str | None]] = []
        self.faults_count: dict[str, int] = {}
        self.are_deaths_proven = True
        self.is_healed = False
        self._unproven: dict[str, None] = {}
        self._hidden: dict[str, int] = {}
        self._calls = 0
        self._lives = 0
        self._pid = 1_000

    # ------------------------------------------------------------ running

    def run(self) -> History:
        """Let the plan happen, heal, and wait; return what was noted."""
        try:
            for slot in range(self.plan.roots):
                self.start(slot)
            if self.plan.has_hostile:
                self._start_hostile()
            start_ms = self.clock.mono_ms
            for step in self.plan.steps:
                self.clock.run_until(start_ms + step.at_ms)
                actions.act(self, step)
            self.clock.run_until(start_ms + self.plan.end_ms)
            self._heal()
            self.clock.run_until(self.clock.mono_ms + HEALED_MS)
            self._end()
        finally:
            for _, disk in self.disks:
                if isinstance(disk, RealDisk):
                    disk.remove()
        return self.history

    def _start_hostile(self) -> None:
        self._pid += 1
        chance = random.Random(f"hostile/{self.plan.seed}")
        self.hostile = Hostile(self, "evil-1", self._pid, chance, is_tieline=self.plan.is_hostile_tieline)
        self.network.listen(self.hostile)
        self.history.add(self.clock.mono_ms, "evil-1", "start", honest=False)

    def start(self, slot: int) -> None:
        """Start a new instance in a slot: never the one that was there before."""
        self._lives += 1
        self._pid += 1
        name = f"root-{slot}-{self._lives}"
        chance = random.Random(f"disk/{self.plan.seed}/{name}")
        kind = RealDisk if self.plan.is_real_disk else FakeDisk
        disk: Disk = kind(name, self.clock, self.history, chance)
        self.disks.append((name, disk))
        limits = self.plan.limits[slot]
        root = SimRoot(self, name, slot, self._pid, limits, disk, is_auto=self.plan.auto[slot])
        self.roots[slot] = root
        self.network.listen(root)
        root.note(
            "start",
            honest=True,
            inbox=limits.inbox_messages,
            pending=limits.pending_requests,
            storage=limits.storage_bytes,
            retention=limits.retention_ms,
            automatic=limits.automatic_replies,
            agent_sends=limits.agent_sends_max,
            frame=limits.frame_bytes,
            peer=root.peer.id,
            pid=root.pid,
        )

    def forget(self, root: SimRoot) -> None:
        """A root ends."""
        if self.roots[root.slot] is root:
            self.roots[root.slot] = None
            self.dead.append(root)
            if not self.are_deaths_proven and not self.is_healed:
                self._unproven[root.name] = None

    def _heal(self) -> None:
        """Let nothing fail any more."""
        self.is_healed = True
        self.history.add(self.clock.mono_ms, "", "heal")
        self.network.weather.calm()
        self._unproven.clear()
        self._hidden.clear()
        for slot in range(self.plan.roots):
            root = self.roots[slot]
            if root is None:
                self.start(slot)
                continue
            root.disk.heal()
            if self.clock.is_stopped(root.name):
                self.clock.go_on(root.name)
        self.network.cut("evil-1")

    def _end(self) -> None:
        """Note what everybody finally holds."""
        for root in self.living():
            root.read_outbox()
            root.note(
                "baseline",
                circuits=len(root.switchboard._circuits),
                idle=root.driver.is_idle,
                doubt=root.driver.is_in_doubt,
            )
        living = {root.name: None for root in self.living()}
        for name, disk in self.disks:
            rows = disk.left() if name not in living else disk.load()
            self.history.add(
                self.clock.mono_ms,
                name,
                "store",
                alive=name in living,
                rows=[outline_row(row) for row in rows],
            )
            if name not in living:
                actions.recover(self, name, disk, rows)

    # ------------------------------------------------------------ who is there

    def living(self) -> list[SimRoot]:
        """Return the living roots, by slot."""
        return [root for root in self.roots if root is not None]

    def far(self, asker: SimRoot, instance: str) -> Far | None:
        """Return what presence says of an instance to one root."""
        if self._hidden.get(instance, -1) >= self.clock.mono_ms:
            return None
        owner: SimRoot | Hostile | None = self._owner(instance)
        if owner is None:
            return None
        return Far(advertised(instance), instance, owner.pid, self.standing(asker, owner.peer))

    def _owner(self, instance: str) -> SimRoot | Hostile | None:
        for root in [*self.living(), *self.dead[-2:]]:
            if root.name == instance:
                return root
        if self.hostile is not None and instance == self.hostile.name:
            return self.hostile
        return None

    def advertised(self, instance: str) -> Advertised | None:
        """Return the advertisement that the hostile peer reads."""
        return None if self._owner(instance) is None else advertised(instance)

    def standing(self, asker: SimRoot, peer: Peer) -> Standing:
        """Return how a peer stands to a root: from places and policies, not from a frame."""
        slots = [root.slot for root in [*self.living(), *self.dead] if root.name == peer.instance]
        pair = tuple(sorted((asker.slot, slots[0]))) if slots else (asker.slot, asker.slot)
        return Standing(
            frozenset(CAPABILITIES), pair not in self.plan.out_of_scope, alias="peer", project=PROJECT
        )

    def directory_roots(self, asker: SimRoot) -> list[Root]:
        """Return everybody that presence shows to one root."""
        found = []
        for root in self.living():
            if root is not asker:
                place = Place("/work", "", Scope.WORKSPACE)
                # Two instances may bear one alias: nobody hands them out.
                found.append(
                    Root(
                        instance=root.name,
                        session=root.name,
                        alias=f"agent-{root.slot % 2}",
                        project=PROJECT,
                        activity="idle",
                        availability=Availability.AVAILABLE,
                        capabilities=CAPABILITIES,
                        place=place,
                    )
                )
        return found

    def is_proven_dead(self, instance: str) -> bool:
        """Return whether it is proven that an instance ended."""
        return instance not in self._unproven and any(root.name == instance for root in self.dead)

    def hide(self, instance: str, for_ms: int) -> None:
        """Let presence not show an instance for a while."""
        self._hidden[instance] = self.clock.mono_ms + for_ms

    # ------------------------------------------------------------ names

    def next_call(self) -> int:
        """Return a number used once."""
        self._calls += 1
        return self._calls

    def any_message(self, chance: random.Random) -> str:
        """Return the id of some message."""
        return chance.choice(self.messages)[0] if self.messages else "no-such-message"

    def any_peer(self, chance: random.Random) -> Peer:
        """Return some living peer."""
        peers: list[Any] = [peer for root in self.living() for peer in root.peers()]
        return chance.choice(peers) if peers else Peer("nobody")

    def count_fault(self, kind: str) -> None:
        """Count one drawn fault."""
        self.faults_count[kind] = self.faults_count.get(kind, 0) + 1
