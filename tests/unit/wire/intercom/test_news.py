"""What a broker's frames say, and which of them are none."""

from typing import Any

import pytest

from tieline.errors import ProtocolError
from tieline.wire.intercom.news import (
    CAPABILITIES,
    Left,
    Listed,
    Registered,
    Sent,
    event_of,
    registered_of,
)

ROW = {"id": "pi-2", "cwd": "/w", "model": "m"}
ALL = frozenset(CAPABILITIES)
READ = {"token": "t", "from": ROW}


@pytest.mark.clause("intercom-14", "intercom-31")
@pytest.mark.parametrize(
    "frame",
    [
        {"type": "surprise"},
        {"type": "session_left"},
        {"type": "delivered", "messageId": None},
        {"type": "delivery_queued", "messageId": "m"},
        {"type": "message", "from": ROW, "message": []},
        {"type": "message", "from": None, "message": {"id": "m", "timestamp": 1, "content": {"text": ""}}},
        {"type": "sessions", "requestId": 1, "sessions": []},
        {"type": "last_read", **READ, "offset": 1.5, "limit": 1},
        {"type": "receipt_read", **READ, "rootSessionId": 1, "messageId": "m"},
        {"type": "last_response"},
        {"type": "wake_request", "token": "t", "sessionId": "s"},
    ],
)
def test_frame_that_is_none_is_a_protocol_error(frame: dict[str, Any]) -> None:
    """Whatever was announced."""
    with pytest.raises(ProtocolError):
        event_of(frame, ALL)


def test_frame_of_a_capability_that_was_not_announced_is_a_protocol_error() -> None:
    """A well-formed one, too."""
    told = {"type": "wake_failed", "messageId": "m", "detail": "x"}
    assert event_of(told, ALL)
    with pytest.raises(ProtocolError):
        event_of(told, ALL - {"wakeOutcomes"})


def test_registration_takes_only_what_both_announced() -> None:
    """The number 1, and no other truth."""
    frame = {"sessionId": "x", "lastReads": 1, "receiptReads": 2, "guardedDelivery": True, "wakeOutcomes": 1}
    announced = ALL - {"wakeOutcomes"}
    assert registered_of(frame, announced) == Registered("x", frozenset({"lastReads"}))
    with pytest.raises(ProtocolError):
        registered_of({"sessionId": "a\nb"}, ALL)


def test_answers_of_the_ancestors_broker_are_understood() -> None:
    """More fields than ours has: queued and unknown outcomes are told apart."""
    held = {"type": "delivered", "messageId": "m", "delivery": "queued", "outcomeKnown": True}
    assert event_of(held, ALL) == Sent("m", "queued")
    lost = {"type": "delivery_failed", "messageId": "m", "reason": "r", "outcomeKnown": False}
    assert event_of(lost, ALL) == Sent("m", "failed", "r", is_outcome_known=False)
    assert event_of({"type": "session_left", "sessionId": ""}, ALL) == Left("")
    listed = {"type": "sessions", "requestId": "", "sessions": [{**ROW, "guardedDelivery": 1}], "error": 7}
    assert event_of(listed, ALL) == Listed("", ({"guardedDelivery": 1, **ROW},))
