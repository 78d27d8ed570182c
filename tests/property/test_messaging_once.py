"""Show that a wire without answers, where a repeat is a second message, never makes one.

Our root writes to two windows; frames are written, lost, refused before they left or never told of;
windows answer late, twice, out of order or not at all; the journal keeps any prefix of what was decided
and the root falls back to it, in the same process or in a new one. Counted at the windows: no message
leaves twice, and none is accepted here that no window accepted.
"""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.engine.messaging.kit import FREE, Bench, draft, envelope, receipt, transmitted
from tieline.engine.contract import (
    Answer,
    Asked,
    Consent,
    Offer,
    Outcome,
    Plan,
    PushReceipt,
    ReceiptTold,
    Settle,
    Submit,
)
from tieline.errors import Refusal
from tieline.model.identity import Peer, foreign_instance
from tieline.model.receipt import HELD, THEIRS, Receipt, State

WINDOWS = [Peer(foreign_instance("pi-peers", name)) for name in ("s1", "s2")]
ENDS = [*Outcome, Refusal("PEER_OFFLINE", "no key"), Refusal("UNSUPPORTED_PROTOCOL", "protocol_version")]
STATEMENTS = [
    (State.PENDING, HELD),
    (State.ACCEPTED, None),
    (State.REJECTED, "DENIED"),
    (State.REJECTED, "RATE_LIMITED"),
    (State.EXPIRED, "HELD_EXPIRED"),
]
NUMBERS = 2  # few ids, so that what happens happens to the same message
_NUMBER = st.integers(0, NUMBERS - 1)
_SUBMIT = st.tuples(st.just("submit"), _NUMBER, st.integers(0, 1))
_SETTLE = st.tuples(st.just("settle"), st.integers(0, 1), st.integers(0, len(ENDS) - 1))
STEPS = st.one_of(
    _SUBMIT,
    _SUBMIT,
    _SETTLE,
    _SETTLE,
    st.tuples(st.just("state"), _NUMBER, st.integers(0, len(STATEMENTS) - 1)),
    st.tuples(st.just("pass"), st.sampled_from([1, 30_000, 600_000]), st.just(0)),
    st.tuples(st.just("restore"), st.integers(0, 3), st.integers(0, 1)),
    st.tuples(st.just("hold"), _NUMBER, st.just(0)),
    st.tuples(st.just("consent"), _NUMBER, st.integers(0, 1)),
)


class Wire:
    """Our root, its journal, and what the windows saw and said."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.under_way: list[tuple[int, str]] = []
        self.left: Counter[str] = Counter()  # frames that may have arrived
        self.stated: dict[str, set[State]] = {}
        self.held: dict[str, list[Receipt]] = {}

    def carry(self, plan: Plan) -> None:
        for one in transmitted(plan):
            self.under_way.append((one.attempt, one.envelope.message_id))
            assert one.envelope.content, "a text that was let go left"
        for send in plan.sends:
            if isinstance(send, PushReceipt):
                self.held.setdefault(send.receipt.message_id, []).append(send.receipt)
            elif isinstance(send, Answer) and isinstance(send.body, Receipt):
                self.held.setdefault(send.body.message_id, []).append(send.body)

    def submit(self, number: int, window: int) -> None:
        one = draft(f"m{number}-{window}", self.bench.root, WINDOWS[window])
        self.carry(self.bench.do(Submit(one)))

    def settle(self, place: int, end: int) -> None:
        if place >= len(self.under_way):
            return
        attempt, message_id = self.under_way.pop(place)
        outcome = ENDS[end]
        if isinstance(outcome, Refusal):
            plan = self.bench.do(Settle(attempt, Outcome.REFUSED, refusal=outcome))
        else:
            self.left[message_id] += outcome in (Outcome.WRITTEN, Outcome.LOST, Outcome.ANSWERED)
            plan = self.bench.do(Settle(attempt, outcome))
        self.carry(plan)

    def state(self, number: int, statement: int) -> None:
        state, outcome = STATEMENTS[statement]
        for window, peer in enumerate(WINDOWS):
            message_id = f"m{number}-{window}"
            if self.left[message_id]:
                self.stated.setdefault(message_id, set()).add(state)
                told = receipt(message_id, state, recipient=peer, cursor=0, outcome=outcome, durability=None)
                self.carry(self.bench.do(ReceiptTold(Asked(9, message_id), peer.instance, told)))

    def restore(self, lost: int, is_new: int) -> None:
        bench = self.bench
        if lost:
            # Only what rides in a later group may be lost once something after it left.
            while bench.groups and lost and not self._is_needed(len(bench.groups) - 1):
                bench.groups.pop()
                lost -= 1
        if is_new:
            for _, message_id in self.under_way:  # nobody is left to tell; the frame may have gone
                self.left[message_id] += 1
            self.under_way.clear()
            bench.engine = bench.restored()
        else:
            bench.engine.restore(bench.rows, bench.now)
        self.carry(bench.tick())

    def _is_needed(self, place: int) -> bool:
        """Whether a group holds more than our own word `unknown`: that is durable before its effect."""
        for row in self.bench.groups[place]:
            if not hasattr(row, "message") or row.state is not State.UNKNOWN or row.outcome is not None:
                return True
        return False

    def check(self) -> None:
        for number in range(NUMBERS):
            for window in (0, 1):
                message_id = f"m{number}-{window}"
                assert self.left[message_id] <= 1, f"{message_id} left twice"
                for sent in self.bench.engine.sent(message_id, None):
                    state = sent.receipt.state
                    if state in THEIRS and state not in (State.EXPIRED, State.REJECTED):
                        assert state in self.stated.get(message_id, ()), f"{message_id}: nobody said {state}"


@settings(max_examples=300)
@given(steps=st.lists(STEPS, min_size=10, max_size=40))
def test_message_on_a_wire_without_answers_never_leaves_twice(steps: list[tuple[str, int, int]]) -> None:
    """Whatever is lost, stated or forgotten: one transmission at most, and no receipt but the recipient's."""
    wire = Wire()
    bench = wire.bench
    for kind, first, second in steps:
        if kind == "submit":
            wire.submit(first, second)
        elif kind == "settle":
            wire.settle(first, second)
        elif kind == "state":
            wire.state(first, second)
        elif kind == "pass":
            wire.carry(bench.tick(first))
        elif kind == "restore":
            wire.restore(first, second)
        elif kind == "hold":
            bench.asked += 1
            one = envelope(f"h{first}", WINDOWS[0], bench.root)
            wire.carry(bench.do(Offer(Asked(1, bench.asked), WINDOWS[0].instance, FREE, one, is_held=True)))
        else:
            wire.carry(bench.do(Consent(bench.root, f"h{first}", is_accepted=bool(second))))
        wire.check()
    for told in wire.held.values():
        words = [one.state for one in told if one.state is not State.PENDING]
        assert len(set(words)) <= 1, "a held message ended in two ways"
