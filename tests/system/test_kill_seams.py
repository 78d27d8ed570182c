"""Roots killed at every seam, sender and recipient in turn: what was told stands, once."""

import collections
import json
import os
import random
import signal

import pytest

from tests.faults.memory import memory_folder
from tests.system.kit.lives import COUNT, Child, Kept, kept, recipient, sender, steady

# Read before the tests' own environment hides it.
KILLS = int(os.environ.get("TIELINE_KILLS", "500"))
PAIRS_PER_STEADY = 30
ESSENTIAL = {
    "endpoint.bound",
    "files.renamed",
    "journal.after_commit",
    "journal.before_commit",
    "journal.created",
    "node.telling",
    "world.sending",
}


class Tally:
    """What all lives together came to."""

    def __init__(self) -> None:
        self.kills = self.acknowledged = self.ended = self.interrupted = 0
        self.lost: list[tuple[str, str]] = []
        self.twice: list[tuple[str, str]] = []
        self.phantoms: list[tuple[str, str]] = []
        self.seams: collections.Counter[str] = collections.Counter()


class Round:
    """One steady root and the lives that met it."""

    def __init__(self, home: str, tally: Tally) -> None:
        self.home, self.tally = home, tally
        self.steady = Child(steady(home))
        self.alive = [self.steady]
        words = self.steady.line()
        assert words is not None
        _, self.instance, self.peer = words
        self.stores: dict[str, Kept] = {}
        self.told_to_dead: list[tuple[str, str]] = []  # senders that died were told this of the steady root

    def pair(self, tag: str, stop_at: dict[bool, int]) -> dict[bool, list[str]]:
        """Run two lives at once, a recipient (True) and a sender (False), to their ends.

        Returns the seams that each passed, where it ended in order.
        """
        lives = {
            True: Child(recipient(self.home, "r" + tag), stop_at=stop_at[True]),
            False: Child(sender(self.home, "s" + tag, self.peer), stop_at=stop_at[False]),
        }
        self.alive = [self.steady, *lives.values()]
        instances, passed = {True: "", False: ""}, {}
        for is_recipient, child in lives.items():
            while (words := child.line()) is not None:
                if words[0] == "ready":
                    instances[is_recipient] = words[1]
                    if is_recipient:
                        self.steady.tell("send", words[2], "r" + tag)
                elif words[0] == "accepted":
                    self.told_to_dead.append((instances[False], words[1]))
                elif words[0] == "killed":
                    self.tally.seams[words[1]] += 1
                elif words[0] == "passed":
                    passed[is_recipient] = json.loads(words[1])
            ended_by = child.ended()
            assert ended_by == (0 if is_recipient in passed else signal.SIGKILL)
            self.tally.kills += ended_by == signal.SIGKILL
            self.tally.ended += ended_by == 0
        told = []
        if instances[True]:
            self.steady.tell("report", "r" + tag)
            told = [words[1] for words in self.steady.until("reported") if words[1].startswith(f"r{tag}-")]
        self.check(instances[True], told)
        self.check(instances[False], [])
        return passed

    def check(self, instance: str, told: list[str]) -> None:
        """Compare what a recipient acknowledged with what its store holds."""
        is_recovered = len(self.stores) % 8 == 0
        store = kept(self.home, instance, is_recovered=is_recovered) if instance else None
        if store is None:
            self.tally.interrupted += 1
            store = Kept([], set(), [])
        self.tally.acknowledged += len(told)
        self.tally.lost += [(instance, name) for name in told if (self.instance, name) not in store.held]
        self.tally.twice += [item for item, count in collections.Counter(store.held).items() if count > 1]
        self.stores[instance] = store

    def end(self) -> None:
        """End the steady root, and compare its store with those of all that met it."""
        self.steady.tell("end")
        self.steady.until("passed")
        assert self.steady.ended() == 0
        own = kept(self.home, self.instance, is_recovered=True)
        assert own is not None
        tally = self.tally
        tally.acknowledged += len(self.told_to_dead)
        tally.lost += [item for item in self.told_to_dead if item not in own.held]
        tally.twice += [item for item, count in collections.Counter(own.held).items() if count > 1]
        for instance, store in self.stores.items():
            # Whatever either end believes of the other's custody, the other's store must hold.
            tally.phantoms += [item for item in store.told if (instance, item[1]) not in own.held]
        held = {(instance, item[1]) for instance, store in self.stores.items() for item in store.held}
        tally.phantoms += [item for item in own.told if item not in held]

    def discard(self) -> None:
        """Leave no process behind when a promise was broken."""
        for child in self.alive:
            child.discard()


@pytest.mark.timeout(900)
@pytest.mark.clause("K1", "I1", "I2", "I3", "I11", "I21", "I50", "O43", "native-99")
def test_roots_killed_at_every_seam_keep_what_was_told() -> None:
    """Hundreds of lives cut at any seam: nothing accepted is lost, nothing is twice, no receipt is false."""
    tally, chance = Tally(), random.Random(20)
    with memory_folder() as folder:
        home = str(folder)
        pairs = 0
        lengths: dict[bool, int] = {}
        while tally.kills < KILLS:
            met = Round(home, tally)
            try:
                if not lengths:  # two whole lives tell how many seams there are to die at
                    whole = met.pair("whole", {True: 0, False: 0})
                    assert all(set(passed) >= ESSENTIAL for passed in whole.values())
                    lengths = {is_recipient: len(passed) for is_recipient, passed in whole.items()}
                    opening = whole[True].index("journal.grown")
                for _ in range(PAIRS_PER_STEADY):
                    # One walks through all places to die at, the next dies anywhere among its messages.
                    walked = pairs // 2 + 1
                    met.pair(
                        str(pairs),
                        {
                            key: walked
                            if pairs % 2 and walked <= lengths[key]
                            else chance.randint(opening, lengths[key])
                            for key in lengths
                        },
                    )
                    pairs += 1
                    if tally.kills >= KILLS:
                        break
                met.end()
            except BaseException:
                met.discard()
                raise
    bound = 3 / max(1, tally.acknowledged)
    print(
        f"kills {tally.kills} at {len(tally.seams)} different seams, ended in order {tally.ended}, "
        f"stores never finished {tally.interrupted}, acknowledged {tally.acknowledged}, "
        f"lost {len(tally.lost)}, duplicated {len(tally.twice)}, false receipts {len(tally.phantoms)}, "
        f"bound 3/N = {bound:.1e}; {dict(tally.seams)}"
    )
    assert (tally.lost, tally.twice, tally.phantoms) == ([], [], [])
    assert tally.acknowledged > tally.kills  # it killed in the midst of traffic, not before it
    assert set(tally.seams) >= ESSENTIAL or pairs < 2 * max(lengths.values())
    assert COUNT * (tally.kills + tally.ended) > tally.acknowledged
