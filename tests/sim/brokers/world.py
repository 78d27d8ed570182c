"""One history of a place: two mains, their children, visitors, and one broker after another.

Theory. Two phases, as in the other simulator: in the first what the seed draws fails; then all is healed,
every parked child returns, and what is owed must have arrived.

Rule 1: all chance comes from the seed; a step is drawn when it happens.
Rule 2: the place is free when its broker is dead, and at no other time: a stopped one keeps it.

Source: reference/reliability.md 2.1, I39; reference/intercom.md 3, 6.3.
"""

import random
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.sim.brokers.broker import Mail, SimBroker
from tests.sim.brokers.member import SimMember, Visitor
from tests.sim.clock import Clock
from tests.sim.history import History
from tests.sim.network import End, Host, Network
from tieline.errors import Refusal
from tieline.wire.intercom import mapping
from tieline.wire.intercom.reading import dump

__all__ = ["RoomWorld"]

SESSIONS = (("s-a", ""), ("s-b", ""), ("s-a1", "s-a"), ("s-a2", "s-a"), ("s-b1", "s-b"))
"""The native session of each slot, and its main's."""
STEPS = {
    "send": 24,
    "ask": 10,
    "cross": 8,
    "passive": 3,
    "guard": 8,
    "replace": 2,
    "visit": 22,
    "park": 8,
    "come_back": 6,
    "restart": 2,
    "kill": 5,
    "stop": 3,
    "cut": 5,
    "slow_net": 3,
    "slow_disk": 2,
    "sleepy_main": 3,
    "wait": 6,
}
ACTS = (
    "guarded",
    "guarded",
    "guarded",
    "hidden",
    "nobody",
    "named",
    "list",
    "claim",
    "claim",
    "lineage",
    "plain",
)
HEALED_MS = 200_000
STOPPED_MS = 12_000


class RoomWorld:
    """All of one history. `run` returns it."""

    def __init__(self, seed: int) -> None:
        self.clock, self.history = Clock(), History()
        self.chance = random.Random(f"room/{seed}")
        self.network = Network(self.clock, History(), random.Random(f"room network/{seed}"))
        self.mail = Mail()
        self.broker: SimBroker | None = None
        self.members: list[SimMember] = []
        self.parked: dict[int, None] = {}
        self._generation = self._messages = self._lives = self._visitors = 0
        self._starting: list[Callable[[], None]] = []
        self._guards: list[dict[str, Any]] = []
        for slot in range(len(SESSIONS)):
            self.members.append(self._born(slot))

    # ------------------------------------------------------------ chance and names

    def new_id(self) -> str:
        """Return a UUID that nothing else has."""
        return str(uuid.UUID(int=self.chance.getrandbits(128), version=4))

    def next_message(self) -> str:
        """Return a message id; greater ones are not always later."""
        self._messages += 1
        return f"{self.chance.randrange(10):d}-m{self._messages:05d}"

    def late_ms(self) -> int:
        """Return for how long a socket that was given up still brings what was under way."""
        return self.chance.choice((0, 0, 3, 40, 2_500))

    def note(self, event: str, **data: Any) -> None:
        """Write one entry of the history."""
        self.history.add(self.clock.mono_ms, "", event, **data)

    # ------------------------------------------------------------ the place

    def reach(self, caller: Host, done: Callable[[End | None, Refusal | None], None]) -> None:
        """Connect to the place's broker; one is started where there is none."""

        def dial() -> None:
            if self.broker is None:
                done(None, Refusal("PEER_OFFLINE", "no broker", is_retryable=True))
            else:
                self.network.dial(caller, self.broker.name, done)

        if self.broker is not None:
            dial()
            return
        self._starting.append(dial)
        self.clock.after(self.chance.randint(1, 60), "", self._start)

    def _start(self) -> None:
        if self.broker is None:
            self._generation += 1
            self.note("claimed", gen=self._generation)
            self.broker = SimBroker(self, self._generation)
        waiting, self._starting = self._starting, []
        for dial in waiting:
            dial()

    def left(self, broker: SimBroker) -> None:
        """A broker is gone: its place is free."""
        self.note("freed", gen=broker.generation)
        self.broker = None

    # ------------------------------------------------------------ sessions

    def _born(self, slot: int) -> SimMember:
        self._lives += 1
        session, parent = SESSIONS[slot]
        self.note("born", name=f"member-{slot}-{self._lives}", group=parent or session, child=bool(parent))
        return SimMember(self, slot, self._lives, session, parent)

    def wake(self, session_id: str) -> None:
        """A main wakes its parked child, which needs a moment."""
        for slot, (session, _) in enumerate(SESSIONS):
            if mapping.peer_id_of(session) == session_id:
                self.clock.after(self.chance.randint(50, 3_000), "", partial(self.come_back, slot))

    def come_back(self, slot: int) -> None:
        """A parked child returns, once; one that is still about to end, as soon as it has."""
        if slot in self.parked and self.members[slot].is_alive:
            self.clock.after(100, "", partial(self.come_back, slot))
        elif slot in self.parked:
            del self.parked[slot]
            back = self.members[slot] = self._born(slot)
            if self.chance.random() < 0.4:  # what it was handed is perhaps still under way
                self.clock.after(
                    self.chance.randint(0, 4_000), back.name, partial(self.network.cut, back.name)
                )

    def _living(self) -> list[SimMember]:
        return [one for one in self.members if one.is_alive and one.slot not in self.parked]

    # ------------------------------------------------------------ visitors

    def _visit(self) -> None:
        act = self.chance.choice(ACTS)
        self._visitors += 1
        root = self.chance.choice(("", "", "s-a", "s-b"))
        lineage = {"rootSessionId": root, "parentSessionId": root} if root else {}
        wanted = None
        if act == "claim":
            slot = self.chance.choice([*self.parked, *self.parked, *range(len(SESSIONS))])
            wanted = mapping.peer_id_of(SESSIONS[slot][0])
        if act == "guarded":
            lineage = {}
        Visitor(self, self._visitors, lineage, wanted, act)

    def visit(self, visitor: Visitor) -> None:
        """A visitor was taken: let it do what it came for."""
        peer = mapping.peer_id_of(self.chance.choice(SESSIONS)[0])
        match visitor.act:
            case "guarded":
                visitor.send(*self._guarded())
            case "nobody":
                visitor.send("pi-nobody", {})
            case "named":
                visitor.send(f"AGENT-{self.chance.randrange(len(SESSIONS))}", {})
            case "lineage":
                visitor.say_raw(dump({"type": "presence", "rootSessionId": "s-b", "parentSessionId": "s-b"}))
                visitor.link.list("list", self.clock.mono_ms)
            case "hidden" | "plain":
                visitor.send(peer, {})
            case _:
                visitor.link.list("list", self.clock.mono_ms)

    def _guarded(self) -> tuple[str, dict[str, Any]]:
        """Return whom a guarded send is for, and it: true, of before, or false in one word.

        A true one is raced at times: its main binds itself anew while the message is under way.
        """
        mains = [one for one in self._living() if not one.context.lineage.is_child and one.session_id]
        one = self.chance.choice(mains) if mains else None
        is_true = one is not None and self.chance.random() < 0.7
        known = [one.truth()] if one is not None and is_true else self._guards[-6:]
        truth = self.chance.choice(known) if known else {"group": "s-a", "peer": "pi-nobody"}
        if one is not None and self.chance.random() < 0.4:
            self.clock.after(self.chance.randint(0, 12), one.name, lambda: self._bind(one))
        guard = {
            "rootSessionId": truth["group"],
            "peerId": truth["peer"],
            "incarnation": truth.get("incarnation") or "i",
            "applicationGuard": truth.get("guard") or "g",
        }
        if self.chance.random() < 0.25:
            guard[self.chance.choice(list(guard))] = "another"
        return truth["peer"], {"guard": guard, "delivery": "queue", "expectsReply": False}

    def _bind(self, one: SimMember) -> None:
        """Let a main bind itself: a new guard, or none."""
        if one.is_alive and one.session_id:
            one.guard(None if self.chance.random() < 0.2 else f"guard-{self.new_id()[:4]}")
            self._guards.append(one.truth())

    # ------------------------------------------------------------ running

    def run(self) -> History:
        """Run it to its end."""
        pace_ms = self.chance.choice((30, 300, 1_500))
        self.clock.run_until(self.clock.mono_ms + 3_000)
        self._bind(self.members[0])
        self._bind(self.members[1])
        for _ in range(self.chance.randint(25, 45)):
            self._step(self.chance.choices(list(STEPS), list(STEPS.values()))[0])
            self.clock.run_until(self.clock.mono_ms + self.chance.randint(0, pace_ms))
        self._heal()
        self.clock.run_until(self.clock.mono_ms + HEALED_MS)
        self.note("end", waiting=[[one.slot, sorted(one.waiting)] for one in self._living()])
        return self.history

    def _heal(self) -> None:
        if self.broker is not None:
            self.clock.go_on(self.broker.name)
            self.broker.slow_ms = 0
        self.network.weather.calm()
        self.clock.run_until(self.clock.mono_ms + 2_000)
        for member in self.members:
            member.can_wake = True
        for slot in list(self.parked):
            self.come_back(slot)

    def _step(self, kind: str) -> None:
        one = self.chance.choice(self._living())
        match kind:
            case "send" | "ask" | "passive":
                self._say(one, kind)
            case "cross":
                self._cross(one)
            case "visit":
                self._visit()
            case "come_back" if self.parked:
                self.come_back(next(iter(self.parked)))
            case "cut":
                self.network.cut(one.name)
            case "sleepy_main":
                one.can_wake = not one.can_wake
            case "slow_net":
                self.network.weather.delay_ms_max = self.chance.choice((5, 200, 3_000))
                self.network.weather.piece_bytes_max = self.chance.choice((1, 70_000))
            case "park" if one.context.lineage.is_child and one.session_id:
                self.parked[one.slot] = None
                one.park()
            case "guard" | "replace" | "restart" if not one.context.lineage.is_child:
                self._change(one, kind)
            case _:
                self._trouble_broker(kind)

    def _cross(self, one: SimMember) -> None:
        other = self.chance.choice(self._living())
        if one is not other and one.session_id and other.session_id:
            one.say(other.session_id, is_ask=True)
            other.say(one.session_id, is_ask=True)

    def _change(self, one: SimMember, kind: str) -> None:
        """Let a main be another life, or bound otherwise."""
        if kind == "guard":
            self._bind(one)
        elif kind == "replace":
            one.replace()
        else:
            one.die()
            self.members[one.slot] = self._born(one.slot)

    def _say(self, one: SimMember, kind: str) -> None:
        """Let a model send to whom it sees, or saw: a parked child too."""
        known = [*one.post.rows(), *(mapping.peer_id_of(SESSIONS[slot][0]) for slot in self.parked)]
        others = [session_id for session_id in known if session_id != one.session_id]
        if others:
            one.say(self.chance.choice(others), is_ask=kind == "ask", passive=kind == "passive")

    def _trouble_broker(self, kind: str) -> None:
        broker = self.broker
        if broker is None:
            return
        if kind == "kill":
            broker.die()
        elif kind == "slow_disk":
            broker.slow_ms = self.chance.choice((0, 500))
        elif kind == "stop" and not self.clock.is_stopped(broker.name):
            self.clock.stop(broker.name)
            self.clock.after(self.chance.randint(1, STOPPED_MS), "", lambda: self.clock.go_on(broker.name))
