"""Registrations, departures and presence; each rule also stands in the golden conversations."""

import pytest

from tests.scripts.room import Room

CHILD = {"rootSessionId": "r", "parentSessionId": "r", "top": {"wakeOutcomes": 1}}


@pytest.mark.clause("intercom-17", "intercom-18", "I44")
def test_live_id_is_granted_to_nobody_else() -> None:
    """The newcomer gets a fresh id, the holder stays; after the holder left, the id is free."""
    room = Room()
    assert room.join("a", id="wanted-1") == "wanted-1"
    assert room.join("b", id="wanted-1") not in {"wanted-1", None}
    room.close(room.ends["a"])
    assert room.join("c", id="wanted-1") == "wanted-1"


@pytest.mark.clause("intercom-27")
def test_newest_wins_only_between_two_that_say_so_in_one_scope() -> None:
    """Another scope's session keeps its place, and its link."""
    room = Room()
    room.join_recorded("a", id="same", top={"scopeId": "s"})
    assert room.join_recorded("b", id="same") != "same"
    assert room.join_recorded("c", id="same", top={"scopeId": "s"}) == "same"
    assert [room.ends[name].is_open for name in "abc"] == [False, True, True]


def test_broadcasts_go_to_who_is_told_of_peers() -> None:
    """Arrivals and news are told to those whose kind hears of them, and to nobody else."""
    room = Room()
    room.join_recorded("n")
    room.join("f")
    room.join("g")
    assert [one["type"] for one in room.heard("n")] == ["session_joined", "session_joined"]
    room.send("f", {"type": "presence", "status": "idle"})
    assert [one["type"] for one in room.heard("n")] == ["presence_update"]
    room.close(room.ends["f"])
    assert [one["type"] for one in room.heard("n")] == ["session_left"]
    assert [one["type"] for one in room.heard("g")] == ["session_left"]


def test_extensions_are_replaced_whole() -> None:
    """What a session spoke before and speaks no more, it neither owns nor hears."""
    room = Room()
    own = [{"namespace": "n", "ownerEligible": True}]
    room.join_recorded("a", extensions=own)
    room.heard("a")
    room.send("a", {"type": "extension_capabilities_update", "extensions": []})
    room.send("a", {"type": "extension_publish", "namespace": "n", "audience": "capable", "payload": 1})
    assert [one["type"] for one in room.heard("a")] == ["error"]


@pytest.mark.clause("intercom-131")
def test_parked_child_is_known_by_its_id_and_place() -> None:
    """The same id from the same place is that child, from another one it is not granted."""
    room = Room()
    room.join("kid", **CHILD)
    room.send("kid", {"type": "unregister", "parked": True})
    assert room.join("x", id="session-kid") != "session-kid"
    assert room.join("y", **CHILD | {"id": "session-kid"}) == "session-kid"
    assert not room.journal


@pytest.mark.clause("intercom-131", "I1")
def test_child_whose_next_life_is_here_already_does_not_park() -> None:
    """Nobody would come for the mail: a sender is told so; the next life, under another id, parks neither."""
    room = Room()
    room.join("main", rootSessionId="r")
    room.join("kid", **CHILD)
    again = room.join("again", **CHILD | {"id": "session-kid"})
    assert again != "session-kid"
    for name, session_id in (("kid", "session-kid"), ("again", again)):
        room.send(name, {"type": "unregister", "parked": True})
        message = {"id": name, "timestamp": 1, "content": {"text": "x"}}
        room.send("main", {"type": "send", "to": session_id, "message": message})
        assert room.heard("main")[-1]["type"] == "delivery_failed"
    assert not room.journal
    assert room.join("third", **CHILD | {"id": "session-kid"}) == "session-kid"


@pytest.mark.clause("intercom-30")
def test_bounded_kind_is_refused_beyond_its_number_and_its_link_closed() -> None:
    """The 129th is told and closed; one that takes its own place again is not."""
    room = Room()
    for number in range(128):
        room.join_recorded(f"n{number}")
    room.say_join_recorded("more", {})
    assert [one["type"] for one in room.heard("more")] == ["error"]
    assert not room.ends["more"].is_open
    assert room.join_recorded("again", id="session-n5") == "session-n5"


def test_presence_binds_a_guard_and_quiet_news_are_told_after_a_while() -> None:
    """A guard is taken and withdrawn; what staged for a child that parks is held."""
    room = Room()
    room.join_recorded("n")
    room.join("m", rootSessionId="r", incarnation="i", top={"guardedDelivery": 1})
    for guard in ("g", None):
        room.send("m", {"type": "presence", "applicationGuard": guard})
        room.send("m", {"type": "list", "requestId": "x"})
        assert room.heard("m")[-1]["sessions"][-1].get("applicationGuard") == guard
    room.heard("n")
    room.pass_time(1_000)
    room.send("m", {"type": "presence"})
    assert [one["type"] for one in room.heard("n")] == ["presence_update"]
    room.join("kid", status="idle", **CHILD)
    message = {"id": "u", "timestamp": 1, "content": {"text": "x"}, "delivery": "queue"}
    update = message | {"queueMode": "replace", "threadId": "t"}
    room.send("m", {"type": "send", "to": "session-kid", "message": update})
    room.send("kid", {"type": "unregister", "parked": True})
    assert room.hub.held_count == 1
