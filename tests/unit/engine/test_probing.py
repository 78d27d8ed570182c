"""Probes over many roots: each ring is found by all who are in it, and nobody is told of what is none."""

import random
from collections import defaultdict, deque

import pytest

from tieline.engine import probing
from tieline.engine.probing import HOPS_MAX, NAMED_MS, Found, Probe, Prober
from tieline.engine.waiting import Wait, cycles_of


class Roots:
    """Roots of one peer each, whose probes travel in the order in which they were sent."""

    def __init__(self, *waits: Wait) -> None:
        self.waits = set(waits)
        names = {name for wait in waits for name in (wait.waiter, wait.awaited)}
        self.probers = {name: Prober() for name in sorted(names)}
        self.now_ms = 1_000
        self.sent: deque[tuple[str, Probe]] = deque()
        self.sent_count = 0
        self._number = 0

    def ours(self, name: str) -> dict[str, list[Wait]]:
        found = sorted((wait for wait in self.waits if wait.waiter == name), key=lambda one: one.awaited)
        return {name: found} if found else {}

    def follow(self) -> None:
        for name, prober in self.probers.items():
            prober.follow(self.ours(name).get(name, []), self._id, self.now_ms)

    def _id(self) -> str:
        self._number += 1
        return f"id-{self._number}"

    def _waited_by(self, own: str, waiter: str, kind: str) -> Wait | None:
        return next(
            (one for one in self.waits if (one.waiter, one.awaited, one.kind) == (waiter, own, kind)), None
        )

    def pass_ms(self, span_ms: int, step_ms: int = 50) -> None:
        """Let time pass; probes arrive at once."""
        for _ in range(span_ms // step_ms):
            self.now_ms += step_ms
            for name, prober in self.probers.items():
                kinds = {(wait.waiter, wait.awaited): wait.kind for wait in self.waits}
                for probe in prober.tick(lambda *pair: kinds[pair], self.now_ms):  # noqa: B023 - called here
                    self.sent.append((name, probe))
            while self.sent:
                self.sent_count += 1
                sender, probe = self.sent.popleft()
                found = self.take(sender, probe)
                self.sent.extend((probe.to, one) for one in found.onward)

    def take(self, sender: str, probe: Probe) -> Found:
        to = probe.to
        return self.probers[to].take(probe, sender, self.ours(to), self._waited_by, self.now_ms)

    def named(self) -> dict[str, set[tuple[str, ...]]]:
        return {name: {one.peers for one in prober.cycles} for name, prober in self.probers.items()}


RING = (Wait("a", "b", "ask", "m-1", 3), Wait("b", "c", "resource", "machine/x", 4), Wait("c", "a", "ask"))


@pytest.mark.clause("I30")
def test_ring_over_three_roots_is_named_by_each_with_the_kinds_of_its_waits() -> None:
    """Each knows its own wait and the one for itself whole, and of the others the kind."""
    roots = Roots(*RING)
    roots.follow()
    roots.pass_ms(1_000)
    assert roots.named() == {name: {("a", "b", "c")} for name in "abc"}
    (ring,) = roots.probers["a"].cycles
    assert ring.waits == (RING[0], Wait("b", "c", "resource"), RING[2])


def test_ring_that_closes_late_is_named_by_all_within_a_moment() -> None:
    """Who waits for long asks seldom; the one that closes the ring wakes the others."""
    roots = Roots(*RING[:2], Wait("c", "z"))
    roots.follow()
    roots.pass_ms(60_000)
    assert roots.named() == {name: set() for name in "abcz"}
    roots.waits = set(RING)
    roots.follow()
    roots.pass_ms(500)
    assert roots.named()["a"] == roots.named()["b"] == roots.named()["c"] == {("a", "b", "c")}


def test_ring_is_gone_at_once_for_whose_wait_ended_and_soon_for_the_others() -> None:
    """A wait that ends takes its ring away; without a new round the others forget it in time."""
    roots = Roots(*RING)
    roots.follow()
    roots.pass_ms(20_000)
    assert roots.named()["b"] == {("a", "b", "c")}  # confirmed again and again
    roots.waits.discard(RING[1])
    roots.follow()
    assert roots.named()["b"] == set()
    roots.pass_ms(NAMED_MS + 100)
    assert roots.named() == {name: set() for name in "abc"}


def test_random_waits_lead_to_the_rings_that_are_there() -> None:
    """Whoever is in a ring names one; nobody names what is none: 1,000 random crowds of six."""
    chance = random.Random(11)
    ring_count = 0
    for _ in range(1_000):
        pairs = chance.sample([(one, other) for one in "abcdef" for other in "abcdef" if one != other], 7)
        roots = Roots(*(Wait(*pair) for pair in pairs))
        roots.follow()
        roots.pass_ms(1_500, 250)
        real = cycles_of(roots.waits)
        members: dict[str, set[tuple[str, ...]]] = defaultdict(set)
        for ring in real:
            for peer in ring.peers:
                members[peer].add(ring.peers)
        for name, named in roots.named().items():
            assert named <= members[name], pairs
            assert bool(named) == bool(members[name]), pairs
        ring_count += len(real)
    assert ring_count > 500


def probe(to: str, *path: str, name: str = "forged", kind: str = "ask") -> Probe:
    """Return a probe that somebody made."""
    return Probe(name, to, path, tuple([kind] * len(path)))  # type: ignore[arg-type]


def test_forged_probes_name_no_ring_and_go_nowhere() -> None:
    """Nobody who is not known to wait for us is heard; a path that was made up closes nothing."""
    roots = Roots(Wait("a", "b"), Wait("h", "a"))
    roots.follow()
    roots.pass_ms(1_000)
    for forged in (
        probe("a", "x"),  # waits for nobody here
        probe("a", "a", "b", "x"),
        probe("a", "a", "b", "h"),  # h waits for a, and a for b: but nobody asked b
        probe("a", "h", kind="resource"),
        probe("a", "b", "b", "h"),
        probe("a", "a"),
        probe("a"),
        probe("a", *(f"p{number}" for number in range(HOPS_MAX)), "h"),
        Probe("odd", "a", ("h",), ()),
    ):
        assert roots.take("h", forged) == Found(), forged
    assert roots.take("h", probe("b", "h")) == Found()  # b waits for nobody
    assert roots.probers["a"].cycles == ()
    assert roots.probers["a"].dropped_count > 0


def test_probe_that_was_stolen_names_no_ring_once_the_wait_is_over() -> None:
    """An id is good for one wait only, and for whom it was sent over."""
    roots = Roots(Wait("a", "h"), Wait("h", "a"))
    roots.follow()
    roots.now_ms += 500
    (sent,) = roots.probers["a"].tick(lambda *_: "ask", roots.now_ms)
    elsewhere = Probe(sent.id, "a", ("a", "x", "h"), ("ask", "ask", "ask"))
    assert roots.take("h", elsewhere).cycle is None
    back = Probe(sent.id, "a", ("a", "h"), ("ask", "ask"))
    assert roots.take("h", back).is_new
    assert not roots.take("h", back).is_new
    roots.waits.discard(Wait("a", "h"))
    roots.follow()
    assert roots.take("h", back) == Found()


def test_same_probe_goes_on_once_and_a_long_one_not_at_all() -> None:
    """A repeat is passed on again only after a while; the last hop ends there."""
    roots = Roots(Wait("h", "a"), Wait("a", "b"))
    roots.follow()
    (onward,) = roots.take("h", probe("a", "h")).onward
    assert (onward.to, onward.path, onward.kinds) == ("b", ("h", "a"), ("ask", "ask"))
    assert roots.take("h", probe("a", "h")) == Found()
    roots.now_ms += 1_000
    assert len(roots.take("h", probe("a", "h")).onward) == 1
    longest = [f"p{number}" for number in range(HOPS_MAX - 1)]
    assert roots.take("h", probe("a", *longest, "h", name="long")) == Found()


@pytest.mark.clause("S18")
def test_flood_of_one_root_is_dropped_and_takes_nothing_from_others() -> None:
    """Past its share a root's probes cost a look at a number; another root's still pass."""
    roots = Roots(Wait("h", "a"), Wait("g", "a"), Wait("a", "b"))
    roots.follow()
    for number in range(1_000):
        roots.take("h", probe("a", "h", name=f"n{number}"))
    dropped = roots.probers["a"].dropped_count
    assert dropped > 900
    roots.now_ms += 1_000
    assert len(roots.take("g", probe("a", "g")).onward) == 1


def test_memories_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered of probes, roots, rings and own waits has an end each."""
    monkeypatch.setattr(probing, "SEEN_MAX", 2)
    monkeypatch.setattr(probing, "ROOTS_MAX", 2)
    monkeypatch.setattr(probing, "NAMED_MAX", 1)
    monkeypatch.setattr(probing, "OWN_MAX", 3)
    waits = [wait for other in "bcde" for wait in (Wait("a", other), Wait(other, "a"))]
    roots = Roots(*waits)
    roots.follow()
    assert roots.probers["a"].due_ms == roots.now_ms + probing.FIRST_MS
    roots.pass_ms(2_000)
    assert len(roots.named()["a"]) == 1
    for number in range(8):
        roots.take(f"root-{number}", probe("a", "b", name=f"n{number}"))
    prober = roots.probers["a"]
    assert (len(prober._seen), len(prober._budgets), len(prober._own)) == (2, 2, 3)
    assert Prober().due_ms is None


def test_probes_of_a_standing_wait_become_seldom() -> None:
    """A wait of minutes costs one probe in five seconds."""
    roots = Roots(Wait("a", "b"))
    roots.follow()
    roots.pass_ms(60_000)
    assert roots.sent_count <= 18
