"""What one command has ordered so far, and how all of it is taken back where it cannot be kept."""

from typing import Any

import pytest

from tests.scripts.room import Room
from tests.unit.engine.brokering.kit import turn
from tieline.engine.brokering.contract import Departed, Drop, Kept, Leave, ListAsked, Plan, Unkept
from tieline.engine.brokering.staging import STAGING_MS

CHILD: dict[str, Any] = {"rootSessionId": "r", "parentSessionId": "r", "top": {"wakeOutcomes": 1}}
MAIN: dict[str, Any] = {"rootSessionId": "r", "top": {"wakeOutcomes": 1}}


class FullRoom(Room):
    """A room whose disk takes nothing new while `is_full`."""

    is_full = False

    def carry_out(self, plan: Plan) -> None:
        """Keep and say a plan, or have it taken back."""
        if self.is_full and plan.refusable:
            self.handle(Unkept(plan.refusable))
        else:
            super().carry_out(plan)

    def known(self) -> Any:
        """Return all that the hub goes by, but for the times of sessions."""
        state = self.hub._state
        records = {one: {key: str(it.outcome) for key, it in mine.items()} for one, mine in _records(state)}
        return (
            dict(state.mailbox._held),
            list(state.mailbox._held),
            state.mailbox._held_bytes,
            {asker: dict(mine) for asker, mine in state.asks._open.items()},
            {one: mine for one, mine in records.items() if mine},
            dict(state.staging._waiting),
            dict(state.staging._counts),
            dict(state.bus._states),
            dict(state.wakes._waiting),
            dict(self.journal),
        )


def _records(state: Any) -> Any:
    return state.records._by_sender.items()


def say(room: Room, name: str, to: str, message_id: str, **parts: Any) -> dict[str, Any]:
    """Send, and return the answer."""
    message = {"id": message_id, "timestamp": 1, "content": {"text": "x"}, **parts}
    room.heard(name)
    room.send(name, {"type": "send", "to": to, "message": message})
    return room.heard(name)[-1]


REPLACING = {"delivery": "queue", "queueMode": "replace", "threadId": "t"}
SENDS: list[tuple[str, str, str, dict[str, Any]]] = [
    ("main", "session-kid", "new", {}),
    ("main", "session-kid", "new", {"expectsReply": True}),
    ("a", "session-gone", "new", {}),
    ("a", "session-gone", "new", {"supersedes": "held"}),
    ("a", "main", "new", {"expectsReply": True}),
    ("a", "b", "new", {"expectsReply": True, "replyTo": "asked", "supersedes": "said"}),
    ("main", "b", "new", {"expectsReply": True, **REPLACING}),
    ("other", "b", "new", {"expectsReply": True, **REPLACING}),
]


def furnished() -> FullRoom:
    """Return a room in which mail, asks, records and updates wait already."""
    room = FullRoom()
    room.join("main", **MAIN)
    room.join("other")
    room.join("kid", **CHILD)
    room.send("kid", {"type": "unregister", "parked": True})
    for name in ("a", "b", "gone"):
        room.join_recorded(name, status="idle")
    room.close(room.ends["gone"])
    say(room, "main", "session-kid", "m1")
    assert say(room, "a", "session-gone", "held")["type"] == "delivered"
    say(room, "a", "session-gone", "held too")
    say(room, "a", "b", "said")
    assert say(room, "b", "a", "asked", expectsReply=True)["type"] == "delivered"
    assert say(room, "main", "b", "staged", expectsReply=True, **REPLACING)["type"] == "delivery_queued"
    room.heard("b")
    return room


@pytest.mark.clause("intercom-131", "K5", "I4", "I25")
@pytest.mark.parametrize(("name", "to", "message_id", "parts"), SENDS)
def test_send_that_cannot_be_kept_is_refused_and_leaves_nothing(
    name: str, to: str, message_id: str, parts: dict[str, Any]
) -> None:
    """Its sender hears one refusal, nobody hears of it, and with room again the same id is taken."""
    room = furnished()
    before = room.known()
    room.is_full = True
    answer = say(room, name, to, message_id, **parts)
    assert (answer["type"], answer["messageId"]) == ("delivery_failed", message_id)
    assert "No space" in answer["reason"]
    assert answer.get("outcomeKnown", True) is True
    assert room.heard("b") == []
    assert room.known() == before
    room.is_full = False
    assert say(room, name, to, message_id, **parts)["type"] in ("delivered", "delivery_queued")
    assert room.known() != before


@pytest.mark.clause("K5", "intercom-131")
def test_what_needs_no_room_goes_on_with_a_full_disk() -> None:
    """Messages, answers and mail for who comes back are delivered; what is let go of is not refused."""
    room = furnished()
    room.is_full = True
    assert say(room, "a", "b", "plain")["type"] == "delivered"
    assert say(room, "a", "b", "answer", replyTo="asked")["type"] == "delivered"
    assert room.join("back", **CHILD | {"id": "session-kid"}) == "session-kid"
    assert [one["message"]["id"] for one in room.heard("back") if one["type"] == "message"] == ["m1"]


@pytest.mark.clause("K5", "I25")
def test_only_what_rests_on_nothing_may_be_heard_while_a_send_is_undecided() -> None:
    """Sends of others go on; who comes, leaves or publishes state waits; a staged ask stays till then."""
    room = furnished()
    room.handle(Kept(room.hub._refusable_count))
    leave, listing = Leave(1), ListAsked(1, "1")
    assert room.hub.may_be_heard(leave)
    room.pass_time(1)
    say(room, "other", "b", "staged too", expectsReply=True, **REPLACING)
    number = room.hub._refusable_count
    assert (room.hub.may_be_heard(leave), room.hub.may_be_heard(listing)) == (False, True)
    room.heard("b")
    room.pass_time(STAGING_MS)
    assert [one["message"]["id"] for one in room.heard("b") if one["type"] == "message"] == ["staged"]
    room.handle(Kept(number))
    assert room.hub.may_be_heard(leave)
    room.pass_time(1)
    assert [one["message"]["id"] for one in room.heard("b") if one["type"] == "message"] == ["staged too"]


@pytest.mark.clause("K5", "intercom-133")
def test_extension_state_that_cannot_be_kept_stays_as_it_was() -> None:
    """The owner hears why, the others nothing; with room again the same revision follows."""
    room = FullRoom()
    own = [{"namespace": "n", "ownerEligible": True}]
    room.join_recorded("a", extensions=own)
    room.join_recorded("b", extensions=own)
    epoch = next(one for one in room.heard("a") if one["type"] == "extension_owner")["ownerEpoch"]
    commit = {"type": "extension_state_commit", "namespace": "n", "ownerEpoch": epoch}
    room.heard("b")
    for revision, is_full in ((0, True), (0, False), (1, True), (1, False)):
        before = room.known()
        room.is_full = is_full
        room.send("a", {**commit, "expectedRevision": revision, "payload": revision})
        told = next(one for one in room.heard("a") if "ok" in one)
        assert (told["ok"], told["revision"]) == (not is_full, revision + (not is_full))
        assert (room.known() == before, room.heard("b") == []) == (is_full, is_full)


def test_taking_back_twice_or_nothing_changes_nothing() -> None:
    """A refusable plan can be taken back until it is told to be kept, once."""
    room = furnished()
    before = room.known()
    number = room.hub._refusable_count
    room.handle(Unkept(number))
    after = room.known()
    for command in (Unkept(number), Unkept(number + 1), Kept(number), Unkept(number - 1)):
        room.handle(command)
        assert (room.known() == after, before != after, room.plan.outputs) == (True, True, ())


def test_plan_keeps_the_order_of_what_was_ordered() -> None:
    """Outputs, rows and closes come out as they went in."""
    made = turn()
    made.say(2, Departed("b"))
    made.say(1, Departed("a"))
    made.rows.append(Drop("ask", "k"))
    made.closes.append(9)
    outputs = ((2, Departed("b")), (1, Departed("a")))
    assert made.plan(5, None) == Plan((Drop("ask", "k"),), outputs, (9,), 5, None)
