"""The hub: one command in, one plan out."""

import typing

import pytest

from tests.scripts.room import Room
from tieline.engine.brokering import hub
from tieline.engine.brokering.contract import (
    Command,
    Join,
    Kept,
    Leave,
    ListAsked,
    Lost,
    Opened,
    Plan,
    Put,
    Tick,
    Unkept,
)
from tieline.engine.brokering.features import DIRECT
from tieline.engine.brokering.hub import Hub
from tieline.model.moment import Moment
from tieline.wire.intercom.saying import FrameCodec

NOW = Moment(10_000, 1_000)


def test_every_command_has_its_room() -> None:
    """A command is judged by the hub itself or has an entry of the table."""
    assert set(typing.get_args(Command)) == set(hub._SAID) | {Opened, Lost, Join, Tick, Kept, Unkept}


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


def test_every_command_of_a_session_reaches_its_room() -> None:
    """Each kind of frame has the effect of its room: an answer, or a word to somebody else."""
    room = Room()
    able = {"wakeOutcomes": 1, "lastReads": 1}
    room.join("main", rootSessionId="r", top=able)
    room.join("kid", rootSessionId="r", parentSessionId="r", top=able)
    room.join_recorded("n", extensions=[{"namespace": "n", "ownerEligible": True}])
    epoch = room.heard("n")[0]["ownerEpoch"]
    room.send("main", {"type": "last_request", "requestId": "r", "to": "session-kid"})
    room.send("kid", {"type": "last_page", "token": room.heard("kid")[0]["token"], "empty": True})
    assert [one["type"] for one in room.heard("main")] == ["last_response"]
    room.send("kid", {"type": "unregister", "parked": True})
    message = {"id": "q", "timestamp": 1, "content": {"text": "x"}, "expectsReply": True}
    room.send("main", {"type": "send", "to": "session-kid", "message": message})
    token = room.heard("main")[1]["token"]
    room.send("main", {"type": "wake_outcome", "token": token, "ok": False, "detail": "no"})
    assert [one["type"] for one in room.heard("main")] == ["wake_failed"]
    for frame, answers in (
        (
            {"type": "extension_publish", "namespace": "n", "audience": "owner", "payload": 1},
            ["extension_message"],
        ),
        (
            {
                "type": "extension_state_commit",
                "namespace": "n",
                "ownerEpoch": epoch,
                "expectedRevision": 0,
                "payload": 1,
            },
            ["extension_state_result", "extension_state"],
        ),
        ({"type": "extension_capabilities_update", "extensions": []}, []),
        ({"type": "cancel_ask", "messageId": "x"}, []),
        ({"type": "cancel_message", "messageId": "x"}, ["delivery_failed"]),
        ({"type": "message_receipt", "receipt": {"messageId": "x", "status": "queued", "timestamp": 1}}, []),
        ({"type": "presence", "status": "x"}, []),
    ):
        room.heard("n")
        room.send("n", frame)
        assert [one["type"] for one in room.heard("n")] == answers


@pytest.mark.clause("intercom-134")
def test_expired_mail_is_told_to_its_sender_and_on_record() -> None:
    """A day later the mail is gone; a sender that is there hears it."""
    for is_there in (True, False):
        room = Room()
        room.join_recorded("a")
        room.join_recorded("b")
        room.close(room.ends["b"])
        room.heard("a")
        message = {"id": "m", "timestamp": 1, "content": {"text": "x"}}
        room.pass_time(86_300_000)
        room.send("a", {"type": "send", "to": "session-b", "message": message})
        assert [one["delivery"] for one in room.heard("a")] == ["queued"]
        if not is_there:
            room.close(room.ends["a"])
        room.pass_time(86_500_000)
        assert room.hub.held_count == 0
        if is_there:
            assert [one["receipt"]["status"] for one in room.heard("a")] == ["expired"]


@pytest.mark.parametrize("body", [b"{}", b"[1]", b"{"])
def test_row_that_cannot_be_read_goes_alone(body: bytes) -> None:
    """What is no mail any more is dropped, the rest is restored."""
    assert not Room([Put("mail", "k", body)]).journal


@pytest.mark.clause("intercom-52", "intercom-53")
def test_repeat_of_mail_that_an_earlier_broker_held_is_not_held_twice() -> None:
    """Its sender may not have heard that it is held; what it says else under that id is refused as ever."""
    room = Room()
    room.join_recorded("a")
    room.join_recorded("b")
    room.close(room.ends["b"])
    send = {
        "type": "send",
        "to": "session-b",
        "message": {"id": "m", "timestamp": 1, "content": {"text": "x"}},
    }
    room.send("a", send)
    after = Room(list(room.journal.values()))
    after.join_recorded("a")
    after.send("a", send)
    assert after.heard("a")[-1]["delivery"] == "queued"
    assert after.hub.held_count == 1
    other = send | {"message": {"id": "m", "timestamp": 1, "content": {"text": "y"}}}
    after.send("a", other)
    assert after.heard("a")[-1]["code"] == "E_MESSAGE_ID_REUSE"
