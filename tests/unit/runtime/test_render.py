"""The JSON shapes of the doors."""

from typing import Any

import pytest

from tieline.engine.contract import Held, Sent
from tieline.errors import Refusal
from tieline.model.identity import Availability, Descriptor, Peer, Scope, foreign_instance
from tieline.model.message import Attachment, Delivery, Envelope
from tieline.model.moment import NEVER_MS
from tieline.model.receipt import NOTES, Durability, Event, Receipt, State
from tieline.runtime import render

AT_MS = 1_700_000_000_000
AT = "2023-11-14T22:13:20.000Z"


def envelope(**more: object) -> Envelope:
    """Return a message from run `r` of `there` to `here`."""
    return Envelope(
        message_id="m-1", sender=Peer("there", "r"), recipient=Peer("here"), content="text", **more
    )  # type: ignore[arg-type]


def receipt(state: State, **more: object) -> Receipt:
    """Return a receipt of that message."""
    return Receipt("m-1", Peer("there", "r").id, Peer("here").id, state, 12, **more)  # type: ignore[arg-type]


@pytest.mark.clause("S22", "O23", "I47")
def test_message_shows_the_authenticated_sender_and_says_external() -> None:
    """Who sent it is the proved peer and run, whatever the content claims; its authority is external."""
    held = Held(
        7,
        envelope(sender_alias="bob", topic="t", created_ms=AT_MS, attachments=(Attachment("a.txt", "A"),)),
        State.ACCEPTED,
        AT_MS,
        AT_MS + 1_000,
        receipt(State.ACCEPTED),
    )
    shape = render.message(held)
    assert shape["from"] == Peer("there", "r").id
    assert (shape["fromAlias"], shape["fromRun"], shape["authority"]) == ("bob", "r", "external")
    assert (shape["sequence"], shape["receivedAt"], shape["content"]) == (7, AT, "text")
    assert shape["attachments"] == [{"name": "a.txt", "mediaType": "text/plain", "text": "A"}]
    assert "replyTo" not in shape
    assert "fromProject" not in shape


def test_message_that_memory_let_go_has_no_content_member() -> None:
    """Absent facts are absent: an empty text would be a false one."""
    held = Held(7, envelope(), State.ACCEPTED, AT_MS, AT_MS, receipt(State.ACCEPTED), has_content=False)
    assert "content" not in render.message(held)
    sent = Sent(7, envelope(), receipt(State.PENDING), AT_MS, has_content=False)
    assert "content" not in render.sent_message(sent)["message"]


def test_receipt_names_only_the_moments_that_came() -> None:
    """Times are ISO-8601 UTC, the cursor is a decimal string, what did not happen has no member."""
    shape = render.receipt(
        receipt(State.CONSUMED, accepted_ms=AT_MS, consumed_ms=AT_MS, durability=Durability.SYNCED),
        AT_MS,
        "native",
    )
    assert shape == {
        "messageId": "m-1",
        "from": Peer("there", "r").id,
        "to": Peer("here").id,
        "state": "consumed",
        "cursor": "12",
        "acceptedAt": AT,
        "consumedAt": AT,
        "durability": "synced",
        "expiresAt": AT,
        "wire": "native",
    }
    assert "retryable" not in shape
    assert render.receipt(receipt(State.REJECTED, is_retryable=True))["retryable"] is True


@pytest.mark.clause("I20", "O12")
def test_sent_message_keeps_what_the_recipient_refused_with() -> None:
    """A refusal that was stated is shown beside the state, with the number of attempts."""
    sent = Sent(
        7,
        envelope(),
        receipt(State.UNKNOWN),
        AT_MS,
        attempt_count=3,
        last_refusal=Refusal("QUEUE_FULL", "full"),
    )
    shape = render.sent_message(sent)
    assert (shape["attempts"], shape["lastRefusal"]) == (3, {"code": "QUEUE_FULL", "text": "full"})
    assert "lastRefusal" not in render.sent_message(Sent(7, envelope(), receipt(State.UNKNOWN), AT_MS))


@pytest.mark.parametrize("state", list(State))
def test_receipt_text_of_every_state_claims_no_more_than_it_knows(state: State) -> None:
    """Each state has one sentence; none says that work was done, and unknown never says refused."""
    text = render.receipt_text(receipt(state))
    assert text.endswith(".")
    assert "work is done" not in text or "not say" in text
    if state is State.UNKNOWN:
        assert "not known" in text
    assert render.receipt_text(receipt(state, outcome="HELD")).endswith("(HELD)") or state is State.ACCEPTED


def test_receipt_text_claims_a_disk_only_where_the_recipient_said_so() -> None:
    """`synced` is on disk; a foreign end's acceptance is its word; an ended run read nothing."""
    assert "on disk" in render.receipt_text(receipt(State.ACCEPTED, durability=Durability.SYNCED))
    assert "on disk" not in render.receipt_text(receipt(State.ACCEPTED, durability=Durability.UNSTATED))
    assert "ended before reading" in render.receipt_text(receipt(State.ACCEPTED, outcome="TARGET_ENDED"))


def test_descriptor_leaves_out_what_is_not_known() -> None:
    """A peer of which little is known shows little; ourselves are marked."""
    item = Descriptor(
        peer=Peer("there"),
        session="s",
        alias="bob",
        project="p",
        kind="root",
        activity="idle",
        availability=Availability.AVAILABLE,
        capabilities=("message.receive",),
        workspace="",
        repository="",
        scope=Scope.WORKSPACE,
        wire="native",
        harness="",
        model="",
        is_busy=False,
        context_percent=None,
    )
    shape = render.descriptor(item)
    assert shape["peerId"] == Peer("there").id
    assert {"workspaceId", "repositoryId", "model", "contextPercent", "runId", "isSelf"}.isdisjoint(shape)
    assert render.descriptor(item, age_ms=4, is_self=True)["ageMs"] == 4
    assert render.descriptor(item, is_self=True)["isSelf"] is True


def test_event_carries_its_receipt_only_when_it_moved_one() -> None:
    """An arrival has no receipt; a receipt's move has it whole."""
    arrival = Event(3, "message", "o", "m-1", "a", "b", at_ms=AT_MS)
    assert render.event(arrival) == {
        "type": "message",
        "cursor": "3",
        "messageId": "m-1",
        "from": "a",
        "to": "b",
        "at": AT,
    }
    moved = Event(4, "receipt", "o", "m-1", "a", "b", State.CONSUMED, receipt(State.CONSUMED), AT_MS)
    assert render.event(moved)["receipt"]["state"] == "consumed"
    assert Delivery.STEER == "steer"


@pytest.mark.parametrize(
    ("outcome", "word"),
    [("NOT_DELIVERED", "Never delivered"), ("REPLACED", "Never read"), (None, "before it was read")],
)
def test_text_of_an_expiry_says_why(outcome: str | None, word: str) -> None:
    """An expiry before the deadline has its reason in words, beside its code."""
    text = render.receipt_text(receipt(State.EXPIRED, outcome=outcome))
    assert word in text
    assert (outcome is None) != (f"({outcome})" in text)


def test_wire_that_is_not_known_and_an_end_that_never_comes_are_absent() -> None:
    """A receipt of which nobody knows the wire names none, and what waits until it is read has no end."""
    assert "wire" not in render.receipt(receipt(State.ACCEPTED))
    assert "expiresAt" not in render.receipt(receipt(State.ACCEPTED), NEVER_MS)
    window = Peer(foreign_instance("pi-peers", "s"))
    mail = Envelope(message_id="m-1", sender=window, recipient=Peer("here"), content="text")
    shape = render.message(Held(7, mail, State.ACCEPTED, AT_MS, NEVER_MS, receipt(State.ACCEPTED)))
    assert shape["wire"] == "pi-peers"
    assert "expiresAt" not in shape
    sent = Envelope(message_id="m-1", sender=Peer("here"), recipient=window, content="text")
    shape = render.sent_message(Sent(7, sent, receipt(State.PENDING), NEVER_MS))
    assert shape["receipt"]["wire"] == "pi-peers"


@pytest.mark.parametrize(
    ("state", "more", "says"),
    [
        (State.UNKNOWN, {}, "not sent again by itself"),
        (State.UNKNOWN, {"outcome": "HELD"}, "asks its person first"),
        (State.ACCEPTED, {"durability": Durability.VOLATILE}, "does not tell when it is read"),
        (State.ACCEPTED, {"durability": Durability.SYNCED}, "on disk"),
        (State.REJECTED, {"outcome": "RATE_LIMITED"}, "(RATE_LIMITED)"),
        (State.EXPIRED, {"outcome": "HELD_EXPIRED"}, "did not say yes in time"),
    ],
)
def test_receipt_text_of_a_window_promises_no_retry_and_no_reading(
    state: State, more: dict[str, Any], says: str
) -> None:
    """What a wire cannot tell is not said of it."""
    text = render.receipt_text(receipt(state, **more), "pi-peers")
    assert says in text
    assert "retried" not in text


def test_note_of_a_broker_is_told_as_no_more_than_that() -> None:
    """How far it came, that nobody knows the rest, and not to send it again."""
    for note in NOTES:
        told = render.receipt_text(Receipt("m", "a", "b", State.UNKNOWN, 1, outcome=note), "intercom")
        assert told.endswith(f"Do not send it again. ({note})")
        assert "not" in told.split("Do not")[0] or note == "BROKER_QUEUED"
