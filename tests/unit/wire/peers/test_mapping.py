"""What pi-peers frames mean here, and what of ours that wire can say."""

from typing import Any, get_args

import msgspec
import pytest

from tieline.errors import WIRE_CODES, Refusal
from tieline.model.identity import Peer
from tieline.model.message import Delivery, Envelope
from tieline.model.receipt import Durability, Receipt, State
from tieline.wire.peers import mapping
from tieline.wire.peers.frames import LINE_BYTES_MAX, StatusFrame, UserFrame
from tieline.wire.peers.mapping import Kind
from tieline.wire.peers.wrapper import unwrap

ID = "11111111-2222-4333-8444-555555555555"
OTHER = "aaaaaaaa-2222-4333-8444-bbbbbbbbbbbb"
OURS, WINDOW = Peer("own-1"), Peer("pi-peers:0123456789abcdef0123456789abcdef")
FRAME = UserFrame(ID, "/w.sock", 7, "s-1", "api", ("/w.sock",), "next", "wrapped")
ENVELOPE = Envelope(ID, OURS, WINDOW, "text </cross-session-message>", reply_to=OTHER)


def told(state: State, outcome: str | None = None, **more: Any) -> Receipt:
    """Return a receipt of ours."""
    return Receipt(OTHER, WINDOW.id, OURS.id, state, 5, outcome=outcome, **more)


def said(body: Receipt | Refusal, **more: Any) -> StatusFrame | None:
    """Return the status that `body` gives."""
    return mapping.status(body, original=OTHER, message_id=ID, address="/own.sock", **more)


@pytest.mark.clause("pi-peers-30")
@pytest.mark.parametrize(("priority", "delivery"), [("now", Delivery.STEER), ("next", Delivery.QUEUE)])
def test_priority_and_delivery_are_each_other(priority: Any, delivery: Delivery) -> None:
    """The word "now" steers and "next" queues, in both directions."""
    frame = msgspec.structs.replace(FRAME, priority=priority)
    read = mapping.envelope(frame, sender=WINDOW, recipient=OURS, body="b", reply_to=None, alias="a")
    assert read.delivery is delivery
    message = msgspec.structs.replace(ENVELOPE, delivery=delivery)
    written = mapping.user_frame(message, address="/own.sock", pid=1, session="s", name="me")
    assert written.priority == priority


def test_envelope_is_made_of_what_the_caller_found() -> None:
    """The id and the priority come from the frame; who and what was proved comes from the caller."""
    read = mapping.envelope(FRAME, sender=WINDOW, recipient=OURS, body="body", reply_to=OTHER, alias="api-7")
    assert read == Envelope(
        ID, WINDOW, OURS, "body", reply_to=OTHER, sender_alias="api-7", delivery=Delivery.QUEUE
    )


@pytest.mark.clause("pi-peers-28", "pi-peers-29", "pi-peers-31")
def test_user_frame_carries_the_exact_text_in_our_wrapper() -> None:
    """The frame is from our address with a chain of one hop, and its text comes out of the wrapper."""
    frame = mapping.user_frame(ENVELOPE, address="/own.sock", pid=9, session="s", name="me")
    assert (frame.message_id, frame.sender, frame.pid, frame.session) == (ID, "/own.sock", 9, "s")
    assert (frame.name, frame.hop_chain, frame.in_reply_to) == ("me", ("/own.sock",), OTHER)
    assert frame.content.startswith('<cross-session-message from="/own.sock" from-name="me">')
    assert unwrap(frame.content, "/own.sock") == ENVELOPE.content
    assert mapping.departure(frame) is None


@pytest.mark.clause("pi-peers-22", "pi-peers-U20")
def test_departure_of_what_no_window_could_read_is_refused() -> None:
    """An id that is no UUID and a line past the bound are refused before anything is written."""
    odd = mapping.departure(msgspec.structs.replace(FRAME, message_id="release-7"))
    assert odd is not None
    assert odd.code == "INVALID_PARAMS"
    long = mapping.departure(msgspec.structs.replace(FRAME, content="\x01" * (LINE_BYTES_MAX // 6)))
    assert long is not None
    assert long.code == "MESSAGE_TOO_LARGE"
    assert (odd.is_retryable, long.is_retryable) == (False, False)


@pytest.mark.clause("pi-peers-35", "pi-peers-U13")
@pytest.mark.parametrize(
    ("status", "reason", "state", "outcome"),
    [
        ("held", "", State.PENDING, "HELD"),
        ("delivered", "", State.ACCEPTED, None),
        ("denied", "", State.REJECTED, "DENIED"),
        ("expired", "", State.EXPIRED, "HELD_EXPIRED"),
        ("refused", "off", State.REJECTED, "REFUSED"),
        ("dropped", "rate-limited", State.REJECTED, "RATE_LIMITED"),
        ("dropped", "queue-full", State.REJECTED, "QUEUE_FULL"),
        ("dropped", "duplicate", State.REJECTED, "DUPLICATE"),
        ("dropped", "malformed-wrapper", State.REJECTED, "MALFORMED_WRAPPER"),
        ("dropped", "hop-limit", State.REJECTED, "HOP_LIMIT"),
        ("dropped", "something new", State.REJECTED, "DROPPED"),
        ("dropped", "", State.REJECTED, "DROPPED"),
    ],
)
def test_status_is_the_receipt_it_means(status: Any, reason: str, state: State, outcome: str | None) -> None:
    """Every status and every reason has its one state and outcome."""
    receipt = mapping.receipt(StatusFrame(ID, "/w", OTHER, status, reason), sender=OURS, recipient=WINDOW)
    assert receipt is not None
    assert (receipt.message_id, receipt.sender, receipt.recipient) == (OTHER, OURS.id, WINDOW.id)
    assert (receipt.state, receipt.outcome, receipt.is_retryable) == (state, outcome, False)
    assert receipt.durability is (Durability.VOLATILE if state is State.ACCEPTED else None)


@pytest.mark.parametrize(
    ("stated", "read"),
    [
        (None, Durability.VOLATILE),
        ("synced", Durability.SYNCED),
        ("unstated", Durability.UNSTATED),
        ("forever", Durability.VOLATILE),
    ],
)
def test_delivered_is_no_more_durable_than_it_says(stated: str | None, read: Durability) -> None:
    """A queue in memory is all that "delivered" means by itself."""
    frame = StatusFrame(ID, "/w", OTHER, "delivered", "", stated)
    receipt = mapping.receipt(frame, sender=OURS, recipient=WINDOW)
    assert receipt is not None
    assert receipt.durability is read


def test_status_of_several_messages_is_no_single_receipt() -> None:
    """It must be taken apart first."""
    frame = StatusFrame(ID, "/w", OTHER, "dropped", "duplicate", None, (ID,))
    assert mapping.receipt(frame, sender=OURS, recipient=WINDOW) is None
    parts = [mapping.receipt(part, sender=OURS, recipient=WINDOW) for part in frame.each()]
    assert [part.message_id for part in parts if part] == [OTHER, ID]


@pytest.mark.clause("pi-peers-35")
@pytest.mark.parametrize(
    ("receipt", "status", "reason"),
    [
        (told(State.PENDING, "HELD"), "held", ""),
        (told(State.ACCEPTED), "delivered", ""),
        (told(State.REJECTED, "DENIED"), "denied", ""),
        (told(State.EXPIRED, "HELD_EXPIRED"), "expired", ""),
        (told(State.REJECTED, "REFUSED"), "refused", "refused"),
        (told(State.REJECTED, "QUEUE_FULL"), "dropped", "queue-full"),
        (told(State.REJECTED, "SCOPE_DENIED"), "refused", "scope-denied"),
        (told(State.REJECTED), "refused", ""),
    ],
)
def test_receipt_is_said_in_the_word_this_wire_has(receipt: Receipt, status: Any, reason: str) -> None:
    """Held, accepted, denied, expired and refused each have one word."""
    assert said(receipt) == StatusFrame(ID, "/own.sock", OTHER, status, reason)


def test_durability_of_acceptance_is_said() -> None:
    """A Tieline end at the other side learns what our storage promises."""
    frame = said(told(State.ACCEPTED, durability=Durability.SYNCED))
    assert frame is not None
    assert frame.durability == "synced"


@pytest.mark.parametrize(
    "receipt",
    [
        told(State.CONSUMED, accepted_ms=1),
        told(State.REPLIED, accepted_ms=1),
        told(State.EXPIRED, accepted_ms=1),
        told(State.PENDING),
        told(State.UNKNOWN),
    ],
    ids=lambda receipt: str(receipt.state),
)
def test_receipt_without_a_word_is_not_said(receipt: Receipt) -> None:
    """What this wire cannot say truly it does not say."""
    assert said(receipt) is None


@pytest.mark.clause("pi-peers-U14")
def test_message_that_comes_again_is_told_as_the_first_time() -> None:
    """A repeat of one that was read meanwhile is "delivered", as it was."""
    for state in (State.ACCEPTED, State.CONSUMED, State.REPLIED):
        frame = said(told(state, accepted_ms=1), is_repeat=True)
        assert frame is not None
        assert frame.status == "delivered"
    assert said(told(State.UNKNOWN), is_repeat=True) is None


@pytest.mark.clause("pi-peers-35", "pi-peers-U13")
@pytest.mark.parametrize("code", sorted(WIRE_CODES))
def test_refusal_of_every_code_is_refused_or_dropped(code: str) -> None:
    """The two refusals that a window knows as a drop are told so; every other is "refused"."""
    frame = said(Refusal(code, "no"))
    assert frame is not None
    dropped = {"RATE_LIMITED": "rate-limited", "QUEUE_FULL": "queue-full"}
    assert frame.status == ("dropped" if code in dropped else "refused")
    assert frame.reason == dropped.get(code, code.lower().replace("_", "-"))


@pytest.mark.clause("pi-peers-35", "pi-peers-U13")
def test_verdict_of_every_kind_has_its_status() -> None:
    """A decision before custody is told with its reason."""
    statuses = {
        kind: mapping.verdict(kind, "why", original=OTHER, message_id=ID, address="/own.sock")
        for kind in get_args(Kind)
    }
    assert {kind: frame.status for kind, frame in statuses.items()} == {
        "accept": "delivered",
        "hold": "held",
        "drop": "dropped",
        "refuse": "refused",
    }
    assert all((frame.original, frame.reason) == (OTHER, "why") for frame in statuses.values())
