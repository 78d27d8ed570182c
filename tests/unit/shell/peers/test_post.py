"""The post: what the engine orders, over one connection each; who may connect, and for how long."""

import uuid

import pytest

from tests.unit.shell.peers.kit import FAR, FAR_INSTANCE, OWN, FakeLine, World, auth, user
from tieline.engine.contract import (
    Answer,
    AskDirectory,
    Asked,
    AskStatus,
    DirectoryTold,
    Offer,
    Outcome,
    PushReceipt,
    Settle,
    Transmit,
)
from tieline.errors import Refusal
from tieline.model.identity import Peer
from tieline.model.message import Delivery, Envelope
from tieline.model.receipt import Receipt, State
from tieline.shell.peers import FIRST_LINK
from tieline.shell.peers.post import INBOUND_MAX, STATUSES_MAX

MESSAGE = str(uuid.UUID(int=5))


def envelope(content: str = "hi", **more: object) -> Envelope:
    """Return a message of ours to the far window."""
    return Envelope(MESSAGE, OWN, Peer(FAR_INSTANCE), content, **more)  # type: ignore[arg-type]


def transmit(**more: object) -> Transmit:
    """Return an ordered send."""
    return Transmit(1, FAR_INSTANCE, envelope(**more), False)


def receipt(state: State, **more: object) -> Receipt:
    """Return a receipt of ours for a window's message."""
    return Receipt(MESSAGE, Peer(FAR_INSTANCE).id, OWN.id, state, 3, **more)  # type: ignore[arg-type]


@pytest.mark.clause("pi-peers-21", "pi-peers-28", "pi-peers-31")
def test_transmit_writes_proof_and_message_at_once_and_settles_as_written() -> None:
    """One connection, the key file's token, one frame, half closed; written is all that is claimed."""
    world = World()
    world.post.send(transmit(delivery=Delivery.QUEUE))
    assert world.commands == []
    world.settle()
    ((line, target),) = world.dialled
    assert (target.address, line.is_finished, line.is_closed) == (FAR, True, False)
    proof, frame = line.frames
    assert proof == {"type": "auth", "token": "far-token"}
    assert (frame["from"], frame["msg_id"], frame["priority"]) == ("/r/socks/own.sock", MESSAGE, "next")
    assert "hi</cross-session-message>" in frame["content"]
    assert world.commands == []  # until the far end closed, or its time is over
    assert line.number is not None
    assert line.number > FIRST_LINK
    world.post.lost(line.number)
    world.settle()
    assert world.commands == [Settle(1, Outcome.WRITTEN)]
    assert world.written == [(envelope(delivery=Delivery.QUEUE), target)]
    assert line.is_closed


@pytest.mark.clause("pi-peers-17", "pi-peers-23")
@pytest.mark.parametrize(
    ("refusal", "outcome"),
    [
        (Refusal("UNSUPPORTED_PROTOCOL", "protocol_version"), Outcome.REFUSED),
        (Refusal("PEER_OFFLINE", "no key", is_retryable=True), Outcome.UNREACHED),
    ],
)
def test_transmit_to_a_window_that_may_not_be_written_to_connects_nowhere(
    refusal: Refusal, outcome: Outcome
) -> None:
    """A newer protocol is final; a missing key or record may come back."""
    world = World()
    world.targets[FAR] = refusal
    world.post.send(transmit())
    world.settle()
    assert world.dialled == []
    assert world.commands == [Settle(1, outcome, refusal=refusal)]


def test_transmit_that_no_window_could_read_is_refused_before_it_leaves() -> None:
    """A text past one line, an id that is no UUID: a window would hang up and say nothing."""
    for ordered in (
        transmit(content="x" * (1 << 20)),
        Transmit(1, FAR_INSTANCE, Envelope("tool-1", OWN, Peer(FAR_INSTANCE), "x"), False),
    ):
        world = World()
        world.post.send(ordered)
        world.settle()
        assert world.dialled == []
        (settled,) = world.commands
        assert isinstance(settled, Settle)
        assert settled.outcome is Outcome.REFUSED


def test_transmit_that_finds_nobody_is_unreached_and_says_why() -> None:
    """A refused connection left nothing."""
    world = World()
    world.refusal = Refusal("PEER_OFFLINE", "nobody listens")
    world.post.send(transmit())
    world.settle()
    assert world.commands == [Settle(1, Outcome.UNREACHED, refusal=world.refusal)]


@pytest.mark.clause("pi-peers-35")
def test_receipts_are_told_where_the_wire_has_a_word_for_them() -> None:
    """Accepted, denied and expired are told over a connection of our own; read is nobody's business."""
    for state, more, status in (
        (State.ACCEPTED, {}, "delivered"),
        (State.REJECTED, {"outcome": "DENIED"}, "denied"),
        (State.EXPIRED, {"outcome": "HELD_EXPIRED"}, "expired"),
    ):
        world = World()
        world.post.send(PushReceipt(2, FAR_INSTANCE, receipt(state, **more)))
        world.settle()
        ((line, _),) = world.dialled
        assert line.frames[1]["status"] == status
        assert line.frames[1]["orig_msg_id"] == MESSAGE
        assert line.number is not None
        world.post.lost(line.number)
        world.settle()
        assert world.commands == [Settle(2, Outcome.ANSWERED)]
    world = World()
    world.post.send(PushReceipt(2, FAR_INSTANCE, receipt(State.CONSUMED, accepted_ms=1)))
    world.settle()
    assert (world.dialled, world.commands) == ([], [Settle(2, Outcome.ANSWERED)])


def test_receipt_for_a_window_that_is_away_is_unreached() -> None:
    """The courier asks again later, unless no record shows that anybody is there to be told."""
    away = Refusal("PEER_OFFLINE", "its key is missing", is_retryable=True)
    for targets, is_gone in (({}, True), ({FAR: away}, False)):
        world = World()
        world.targets = targets
        world.post.send(PushReceipt(2, FAR_INSTANCE, receipt(State.ACCEPTED)))
        world.settle()
        (settled,) = world.commands
        assert isinstance(settled, Settle)
        assert (settled.outcome, settled.is_gone) == (Outcome.UNREACHED, is_gone)
    world = World()
    world.refusal = Refusal("PEER_OFFLINE", "nobody listens")
    world.post.send(PushReceipt(2, FAR_INSTANCE, receipt(State.ACCEPTED)))
    world.settle()
    assert world.commands == [Settle(2, Outcome.UNREACHED, refusal=world.refusal)]


def test_questions_that_this_wire_does_not_know_end_at_once() -> None:
    """No status, no runs: both are settled, and nothing is written."""
    world = World()
    world.post.send(AskStatus(3, FAR_INSTANCE, MESSAGE, Peer(FAR_INSTANCE).id, None))
    world.post.send(AskDirectory(4, FAR_INSTANCE))
    world.settle()
    assert world.dialled == []
    assert set(map(repr, world.commands)) == {
        repr(Settle(3, Outcome.LOST)),
        repr(DirectoryTold(4, frozenset())),
    }


@pytest.mark.clause("pi-peers-24")
def test_a_stranger_and_then_the_longest_idle_gives_way_to_who_comes_new() -> None:
    """The cap holds; who has not proved itself goes first."""
    world = World()
    lines = []
    for place in range(INBOUND_MAX):
        world.mono_ms += 1
        lines.append(world.visit(b"" if place == 5 else auth(), is_ended=False))
    world.visit(auth(), is_ended=False)
    assert [place for place, line in enumerate(lines) if line.is_closed] == [5]
    world.visit(auth(), is_ended=False)
    assert [place for place, line in enumerate(lines) if line.is_closed] == [0, 5]
    assert world.post.counters["window_links_crowded_out"] == 2


@pytest.mark.clause("pi-peers-22")
def test_a_first_line_that_trickles_has_thirty_seconds_in_all() -> None:
    """Bytes do not buy time; what a late one brings is not read."""
    world = World()
    line = FakeLine()
    number = world.post.accepted(line)
    assert number is not None
    assert world.post.deadline_ms == 31_000
    for byte in auth()[:-1]:
        world.mono_ms += 100
        world.post.received(number, bytes([byte]))
    world.mono_ms = 31_000
    world.post.tick()
    assert line.is_closed
    world.post.received(number, b"\n" + user())
    assert world.commands == []
    assert world.post.deadline_ms is None


@pytest.mark.clause("pi-peers-23")
def test_nothing_is_said_to_who_proves_nothing() -> None:
    """A wrong token, no token, or anything else first: closed, not a byte, nothing stored."""
    for first in (auth("stranger"), b"{}\n", user(), b"\xff\n", b""):
        world = World()
        line = world.visit(first, user())
        assert line.is_closed
        assert (bytes(line.written), world.commands, world.dialled) == (b"", [], [])


def test_bytes_on_a_connection_of_ours_mean_nothing() -> None:
    """What a window says where it only has to read is not read."""
    world = World()
    world.post.send(transmit())
    world.settle()
    line = world.dialled[0][0]
    assert line.number is not None
    world.post.received(line.number, auth() + user())
    assert world.commands == []


def test_a_window_that_keeps_its_side_open_is_not_waited_for_long() -> None:
    """The message counts as written after a second, and the next one may leave."""
    world = World()
    world.post.send(transmit())
    world.settle()
    world.mono_ms += 1_000
    assert world.post.deadline_ms == world.mono_ms
    world.post.tick()
    world.settle()
    assert world.commands == [Settle(1, Outcome.WRITTEN)]
    assert world.dialled[0][0].is_closed


def test_receipts_under_way_are_bounded() -> None:
    """A flood of messages does not make us open connections without end."""
    world = World()
    body = Refusal("QUEUE_FULL", "no room")
    for _ in range(STATUSES_MAX + 20):
        message_id = str(uuid.uuid4())
        world.visit(auth("child-token"), user(message_id=message_id))
        offers = [item for item in world.commands if isinstance(item, Offer)]
        if offers:
            world.post.send(Answer(offers[-1].asked, body))
            world.commands.clear()
        world.mono_ms += 1_000
    assert world.post.counters["window_receipts_untold"] == 20


def test_post_closed_hangs_up_and_takes_nobody_in() -> None:
    """Who waits is told that nothing left; who was written to stays written."""
    world = World()
    world.post.send(transmit())
    world.settle()
    guest = world.visit(auth(), is_ended=False)
    world.post.send(Transmit(9, FAR_INSTANCE, envelope(), False))
    assert world.post.is_writing
    world.post.close()
    world.settle()
    assert guest.is_closed
    outcomes = {item.attempt: item.outcome for item in world.commands if isinstance(item, Settle)}
    assert outcomes == {1: Outcome.WRITTEN, 9: Outcome.UNREACHED}
    assert world.post.accepted(late := FakeLine()) is None
    assert late.is_closed
    world.post.send(Transmit(10, FAR_INSTANCE, envelope(), False))
    world.settle()
    assert isinstance(last := world.commands[-1], Settle)
    assert last.outcome is Outcome.UNREACHED
    assert not world.post.is_writing


def test_answer_to_a_link_that_asked_nothing_is_ignored() -> None:
    """As after a restart."""
    world = World()
    world.post.send(Answer(Asked(FIRST_LINK + 1, "x"), receipt(State.ACCEPTED)))
    world.post.lost(FIRST_LINK + 99)
    world.settle()
    assert (world.dialled, world.commands) == ([], [])
