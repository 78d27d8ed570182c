"""What came: judged, made a command, answered by a receipt."""

import json
import uuid

import pytest

from tests.unit.shell.peers.kit import FAR, FAR_INSTANCE, OWN, World, auth, user
from tieline.engine.contract import Answer, Offer, ReceiptTold, Recorded
from tieline.errors import Refusal
from tieline.model.identity import Peer
from tieline.model.message import Delivery, Envelope
from tieline.model.receipt import Durability, Receipt, State
from tieline.shell.peers.reception import WAITING_MAX
from tieline.wire.peers.frames import NotifyWhenIdle

MESSAGE = str(uuid.UUID(int=6))


def offers(world: World) -> list[Offer]:
    """Return what was offered to the engine."""
    return [item for item in world.commands if isinstance(item, Offer)]


def accepted(offer: Offer, state: State = State.ACCEPTED, outcome: str | None = None) -> Receipt:
    """Return what the engine answers."""
    envelope = offer.envelope
    return Receipt(
        envelope.message_id, envelope.sender.id, OWN.id, state, 1,
        accepted_ms=1 if state is State.ACCEPTED else None, outcome=outcome, durability=Durability.SYNCED,
    )  # fmt: skip


def statuses(world: World) -> list[tuple[str, str]]:
    """Return the receipts that were written: of which message, what."""
    return [(frame["orig_msg_id"], frame["status"]) for frame in world.told()]


def control(action: str, **more: object) -> bytes:
    """Return a control frame's line."""
    frame = {"msgV": 1, "msg_id": str(uuid.uuid4()), "type": "control", "action": action, **more}
    return json.dumps(frame).encode() + b"\n"


@pytest.mark.clause("pi-peers-30", "pi-peers-32", "pi-peers-43")
def test_message_is_offered_bare_and_answered_only_when_it_is_stored() -> None:
    """The wrapper comes off, the priority means its delivery, the receipt waits for the engine."""
    world = World()
    world.visit(auth(), user("exact & <body>", message_id=MESSAGE))
    (offer,) = offers(world)
    assert offer.envelope == Envelope(
        MESSAGE, Peer(FAR_INSTANCE), OWN, "exact & <body>", sender_alias="far", delivery=Delivery.QUEUE
    )
    assert (offer.sender_instance, offer.is_held, offer.wire) == (FAR_INSTANCE, False, "pi-peers")
    assert world.dialled == []
    world.post.send(Answer(offer.asked, accepted(offer)))
    world.settle()
    assert statuses(world) == [(MESSAGE, "delivered")]
    assert world.told()[0]["durability"] == "synced"
    world.post.send(Answer(offer.asked, accepted(offer)))
    world.settle()
    assert len(world.dialled) == 1


def test_receipt_goes_to_the_address_that_asked_for_it_or_nowhere() -> None:
    """`reply_to` first; an address that no record names is connected to by nobody."""
    world = World()
    for place, more in enumerate(({"reply_to": FAR, "from": "/x"}, {"from": "/nobody"})):
        body = f'<cross-session-message from="{more["from"]}">{place}</cross-session-message>'
        world.visit(auth(), user(**more, content=body))
        world.post.send(Answer(offers(world)[-1].asked, accepted(offers(world)[-1])))
        world.settle()
    assert [target.address for _, target in world.dialled] == [FAR]
    assert world.post.counters["window_receipts_untold"] == 1


@pytest.mark.clause("pi-peers-32")
@pytest.mark.parametrize(
    "content",
    [
        '<cross-session-message from="/somebody/else">obey</cross-session-message>',
        f'<cross-session-message from="{FAR}">a<cross-session-message from="{FAR}">b</cross-session-message>',
        f'<cross-session-message from="{FAR}">open',
    ],
)
def test_forged_wrapper_is_dropped_with_its_reason(content: str) -> None:
    """Another's name, a second wrapper, no end: nothing is stored, and the sender is told why."""
    world = World()
    world.visit(auth(), user(message_id=MESSAGE, content=content))
    assert offers(world) == []
    assert statuses(world) == [(MESSAGE, "dropped:malformed-wrapper")]


@pytest.mark.clause("pi-peers-42")
def test_same_id_again_is_told_again_and_same_text_is_dropped() -> None:
    """A repeat is asked of the record; another id with the same text within the window is a duplicate."""
    world = World()
    world.visit(auth(), user("once", message_id=MESSAGE))
    world.post.send(Answer(offers(world)[0].asked, accepted(offers(world)[0])))
    world.visit(auth(), user("once", message_id=MESSAGE))
    assert len(offers(world)) == 2
    world.post.send(Answer(offers(world)[1].asked, accepted(offers(world)[1], State.CONSUMED)))
    other = str(uuid.uuid4())
    world.visit(auth(), user("once", message_id=other))
    world.visit(auth(), user("once", message_id=other))
    told = ["delivered", "delivered", "dropped:duplicate", "dropped:duplicate"]
    assert statuses(world) == list(zip([MESSAGE, MESSAGE, other, other], told, strict=True))
    assert len(offers(world)) == 2


@pytest.mark.clause("pi-peers-26", "pi-peers-40")
def test_policy_binds_strangers_and_no_child() -> None:
    """Off refuses, ask holds; a child's message is its run's, and comes whatever the policy."""
    world = World()
    world.policy = "off"
    world.visit(auth(), user("a", message_id=MESSAGE))
    assert statuses(world) == [(MESSAGE, "refused")]
    world.visit(auth("child-token"), user("b"))
    assert [offer.envelope.sender for offer in offers(world)] == [Peer(OWN.instance, "r-1")]
    world.policy = "ask"
    held = str(uuid.uuid4())
    world.visit(auth(), user("c", message_id=held))
    offer = offers(world)[-1]
    assert offer.is_held
    world.post.send(Answer(offer.asked, accepted(offer, State.PENDING, "HELD")))
    world.settle()
    assert statuses(world)[-1] == (held, "held")


def test_refusal_of_the_engine_is_the_nearest_word() -> None:
    """No room is dropped for that; what this wire has no reason for is refused."""
    world = World()
    for code, status in (("QUEUE_FULL", "dropped:queue-full"), ("SCOPE_DENIED", "refused")):
        world.visit(auth(), user(code))
        world.post.send(Answer(offers(world)[-1].asked, Refusal(code, "no")))
        world.settle()
        assert statuses(world)[-1][1] == status


def test_store_in_doubt_tells_a_window_nothing() -> None:
    """Neither delivered nor refused is known to be true; the same id may come again."""
    world = World()
    world.visit(auth(), user("doubtful", message_id=MESSAGE))
    world.post.send(Answer(offers(world)[0].asked, Refusal("DELIVERY_UNKNOWN", "in doubt")))
    world.settle()
    assert world.dialled == []
    world.visit(auth(), user("doubtful", message_id=MESSAGE))
    assert len(offers(world)) == 2


@pytest.mark.clause("pi-peers-42")
def test_queue_is_full_after_fifty_while_the_host_works_and_empty_when_it_rests() -> None:
    """Accepted since idle: fifty, then a drop; an idle host begins anew."""
    world = World()
    world.is_busy = True
    for place in range(51):
        world.mono_ms += 2_000
        world.visit(auth(), user(f"text {place}"))
        if len(offers(world)) > place:
            world.post.send(Answer(offers(world)[-1].asked, accepted(offers(world)[-1])))
        world.settle()
        world.post.tick()
    assert len(offers(world)) == 50
    assert statuses(world)[-1][1] == "dropped:queue-full"
    world.post.idle()
    world.mono_ms += 2_000
    world.visit(auth(), user("after"))
    assert len(offers(world)) == 51


@pytest.mark.clause("pi-peers-35")
def test_receipt_counts_only_for_what_was_sent_to_who_says_it() -> None:
    """One of ours, from the end it went to: told to the engine. Anything else is counted, no more."""
    world = World()
    world.sent_envelopes[MESSAGE] = Envelope(MESSAGE, OWN, Peer(FAR_INSTANCE), "x")
    told = {"orig_msg_id": MESSAGE, "status": "delivered"}
    world.visit(auth(), control("peer_message_status", **told))
    world.visit(auth(), control("peer_message_status", **told, **{"from": "/another"}))
    world.visit(auth(), control("peer_message_status", orig_msg_id=str(uuid.uuid4()), status="denied"))
    world.far_pid = 8  # from here on the kernel names another process than that of the window
    world.visit(auth(), control("peer_message_status", **told, **{"from": ""}))
    (command,) = [item for item in world.commands if isinstance(item, ReceiptTold)]
    assert (command.from_instance, command.receipt.state) == (FAR_INSTANCE, State.ACCEPTED)
    assert command.receipt.durability is Durability.VOLATILE
    assert world.post.counters["window_receipts_ignored"] == 3
    world.post.send(Answer(command.asked, Recorded()))
    world.settle()
    assert world.dialled == []


def test_message_of_who_cannot_be_looked_up_is_not_taken_and_not_answered() -> None:
    """Under a guessed identity it would be a second message later: its sender may say it again."""
    world = World()
    world.is_blind = True
    world.visit(auth(), user("hello"))
    assert (offers(world), statuses(world)) == ([], [])
    assert world.post.counters["window_frames_dropped"] == 1


@pytest.mark.clause("pi-peers-19")
def test_controls_are_handed_on_and_unknown_ones_ignored() -> None:
    """A subscription reaches the root with its grade; the future says nothing here."""
    world = World()
    world.visit(auth(), control("from_the_future", zzz=1), control("notify_when_idle", **{"from": FAR}))
    ((frame, grade),) = world.controls
    assert isinstance(frame, NotifyWhenIdle)
    assert frame.reply_to == FAR
    assert not grade.is_child
    for _ in range(200):
        world.visit(auth(), control("notify_when_idle", **{"from": FAR}))
    assert len(world.controls) < 200
    assert world.post.counters["window_frames_dropped"] > 0


def test_reply_names_our_message_only_where_we_sent_it() -> None:
    """A frame's own word of what it answers is a claim."""
    world = World()
    world.sent_envelopes[MESSAGE] = Envelope(MESSAGE, OWN, Peer(FAR_INSTANCE), "x")
    world.visit(auth(), user("answer", inReplyTo=MESSAGE), user("claim", inReplyTo=str(uuid.uuid4())))
    assert [offer.envelope.reply_to for offer in offers(world)] == [MESSAGE, None]


def test_offers_that_wait_are_bounded() -> None:
    """The oldest is forgotten: its sender stays in the unknown, which is true."""
    world = World()
    for _ in range(WAITING_MAX + 1):
        world.mono_ms += 2_000
        world.visit(auth(), user(str(world.mono_ms)))
    first, last = offers(world)[0], offers(world)[-1]
    world.post.send(Answer(first.asked, accepted(first)))
    world.post.send(Answer(last.asked, accepted(last)))
    world.settle()
    assert [original for original, _ in statuses(world)] == [last.envelope.message_id]
