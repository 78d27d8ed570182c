"""Show the rules of replies, of automatic messages, and of budgets without a person."""

from itertools import count

import pytest

from tests.unit.engine.messaging.kit import A, B, C, envelope
from tieline.config import PAIR_WINDOW_MS
from tieline.engine.contract import Act
from tieline.engine.conversation import (
    EXPOSURES_KEPT,
    Budgets,
    act_fault,
    answer_fault,
    ask_back_fault,
    context_record,
    crossing_fault,
    depth_of,
    reply_fault,
)
from tieline.errors import Refusal
from tieline.model.identity import Peer


def code(refusal: Refusal | None) -> str | None:
    return None if refusal is None else refusal.code


@pytest.mark.clause("native-147")
def test_automatic_act_without_auto_is_denied() -> None:
    """An automatic send needs a person's explicit setting, and a message that it answers."""
    assert code(act_fault(Act.AUTOMATIC, is_reply=True, idle_behavior="notify")) == "CAPABILITY_DENIED"
    assert code(act_fault(Act.AUTOMATIC, is_reply=False, idle_behavior="auto")) == "INVALID_REPLY"
    assert act_fault(Act.AUTOMATIC, is_reply=True, idle_behavior="auto") is None
    for act in (Act.PERSON, Act.AGENT):
        assert act_fault(act, is_reply=False, idle_behavior="notify") is None


@pytest.mark.clause("native-108", "I26", "native-212")
def test_answer_to_anything_but_that_peers_message_is_no_reply() -> None:
    """We answer only what came from exactly the target to exactly the author."""
    original = envelope("q", B, A)
    assert answer_fault(original, envelope("r", A, B, reply_to="q")) is None
    run = Peer("b", "run")
    for wrong in (None, envelope("q", run, A), envelope("q", B, Peer("a", "run")), envelope("q", C, A)):
        assert code(answer_fault(wrong, envelope("r", A, B, reply_to="q"))) == "INVALID_REPLY"


@pytest.mark.clause("native-108", "I26")
def test_arriving_reply_to_anything_but_our_message_is_no_reply() -> None:
    """A reply is for exactly the sender, from exactly the recipient, in the same conversation."""
    original = envelope("q", A, B)
    right = envelope("r", B, A, reply_to="q", correlation_id="q")
    assert reply_fault(original, right) is None
    assert code(reply_fault(None, right)) == "INVALID_REPLY"
    for wrong in (
        envelope("r", C, A, reply_to="q", correlation_id="q"),
        envelope("r", Peer("b", "run"), A, reply_to="q", correlation_id="q"),
        envelope("r", B, Peer("a", "run"), reply_to="q", correlation_id="q"),
        envelope("r", B, A, reply_to="q", correlation_id="other"),
        envelope("r", B, A, reply_to="q"),
    ):
        assert code(reply_fault(original, wrong)) == "INVALID_REPLY"


@pytest.mark.clause("I30")
def test_question_faults_name_the_question_that_waits() -> None:
    """A question that would make both wait is refused with the id that is to be answered first."""
    assert ask_back_fault(None) is None
    refusal = ask_back_fault(envelope("q5", B, A))
    assert code(refusal) == "RESOURCE_BUSY"
    assert refusal is not None
    assert "q5" in refusal.text
    assert crossing_fault(None, envelope("q5", B, A)) is None
    assert crossing_fault(envelope("q6", A, B), envelope("q5", B, A)) is None
    assert code(crossing_fault(envelope("q4", A, B), envelope("q5", B, A))) == "RESOURCE_BUSY"


@pytest.mark.clause("native-111", "I29")
@pytest.mark.parametrize(("depth", "is_right"), [(0, True), (3, True), (2, False), (1, False), (4, False)])
def test_arriving_reply_with_a_forged_depth_is_no_reply(depth: int, is_right: bool) -> None:
    """An automatic reply is one deeper than its original; a person's has no depth."""
    original = envelope("q", A, B, automatic_depth=2, correlation_id="first")
    reply = envelope("r", B, A, reply_to="q", correlation_id="first", automatic_depth=depth)
    assert (reply_fault(original, reply) is None) == is_right


@pytest.mark.clause("native-113")
def test_depth_of_a_persons_send_is_zero() -> None:
    """A deliberate send starts anew, whatever was shown before."""
    assert depth_of(Act.PERSON, envelope("q", B, A, automatic_depth=5), 7) == 0


@pytest.mark.parametrize(
    ("act", "original_depth", "exposed", "depth"),
    [
        (Act.AGENT, None, None, 0),
        (Act.AGENT, 5, None, 0),
        (Act.AGENT, None, 3, 4),
        (Act.AGENT, 5, 3, 6),
        (Act.AUTOMATIC, 5, None, 6),
        (Act.AUTOMATIC, 64, 0, 64),
        (Act.AGENT, None, 0, 1),
    ],
)
def test_depth_without_a_person_is_inherited(
    act: Act, original_depth: int | None, exposed: int | None, depth: int
) -> None:
    """A model's send is one deeper than what it answers, or than what it was last shown."""
    original = None if original_depth is None else envelope("q", B, A, automatic_depth=original_depth)
    assert depth_of(act, original, exposed) == depth


def test_context_record_is_the_same_for_every_attempt_and_no_other_message() -> None:
    """The record's id depends on the message's identity alone."""
    one = context_record(envelope("m", A, B, content="x"))
    assert one == context_record(envelope("m", A, B, content="y"))
    others = [envelope("n", A, B), envelope("m", C, B), envelope("m", A, C), envelope("m", Peer("a", "r"), B)]
    assert len({one, *map(context_record, others)}) == 5
    assert len(one) == 64


@pytest.mark.clause("native-112", "I29")
def test_chain_counts_distinct_automatic_messages() -> None:
    """A conversation counts each automatic message once, own and received, and forgets removed ones."""
    budgets = Budgets()
    first = envelope("m1", A, B, automatic_depth=1, correlation_id="c")
    budgets.count_stored(first)
    budgets.count_stored(first)  # both ends of one message, in one root
    budgets.count_stored(envelope("m2", B, A, automatic_depth=2, correlation_id="c"))
    budgets.count_stored(envelope("m3", B, A, correlation_id="c"))
    assert budgets.chain_count("c") == 2
    budgets.count_forgotten(first)
    assert budgets.chain_count("c") == 2
    budgets.count_forgotten(first)
    budgets.count_forgotten(envelope("m3", B, A, correlation_id="c"))
    assert budgets.chain_count("c") == 1
    budgets.count_forgotten(envelope("m2", B, A, automatic_depth=2, correlation_id="c"))
    assert budgets.chain_count("c") == 0


def test_pair_counts_over_its_window_and_until_a_person_prompts() -> None:
    """Sends count per pair for ten minutes, or until a person begins a turn of the sender."""
    budgets, cursors = Budgets(), count(1)
    for at_ms in (0, 1_000, 2_000):
        budgets.count_sent("s", "r", next(cursors), at_ms)
    budgets.count_sent("s", "other", next(cursors), 0)
    budgets.count_sent("x", "r", next(cursors), 0)
    assert budgets.pair_count("s", "r", 2_000) == 3
    assert budgets.pair_count("s", "r", PAIR_WINDOW_MS) == 2
    assert budgets.pair_count("nobody", "r", 0) == 0
    budgets.prompt("s", 5)
    assert budgets.pair_count("s", "r", 2_000) == 0
    assert budgets.pair_count("x", "r", 2_000) == 1
    budgets.count_sent("s", "r", 5, 3_000)  # a record from before the prompt, counted again at a restore
    assert budgets.pair_count("s", "r", 3_000) == 0
    budgets.count_sent("s", "r", 6, 3_000)
    assert budgets.pair_count("s", "r", 3_000) == 1


def test_prompt_after_a_rollback_counts_what_is_sent_afterwards() -> None:
    """A prompt that came at a cursor which was rolled back does not excuse later sends."""
    budgets = Budgets()
    budgets.prompt("s", 100)
    budgets.forget_records(50)
    budgets.count_sent("s", "r", 51, 0)
    assert budgets.pair_count("s", "r", 0) == 1


def test_exposed_depth_is_that_of_the_last_that_did_not_fail() -> None:
    """The last message shown since a prompt counts; one that was not shown after all does not."""
    budgets = Budgets()
    assert budgets.exposed_depth("s") is None
    budgets.expose("s", "t1", 2)
    budgets.expose("s", "t2", 5)
    assert budgets.exposed_depth("s") == 5
    budgets.unexpose("s", "t2")
    assert budgets.exposed_depth("s") == 2
    budgets.unexpose("s", "t1")
    budgets.unexpose("s", "t1")
    assert budgets.exposed_depth("s") is None
    budgets.expose("s", "t3", 1)
    budgets.prompt("s", 1)
    assert budgets.exposed_depth("s") is None


def test_exposures_are_bounded() -> None:
    """A model that is shown mail for ever does not grow this memory."""
    budgets = Budgets()
    for number in range(100):
        budgets.expose("s", f"t{number}", number)
    assert budgets.exposed_depth("s") == 99
    for number in range(100 - EXPOSURES_KEPT, 100):
        budgets.unexpose("s", f"t{number}")
    assert budgets.exposed_depth("s") is None


def test_sweep_drops_windows_that_are_over() -> None:
    """Pairs that no longer write to each other are forgotten."""
    budgets = Budgets()
    budgets.count_sent("s", "r", 1, 0)
    budgets.count_sent("s", "q", 2, PAIR_WINDOW_MS)
    budgets.count_sent("x", "r", 3, 0)
    budgets.sweep(PAIR_WINDOW_MS)
    assert budgets._pairs.keys() == {"s"}
    assert budgets._pairs["s"].keys() == {"q"}
