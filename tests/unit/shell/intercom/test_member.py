"""One root at one broker: joined once, kept, and back after a loss in its time."""

import pytest

from tests.unit.shell.intercom.kit import FAR_ROW, OWN_ROW, FakeLine, World, frame
from tieline.errors import Refusal
from tieline.shell.intercom.member import PAUSES_MS, Member
from tieline.wire.intercom.client import LIST_MS


def member_of(world: World) -> Member:
    """Return the member at the first broker."""
    return world.post.members["one"]


def test_member_registers_then_lists() -> None:
    """The registration is the first frame; the roster comes right after it was taken."""
    world = World()
    member_of(world).join()
    line = world.dialled[0][1]
    assert line is not None
    (registered,) = line.said()
    assert (registered["type"], registered["requestedId"]) == ("register", "pi-own")
    assert (member_of(world).link, member_of(world).session_id) == (None, "")
    world.hear(line, frame(type="registered", sessionId="pi-own"))
    (asked,) = line.said()
    world.hear(line, frame(type="sessions", requestId=asked["requestId"], sessions=[OWN_ROW, FAR_ROW]))
    assert list(member_of(world).roster) == ["pi-own", "pi-far"]
    assert (member_of(world).session_id, member_of(world).listed_ms) == ("pi-own", world.mono_ms)


@pytest.mark.clause("intercom-129")
def test_member_comes_back_by_the_chain_and_the_chain_begins_anew() -> None:
    """1, 2, 5, 10, 30, 30 s; a success sets it back; a foreground call may hurry and fail without harm."""
    world = World()
    world.refusal = Refusal("PEER_OFFLINE", "nobody", is_retryable=True)
    member_of(world).join()
    for pause_ms in (*PAUSES_MS, PAUSES_MS[-1]):
        assert member_of(world).deadline_ms == world.mono_ms + pause_ms
        count = len(world.dialled)
        world.pass_ms(pause_ms - 1)
        assert len(world.dialled) == count
        world.pass_ms(1)
        assert len(world.dialled) == count + 1
    member_of(world).hurry()
    assert member_of(world).refusal == world.refusal
    world.refusal = None
    world.pass_ms(PAUSES_MS[-1])
    line = world.join()
    assert member_of(world).refusal is None
    world.post.lost(line.number or 0)
    assert member_of(world).roster == {}
    assert member_of(world).deadline_ms == world.mono_ms + PAUSES_MS[0]


def test_member_that_left_is_not_drawn_back_by_an_old_line() -> None:
    """The end of a line that was given up says nothing of the new one; a dial that comes late is closed."""
    world = World()
    old = world.join()
    member_of(world).join_again()
    assert old.is_closed
    assert [one["type"] for one in old.said()] == ["unregister"]
    new = world.dialled[-1][1]
    assert new is not None
    world.post.lost(old.number or 0)
    world.hear(new, frame(type="registered", sessionId="pi-own"))
    assert member_of(world).link is not None
    member_of(world).leave()
    assert member_of(world).deadline_ms is None
    late = FakeLine()
    member_of(world)._dialled(late, None)
    assert late.is_closed
    member_of(world).join_again()
    assert member_of(world).link is None


def test_look_is_answered_once_for_all_who_wait_and_when_nobody_answers() -> None:
    """One list serves everybody; a timeout, a loss and no connection end the wait, too."""
    world = World()
    done: list[str] = []
    member_of(world).look(lambda: done.append("offline"))
    line = world.join()
    member_of(world).look(lambda: done.append("a"))
    member_of(world).look(lambda: done.append("b"))
    (asked,) = line.said()
    assert done == ["offline"]
    world.hear(line, frame(type="sessions", requestId=asked["requestId"], sessions=[]))
    assert done == ["offline", "a", "b"]
    member_of(world).look(lambda: done.append("late"))
    world.pass_ms(LIST_MS)
    assert done[-1] == "late"
    member_of(world).look(lambda: done.append("lost"))
    world.post.lost(line.number or 0)
    assert done[-1] == "lost"


def test_session_that_wrote_or_left_changes_the_roster() -> None:
    """Who writes is there, whatever was listed; who left is not."""
    world = World()
    line = world.join()
    member_of(world).know({"id": "pi-new", "cwd": "/", "model": "m"})
    assert "pi-new" in member_of(world).roster
    world.hear(line, frame(type="session_left", sessionId="pi-new"))
    assert "pi-new" not in member_of(world).roster
