"""What a window takes of what other windows write to it."""

import hashlib
from itertools import count

import pytest

from tieline.engine.intake import HOPS_MAX, OWN_HOPS_MAX, QUEUE_MAX, WINDOW_MS, Arrival, Intake, Judgement

_numbers = count()


def arrival(text: str | None = None, **fields: object) -> Arrival:
    number = next(_numbers)
    digest = hashlib.sha256((f"text {number}" if text is None else text).encode()).digest()
    given: dict[str, object] = {"address": "/a", "message_id": f"m{number}", **fields}
    return Arrival(content_digest=digest, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(("policy", "kind"), [("accept", "accept"), ("ask", "hold"), ("off", "refuse")])
def test_intake_of_plain_message_follows_the_persons_policy(policy: str, kind: str) -> None:
    """The person decides whether windows may write: yes, ask me, no."""
    assert Intake().judge(arrival(), 0, policy) == Judgement(kind)  # type: ignore[arg-type]


@pytest.mark.clause("pi-peers-26")
@pytest.mark.parametrize("policy", ["accept", "ask", "off"])
def test_intake_of_child_asks_nobody(policy: str) -> None:
    """A child proved by its token is first-class: no consent and no policy stands before it."""
    assert Intake().judge(arrival(is_child=True), 0, policy).kind == "accept"  # type: ignore[arg-type]


@pytest.mark.clause("pi-peers-41")
def test_intake_of_sender_in_a_burst_takes_thirty_then_one_every_two_seconds() -> None:
    """A runaway sender is slowed to what the specification grants, to the millisecond."""
    intake = Intake()
    kinds = []
    for _ in range(31):
        kinds.append(intake.judge(arrival(), 0, "accept").kind)
        intake.idle()
    assert kinds == ["accept"] * 30 + ["drop"]
    assert intake.judge(arrival(), 1_999, "accept") == Judgement("drop", "rate-limited")
    assert intake.judge(arrival(), 2_000, "accept").kind == "accept"
    assert intake.judge(arrival(), 2_001, "accept").kind == "drop"


@pytest.mark.clause("pi-peers-41")
def test_intake_of_many_addresses_takes_no_more_than_the_global_bucket() -> None:
    """Rotating the address buys nothing, and grows nothing."""
    intake = Intake()
    kinds = [intake.judge(arrival(address=f"/{n}"), 0, "accept").kind for n in range(5_000)]
    assert kinds.count("accept") == 120
    assert len(intake) <= 3 * 120
    assert intake.judge(arrival(address="/new"), 500, "accept").kind == "accept"


def test_intake_of_flood_keeps_the_verdicts_of_others() -> None:
    """A flood evicts nobody's verdict within its window, whatever addresses it claims."""
    intake = Intake()
    first = arrival(address="/first")
    intake.judge(first, 0, "accept")
    for n in range(20_000):
        intake.judge(arrival(address=f"/{n}"), n, "accept")
    assert intake.judge(first, WINDOW_MS - 1, "off") == Judgement("repeat", "", Judgement("accept"))


def test_intake_over_hours_remembers_a_window_only() -> None:
    """Memory follows the rate, never the history."""
    intake = Intake()
    for n in range(10_000):
        intake.judge(arrival(address=f"/{n}"), n * 500, "accept")
    assert len(intake) <= 400


@pytest.mark.clause("pi-peers-U14")
def test_intake_of_repeated_id_gives_the_earlier_verdict() -> None:
    """A frame that came twice is one message, and its sender is told the same."""
    intake = Intake()
    one = arrival()
    intake.judge(one, 0, "ask")
    assert intake.judge(one, 10, "accept") == Judgement("repeat", "", Judgement("hold"))


def test_intake_of_same_id_from_another_address_is_another_message() -> None:
    """Nobody can spoil a message by using its id first."""
    intake = Intake()
    intake.judge(arrival(address="/a", message_id="m"), 0, "off")
    assert intake.judge(arrival(address="/b", message_id="m"), 0, "accept").kind == "accept"


@pytest.mark.clause("pi-peers-42", "pi-peers-U14")
def test_intake_of_same_text_within_window_is_a_duplicate() -> None:
    """Identical words from one sender within half a minute are dropped, later they are news."""
    intake = Intake()
    assert intake.judge(arrival("same"), 0, "accept").kind == "accept"
    assert intake.judge(arrival("same", address="/b"), 1, "accept").kind == "accept"
    assert intake.judge(arrival("same"), WINDOW_MS - 1, "accept") == Judgement("drop", "duplicate")
    assert intake.judge(arrival("same"), WINDOW_MS, "accept").kind == "accept"


def test_intake_of_text_that_was_not_taken_is_no_duplicate() -> None:
    """What was turned away may be said again."""
    intake = Intake()
    intake.judge(arrival("same"), 0, "off")
    assert intake.judge(arrival("same"), 1, "accept").kind == "accept"


@pytest.mark.clause("pi-peers-29")
@pytest.mark.parametrize(
    ("own", "length", "kind"),
    [
        (OWN_HOPS_MAX, HOPS_MAX, "accept"),
        (OWN_HOPS_MAX + 1, HOPS_MAX, "drop"),
        (0, HOPS_MAX + 1, "drop"),
    ],
)
def test_intake_of_chain_is_bounded_by_own_hops_and_length(own: int, length: int, kind: str) -> None:
    """Ten times through here, or more than 28 hops, is a loop; a child's chain is not counted."""
    judged = Intake().judge(arrival(hop_count_own=own, hop_length=length), 0, "accept")
    assert judged == Judgement(kind, "" if kind == "accept" else "hop-limit")  # type: ignore[arg-type]
    child = arrival(hop_count_own=own, hop_length=length, is_child=True)
    assert Intake().judge(child, 0, "accept").kind == "accept"


@pytest.mark.clause("pi-peers-42")
def test_intake_of_full_queue_drops_until_idle() -> None:
    """At most fifty accepted messages wait for one idle moment, a child's among them."""
    intake = Intake()
    for _ in range(QUEUE_MAX):
        intake.note_accepted()
    assert intake.judge(arrival(), 0, "accept") == Judgement("drop", "queue-full")
    assert intake.judge(arrival(is_child=True), 0, "accept") == Judgement("drop", "queue-full")
    intake.idle()
    assert intake.judge(arrival(), 0, "accept").kind == "accept"


@pytest.mark.clause("pi-peers-40")
def test_intake_of_malformed_wrapper_costs_the_rate_and_is_dropped() -> None:
    """Forging costs what sending costs."""
    intake = Intake()
    for _ in range(30):
        assert intake.judge(arrival(is_malformed=True), 0, "accept") == Judgement("drop", "malformed-wrapper")
    assert intake.judge(arrival(), 0, "accept") == Judgement("drop", "rate-limited")


@pytest.mark.clause("pi-peers-26", "pi-peers-41")
def test_intake_of_child_has_a_rate_of_its_own() -> None:
    """A child neither waits for the strangers' bucket nor is unbounded: 120, then 12 a second."""
    intake = Intake()
    for n in range(200):
        intake.judge(arrival(address=f"/{n}"), 0, "accept")
    kinds = [intake.judge(arrival(is_child=True), 0, "accept").kind for _ in range(121)]
    assert kinds == ["accept"] * 120 + ["drop"]
    assert intake.judge(arrival(is_child=True), 84, "accept").kind == "accept"


@pytest.mark.clause("pi-peers-U15")
def test_intake_of_controls_is_not_starved_by_messages() -> None:
    """Receipts of what we sent come through while somebody floods us, under a bound of their own."""
    intake = Intake()
    for _ in range(40):
        intake.judge(arrival(), 0, "accept")
    kinds = [intake.judge(arrival(is_control=True), 0, "off").kind for _ in range(121)]
    assert kinds == ["accept"] * 120 + ["drop"]
