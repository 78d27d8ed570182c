"""What a window takes of what other windows write to it: the receiver's checks in their order.

Theory. Whoever can write here is the same user, and `from` is a claim. So nothing here is a proof; it
keeps a runaway sender from filling a model's context, and a repeated frame from being a second message.
The checks run as the specification lists them: rate, form, repeat, hops, room, the person's policy.

Rule 1: the first check that says no is the verdict. A no for the rate leaves no trace.
Rule 2: the same id from the same address is given its earlier verdict; the same text from the same address
    under another id is dropped, when the first was taken.
Rule 3: only what passed the rate is remembered, and not longer than its window: a flood of addresses or ids
    grows nothing, and pushes out no verdict of anybody else.
Rule 4: a child, proved by its token, has its own rate, is not counted in hops and asks nobody's consent.
Rule 5: this module knows no clock and no wire; monotonic milliseconds come in.

Source: spec/pi-peers.md "Anti-abuse on receive"; reference/pi-peers-and-harness-doors.md 1.7, U13 to U16.
"""

from collections import OrderedDict
from typing import Final, Literal, NamedTuple

from tieline.machine.admission import Bucket, refilled

__all__ = ["HOPS_MAX", "OWN_HOPS_MAX", "QUEUE_MAX", "WINDOW_MS", "Arrival", "Intake", "Judgement", "Policy"]

WINDOW_MS: Final = 30_000
"""How long an id's verdict and a taken text are remembered; what is older is asked of the journal."""
QUEUE_MAX: Final = 50
"""Messages accepted since the session was idle last."""
HOPS_MAX: Final = 28
OWN_HOPS_MAX: Final = 9
"""A chain may be so long, and hold our own address so often."""

Policy = Literal["accept", "ask", "off"]


class Arrival(NamedTuple):
    """One authenticated frame, as far as a verdict depends on it."""

    address: str  # whom it says it is from
    message_id: str
    content_digest: bytes
    hop_count_own: int = 0
    hop_length: int = 0
    is_child: bool = False
    is_malformed: bool = False  # its wrapper is forged, nested or unbalanced
    is_control: bool = False


class Judgement(NamedTuple):
    """The verdict. `earlier` is what a "repeat" was given the first time."""

    kind: Literal["accept", "hold", "drop", "refuse", "repeat"]
    reason: str = ""  # of a drop: rate-limited, malformed-wrapper, duplicate, hop-limit, queue-full
    earlier: "Judgement | None" = None


class _Rate(NamedTuple):
    burst: int
    per_second: float


class _Lane:
    """The rate of one kind of traffic: of each sender, where it is counted, and of all together."""

    def __init__(self, each: _Rate | None, all_together: _Rate) -> None:
        self._each, self._all = each, all_together
        self._senders: OrderedDict[str, Bucket] = OrderedDict()  # by the time of their last message
        self._total: Bucket | None = None

    def __len__(self) -> int:
        return len(self._senders)

    def draw(self, address: str, now_ms: int) -> bool:
        """Take one token of the sender and one of all, or neither."""
        total = refilled(self._total, now_ms, self._all.per_second, self._all.burst)
        if total.level < 1000:
            return False
        if self._each is not None:
            self._forget(self._each, now_ms)
            known = self._senders.get(address)
            mine = refilled(known, now_ms, self._each.per_second, self._each.burst)
            if mine.level < 1000:
                return False
            self._senders[address] = Bucket(mine.level - 1000, mine.at_ms)
            self._senders.move_to_end(address)
        self._total = Bucket(total.level - 1000, total.at_ms)
        return True

    def _forget(self, rate: _Rate, now_ms: int) -> None:
        """Let go of senders silent for so long that their buckets are full whatever they held."""
        full_ms = rate.burst * 1000 / rate.per_second
        while self._senders:
            address = next(iter(self._senders))
            if now_ms - self._senders[address].at_ms < full_ms:
                return
            del self._senders[address]


_USER: Final = (_Rate(30, 0.5), _Rate(120, 2.0))
_CHILD: Final = (None, _Rate(120, 12.0))
_CONTROL: Final = (_Rate(120, 4.0), _Rate(480, 16.0))
"""Each sender's rate and that of all senders. Controls are receipts and notices of what we sent ourselves:
generous, so that an answer is not lost to somebody's messages (U15)."""


class Intake:
    """The pipeline of one window."""

    def __init__(self) -> None:
        self._user, self._child, self._control = _Lane(*_USER), _Lane(*_CHILD), _Lane(*_CONTROL)
        self._verdicts: OrderedDict[tuple[str, str], tuple[Judgement, int]] = OrderedDict()
        self._texts: OrderedDict[tuple[str, bytes], int] = OrderedDict()
        self._accepted_count = 0

    def __len__(self) -> int:
        """How much is remembered."""
        lanes = len(self._user) + len(self._child) + len(self._control)
        return lanes + len(self._verdicts) + len(self._texts)

    def judge(self, arrival: Arrival, now_ms: int, policy: Policy) -> Judgement:
        """Return what is to become of a frame; one that passed the rate counts from now on."""
        lane = self._child if arrival.is_child else self._user
        if arrival.is_control:
            lane = self._control
        if not lane.draw(arrival.address, now_ms):
            return Judgement("drop", "rate-limited")
        if arrival.is_control:
            return Judgement("accept")
        if arrival.is_malformed:
            return Judgement("drop", "malformed-wrapper")
        self._forget(now_ms)
        name, text = (arrival.address, arrival.message_id), (arrival.address, arrival.content_digest)
        earlier = self._verdicts.get(name)
        if earlier is not None:
            return Judgement("repeat", earlier[0].reason, earlier[0])
        verdict = self._new(arrival, text, policy)
        self._verdicts[name] = (verdict, now_ms)
        if verdict.kind in ("accept", "hold"):
            self._texts[text] = now_ms
        return verdict

    def note_accepted(self) -> None:
        """A message was accepted: it counts until the session is idle."""
        self._accepted_count += 1

    def idle(self) -> None:
        """The session is idle: its queue is empty."""
        self._accepted_count = 0

    def _new(self, arrival: Arrival, text: tuple[str, bytes], policy: Policy) -> Judgement:
        if text in self._texts:
            return Judgement("drop", "duplicate")
        is_looping = arrival.hop_count_own > OWN_HOPS_MAX or arrival.hop_length > HOPS_MAX
        if is_looping and not arrival.is_child:
            return Judgement("drop", "hop-limit")
        if self._accepted_count >= QUEUE_MAX:
            return Judgement("drop", "queue-full")
        if policy == "accept" or arrival.is_child:
            return Judgement("accept")
        return Judgement("hold") if policy == "ask" else Judgement("refuse")

    def _forget(self, now_ms: int) -> None:
        """Let go of what has left its window."""
        while self._verdicts and next(iter(self._verdicts.values()))[1] <= now_ms - WINDOW_MS:
            self._verdicts.popitem(last=False)
        while self._texts and next(iter(self._texts.values())) <= now_ms - WINDOW_MS:
            self._texts.popitem(last=False)
