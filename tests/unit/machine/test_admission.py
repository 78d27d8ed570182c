"""Show the order of the checks before custody, and what each of them says."""

import msgspec
import pytest

from tieline.errors import WIRE_CODES, Refusal
from tieline.machine.admission import (
    ARRIVAL,
    DEPARTURE,
    PRELIMINARY,
    Bucket,
    Facts,
    Target,
    refilled,
    verdict,
)

FINE = Facts(content_bytes=5, content_bytes_max=10, stored_bytes_max=100)
WRONG: dict[str, tuple[dict[str, object], str]] = {
    "scope": ({"is_in_scope": False}, "SCOPE_DENIED"),
    "sending": ({"may_send": False}, "CAPABILITY_DENIED"),
    "form": ({"malformed": "content is empty"}, "INVALID_PARAMS"),
    "ended": ({"target": Target.ENDED}, "TARGET_ENDED"),
    "receiving": ({"may_receive": False}, "CAPABILITY_DENIED"),
    "duplicate": ({"is_conflict": True}, "MESSAGE_ID_CONFLICT"),
    "reply": ({"conversation": Refusal("INVALID_REPLY", "no")}, "INVALID_REPLY"),
    "size": ({"content_bytes": 11}, "MESSAGE_TOO_LARGE"),
    "expiry": ({"life_ms": 0}, "INVALID_PARAMS"),
    "budget": ({"is_depth_bound": True, "depth": 2}, "AUTOMATIC_REPLY_LIMIT"),
    "rate": ({"has_token": False}, "RATE_LIMITED"),
    "room": ({"unread_count": 1}, "QUEUE_FULL"),
}


def facts(**fields: object) -> Facts:
    return msgspec.structs.replace(FINE, **fields)


@pytest.mark.clause("native-83")
def test_arrival_without_fault_is_taken() -> None:
    """A message that nothing speaks against is taken."""
    assert verdict(ARRIVAL, FINE) is None
    assert verdict(DEPARTURE, FINE) is None


@pytest.mark.clause(
    "native-84", "native-85", "native-86", "native-87", "native-88", "native-89", "O19", "S16"
)
@pytest.mark.parametrize("place", range(len(WRONG)))
def test_arrival_with_several_faults_is_told_the_first(place: int) -> None:
    """Of several faults the earliest check answers: scope before capability before everything optional."""
    fields: dict[str, object] = {}
    for wrong, _code in list(WRONG.values())[place:]:
        fields |= wrong
    refusal = verdict(ARRIVAL, facts(**fields))
    assert refusal is not None
    assert refusal.code == list(WRONG.values())[place][1]


@pytest.mark.parametrize("name", WRONG)
def test_arrival_with_one_fault_is_told_a_code_of_the_wire(name: str) -> None:
    """Each fault alone refuses, with a code that peers know."""
    wrong, code = WRONG[name]
    refusal = verdict(ARRIVAL, facts(**wrong))
    assert refusal is not None
    assert refusal.code == code
    assert refusal.code in WIRE_CODES
    assert refusal.is_retryable == (code in ("RATE_LIMITED", "QUEUE_FULL"))


def test_arrival_for_nobody_is_unknown_target() -> None:
    """A peer that never was is no ended one."""
    refusal = verdict(ARRIVAL, facts(target=Target.UNKNOWN))
    assert refusal is not None
    assert refusal.code == "UNKNOWN_TARGET"


def test_departure_with_options_that_cannot_travel_is_denied() -> None:
    """What the far end cannot be told is refused before anything is stored."""
    refusal = verdict(DEPARTURE, facts(unsaid=("thread",)))
    assert refusal is not None
    assert refusal.code == "CAPABILITY_DENIED"


def test_departure_too_fast_is_told_the_wait_in_whole_seconds() -> None:
    """Whoever waits so long is not told the same again."""
    refusal = verdict(DEPARTURE, facts(wait_ms=1_001))
    assert refusal is not None
    assert (refusal.code, refusal.is_retryable) == ("RATE_LIMITED", True)
    assert "wait 2 s" in refusal.text
    assert verdict(ARRIVAL, facts(wait_ms=1_001)) is None


def test_arrival_for_a_full_waiting_room_is_queue_full() -> None:
    """So many messages wait for the person that one more could push a word out."""
    refusal = verdict(ARRIVAL, facts(held_count=50, held_max=50))
    assert refusal is not None
    assert (refusal.code, refusal.is_retryable) == ("QUEUE_FULL", True)
    assert verdict(ARRIVAL, facts(held_count=49, held_max=50)) is None


@pytest.mark.clause("O19")
def test_departure_out_of_scope_is_told_so_whatever_else_is_wrong() -> None:
    """Scope is asked before and independent of every option."""
    wrong = facts(
        is_in_scope=False,
        may_send=False,
        unsaid=("thread",),
        malformed="no",
        content_bytes=99,
        life_ms=0,
        is_pair_bound=True,
        pair_count=5,
    )
    for checks in (DEPARTURE, ARRIVAL, PRELIMINARY):
        refusal = verdict(checks, wrong)
        assert refusal is not None
        assert refusal.code == "SCOPE_DENIED"


def test_departure_is_not_charged_a_rate() -> None:
    """The recipient charges the rate, not the sender's own root."""
    assert verdict(DEPARTURE, facts(has_token=False)) is None


@pytest.mark.parametrize(
    ("life_ms", "asked_life_ms", "text"),
    [(0, 5, "expired"), (-1, 5, "expired"), (5, 0, "at least"), (11, 5, "at most"), (5, 11, "at most")],
)
def test_life_outside_its_range_is_refused(life_ms: int, asked_life_ms: int, text: str) -> None:
    """A life that is over, or never was, or is too long, is refused with the reason."""
    refusal = verdict(ARRIVAL, facts(life_ms=life_ms, asked_life_ms=asked_life_ms, life_ms_max=10))
    assert refusal is not None
    assert refusal.code == "INVALID_PARAMS"
    assert text in refusal.text


@pytest.mark.clause("native-111", "native-112")
@pytest.mark.parametrize(
    ("fields", "is_refused"),
    [
        ({"depth": 2}, True),
        ({"depth": 1}, False),
        ({"chain_count": 1}, True),
        ({"chain_count": 0}, False),
        ({"depth": 2, "is_depth_bound": False}, False),
    ],
)
def test_automatic_message_is_held_to_both_limits(fields: dict[str, object], is_refused: bool) -> None:
    """Depth and the count of the conversation each refuse; neither binds what is not automatic."""
    refusal = verdict(ARRIVAL, facts(**{"is_depth_bound": True, **fields}))
    assert (refusal is not None) == is_refused


def test_pair_without_a_person_is_held_to_its_limit() -> None:
    """Sends of a pair without a person end at the limit."""
    refusal = verdict(DEPARTURE, facts(is_pair_bound=True, pair_count=1))
    assert refusal is not None
    assert refusal.code == "AUTOMATIC_REPLY_LIMIT"
    assert verdict(DEPARTURE, facts(is_pair_bound=False, pair_count=1)) is None


@pytest.mark.clause("native-171", "native-172")
def test_store_with_its_reserves_full_is_queue_full() -> None:
    """A message whose reserve does not fit is refused, and may be sent again."""
    refusal = verdict(ARRIVAL, facts(stored_bytes=101))
    assert refusal is not None
    assert (refusal.code, refusal.is_retryable) == ("QUEUE_FULL", True)


@pytest.mark.clause("native-159")
def test_bucket_holds_a_burst_and_refills_at_the_rate() -> None:
    """A sender never seen has its burst; afterwards it gains the rate, up to the burst."""
    assert refilled(None, 50, 10, 20) == Bucket(20_000, 50)
    assert refilled(Bucket(0, 0), 100, 10, 20) == Bucket(1_000, 100)
    assert refilled(Bucket(0, 0), 1_000_000, 10, 20) == Bucket(20_000, 1_000_000)


def test_bucket_when_the_clock_stands_still_or_goes_back_gains_nothing() -> None:
    """A clock that goes back gives no messages."""
    assert refilled(Bucket(500, 100), 100, 10, 20) == Bucket(500, 100)
    assert refilled(Bucket(500, 100), 40, 10, 20) == Bucket(500, 100)


def test_bucket_of_a_slow_rate_gains_its_fraction_however_often_it_is_asked() -> None:
    """Half a message a second comes to a whole one after two, asked a thousand times between."""
    bucket = Bucket(0, 0)
    for now_ms in range(1, 2_001):
        bucket = refilled(bucket, now_ms, 0.5, 30)
    assert bucket.level == 1_000
