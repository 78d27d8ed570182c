"""Messages: what makes two attempts the same."""

import msgspec
import pytest

from tieline.model.identity import Peer
from tieline.model.message import OPTIONS, Attachment, Delivery, Envelope, content_sha256, digest

BASE = Envelope("m", Peer("s"), Peer("r"), "text")


@pytest.mark.clause("native-91", "native-93", "I22", "I21")
@pytest.mark.parametrize("change", [
    {"content": "Text"}, {"topic": "t"}, {"reply_to": "x"}, {"correlation_id": "c"}, {"automatic_depth": 1},
    {"sender": Peer("s", "run")}, {"recipient": Peer("r", "run")}, {"delivery": Delivery.PASSIVE},
    {"thread": "t"}, {"attachments": (Attachment("a", "b"),)},
])  # fmt: skip
def test_digest_of_another_sender_owned_field_differs(change: dict[str, object]) -> None:
    """Every field that the sender owns is part of the equality of attempts."""
    assert digest(msgspec.structs.replace(BASE, **change)) != digest(BASE)


@pytest.mark.clause("native-3.6.6")
@pytest.mark.parametrize("change", [
    {"created_ms": 5}, {"expires_ms": 9}, {"sender_alias": "x"}, {"sender_project": "p"}, {"is_ask": True},
])  # fmt: skip
def test_digest_ignores_what_a_retry_may_state_anew(change: dict[str, object]) -> None:
    """Times, display names and the ask mark do not make another message."""
    assert digest(msgspec.structs.replace(BASE, **change)) == digest(BASE)


@pytest.mark.clause("native-154")
def test_content_bytes_counts_utf8_and_attachments() -> None:
    """Size is in UTF-8 bytes, attachments with their names."""
    envelope = msgspec.structs.replace(BASE, content="\u00e9\u00e9", attachments=(Attachment("n", "\u20ac"),))
    assert envelope.content_bytes == 4 + 1 + 3


def test_needs_tieline_names_what_the_public_wire_cannot_say() -> None:
    """A plain message and an ask go anywhere; the rest needs an end that was asked."""
    assert not BASE.needs_tieline
    assert not msgspec.structs.replace(BASE, is_ask=True).needs_tieline
    for change in (
        {"delivery": Delivery.QUEUE},
        {"thread": "t"},
        {"replaces": True},
        {"notify_when_idle": True},
    ):
        assert msgspec.structs.replace(BASE, **change).needs_tieline


def test_key_and_chain_come_from_the_authenticated_sender() -> None:
    """The duplicate identity is instance, id and recipient; a chain is named by its first message."""
    assert BASE.key.sender_instance == "s"
    assert BASE.key.recipient == Peer("r").id
    assert BASE.chain == "m"
    assert msgspec.structs.replace(BASE, correlation_id="first").chain == "first"


def test_content_sha256_is_over_the_exact_bytes() -> None:
    """A different normal form is a different text."""
    assert content_sha256("e\u0301") != content_sha256("\u00e9")


def test_options_of_a_plain_message_are_none() -> None:
    """A message that asks for nothing passes over every wire."""
    plain = Envelope("m", Peer("a"), Peer("b"), "text", is_ask=True)
    assert plain.options == frozenset()


def test_options_of_a_message_name_all_that_it_asks_for() -> None:
    """Each option is named exactly when it is asked for, and only then a plain native end is not enough."""
    for fields, expected in (
        ({"delivery": Delivery.QUEUE}, {"queue"}),
        ({"delivery": Delivery.PASSIVE}, {"passive"}),
        ({"thread": "t"}, {"thread"}),
        ({"replaces": True}, {"replaces"}),
        ({"notify_when_idle": True}, {"notify_when_idle"}),
        ({"attachments": (Attachment("n", "t"),)}, {"attachments"}),
    ):
        envelope = msgspec.structs.replace(Envelope("m", Peer("a"), Peer("b"), "text"), **fields)
        assert envelope.options == expected
        assert envelope.needs_tieline
        assert envelope.options <= OPTIONS
