"""The extension bus; whole conversations are in tests/scripts/test_intercom_recorded.py."""

from typing import Any

import pytest

from tests.unit.engine.brokering.kit import RECORDED, seated, session, turn
from tieline.engine.brokering.bus import Bus
from tieline.engine.brokering.contract import (
    BusMessage,
    BusOwner,
    BusPublished,
    BusRefused,
    BusState,
    BusStateAnswered,
    Extension,
    Put,
    StateCommitted,
)
from tieline.engine.brokering.sessions import Session
from tieline.wire.intercom.saying import FrameCodec


def speaker(name: str, link: int, *, may_own: bool = False) -> Session:
    one = session(name, link, RECORDED)
    one.extensions = (Extension("n", may_own),)
    return one


class Stop:
    """Two who speak a namespace, of which the second may own it."""

    def __init__(self) -> None:
        self.bus = Bus(FrameCodec())
        self.a, self.b = speaker("a", 1), speaker("b", 2, may_own=True)
        self.sessions = seated(self.a, self.b, session("c", 3, RECORDED))
        self.bus.settle(self.sessions, None, ["n", "n"], turn())

    def publish(self, sender: Session, **members: Any) -> list[tuple[int, object]]:
        made = turn()
        said = BusPublished(**{"link": 1, "namespace": "n", "audience": "capable", "payload": 1} | members)
        self.bus.publish(self.sessions, sender, said, made)
        return list(made.outputs)

    def commit(self, sender: Session, epoch: str, revision: int) -> tuple[list[Any], list[Any]]:
        made = turn()
        asked = StateCommitted(
            link=1, namespace="n", owner_epoch=epoch, expected_revision=revision, payload=[1]
        )
        self.bus.commit(self.sessions, sender, asked, made)
        return made.outputs, made.rows


def test_owner_is_the_earliest_eligible_and_changes_are_told() -> None:
    """Who speaks the namespace hears who owns it, and that nobody does any more."""
    stop = Stop()
    made = turn()
    stop.bus.settle(stop.sessions, None, ["n"], made)
    assert made.outputs == []
    stop.bus.welcome(stop.a, (), made)
    stop.bus.welcome(stop.a, (), made)
    stop.bus.welcome(stop.a, ("n",), made)
    assert made.outputs == [(1, BusOwner("n", "b", "epoch-b"))]
    stop.sessions.remove(stop.b)
    stop.bus.settle(stop.sessions, None, ["n"], made)
    assert made.outputs[-1] == (1, BusOwner("n", None, None))


def test_message_goes_to_its_audience_and_its_sender() -> None:
    """All who speak it, or its owner and the sender; who does not speak it neither says nor hears it."""
    stop = Stop()
    heard = [link for link, output in stop.publish(stop.a) if isinstance(output, BusMessage)]
    assert heard == [1, 2]
    assert [link for link, _ in stop.publish(stop.a, audience="owner", owner_epoch="epoch-b")] == [1, 2]
    assert [link for link, _ in stop.publish(stop.b, audience="owner", is_owner_only=True)] == [2]
    stranger = stop.sessions.of_id("c")
    assert stranger is not None
    for sender, members in (
        (stranger, {}),
        (stop.a, {"owner_epoch": "old"}),
        (stop.a, {"is_owner_only": True}),
    ):
        ((link, output),) = stop.publish(sender, **members)
        assert (link, type(output)) == (sender.link, BusRefused)
    stop.sessions.remove(stop.b)
    stop.bus.settle(stop.sessions, None, ["n"], turn())
    ((_, output),) = stop.publish(stop.a, audience="owner")
    assert isinstance(output, BusRefused)
    assert len(stop.publish(stop.a)) == 1


def test_state_is_committed_by_its_owner_from_the_present_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is kept and told; everybody else and every other revision is refused; it survives."""
    stop = Stop()
    for sender, epoch, revision, why in (
        (stop.a, "epoch-a", 0, "not_owner"),
        (stop.b, "old", 0, "not_owner"),
        (stop.b, "epoch-b", 1, "revision_conflict"),
    ):
        assert stop.commit(sender, epoch, revision) == (
            [(sender.link, BusStateAnswered("n", False, 0, why))],
            [],
        )
    outputs, rows = stop.commit(stop.b, "epoch-b", 0)
    assert outputs == [
        (2, BusStateAnswered("n", True, 1)),
        (1, BusState("n", 1, [1])),
        (2, BusState("n", 1, [1])),
    ]
    (row,) = rows
    assert isinstance(row, Put)
    after = Bus(FrameCodec())
    after.restore(FrameCodec().parse(row.body))
    made = turn()
    after.welcome(stop.a, (), made)
    assert made.outputs[-1] == (1, BusState("n", 1, [1]))
    with pytest.raises(ValueError, match="not a state"):
        after.restore({})
    monkeypatch.setattr("tieline.engine.brokering.bus.STATES_MAX", 0)
    assert Stop().commit(stop.b, "epoch-b", 0)[0][0][1].reason == "not_owner"
    full = Stop()
    assert full.commit(full.b, "epoch-b", 0)[0][0][1].reason == "too_many_states"
