"""The hub: one command in, one plan out."""

import typing

import pytest

from tests.scripts.room import Room
from tieline.engine.brokering import hub
from tieline.engine.brokering.contract import Command, Join, Leave, ListAsked, Lost, Opened, Plan, Put, Tick
from tieline.engine.brokering.features import DIRECT
from tieline.engine.brokering.hub import Hub
from tieline.model.moment import Moment
from tieline.wire.intercom.saying import FrameCodec

NOW = Moment(10_000, 1_000)


def test_every_command_has_its_room() -> None:
    """A command is judged by the hub itself or has an entry of the table."""
    assert set(typing.get_args(Command)) == set(hub._SAID) | {Opened, Lost, Join, Tick}


def test_word_over_a_link_without_a_session_changes_nothing() -> None:
    """Whatever an unregistered, closed or unknown link says is nobody's word."""
    one = Hub(FrameCodec(), NOW)
    for command in (ListAsked(7, "x"), Leave(7), Lost(7)):
        assert one.handle(command, NOW) == Plan(idle_since_ms=1_000)
    assert (one.sessions_count, one.held_count) == (0, 0)


def test_second_registration_of_a_link_changes_nothing() -> None:
    """A link speaks for one session at a time, whatever its protocol let through."""
    one = Hub(FrameCodec(), NOW)
    join = Join(link=1, features=DIRECT, fields={"cwd": "/w", "model": "m"}, token="t1", epoch="e")
    assert len(one.handle(join, NOW).outputs) == 1
    assert one.handle(join, NOW) == Plan()


def test_same_commands_and_moments_give_the_same_plans() -> None:
    """Two hubs that are told the same say the same."""

    def plans() -> list[Plan]:
        room = Room()
        made = [room.plan]
        room.join("a")
        room.join_recorded("b")
        made.append(room.plan)
        room.send("a", {"type": "list", "requestId": "x"})
        made.append(room.plan)
        room.close(room.ends["b"])
        return [*made, room.plan]

    assert plans() == plans()


@pytest.mark.clause("intercom-127", "intercom-131")
def test_deadline_is_the_earliest_of_all_rooms() -> None:
    """Raw sockets, staged updates, reads and what has to be looked through each ask for their time."""
    room = Room()
    assert room.plan.deadline_ms is None
    room.open("raw")
    assert room.plan.deadline_ms == 6_000
    room.pass_time(1_000)
    room.join("a")
    assert room.plan.deadline_ms is None
    room.join("b", status="idle")
    message = {"id": "m", "timestamp": 1, "content": {"text": "x"}, "delivery": "queue"}
    update = message | {"queueMode": "replace", "threadId": "t"}
    room.send("a", {"type": "send", "to": "b", "message": update})
    assert room.plan.deadline_ms == 7_500
    room.pass_time(1_500)
    assert room.plan.deadline_ms is None
    room.join_recorded("n")
    room.close(room.ends["n"])
    assert room.plan.deadline_ms is not None


def test_row_of_a_later_version_is_left_alone() -> None:
    """A kind of row that this version does not know is neither read nor dropped."""
    row = Put("later", "k", b"{}")  # type: ignore[arg-type]
    assert Hub(FrameCodec(), NOW).restore([row], NOW).rows == ()
