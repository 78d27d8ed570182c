"""The links of one root, over fake lines."""

from typing import Any

import pytest

from tests.unit.shell.switchboard.kit import SELF, FakeLine, World, ask_status, receipt, transmit
from tieline.engine.contract import AskDirectory, DirectoryTold, Outcome, PushReceipt
from tieline.errors import Refusal
from tieline.model.message import Delivery
from tieline.model.receipt import Durability, State
from tieline.wire.native import mapping


def shape(message_id: str, instance: str) -> dict[str, Any]:
    """Return a receipt as a far end states it."""
    return mapping.answered("tieline.send", receipt(message_id, instance))


@pytest.mark.clause("native-69")
def test_send_dials_once_says_hello_once_and_settles_with_the_receipt() -> None:
    """Several sends share one link and one hello; each answer settles its own attempt."""
    world = World()
    end = world.end("far-1", is_tieline=True)
    end.answers["tieline.send"] = shape("m-1", "far-1")
    world.send(transmit(1, "far-1"), transmit(2, "far-1"))
    world.send(transmit(3, "far-1"))
    assert world.dialled == ["far-1"]
    assert [method for method, _ in end.asked] == ["tieline.hello", *["tieline.send"] * 3]
    assert [(item.attempt, item.outcome) for item in world.settles] == [
        (number, Outcome.ANSWERED) for number in (1, 2, 3)
    ]
    assert world.settles[0].receipt is not None
    assert world.settles[0].receipt.durability is Durability.SYNCED
    assert world.board.features("far-1") == frozenset(mapping.FEATURES)


def test_foreign_end_is_told_the_public_words_and_never_asked_again() -> None:
    """METHOD_NOT_FOUND to the hello means a foreign end, for its whole life."""
    world = World()
    end = world.end("far-1")
    end.answers["peer.send"] = {
        name: value for name, value in shape("m-1", "far-1").items() if name != "durability"
    }
    world.send(transmit(1, "far-1"))
    assert [method for method, _ in end.asked] == ["tieline.hello", "peer.send"]
    assert world.settles[0].receipt is not None
    assert world.settles[0].receipt.durability is Durability.UNSTATED
    world.later(60_001)  # the idle link is closed; the next one asks no hello
    world.send(transmit(2, "far-1"))
    assert world.dialled == ["far-1", "far-1"]
    assert [method for method, _ in end.asked] == ["tieline.hello", "peer.send", "peer.send"]
    assert world.board.features("far-1") == frozenset()


def test_feature_for_a_foreign_end_is_refused_before_anything_is_sent() -> None:
    """What only a Tieline end can be told leaves no byte towards another."""
    world = World()
    end = world.end("far-1")
    world.send(transmit(1, "far-1", delivery=Delivery.QUEUE))
    (settle,) = world.settles
    assert settle.outcome is Outcome.REFUSED
    assert settle.refusal is not None
    assert settle.refusal.code == "CAPABILITY_DENIED"
    assert [method for method, _ in end.asked] == ["tieline.hello"]


@pytest.mark.parametrize("code", ["RATE_LIMITED", "QUEUE_FULL"])
def test_hello_refused_for_now_does_not_make_the_far_end_foreign(code: str) -> None:
    """A passing refusal leaves the link unused; the next one asks again and finds a Tieline end."""
    world = World()
    end = world.end("far-1")
    end.answers["tieline.hello"] = Refusal(code, "later", is_retryable=True)
    world.send(transmit(1, "far-1"))
    (settle,) = world.settles
    assert settle.outcome is Outcome.UNREACHED
    assert settle.refusal is not None
    assert (settle.refusal.code, settle.refusal.is_retryable) == (code, True)
    assert world.board.features("far-1") is None
    end.is_tieline = True
    end.answers["tieline.send"] = shape("m-2", "far-1")
    world.send(transmit(2, "far-1", delivery=Delivery.QUEUE))
    assert world.settles[1].outcome is Outcome.ANSWERED
    assert world.board.features("far-1") == frozenset(mapping.FEATURES)


@pytest.mark.parametrize(
    ("code", "known"),
    [("UNSUPPORTED_PROTOCOL", frozenset()), ("INVALID_PARAMS", None), ("SCOPE_DENIED", None)],
)
def test_hello_refused_otherwise_is_remembered_only_where_it_says_foreign(
    code: str, known: frozenset[str] | None
) -> None:
    """Other refusals hold for this link alone: plain mail passes, the next link asks again."""
    world = World()
    end = world.end("far-1")
    end.answers |= {"tieline.hello": Refusal(code, "no"), "peer.send": shape("m-1", "far-1")}
    world.send(transmit(1, "far-1"))
    assert world.settles[0].outcome is Outcome.ANSWERED
    assert world.board.features("far-1") == known


@pytest.mark.clause("S11")
def test_dialled_end_of_another_process_is_refused_as_a_relay() -> None:
    """A socket served by another pid than presence names gets no byte; the send is unreached."""
    world = World()
    end = world.end("far-1", is_tieline=True)
    world.wrong_pid["far-1"] = 4_711
    world.send(transmit(1, "far-1"))
    assert world.settles[0].outcome is Outcome.UNREACHED
    assert world.settles[0].refusal is not None
    assert world.settles[0].refusal.code == "AUTHENTICATION_FAILED"
    assert world.board.counters["relays_refused"] == 1
    assert end.asked == []
    assert world.joints[0].line.is_closed


@pytest.mark.clause("native-157", "S11")
def test_connecting_end_of_another_process_is_refused_as_a_relay() -> None:
    """A hello from a process that presence does not name for its instance is not believed."""
    world = World()
    joint = world.connect(world.end("far-1"), pid=4_711)
    world.settle()
    assert not joint.connection.is_open
    assert joint.end.closed is not None
    assert joint.end.closed.code == "AUTHENTICATION_FAILED"
    assert world.board.counters["relays_refused"] == 1


def test_link_limit_lets_the_least_recently_used_idle_one_give_way() -> None:
    """With all links idle the oldest use is closed, and the send goes out."""
    world = World(connections=2)
    for name in ("a", "b", "c"):
        end = world.end(name, is_tieline=True)
        end.answers["tieline.send"] = shape("m-1", name)
    world.send(transmit(1, "a"))
    world.send(transmit(2, "b"))
    world.send(transmit(3, "a"))
    world.send(transmit(4, "c"))
    assert world.dialled == ["a", "b", "c"]
    assert [joint.line.is_closed for joint in world.joints] == [False, True, False]
    assert all(item.outcome is Outcome.ANSWERED for item in world.settles)


@pytest.mark.clause("native-157", "native-172")
def test_link_limit_with_all_links_busy_refuses_with_queue_full() -> None:
    """A busy link is never closed for another send; that one is told to come again."""
    world = World(connections=2)
    for name in ("a", "b", "c"):
        world.end(name, is_tieline=True).answers["tieline.send"] = None
    world.send(transmit(1, "a"), transmit(2, "b"), transmit(3, "c"))
    (settle,) = world.settles
    assert (settle.attempt, settle.outcome) == (3, Outcome.UNREACHED)
    assert settle.refusal is not None
    assert (settle.refusal.code, settle.refusal.is_retryable) == ("QUEUE_FULL", True)
    told: list[object] = []
    world.board.ask("c", "peer.directory", {"version": 1}, lambda *answer: told.append(answer[1]))
    assert [item.code for item in told if isinstance(item, Refusal)] == ["QUEUE_FULL"]


@pytest.mark.clause("K15")
def test_send_that_never_left_is_unreached_and_one_unanswered_is_lost() -> None:
    """Not one byte left: it may be sent anew. Written and not answered: only the same id may ask."""
    world = World()
    world.end("a", is_tieline=True).answers["tieline.send"] = None
    world.end("b")
    world.refuses["b"] = Refusal("PEER_OFFLINE", "nobody listens")
    world.send(transmit(1, "a"), transmit(2, "b"), transmit(3, "absent"))
    assert [(item.attempt, item.outcome) for item in world.settles] == [
        (2, Outcome.UNREACHED),
        (3, Outcome.UNREACHED),
    ]
    world.later(2_000)
    assert [(item.attempt, item.outcome) for item in world.settles][2:] == [(1, Outcome.LOST)]


def test_send_of_a_link_that_broke_is_lost_and_what_waited_is_unreached() -> None:
    """A window of one: the written request is lost, the two behind it never left."""
    world = World(pending_requests=1)
    end = world.end("a", is_tieline=True)
    end.answers["tieline.send"] = None
    world.send(transmit(1, "a"), transmit(2, "a"), transmit(3, "a"))
    world.gone.add("a")
    world.board.lost(world.joints[0].line.number or 0)
    assert [(item.attempt, item.outcome, item.is_gone) for item in world.settles] == [
        (1, Outcome.LOST, False),
        (2, Outcome.UNREACHED, True),
        (3, Outcome.UNREACHED, True),
    ]


@pytest.mark.clause("K15", "O27")
def test_line_that_answers_nothing_is_left_for_another() -> None:
    """After one silent budget the line is hung up on, and the next attempt dials anew."""
    world = World()
    world.end("a", is_tieline=True).answers["tieline.send"] = None
    world.send(transmit(1, "a"))
    world.later(2_000)
    assert world.joints[0].line.is_closed
    world.send(transmit(2, "a"))
    assert world.dialled == ["a", "a"]


def test_receipt_that_is_none_leaves_the_outcome_unknown() -> None:
    """An answer that states no receipt proves nothing."""
    world = World()
    end = world.end("a", is_tieline=True)
    end.answers["tieline.send"] = {"ok": True}
    end.answers["tieline.status"] = Refusal("SCOPE_DENIED", "no")
    world.send(transmit(1, "a"), ask_status(2, "a"))
    assert [(item.attempt, item.outcome) for item in world.settles] == [
        (1, Outcome.LOST),
        (2, Outcome.REFUSED),
    ]


@pytest.mark.clause("native-78")
def test_receipt_is_pushed_over_a_link_of_our_own() -> None:
    """A sender's link to us carries no request of ours: we dial it."""
    world = World()
    end = world.end("far-1", is_tieline=True)
    end.answers["tieline.receipt"] = {"recorded": True}
    world.connect(end)
    world.settle()
    pushed = receipt("m-1", SELF, State.CONSUMED)
    world.send(PushReceipt(5, "far-1", pushed))
    assert world.dialled == ["far-1"]
    assert [method for method, _ in end.asked] == ["tieline.hello", "tieline.receipt"]
    assert [(item.attempt, item.outcome) for item in world.settles] == [(5, Outcome.ANSWERED)]


def test_directory_asked_of_a_root_is_told_or_none() -> None:
    """Its runs, or None where it could not be asked."""
    world = World()
    end = world.end("a", is_tieline=True)
    child = mapping.child("a", "r-1", "kid", ["message.send"], "s", "p")
    end.answers["peer.directory"] = {"peers": [child]}
    world.send(AskDirectory(1, "a"), AskDirectory(2, "absent"))
    told = {item.attempt: item.runs for item in world.submitted if isinstance(item, DirectoryTold)}
    assert told == {1: frozenset({"r-1"}), 2: None}
    end.answers["peer.directory"] = None
    world.send(AskDirectory(3, "a"))
    world.later(2_000)
    told = {item.attempt: item.runs for item in world.submitted if isinstance(item, DirectoryTold)}
    assert told[3] is None


@pytest.mark.clause("S13")
def test_connection_number_seventeen_without_proof_is_turned_away() -> None:
    """At most sixteen unproved links; one that proves itself or runs out of time makes room."""
    world = World()
    lines = [FakeLine(9) for _ in range(17)]
    numbers = [world.board.accepted(line) for line in lines]
    assert [number is not None for number in numbers] == [True] * 16 + [False]
    assert lines[16].is_closed
    assert world.board.counters["links_refused"] == 1
    world.board.lost(numbers[0] or 0)
    joint = world.connect(world.end("far-1"))
    world.settle()
    assert joint.connection.is_open
    assert world.board.accepted(FakeLine(9)) is not None


@pytest.mark.clause("S13", "native-60")
def test_handshake_dripped_byte_by_byte_dies_at_its_budget() -> None:
    """Two seconds for the whole exchange, whatever comes meanwhile; nothing of it is heard after."""
    world = World()
    line = FakeLine(9)
    line.number = world.board.accepted(line)
    assert world.board.deadline_ms == world.mono_ms + 2_000
    for _ in range(19):
        world.mono_ms += 100
        world.board.received(line.number or 0, b"{")
        world.board.tick()
    assert not line.is_closed
    world.mono_ms += 100
    world.board.tick()
    assert line.is_closed
    assert world.board.deadline_ms is None


@pytest.mark.clause("S13")
def test_application_bytes_before_the_proof_close_the_link() -> None:
    """A request before both proofs is not answered with anything but the end."""
    world = World()
    line = FakeLine(9)
    line.number = world.board.accepted(line)
    frame = b'{"jsonrpc":"2.0","id":1,"method":"peer.directory","params":{"version":1}}\n'
    world.board.received(line.number or 0, frame)
    assert line.is_closed
    assert b"AUTHENTICATION_FAILED" in line.written
    assert world.submitted == []


@pytest.mark.clause("S18", "K19")
def test_root_with_half_of_all_links_crowds_out_its_own_oldest() -> None:
    """One root cannot take the room of others, however many links it opens."""
    world = World(connections=4)  # 32 sockets
    greedy = world.end("greedy")
    joints = []
    for _ in range(40):
        world.mono_ms += 1
        joints.append(world.connect(greedy))
        world.settle()
    assert [joint.line.is_closed for joint in joints] == [True] * 24 + [False] * 16
    assert world.board.counters["links_crowded_out"] == 24
    other = world.connect(world.end("other"))
    world.settle()
    assert other.connection.is_open


def test_idle_link_of_ours_is_closed_after_a_minute() -> None:
    """Sixty seconds without use close a dialled link; one that waits for an answer stays."""
    world = World(acknowledgement_ms=60_000)
    world.end("a", is_tieline=True).answers["tieline.send"] = shape("m-1", "a")
    world.send(transmit(1, "a"))
    world.later(59_999)
    assert not world.joints[0].line.is_closed
    world.later(1)
    assert world.joints[0].line.is_closed


def test_question_that_is_no_message_gets_its_answer_or_why_none() -> None:
    """`ask` tells a result, a refusal, or that the far end is not there."""
    world = World()
    end = world.end("a", is_tieline=True)
    end.answers |= {"x": {"y": 1}, "silent": None}
    told: list[tuple[object, object]] = []
    for instance, method in (("a", "x"), ("a", "unknown"), ("absent", "x"), ("a", "silent")):
        world.board.ask(instance, method, {}, lambda result, refusal: told.append((result, refusal)))
    world.settle()
    world.later(2_000)
    assert told[0] == (None, Refusal("PEER_OFFLINE", "no live presence of this peer", is_retryable=True))
    assert told[1] == ({"y": 1}, None)
    assert [item[1].code for item in told[2:] if isinstance(item[1], Refusal)] == [
        "METHOD_NOT_FOUND",
        "DELIVERY_UNKNOWN",
    ]


def test_switchboard_that_closed_takes_and_opens_no_link() -> None:
    """Closing hangs up on everybody and refuses who comes after."""
    world = World()
    end = world.end("a", is_tieline=True)
    end.answers["tieline.send"] = None
    world.send(transmit(1, "a"))
    inbound = world.connect(end)
    world.settle()
    world.board.close()
    assert world.joints[0].line.is_closed
    assert inbound.line.is_closed
    assert [(item.attempt, item.outcome) for item in world.settles] == [(1, Outcome.LOST)]
    assert world.board.accepted(FakeLine(1)) is None
    world.send(transmit(2, "a"))
    assert world.settles[1].outcome is Outcome.UNREACHED


def test_bytes_for_a_link_that_is_gone_are_ignored() -> None:
    """A socket may still deliver what the protocol has already ended."""
    world = World()
    world.board.received(99, b"x")
    world.board.lost(99)
    assert world.submitted == []
