"""Show that what we know of a sent message only grows, by the recipient's word or by proof."""

from itertools import product

import msgspec
import pytest

from tieline.config import RETRY_LAST_MS
from tieline.errors import Refusal
from tieline.machine.outbox import (
    IGNORED,
    KEPT_CODES,
    LINK_CODES,
    MOVES,
    OUTCOME_ONLY,
    REENTRY,
    Known,
    lost,
    reenter,
    refused,
    retry_delay_ms,
    step,
    undelivered,
)
from tieline.model.receipt import FINAL, HELD, NOTES, Durability, Receipt, State

P, U, A, C = State.PENDING, State.UNKNOWN, State.ACCEPTED, State.CONSUMED
R, J, E = State.REPLIED, State.REJECTED, State.EXPIRED

# reference/native.md 3.3, written out again by hand: from -> what may follow.
TABLE = {
    P: {U, A, C, R, J, E},
    U: {A, C, R, J, E},
    A: {C, R, E},
    C: {R},
    R: set(),
    J: set(),
    E: set(),
}


def told(state: State, cursor: int = 10, **fields: object) -> Receipt:
    return Receipt(message_id="m", sender="s", recipient="r", state=state, cursor=cursor, **fields)  # type: ignore[arg-type]


@pytest.mark.clause("I15", "native-102")
def test_pair_of_states_is_in_exactly_one_table() -> None:
    """Every pair of states has exactly one answer."""
    for pair in product(State, State):
        assert sum(pair in table for table in (MOVES, OUTCOME_ONLY, REENTRY, IGNORED)) == 1, pair


@pytest.mark.clause("I15", "mutant-9")
def test_moves_are_those_of_the_reference() -> None:
    """The states move as the reference's table says, and no other way."""
    assert {pair for pair in product(State, State) if pair[1] in TABLE[pair[0]]} == MOVES


@pytest.mark.clause("native-102", "I15", "I19")
@pytest.mark.parametrize(("before", "after"), list(product(State, State)))
def test_receipt_in_every_state_moves_only_along_the_table(before: State, after: State) -> None:
    """A receipt changes the state where the table allows it, and nothing where it does not."""
    known = step(Known(state=before, recipient_cursor=5), told(after))
    is_theirs = after not in (P, U)
    assert (known is not None) == (is_theirs and after in TABLE[before])
    if known is not None:
        assert known.state is after


@pytest.mark.clause("native-102")
def test_refusal_after_consumed_is_ignored() -> None:
    """A delayed refusal does not take back what was consumed or replied."""
    for state in (A, C, R):
        assert step(Known(state=state), told(J)) is None
        assert refused(Known(state=state), Refusal("QUEUE_FULL", "late")) is None


@pytest.mark.clause("I19")
def test_older_receipt_is_ignored() -> None:
    """A receipt with a lower cursor of the recipient changes nothing, whatever it says."""
    known = Known(state=A, recipient_cursor=9, accepted_ms=1)
    assert step(known, told(C, cursor=8, consumed_ms=2)) is None
    assert step(known, told(C, cursor=9, consumed_ms=2)) is not None


def test_outcome_of_accepted_may_become_target_ended_once() -> None:
    """Accepted mail of an ended run gets that outcome, once, and no other."""
    known = Known(state=A, accepted_ms=1, recipient_cursor=2)
    ended = step(known, told(A, outcome="TARGET_ENDED"))
    assert ended == msgspec.structs.replace(known, outcome="TARGET_ENDED", recipient_cursor=10)
    assert step(ended, told(A, cursor=11, outcome="TARGET_ENDED")) is None
    assert step(known, told(A)) is None
    assert step(known, told(A, outcome="OTHER")) is None


def test_time_once_stated_never_changes() -> None:
    """A later receipt adds times and replaces none."""
    known = Known(state=A, accepted_ms=1, durability=Durability.SYNCED, recipient_cursor=1)
    after = step(known, told(R, accepted_ms=7, consumed_ms=8, replied_ms=9, durability=Durability.VOLATILE))
    assert after is not None
    assert (after.accepted_ms, after.consumed_ms, after.replied_ms) == (1, 8, 9)
    assert after.durability is Durability.SYNCED


def test_durability_that_nobody_stated_is_unstated() -> None:
    """A receipt without a word on storage is kept as that."""
    after = step(Known(), told(A))
    assert after is not None
    assert after.durability is Durability.UNSTATED


@pytest.mark.clause("native-3.6.2", "I4")
def test_lost_attempt_of_pending_is_unknown() -> None:
    """A transmission without an answer makes the message unknown, and nothing weaker than that."""
    after = lost(Known())
    assert after is not None
    assert after.state is U
    assert all(lost(Known(state=state)) is None for state in State if state is not P)


@pytest.mark.parametrize("code", sorted(KEPT_CODES))
@pytest.mark.parametrize("state", [P, U])
def test_refusal_that_proves_nothing_leaves_the_intent(code: str, state: State) -> None:
    """A refusal that does not say that nothing is held changes nothing."""
    assert refused(Known(state=state), Refusal(code, "no")) is None


@pytest.mark.parametrize("code", ["QUEUE_FULL", "RATE_LIMITED"])
def test_transient_refusal_is_rejected_and_retryable(code: str) -> None:
    """A full or too fast recipient rejects definitely, and the same id may try again."""
    after = refused(Known(), Refusal(code, "no"))
    assert after is not None
    assert (after.state, after.outcome, after.is_retryable) == (J, code, True)
    assert reenter(after) == Known()


@pytest.mark.clause("I4")
@pytest.mark.parametrize("code", sorted(LINK_CODES))
def test_refusal_of_a_link_says_nothing_of_an_attempt_that_was_never_answered(code: str) -> None:
    """A no that looked at no record does not turn an open doubt into a definite refusal."""
    assert refused(Known(state=U), Refusal(code, "no")) is None
    assert refused(Known(state=U), Refusal("INVALID_REPLY", "no")) is not None


def test_definite_refusal_is_rejected_for_good() -> None:
    """Any other refusal is the outcome, and the same id does not try again."""
    after = refused(Known(), Refusal("SCOPE_DENIED", "no"))
    assert after is not None
    assert (after.state, after.outcome, after.is_retryable) == (J, "SCOPE_DENIED", False)
    assert reenter(after) is None


def test_reentry_of_anything_but_rejected_is_refused() -> None:
    """Only a rejected message tries again."""
    assert all(reenter(Known(state=state, is_retryable=True)) is None for state in State if state is not J)


def test_undelivered_needs_an_unsettled_message() -> None:
    """Only a message that nobody answered for expires undelivered."""
    for state in State:
        after = undelivered(Known(state=state))
        if state in (P, U):
            assert after is not None
            assert (after.state, after.outcome) == (E, "NOT_DELIVERED")
        else:
            assert after is None


def test_final_states_have_no_way_out() -> None:
    """Nothing moves out of a final state."""
    assert not [pair for pair in MOVES if pair[0] in FINAL]


@pytest.mark.clause("native-98")
def test_retry_delay_doubles_to_its_bound_with_jitter_of_the_id() -> None:
    """Delays double from half a second to thirty, less up to a quarter, the same on every run."""
    full = [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]
    delays = [retry_delay_ms("m", count) for count in range(1, 9)]
    assert all(high * 3 // 4 <= delay <= high for delay, high in zip(delays, full, strict=True))
    assert delays == [retry_delay_ms("m", count) for count in range(1, 9)]
    assert len({retry_delay_ms(f"m{number}", 7) for number in range(50)}) > 25
    assert retry_delay_ms("m", 1_000_000) <= RETRY_LAST_MS


@pytest.mark.parametrize("state", list(State))
def test_step_to_held_moves_only_our_own_words_and_once(state: State) -> None:
    """That a person is asked is less than anything the recipient stated, and news only once."""
    held = Receipt("m", "a", "b", State.PENDING, 0, outcome=HELD)
    after = step(Known(state=state), held)
    if state in (P, U):
        assert after == Known(state=U, outcome=HELD)
        assert step(after, held) is None
        assert lost(after) is None
    else:
        assert after is None


def test_step_of_receipt_without_durability_takes_the_wires() -> None:
    """What the receipt states goes before what its wire lets one expect."""
    told = Receipt("m", "a", "b", A, 0)
    for stated, expected in ((None, Durability.VOLATILE), (Durability.SYNCED, Durability.SYNCED)):
        after = step(Known(), msgspec.structs.replace(told, durability=stated), Durability.VOLATILE)
        assert after is not None
        assert after.durability is expected


def test_step_to_a_note_only_says_more_than_the_one_before() -> None:
    """How far it came grows beside unknown, never shrinks, and yields to the recipient's own word."""
    known: Known | None = lost(Known(), NOTES[0])
    for word in NOTES[1:]:
        assert known is not None
        told = Receipt("m", "a", "b", U, 0, outcome=word)
        after = step(known, told)
        assert after is not None
        assert (after.state, after.outcome) == (U, word)
        assert step(after, told) is None
        assert step(after, Receipt("m", "a", "b", U, 0, outcome=NOTES[0])) is None
        known = after
    assert known is not None
    accepted = step(known, Receipt("m", "a", "b", A, 0))
    assert accepted is not None
    assert (accepted.state, accepted.outcome) == (A, None)
    assert all(
        step(Known(state=one), Receipt("m", "a", "b", U, 0, outcome=NOTES[0])) is None
        for one in State
        if one is not U
    )
