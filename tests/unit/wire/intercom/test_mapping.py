"""Intercom messages and ours: what each says of the other, and what stays exact."""

import hashlib
from typing import Any

import pytest

from tieline.model.identity import Peer, wire_of
from tieline.model.message import Attachment, Delivery, Envelope
from tieline.model.receipt import CHECKPOINTED, PLACED, Durability, State
from tieline.wire.intercom import mapping
from tieline.wire.intercom.client import Sent
from tieline.wire.intercom.forms import plain_letter

OWN = Peer("own")
FAR = Peer(mapping.instance_of("pi-far"))
SENDER = {"id": "pi-far", "cwd": "/w", "model": "m", "name": "far", "rootSessionId": "r", "incarnation": "i"}


def came(**fields: Any) -> dict[str, Any]:
    """Return a message as a broker hands it over."""
    text = fields.pop("text", "hello")
    content = {"text": text, **fields.pop("content", {})}
    return {"id": "m1", "timestamp": 1.5, "content": content, **fields}


def taken(**fields: Any) -> Envelope:
    """Return what such a message becomes."""
    return mapping.envelope(SENDER, came(**fields), recipient=OWN)


def test_native_peer_id_is_the_hash_of_the_native_session() -> None:
    """The 32 first hexadecimal digits, behind `pi-`."""
    assert mapping.peer_id_of("s") == "pi-" + hashlib.sha256(b"s").hexdigest()[:32]
    assert wire_of(mapping.instance_of("pi-1")) == "intercom"


@pytest.mark.parametrize(
    ("fields", "delivery"),
    [
        ({}, Delivery.STEER),
        ({"delivery": "steer"}, Delivery.STEER),
        ({"delivery": "queue"}, Delivery.QUEUE),
        ({"delivery": "passive"}, Delivery.PASSIVE),
        ({"passive": True}, Delivery.PASSIVE),
        ({"passive": False, "delivery": "queue"}, Delivery.QUEUE),
        ({"expectsReply": True}, Delivery.STEER),
    ],
)
@pytest.mark.clause("intercom-74")
def test_delivery_that_is_not_stated_steers(fields: dict[str, Any], delivery: Delivery) -> None:
    """Also of a raw old sender, also of a question."""
    assert taken(**fields).delivery is delivery


def test_message_keeps_what_its_sender_said() -> None:
    """Thread, replacement, question, answer, attachments, and who the broker says it is."""
    items = [
        {"type": "file", "name": "a", "content": "1"},
        {"type": "snippet", "name": "b", "content": "2", "language": "py"},
        {"type": "context", "name": "c", "content": "3"},
    ]
    told = taken(
        delivery="queue", queueMode="replace", threadId=" t ", expectsReply=True, replyTo="q",
        content={"attachments": items},
    )  # fmt: skip
    assert (told.sender, told.recipient, told.sender_alias) == (FAR, OWN, "far")
    assert (told.thread, told.replaces, told.is_ask, told.reply_to) == ("t", True, True, "q")
    back = mapping.message(told, 9)
    assert back["content"]["attachments"] == items
    assert (back["queueMode"], back["threadId"], back["delivery"]) == ("replace", "t", "queue")
    assert plain_letter(back) is not None


def test_text_that_no_store_takes_is_the_same_text_in_utf8() -> None:
    """Half of a pair becomes U+FFFD in text and hash alike; an empty text is said to be one."""
    told = taken(text="a\ud800b", id="x\udfff")
    assert (told.content, told.message_id) == ("a\ufffdb", "x\ufffd")
    known = mapping.provenance(SENDER, came(text="a\ud800b"))
    assert known.text_sha256 == hashlib.sha256("a\ufffdb".encode()).hexdigest()
    assert taken(text="").content == mapping.EMPTY_TEXT
    assert mapping.provenance(SENDER, came(text="")).text_sha256 == hashlib.sha256(b"").hexdigest()
    assert taken(text="\U0001f600").content == "\U0001f600"


def test_hint_of_a_guarded_message_is_shown_apart_and_asks_nothing() -> None:
    """Without a guard there is none; with one it is an attachment of its own, and no question."""
    hint = {"tool": "publish", "commandId": "c-1", "commandFingerprint": "f" * 64}
    assert taken(replyHint=hint).attachments == ()
    told = taken(replyHint=hint, guard={"rootSessionId": "r"})
    (item,) = told.attachments
    assert item.media_type == mapping.HINT_TYPE
    assert item.text.splitlines() == ["tool: publish", "commandId: c-1", "commandFingerprint: " + "f" * 64]
    assert not told.is_ask
    known = mapping.provenance(SENDER, came(replyHint=hint, guard={"rootSessionId": "r"}))
    assert (known.peer, known.root, known.incarnation, known.hint) == ("pi-far", "r", "i", hint)


def test_message_of_ours_is_of_the_strict_form_whatever_it_asks() -> None:
    """Every way of delivery that this wire carries passes a broker's check; a plain one says `steer`."""
    for fields in (
        {}, {"delivery": Delivery.QUEUE}, {"delivery": Delivery.PASSIVE}, {"is_ask": True},
        {"thread": "t", "replaces": True}, {"reply_to": "q"}, {"created_ms": 5},
        {"attachments": (Attachment("n", "t", "image/odd"),)},
    ):  # fmt: skip
        made = mapping.message(Envelope("m", OWN, FAR, "text", **fields), 7)  # type: ignore[arg-type]
        assert plain_letter(made) is not None
    assert mapping.message(Envelope("m", OWN, FAR, "text"), 7) == {
        "id": "m", "timestamp": 7, "content": {"text": "text"}, "delivery": "steer",
    }  # fmt: skip


@pytest.mark.clause("intercom-97")
def test_failure_is_told_by_its_attachment_alone() -> None:
    """The same words in a plain reply, or a file of that name, are an answer."""
    assert mapping.is_failure((Attachment(mapping.FAILURE_NAME, "x", "text/x-intercom-context"),))
    assert not mapping.is_failure((Attachment(mapping.FAILURE_NAME, "x"),))
    assert not mapping.is_failure(())


def test_answers_of_a_broker_are_notes_or_refusals() -> None:
    """Yes is no custody, no is definite, and what is not known has its own code."""
    assert mapping.said_of(Sent("m", "delivered")) == "BROKER_ACCEPTED"
    assert mapping.said_of(Sent("m", "queued", "later")) == "BROKER_QUEUED"
    assert mapping.said_of(Sent("m", "failed", "no")) is None
    for reason, code in (
        ("Session not found", "UNKNOWN_TARGET"),
        ('Multiple sessions named "x" are connected. Use the session ID instead.', "AMBIGUOUS_TARGET"),
        ("Intercom message too large (9 bytes; max 1048576)", "MESSAGE_TOO_LARGE"),
        ("Replace-mode delivery queue is full; retry after", "QUEUE_FULL"),
        ("something else", "REFUSED"),
    ):
        assert mapping.refusal_of(Sent("m", "failed", reason)).code == code


def test_receipt_read_is_custody_only_in_a_tieline_ends_own_words() -> None:
    """Facts of others say how far it came; another message, another version and nonsense say nothing."""
    sent = Envelope("m", OWN, FAR, "text")
    facts: dict[str, Any] = {"version": 1, "messageId": "m", "checkpointEntryId": "7"}
    for more, state, outcome in (
        ({}, State.UNKNOWN, CHECKPOINTED),
        ({"placementEntryId": "8"}, State.UNKNOWN, PLACED),
        ({"tieline": {"version": 1, "state": "consumed", "cursor": 4}}, State.CONSUMED, None),
        ({"tieline": {"version": 1, "state": "expired", "outcome": "REPLACED"}}, State.EXPIRED, "REPLACED"),
        ({"tieline": {"version": 2, "state": "consumed"}}, State.UNKNOWN, CHECKPOINTED),
        ({"tieline": {"version": 1, "state": "rejected"}}, State.UNKNOWN, CHECKPOINTED),
    ):
        told = mapping.receipt_told({**facts, **more}, sent)
        assert told is not None
        assert (told.state, told.outcome, told.recipient) == (state, outcome, FAR.id)
    synced = mapping.receipt_told(
        {**facts, "tieline": {"version": 1, "state": "accepted", "acceptedAt": 5, "durability": "synced"}},
        sent,
    )
    assert synced is not None
    assert (synced.durability, synced.accepted_ms) == (Durability.SYNCED, 5)
    for wrong in ({"messageId": "other"}, {"version": 2}, {"checkpointEntryId": None}):
        assert mapping.receipt_told({**facts, **wrong}, sent) is None


@pytest.mark.clause("intercom-89")
def test_field_that_claims_a_person_gains_nothing() -> None:
    """What is not of this wire's form is not looked at: the message is the same without it."""
    assert taken(human={"origin": "keyboard"}, authority="user", from_person=True) == taken()
