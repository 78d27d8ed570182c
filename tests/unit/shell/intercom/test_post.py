"""The intercom post: one attempt per message, its broker's word, and what sessions send."""

from typing import Any

import pytest

from tests.unit.shell.intercom.kit import FAR, FAR_ROW, OWN, OWN_ROW, FakeLine, World, frame, transmit
from tieline.engine.contract import (
    Answer,
    AskDirectory,
    Asked,
    AskStatus,
    DirectoryTold,
    Offer,
    Outcome,
    PushReceipt,
    ReceiptTold,
    Settle,
)
from tieline.errors import Refusal
from tieline.model.identity import Peer
from tieline.model.receipt import Receipt, State
from tieline.shell.intercom.post import COMING_BACK_MS, FIRST_LINK, LOOK_AFTER_MS, OFFERS_MAX
from tieline.wire.intercom import mapping
from tieline.wire.intercom.client import SEND_MS

MESSAGE: dict[str, Any] = {"id": "f1", "timestamp": 1, "content": {"text": "hi"}}


def message(**fields: Any) -> bytes:
    """Return a message of the far session."""
    return frame(type="message", message={**MESSAGE, **fields}, **{"from": FAR_ROW})


@pytest.mark.parametrize(
    ("told", "settled"),
    [
        (frame(type="delivered", messageId="m1"), Settle(1, Outcome.WRITTEN, said="BROKER_ACCEPTED")),
        (
            frame(type="delivery_queued", messageId="m1", reason="q"),
            Settle(1, Outcome.WRITTEN, said="BROKER_QUEUED"),
        ),
        (
            frame(type="delivery_failed", messageId="m1", reason="Session not found"),
            Settle(1, Outcome.REFUSED, refusal=Refusal("UNKNOWN_TARGET", "Session not found")),
        ),
        (
            frame(type="delivery_failed", messageId="m1", reason="?", outcomeKnown=False),
            Settle(1, Outcome.LOST),
        ),
    ],
)  # fmt: skip
def test_transmission_is_settled_by_its_brokers_word(told: bytes, settled: Settle) -> None:
    """Once; the frame names the session, and what is told again means nothing."""
    world = World()
    line = world.join()
    world.post.send(transmit())
    assert world.post.is_sending
    (sent,) = line.said()
    assert (sent["type"], sent["to"], sent["message"]["id"]) == ("send", "pi-far", "m1")
    world.hear(line, told)
    assert world.settle() == [settled]
    world.hear(line, told)
    assert (world.settle(), world.post.is_sending) == ([], False)


def test_transmission_without_an_answer_may_have_arrived() -> None:
    """By its time or by the loss of the connection: it is never sent again from here."""
    for end in ("time", "loss"):
        world = World()
        line = world.join()
        world.post.send(transmit())
        if end == "time":
            world.pass_ms(SEND_MS)
        else:
            world.post.lost(line.number or 0)
        assert world.settle() == [Settle(1, Outcome.LOST)]


def test_transmission_that_cannot_leave_is_unreached_and_one_too_large_refused() -> None:
    """Without a broker nothing left; what no broker takes is a definite no."""
    world = World()
    world.refusal = Refusal("PEER_OFFLINE", "nobody")
    world.post.send(transmit())
    (settled,) = world.settle()
    assert isinstance(settled, Settle)
    assert settled.outcome is Outcome.UNREACHED
    world.refusal = None
    world.join()
    world.post.send(transmit(to=Peer(mapping.instance_of("never seen"))))
    (settled,) = world.settle()
    assert isinstance(settled, Settle)
    assert settled.outcome is Outcome.UNREACHED
    world.post.send(transmit(thread="t\x00", replaces=True))
    (settled,) = world.settle()
    assert isinstance(settled, Settle)
    assert settled.outcome is Outcome.REFUSED
    world.post.send(transmit("twice", 2))
    world.post.send(transmit("twice", 3))
    (settled,) = world.settle()
    assert isinstance(settled, Settle)
    assert (settled.attempt, settled.outcome) == (3, Outcome.UNREACHED)


def test_session_at_two_brokers_is_one_and_reached_over_the_first_that_has_it() -> None:
    """The preferred broker carries; when it is gone the other one does; leaving counts when nobody has it."""
    world = World()
    first, second = world.join("one"), world.join("two")
    assert list(world.post.rows()) == ["pi-own", "pi-far"]
    world.post.send(transmit())
    assert first.said()
    assert not second.said()
    world.hear(first, frame(type="session_left", sessionId="pi-far"))
    assert ("left", "pi-far") not in world.told
    world.post.send(transmit("m2", 2))
    assert [one["message"]["id"] for one in second.said()] == ["m2"]
    world.hear(second, frame(type="session_left", sessionId="pi-far"))
    assert world.told[-1] == ("left", "pi-far")


def test_message_becomes_an_offer_and_its_answer_comes_back_here() -> None:
    """Accepted is told inside; refused is told to the sender in words, where that helps."""
    world = World()
    line = world.join()
    world.is_asking = True
    for body, told in (
        (Receipt("f1", FAR.id, OWN.id, State.ACCEPTED, 1), ("arrived", "f1")),
        (Refusal("QUEUE_FULL", "full"), ("turned away", "QUEUE_FULL")),
    ):
        world.hear(line, message(expectsReply=True))
        (offer,) = world.settle()
        assert isinstance(offer, Offer)
        assert (offer.sender_instance, offer.wire, offer.may_cross) == (FAR.instance, "intercom", False)
        assert offer.asked.link >= FIRST_LINK
        world.post.send(Answer(offer.asked, body))
        assert world.told[-1] == told
        count = len(world.told)
        world.post.send(Answer(offer.asked, body))
        assert len(world.told) == count
    assert world.post.counters["intercom_turned_away"] == 1


def test_message_that_may_not_come_in_never_reaches_the_engine() -> None:
    """A guard that does not hold, and a crowd that would grow without end."""
    world = World()
    line = world.join()
    world.is_admitting = False
    world.hear(line, message())
    assert (world.settle(), world.post.counters["intercom_guards_refused"]) == ([], 1)
    world.is_admitting = True
    for number in range(OFFERS_MAX + 1):
        world.hear(line, message(id=str(number)))
    assert len(world.settle()) == OFFERS_MAX
    assert world.told[-1] == ("turned away", "QUEUE_FULL")


@pytest.mark.clause("intercom-137")
def test_receipt_is_read_a_few_times_and_told_to_the_engine() -> None:
    """After the broker took a message, each time later, while the owner says anything of it."""
    world = World()
    line = world.join()
    world.post.send(transmit())
    line.said()
    world.hear(line, frame(type="delivered", messageId="m1"))
    world.settle()
    facts = {"version": 1, "messageId": "m1", "checkpointEntryId": "7"}
    bodies: list[dict[str, Any]] = [
        {"error": "receipt_not_found"},
        {"receipt": facts},
        {"error": "unsupported"},
    ]
    for pause_ms, body in zip(LOOK_AFTER_MS, bodies, strict=False):
        world.pass_ms(pause_ms)
        (asked,) = line.said()
        assert (asked["rootSessionId"], asked["messageId"]) == ("far-root", "m1")
        world.hear(line, frame(type="receipt_response", requestId=asked["requestId"], **body))
        told = world.settle()
        assert [one.receipt.outcome for one in told if isinstance(one, ReceiptTold)] == (
            ["CHECKPOINTED"] if "receipt" in body else []
        )
    world.pass_ms(60_000)
    assert line.said() == []


def test_reads_end_by_answer_time_and_loss() -> None:
    """Nobody waits for ever, and an old broker is said to be old before a byte is written."""
    world = World()
    line, told = world.join(), list[Any]()
    world.post.read("last", "pi-far", {"offset": 0}, told.append)
    (asked,) = line.said()
    world.hear(line, frame(type="last_response", requestId=asked["requestId"], text="t"))
    assert told.pop() == {"text": "t"}
    world.post.read("last", "pi-far", {"offset": 0}, told.append)
    world.pass_ms(5_000)
    assert told.pop().code == "PEER_OFFLINE"
    world.post.read("last", "pi-far", {"offset": 0}, told.append)
    world.post.lost(line.number or 0)
    assert told.pop().code == "PEER_OFFLINE"
    world.post.read("last", "pi-far", {"offset": 0}, told.append)
    assert told.pop().code == "PEER_OFFLINE"
    world.pass_ms(60_000)
    world.join("one", "guardedDelivery")
    world.post.read("last", "pi-far", {"offset": 0}, told.append)
    assert told.pop().code == "CAPABILITY_DENIED"


def test_orders_without_a_frame_are_settled_at_once() -> None:
    """There is no receipt frame, no question, no directory on this wire."""
    world = World()
    receipt = Receipt("f1", FAR.id, OWN.id, State.CONSUMED, 2)
    world.post.send(PushReceipt(1, FAR.instance, receipt))
    world.post.send(AskStatus(2, FAR.instance, "m1", FAR.id, None))
    world.post.send(AskDirectory(3, FAR.instance))
    assert sorted(world.settle(), key=lambda one: one.attempt) == [  # type: ignore[union-attr]
        Settle(1, Outcome.ANSWERED), Settle(2, Outcome.LOST), DirectoryTold(3, frozenset()),
    ]  # fmt: skip


def test_what_brokers_relay_is_told_to_the_root() -> None:
    """Reads, wakes and failures; and what we say of ourselves goes to every broker that has us."""
    world = World()
    line, other = world.join(), world.join("two")
    world.hear(
        line,
        frame(type="last_read", token="t1", offset=0, limit=1, **{"from": FAR_ROW}),
        frame(type="receipt_read", token="t2", rootSessionId="r", messageId="m", **{"from": FAR_ROW}),
        frame(type="wake_request", token="t3", sessionId="s", messageId="m"),
        frame(type="wake_failed", messageId="m9"),
    )
    assert world.told == [("last", "t1"), ("receipt", "t2"), ("wake", "t3"), ("wake failed", "m9")]
    world.post.tell_presence({"status": "thinking"})
    assert [one["type"] for one in (*line.said(), *other.said())] == ["presence", "presence"]
    world.post.say(world.post.members["one"], "pi-far", {**MESSAGE, "id": "w"})
    assert line.said()[0]["message"]["id"] == "w"
    world.post.say(world.post.members["one"], "pi-far", {"id": "bad"})
    assert world.post.counters["intercom_turned_away"] == 1


def test_look_waits_for_every_broker_and_leaving_says_so() -> None:
    """Done when each has answered; a child that comes back leaves parked; nobody connects to a session."""
    world = World()
    done: list[bool] = []
    world.post.look(lambda: done.append(False))
    lines = [world.join("one"), world.join("two")]
    world.post.look(lambda: done.append(True))
    for line in lines:
        assert done == [False]
        (asked,) = line.said()
        world.hear(line, frame(type="sessions", requestId=asked["requestId"], sessions=[OWN_ROW]))
    assert done == [False, True]
    assert world.post.is_connected
    world.post.close(is_parked=True)
    assert [line.said() for line in lines] == [[{"type": "unregister", "parked": True}]] * 2
    assert not world.post.is_connected
    stranger = FakeLine()
    assert world.post.accepted(stranger) is None
    assert stranger.is_closed
    world.post.send(Answer(Asked(FIRST_LINK, "nobody's"), Refusal("QUEUE_FULL", "x")))


def test_message_to_who_may_still_come_back_is_not_offered_to_a_definite_no() -> None:
    """Right after a loss a broker does not know who returns later: nothing is sent until then."""
    world = World()
    line = world.join()
    world.post.lost(line.number or 0)
    world.pass_ms(1_000)
    again = world.join(rows=(OWN_ROW,))
    world.post.send(transmit())
    (settled,) = world.settle()
    assert isinstance(settled, Settle)
    assert settled.outcome is Outcome.UNREACHED
    (asked,) = again.said()
    world.hear(again, frame(type="sessions", requestId=asked["requestId"], sessions=[OWN_ROW, FAR_ROW]))
    world.post.send(transmit(attempt=2))
    assert [one["type"] for one in again.said()] == ["send"]
    world.hear(again, frame(type="session_left", sessionId="pi-far"))
    world.pass_ms(COMING_BACK_MS)
    world.post.send(transmit("m2", 3))
    assert "send" in [one["type"] for one in again.said()]
