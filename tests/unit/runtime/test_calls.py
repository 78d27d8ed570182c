"""Who calls, and the closed shape of what is asked."""

import msgspec
import pytest

from tieline.config import Scope
from tieline.engine.contract import Act
from tieline.model.identity import Peer
from tieline.runtime.calls import Actor, Params, Reach, Reply


class Asked(Params, frozen=True):
    """A shape of this test."""

    message_id: str
    wait_ms: int = 0


def test_params_are_camel_case_closed_and_of_exact_types() -> None:
    """A foreign name, a text for a number and a missing field are refused before anything is done."""
    assert msgspec.convert({"messageId": "m"}, Asked, strict=True) == Asked(message_id="m")
    for wrong in (
        {"message_id": "m"},
        {"messageId": "m", "other": 1},
        {"messageId": "m", "waitMs": "1"},
        {"messageId": "m", "waitMs": True},
        {"messageId": "m", "waitMs": 1.5},
        {},
    ):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, Asked, strict=True)


def test_actor_is_no_host_unless_it_was_proved() -> None:
    """Authority is stated, never the default; a reply prepares nothing by itself."""
    actor = Actor(Peer("i"), Act.AGENT, "mcp")
    assert not actor.is_host
    assert not actor.is_in_tree
    assert Reply({}).taken is None


def test_reach_of_all_is_the_own_scope() -> None:
    """All asks for no scope beyond the caller's; each scope asks for itself."""
    assert Reach.ALL.scope is None
    assert [Reach(scope.value).scope for scope in Scope] == list(Scope)
