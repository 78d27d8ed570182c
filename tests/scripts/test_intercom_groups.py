"""Golden conversations of groups and guarded sends: who sees whom, and what a binding holds back."""

# ruff: noqa: E501 - a frame is one line, as it is on the wire

import json
from typing import Any

import pytest

from tests.scripts.room import Room, converse

ROOT_1 = {"rootSessionId": "r1"}
CHILD_1 = {"rootSessionId": "r1", "parentSessionId": "r1"}
ROOT_2 = {"rootSessionId": "r2"}
CHILD_2 = {"rootSessionId": "r2", "parentSessionId": "r2"}
MESSAGE = '"message":{"id":"m","timestamp":1,"content":{"text":"x"}}'
NOT_FOUND = '{"type":"delivery_failed","messageId":"m","reason":"Session not found"}'


def family() -> Room:
    """Return a room with two mains, two children of the first, one of the second, and one without lineage."""
    room = Room()
    for name, lineage in (
        ("Main1", ROOT_1),
        ("Kid1a", CHILD_1),
        ("Kid1b", CHILD_1),
        ("Main2", ROOT_2),
        ("Kid2", CHILD_2),
        ("Old", {}),
    ):
        room.join(name, **lineage)
    return room


SEEN = {
    "Main1": {"Main1", "Kid1a", "Kid1b", "Main2", "Old"},
    "Kid1a": {"Main1", "Kid1a", "Kid1b"},
    "Kid1b": {"Main1", "Kid1a", "Kid1b"},
    "Main2": {"Main1", "Main2", "Kid2", "Old"},
    "Kid2": {"Main2", "Kid2"},
    "Old": {"Main1", "Main2", "Old"},
}


@pytest.mark.clause("intercom-42", "intercom-56", "intercom-57")
@pytest.mark.parametrize("name", SEEN)
def test_session_lists_and_reaches_its_group_and_mains_reach_mains(name: str) -> None:
    """A list shows who can be reached, and nobody else can, not even by the exact id."""
    room = family()
    room.send(name, {"type": "list", "requestId": "x"})
    assert {row["name"] for row in room.heard(name)[0]["sessions"]} == SEEN[name]
    for other in SEEN:
        for to in (f"session-{other}", other.upper()):
            room.send_payload(name, ('{"type":"send","to":"' + to + f'",{MESSAGE}}}').encode())
            answer = room.heard(name)[-1]
            if other in SEEN[name]:
                assert answer == {"type": "delivered", "messageId": "m"}
                assert other == name or room.heard(other)[0]["from"]["name"] == name
            else:
                assert answer == json.loads(NOT_FOUND)
                assert room.heard(other) == []


@pytest.mark.clause("intercom-42")
@pytest.mark.parametrize("name", SEEN)
def test_departure_is_told_to_who_could_see_it(name: str) -> None:
    """Whoever leaves, only those that could see it are told."""
    room = family()
    room.close(room.ends[name])
    told = {other for other in SEEN if other != name and room.heard(other)}
    assert told == {other for other in SEEN if other != name and name in SEEN[other]}


@pytest.mark.clause("intercom-42")
def test_hidden_namesake_makes_no_name_ambiguous() -> None:
    """A name that a hidden session bears too is still unique for who cannot see that one."""
    converse(f"""
        A+ {json.dumps(ROOT_1)}
        A< {{"type":"registered","sessionId":"session-A"}}
        B+ {json.dumps({"name": "worker", **CHILD_1})}
        B< {{"type":"registered","sessionId":"session-B"}}
        C+ {json.dumps({"name": "worker", **CHILD_2})}
        C< {{"type":"registered","sessionId":"session-C"}}
        A> {{"type":"send","to":"Worker",{MESSAGE}}}
        B< {{"type":"message","from":"*","message":"*"}}
        A< {{"type":"delivered","messageId":"m"}}
    """)


@pytest.mark.clause("intercom-57")
def test_siblings_reach_each_other_after_their_main_left() -> None:
    """An absent main ends no group."""
    converse(f"""
        A+ {json.dumps(ROOT_1)}
        A< {{"type":"registered","sessionId":"session-A"}}
        B+ {json.dumps(CHILD_1)}
        B< {{"type":"registered","sessionId":"session-B"}}
        C+ {json.dumps(CHILD_1)}
        C< {{"type":"registered","sessionId":"session-C"}}
        A.
        B< {{"type":"session_left","sessionId":"session-A"}}
        C< {{"type":"session_left","sessionId":"session-A"}}
        B> {{"type":"send","to":"session-C",{MESSAGE}}}
        C< {{"type":"message","from":"*","message":"*"}}
        B< {{"type":"delivered","messageId":"m"}}
    """)


@pytest.mark.clause("intercom-35")
def test_presence_cannot_change_the_group() -> None:
    """The lineage of a registration is pinned."""
    room = family()
    room.send(
        "Kid2", {"type": "presence", "rootSessionId": "r1", "parentSessionId": "r1", "incarnation": "i"}
    )
    room.send("Kid2", {"type": "list", "requestId": "x"})
    assert {row["name"] for row in room.heard("Kid2")[0]["sessions"]} == SEEN["Kid2"]


def guarded(room: Room, name: str, root: str, **session: Any) -> None:
    """Register a main that takes guarded sends."""
    room.join(name, rootSessionId=root, incarnation=f"i-{name}", top={"guardedDelivery": 1}, **session)
    room.send(name, {"type": "presence", "applicationGuard": "g1"})


GUARD = {"rootSessionId": "r2", "peerId": "session-B", "incarnation": "i-B", "applicationGuard": "g1"}


def guarded_send(to: str = "session-B", **members: Any) -> dict[str, Any]:
    """Return a whole guarded send, with other or without (None) some members of its message."""
    message = {
        "id": "m",
        "timestamp": 1,
        "content": {"text": "x"},
        "expectsReply": False,
        "delivery": "steer",
        "guard": GUARD,
        "replyHint": {
            "tool": "my_tool",
            "commandId": "11111111-2222-4333-8444-555555555555",
            "commandFingerprint": "0" * 64,
        },
    } | members
    return {"type": "send", "to": to, "message": {k: v for k, v in message.items() if v is not None}}


def pair() -> Room:
    """Return a room with two guarded mains."""
    room = Room()
    guarded(room, "A", "r1")
    guarded(room, "B", "r2")
    return room


@pytest.mark.clause("intercom-31")
def test_capability_is_echoed_to_who_asked_for_it_alone() -> None:
    """Each capability is answered where it was announced with the number 1, and nowhere else."""
    converse("""
        A+ {"top":{"guardedDelivery":1,"receiptReads":1,"lastReads":1,"wakeOutcomes":1}}
        A< {"type":"registered","sessionId":"session-A","guardedDelivery":1,"receiptReads":1,"lastReads":1,"wakeOutcomes":1}
        B+ {"top":{"guardedDelivery":true,"receiptReads":2,"lastReads":"1","topicFrames":true}}
        B< {"type":"registered","sessionId":"session-B"}
        C+ {"top":{"lastReads":1}}
        C< {"type":"registered","sessionId":"session-C","lastReads":1}
    """)


@pytest.mark.clause("intercom-135")
def test_guarded_main_is_listed_with_its_binding() -> None:
    """A main that announced it is listed with its root, incarnation and guard; a child, or who claims it, is not."""
    room = pair()
    room.join("K", **CHILD_1, incarnation="k", top={"guardedDelivery": 1})
    room.join("F", guardedDelivery=1, rootSessionId="r3", incarnation="f")
    room.send("A", {"type": "list", "requestId": "x"})
    rows = {row["name"]: row for row in room.heard("A")[0]["sessions"]}
    assert rows["B"] | {"lastSeen": 0} == {
        "cwd": "/w",
        "model": "m",
        "name": "B",
        "rootSessionId": "r2",
        "incarnation": "i-B",
        "id": "session-B",
        "lastSeen": 0,
        "guardedDelivery": 1,
        "applicationGuard": "g1",
    }
    assert "guardedDelivery" not in rows["K"]
    assert "guardedDelivery" not in rows["F"]
    room.send("B", {"type": "presence", "applicationGuard": None})
    room.send("A", {"type": "list", "requestId": "x"})
    rows = {row["name"]: row for row in room.heard("A")[0]["sessions"]}
    assert "applicationGuard" not in rows["B"]


@pytest.mark.clause("intercom-135")
def test_guarded_send_with_a_true_binding_is_delivered_whole() -> None:
    """Guard and hint reach the recipient, which checks again; the send is never staged."""
    room = pair()
    room.send("A", guarded_send())
    assert room.heard("A") == [{"type": "delivered", "messageId": "m"}]
    assert room.heard("B")[0]["message"] == guarded_send()["message"]


@pytest.mark.clause("intercom-135")
@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (guarded_send(guard=GUARD | {"peerId": "session-A"}), "Recipient context changed"),
        (guarded_send(guard=GUARD | {"rootSessionId": "r1"}), "Recipient context changed"),
        (guarded_send(guard=GUARD | {"incarnation": "old"}), "Recipient context changed"),
        (guarded_send(guard=GUARD | {"applicationGuard": "g0"}), "Recipient application guard changed"),
        (guarded_send(to="B"), "Session not found"),
        (guarded_send(to="session-Z"), "Session not found"),
        (guarded_send(to="session-Kid"), "Session not found"),
        (guarded_send(to="session-Own"), "Recipient does not take guarded delivery"),
        (guarded_send(to="session-Old"), "Recipient does not take guarded delivery"),
        *(
            (frame, "Guarded delivery needs a whole guard, a delivery and expectsReply false")
            for frame in (
                guarded_send(expectsReply=True),
                guarded_send(expectsReply=None),
                guarded_send(delivery=None),
                guarded_send(guard="g"),
                guarded_send(guard={key: GUARD[key] for key in ("rootSessionId", "peerId", "incarnation")}),
                guarded_send(guard=GUARD | {"applicationGuard": None}),
                guarded_send(guard=None),
                guarded_send(replyHint={"tool": "a b", "commandId": "11111111-2222-4333-8444-555555555555"}),
                guarded_send(replyHint={"tool": "a", "commandId": "1"}),
                guarded_send(
                    replyHint={
                        "tool": "a",
                        "commandId": "11111111-2222-4333-8444-555555555555",
                        "commandFingerprint": "A" * 64,
                    }
                ),
            )
        ),
    ],
)
def test_guarded_send_with_any_fault_is_refused_and_reaches_nobody(
    frame: dict[str, Any], reason: str
) -> None:
    """A fault in the binding, the target or the form holds the send back; a hidden target is one not found."""
    room = pair()
    room.join("Kid", **CHILD_2, incarnation="k", top={"guardedDelivery": 1})
    room.join("Own", **CHILD_1, incarnation="k", top={"guardedDelivery": 1})
    room.join("Old", rootSessionId="r9", incarnation="o")
    room.send("A", frame)
    assert room.heard("A") == [{"type": "delivery_failed", "messageId": "m", "reason": reason}]
    assert not any(room.heard(name) for name in ("B", "Kid", "Own", "Old"))


@pytest.mark.clause("intercom-135")
def test_guarded_send_is_refused_while_its_root_has_two_mains() -> None:
    """Two current mains of one root are ambiguous; when one leaves, the other is not."""
    room = pair()
    guarded(room, "C", "r2")
    room.send("A", guarded_send())
    assert room.heard("A")[0]["reason"] == "Recipient root is ambiguous"
    room.close(room.ends["C"])
    room.heard("A")
    room.send("A", guarded_send())
    assert room.heard("A") == [{"type": "delivered", "messageId": "m"}]


@pytest.mark.clause("intercom-135")
def test_guard_from_who_did_not_negotiate_it_is_refused_and_a_hint_alone_goes_on() -> None:
    """A guard is never an unknown member that is passed on; a hint alone is, where nobody negotiated it."""
    room = pair()
    room.join("F")
    room.send("F", guarded_send())
    assert room.heard("F")[0]["reason"] == "Guarded delivery was not negotiated"
    room.send("F", guarded_send(guard=None))
    assert room.heard("F") == [{"type": "delivered", "messageId": "m"}]
    assert [one["type"] for one in room.heard("B")] == ["message"]


@pytest.mark.clause("intercom-135")
def test_withdrawn_guard_stops_new_sends_alone() -> None:
    """After the guard is withdrawn nothing new is routed under it; ordinary sends are as before."""
    room = pair()
    room.send("B", {"type": "presence", "applicationGuard": None})
    room.send("A", guarded_send())
    assert room.heard("A")[0]["reason"] == "Recipient application guard changed"
    room.send("A", guarded_send(guard=None, replyHint=None))
    assert room.heard("A") == [{"type": "delivered", "messageId": "m"}]
