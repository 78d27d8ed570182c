"""The checker passes a true history, and convicts a false one of each kind.

Source: reference/reliability.md 2.4, 2.5 "or its zeros mean nothing".
"""

from collections.abc import Callable, Sequence

import pytest

from tests.sim.checker import INVARIANTS, check
from tests.sim.history import Entry
from tests.sim.tale import A, B, Tale, good, message, move


def lost(tale: Tale) -> Sequence[Entry]:
    return tale.end(root_b=[])


def changed_on_disk(tale: Tale) -> Sequence[Entry]:
    return tale.end(root_b=[message(1, sha="bb")])


def answered_before_commit(tale: Tale) -> Sequence[Entry]:
    tale.offer("m2", request="r2")
    tale.accept(5, "m2", "r2")
    tale.store(B, message(5, name="m2"))
    return tale.end()


def sent_before_intent(tale: Tale) -> Sequence[Entry]:
    tale.offer("m2", request="r2")
    tale.store(A, message(4, "out", "m2"))
    return tale.end()


def refused_and_held(tale: Tale) -> Sequence[Entry]:
    tale.offer("m2", request="r2")
    tale.store(B, message(5, name="m2"))
    tale.say(B, A, kind="error", id="r2", code="QUEUE_FULL", fields=["code"], text="no")
    return tale.end()


def denied_though_held(tale: Tale) -> Sequence[Entry]:
    tale.store(A, message(4, "out", "m2"), move(5, 4, "expired", outcome="NOT_DELIVERED"))
    tale.store(B, message(5, name="m2"))
    return tale.end()


def never_answered(tale: Tale) -> Sequence[Entry]:
    tale.submit("m9")
    tale.entries.pop()
    return tale.end()


def another_text(tale: Tale) -> Sequence[Entry]:
    tale.offer("m2", request="r2")
    tale.store(B, message(5, name="m2", sha="bb"))
    return tale.end()


def adopted(tale: Tale) -> Sequence[Entry]:
    tale.add(B, "listed", owner="peer-b2", held=[[1, "m1", A, "peer-b"]])
    return tale.end()


def evicted(tale: Tale) -> Sequence[Entry]:
    tale.store(B, message(5, name="m2"))
    tale.store(B, {"row": "prune", "messages": [5], "moves_through": 5, "oldest": 6})
    return tale.end()


def overfull(tale: Tale) -> Sequence[Entry]:
    for number in range(5, 11):
        tale.store(B, message(number, name=f"m{number}"))
    return tale.end()


def unreserved(tale: Tale) -> Sequence[Entry]:
    tale.store(B, message(5, name="m2"), reserve=2_047)
    return tale.end()


def exposed_twice(tale: Tale) -> Sequence[Entry]:
    tale.store(B, message(5, name="m2"))
    for number, token in ((6, "t1"), (7, "t2")):
        tale.store(B, move(number, 5, "accepted", note="prepared", token=token))
    return tale.end()


def overtaken(tale: Tale) -> Sequence[Entry]:
    tale.store(A, message(4, "out", "m2"), message(5, "out", "m3"))
    tale.offer("m3", request="r3")
    tale.store(B, message(5, name="m3"))
    tale.offer("m2", request="r2")
    tale.store(B, message(6, name="m2"))
    return tale.end()


def number_used_twice(tale: Tale) -> Sequence[Entry]:
    tale.store(B, message(4, name="m2"))
    return tale.end()


def number_changes(tale: Tale) -> Sequence[Entry]:
    tale.add(B, "listed", owner="peer-b", held=[[7, "m1", A, "peer-b"]])
    return tale.end()


def page(tale: Tale, after: int, cursors: list[int]) -> Sequence[Entry]:
    tale.add(
        B,
        "page",
        owner="peer-b",
        after=after,
        count_max=10,
        cursors=cursors,
        messages=["m1"] * len(cursors),
        latest=4,
        oldest=1,
        gap=False,
    )
    return tale.end()


def head_stays(tale: Tale) -> Sequence[Entry]:
    tale.store(A, message(4, "out", "m2"))
    return tale.end()


def global_order(tale: Tale) -> Sequence[Entry]:
    receipt = tale.receipt("accepted", 1) | {"fields": ["globalSequence", "state"]}
    tale.say(B, A, kind="result", id="r9", receipt=receipt)
    return tale.end()


def regress(tale: Tale) -> Sequence[Entry]:
    tale.store(A, move(4, 1, "accepted"))
    return tale.end()


def consumed_without_context(tale: Tale) -> Sequence[Entry]:
    tale.store(B, message(5, name="m2"), move(6, 5, "consumed"))
    return tale.end()


def replied_without_reply(tale: Tale) -> Sequence[Entry]:
    tale.store(B, move(5, 1, "replied"))
    return tale.end()


def stranger_advances(tale: Tale) -> Sequence[Entry]:
    tale.store(A, message(4, "out", "m2"))
    tale.say(
        "evil",
        A,
        5,
        kind="request",
        id="e1",
        method="peer.receipt",
        receipt=tale.receipt("accepted", 9, "m2"),
    )
    tale.store(B, message(5, name="m2"))
    tale.store(A, move(5, 4, "accepted"))
    return tale.end()


def phantom(tale: Tale) -> Sequence[Entry]:
    tale.say(B, A, 2, kind="request", id="q2", method="peer.receipt", receipt=tale.receipt("replied", 5))
    tale.store(A, move(4, 1, "replied"))
    return tale.end()


def told_twice(tale: Tale) -> Sequence[Entry]:
    tale.store(A, move(4, 1, "consumed"))
    return tale.end()


def woken_after_prune(tale: Tale) -> Sequence[Entry]:
    tale.store(A, {"row": "prune", "messages": [1], "moves_through": 3, "oldest": 4})
    tale.store(A, move(4, 1, "replied"))
    return tale.end()


def reason_replaced(tale: Tale) -> Sequence[Entry]:
    tale.store(A, message(4, "out", "m2"))
    tale.offer("m2", request="r2")
    tale.say(B, A, kind="error", id="r2", code="SCOPE_DENIED", fields=["code"], text="no")
    tale.store(A, move(5, 4, "rejected", outcome="DELIVERY_UNKNOWN"))
    return tale.end()


def twice(tale: Tale) -> Sequence[Entry]:
    tale.store(B, message(5))
    return tale.end()


def conflict_taken(tale: Tale) -> Sequence[Entry]:
    tale.offer(request="r2", sha="bb")
    tale.accept(1, request="r2")
    return tale.end()


def conflict_tells(tale: Tale) -> Sequence[Entry]:
    tale.offer(request="r2", sha="bb")
    tale.say(B, A, kind="error", id="r2", code="MESSAGE_ID_CONFLICT", fields=["code", "content"], text="no")
    return tale.end()


def forgotten_early(tale: Tale) -> Sequence[Entry]:
    tale.store(B, {"row": "prune", "messages": [1], "moves_through": 4, "oldest": 5})
    return tale.end()


def taken_for_another(tale: Tale) -> Sequence[Entry]:
    tale.prove("evil", B, 7)
    tale.offer(far="evil", link=7, request="e1")
    tale.say(B, "evil", 7, kind="error", id="e1", code="MESSAGE_ID_CONFLICT", fields=["code"], text="no")
    return tale.end()


def refusal_remembered(tale: Tale) -> Sequence[Entry]:
    for request, code in (("r2", "QUEUE_FULL"), ("r3", "MESSAGE_ID_CONFLICT")):
        tale.offer("m2", request=request)
        tale.say(B, A, kind="error", id=request, code=code, fields=["code"], text="no")
    return tale.end()


def reply_to_nothing(tale: Tale) -> Sequence[Entry]:
    tale.store(B, message(5, name="m2", reply_to="never", correlation="never"))
    return tale.end()


def ask_revived(tale: Tale) -> Sequence[Entry]:
    tale.store(A, message(4, "out", "m2", is_ask=True), move(5, 4, "expired"), move(6, 4, "replied"))
    return tale.end()


def stored_for_the_dead(tale: Tale) -> Sequence[Entry]:
    tale.store(B, {"row": "run", "run": "r", "is_live": True}, {"row": "run", "run": "r", "is_live": False})
    tale.store(B, message(5, name="m2", recipient_run="r"))
    return tale.end()


def loop(tale: Tale) -> Sequence[Entry]:
    for number in range(5, 8):
        tale.store(B, message(number, name=f"m{number}", depth=1, correlation="c"))
    return tale.end()


def loop_of_a_pair(tale: Tale) -> Sequence[Entry]:
    for number in range(4, 8):
        tale.store(A, message(number, "out", f"m{number}", from_person=False))
    return tale.end()


def deadlock(tale: Tale) -> Sequence[Entry]:
    tale.store(A, message(4, "out", "m2", is_ask=True))
    back = {"sender_instance": B, "sender": "peer-b", "recipient_instance": A, "recipient": "peer-a"}
    tale.store(B, message(5, "out", "m3", is_ask=True, **back))
    return tale.end()


def ambiguous(tale: Tale) -> Sequence[Entry]:
    tale.add(A, "resolve", target="x", bearers=[["peer-1", "x"], ["peer-2", "x"]], chosen="peer-1", code="")
    return tale.end()


def unproved(tale: Tale) -> Sequence[Entry]:
    tale.offer("m2", link=9, far="evil", request="e1")
    tale.store(B, message(5, name="m2", sender_instance="evil", sender="peer-e"))
    tale.accept(5, "m2", "e1", 9, "evil")
    return tale.end()


def inbox_read(tale: Tale) -> Sequence[Entry]:
    tale.say(A, B, kind="request", id="r5", method="peer.read")
    tale.say(B, A, kind="result", id="r5", fields=["messages"])
    return tale.end()


def nonce_twice(tale: Tale) -> Sequence[Entry]:
    tale.prove(A, B, 1)
    return tale.end()


def another_sender(tale: Tale) -> Sequence[Entry]:
    tale.prove("evil", B, 7)
    tale.offer("m2", far="evil", link=7, request="e1")
    tale.store(B, message(5, name="m2"))
    return tale.end()


def page_skips(tale: Tale) -> Sequence[Entry]:
    tale.add(A, "directory", size=2, pages=[["peer-1"], ["peer-3"]], there=["peer-1", "peer-2", "peer-3"])
    return tale.end()


def endless_line(tale: Tale) -> Sequence[Entry]:
    tale.add(B, "read", link=9, far="evil", frames=[], loose=200_000)
    return tale.end()


def recovers_otherwise(tale: Tale) -> Sequence[Entry]:
    tale.add(A, "recovered", first="1", second="2")
    return tale.end()


def loads_less(tale: Tale) -> Sequence[Entry]:
    tale.add(A, "loaded", rows=1)
    return tale.end()


def never_learned(tale: Tale) -> Sequence[Entry]:
    tale.store(A, message(4, "out", "m2"), move(5, 4, "unknown"))
    return tale.end()


BAD: list[tuple[str, Callable[[Tale], Sequence[Entry]]]] = [
    ("I1", lost),
    ("I1", changed_on_disk),
    ("I2", answered_before_commit),
    ("I3", sent_before_intent),
    ("I4", refused_and_held),
    ("I4", denied_though_held),
    ("I4", never_answered),
    ("I5", another_text),
    ("I6", adopted),
    ("I7", evicted),
    ("I7", overfull),
    ("I8", unreserved),
    ("I9", exposed_twice),
    ("I10", overtaken),
    ("I11", number_used_twice),
    ("I11", number_changes),
    ("I12", lambda tale: page(tale, 0, [1])),
    ("I12", lambda tale: page(tale, 1, [1, 4])),
    ("I12", lambda tale: page(tale, 0, [4, 1])),
    ("I12", lambda tale: page(tale, 0, [1, 2, 4])),
    ("I13", head_stays),
    ("I14", global_order),
    ("I15", regress),
    ("I16", consumed_without_context),
    ("I16", replied_without_reply),
    ("I17", stranger_advances),
    ("I18", phantom),
    ("I19", told_twice),
    ("I19", woken_after_prune),
    ("I20", reason_replaced),
    ("I21", twice),
    ("I22", conflict_taken),
    ("I22", conflict_tells),
    ("I23", forgotten_early),
    ("I24", taken_for_another),
    ("I25", refusal_remembered),
    ("I26", reply_to_nothing),
    ("I27", ask_revived),
    ("I28", stored_for_the_dead),
    ("I29", loop),
    ("I29", loop_of_a_pair),
    ("I30", deadlock),
    ("I43", ambiguous),
    ("I45", unproved),
    ("I45", inbox_read),
    ("I46", nonce_twice),
    ("I47", another_sender),
    ("I48", page_skips),
    ("I49", endless_line),
    ("I50", recovers_otherwise),
    ("I50", loads_less),
    ("I51", never_learned),
]
"""For every invariant, histories that break it."""


def test_checker_passes_a_true_history() -> None:
    """A message's whole life, told in the right order, breaks nothing."""
    assert check(good().end()).violations == []


@pytest.mark.clause(
    "I1",
    "I2",
    "I3",
    "I4",
    "I5",
    "I6",
    "I7",
    "I8",
    "I9",
    "I10",
    "I11",
    "I12",
    "I13",
    "I14",
    "I15",
    "I16",
    "I17",
    "I18",
    "I19",
    "I20",
    "I21",
    "I22",
    "I23",
    "I24",
    "I25",
    "I26",
    "I27",
    "I28",
    "I29",
    "I30",
    "I43",
    "I45",
    "I46",
    "I47",
    "I48",
    "I49",
    "I50",
    "I51",
)
@pytest.mark.parametrize(
    ("name", "spoil"),
    BAD,
    ids=[f"{name}-{spoil.__name__}-{place}" for place, (name, spoil) in enumerate(BAD)],
)
def test_checker_convicts_a_false_history(name: str, spoil: Callable[[Tale], Sequence[Entry]]) -> None:
    """A history that breaks one promise is convicted of exactly that, whatever else it breaks."""
    assert name in dict(check(spoil(good())).violations)


def test_checker_has_a_false_history_for_every_invariant() -> None:
    """No invariant is checked by a function that never convicted anybody."""
    assert {name for name, _ in BAD} == set(INVARIANTS)
