"""What a socket says, as commands; frames out of form or order are in the golden conversations."""

from typing import Any

import pytest

from tieline.engine.brokering import contract
from tieline.engine.brokering.features import DIRECT, RECORDED, Features
from tieline.wire.intercom.hearing import Broken, Heard, Unheard, command_of, join_of

PLAIN = Heard(1, DIRECT, "t")
NEWER = Heard(
    1,
    Features(
        needs_plain=True, guarded_delivery=True, receipt_reads=True, last_reads=True, wake_outcomes=True
    ),
    "t",
)
OLDER = Heard(1, RECORDED, "t")
SESSION = {"cwd": "/w", "model": "m"}
RECORDED_SESSION = SESSION | {"pid": 1, "startedAt": 1, "lastActivity": 1}


def join(**frame: Any) -> contract.Join:
    return join_of({"type": "register"} | frame, PLAIN, "e")


@pytest.mark.parametrize(
    ("frame", "is_recorded"),
    [
        ({"session": SESSION}, False),
        ({"session": RECORDED_SESSION}, True),
        ({"session": RECORDED_SESSION, "sessionId": "s"}, True),
        ({"session": RECORDED_SESSION, "scopeId": "s"}, True),
        ({"session": RECORDED_SESSION, "requestedId": "wanted-id"}, False),
        ({"session": RECORDED_SESSION, "requestedId": "wanted-id", "sessionId": "s"}, False),
        ({"session": SESSION | {"pid": "1"}}, False),
    ],
)
def test_dialect_is_told_by_the_registration_itself(frame: dict[str, Any], is_recorded: bool) -> None:
    """Its own fields say which revision speaks."""
    assert join(**frame).features.is_recorded is is_recorded


def test_registration_brings_what_it_pins() -> None:
    """Group, incarnation, guard and capabilities; scope, extensions and id for the other dialect."""
    session = SESSION | {"rootSessionId": "r", "incarnation": "i", "applicationGuard": "g"}
    found = join(session=session, guardedDelivery=1, wakeOutcomes=1, lastReads=True, requestedId="wanted-id")
    assert (found.wanted_id, found.lineage, found.incarnation) == ("wanted-id", contract.Lineage("r"), "i")
    assert found.application_guard == "g"
    assert "applicationGuard" not in found.fields
    assert (found.features.guarded_delivery, found.features.wake_outcomes, found.features.last_reads) == (
        True,
        True,
        False,
    )
    assert join(session=session).application_guard is None
    found = join(session=RECORDED_SESSION, sessionId=" \t", scopeId=" s ")
    assert (found.wanted_id, found.scope) == (None, "s")
    for frame in ({}, {"session": SESSION, "scopeId": ""}, {"session": RECORDED_SESSION, "scopeId": 7}):
        with pytest.raises(Broken):
            join(**frame)


def test_frame_of_another_dialect_is_unknown() -> None:
    """A table per dialect, and the newest frames for those that announced them."""
    for kind, heard in (
        ("cancel_ask", PLAIN),
        ("last_request", OLDER),
        ("nonsense", NEWER),
        ("health", PLAIN),
    ):
        with pytest.raises(Broken):
            command_of({"type": kind, "messageId": "m", "requestId": "r", "to": "x"}, heard)
    for kind in ("last_request", "last_page", "receipt_request", "receipt_facts", "wake_outcome"):
        with pytest.raises(Broken):
            command_of({"type": kind, "token": "t", "ok": True, "requestId": "r", "to": "x"}, PLAIN)


def test_parked_counts_from_who_can_be_woken() -> None:
    """The same frame parks one and not the other."""
    frame = {"type": "unregister", "parked": True}
    assert command_of(frame, NEWER) == contract.Leave(1, is_parked=True)
    assert command_of(frame, PLAIN) == contract.Leave(1)
    assert command_of({"type": "unregister", "parked": 1}, NEWER) == contract.Leave(1)


def test_guard_is_told_by_presence_of_who_negotiated_it() -> None:
    """Null withdraws it, a wrong one closes, and without the capability it is an unknown member."""
    frame = {"type": "presence", "applicationGuard": "g"}
    assert command_of(frame, NEWER) == contract.PresenceTold(1, {}, "g", is_guard_told=True)
    assert command_of(frame, PLAIN) == contract.PresenceTold(1, {})
    assert command_of(frame | {"applicationGuard": None}, NEWER) == contract.PresenceTold(
        1, {}, None, is_guard_told=True
    )
    for wrong in (frame | {"applicationGuard": ""}, frame | {"name": ""}):
        with pytest.raises(Broken):
            command_of(wrong, NEWER)


def test_wake_outcome_is_a_flag_with_an_optional_text() -> None:
    """Anything else closes."""
    frame = {"type": "wake_outcome", "token": "k", "ok": False, "detail": "why"}
    assert command_of(frame, NEWER) == contract.WakeTold(1, "k", is_ok=False, detail="why")
    for wrong in (frame | {"ok": 1}, frame | {"detail": 7}, frame | {"token": None}):
        with pytest.raises(Broken):
            command_of(wrong, NEWER)


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "cancel_ask"},
        {"type": "cancel_message", "messageId": 7},
        {"type": "message_receipt", "receipt": []},
        {"type": "message_receipt", "receipt": {"messageId": "m", "status": [], "timestamp": 1}},
        {"type": "message_receipt", "receipt": {"messageId": "", "status": "queued", "timestamp": 1}},
        {"type": "message_receipt", "receipt": {"messageId": "m", "status": "queued"}},
        {"type": "extension_capabilities_update"},
        {"type": "extension_publish", "namespace": "n", "audience": "x", "payload": 1},
        {"type": "extension_publish", "namespace": "N", "audience": "owner", "payload": 1},
        {"type": "extension_publish", "namespace": "n", "audience": "owner"},
        {"type": "extension_publish", "namespace": "n", "audience": "owner", "ownerEpoch": 7, "payload": 1},
        {
            "type": "extension_state_commit",
            "namespace": "n",
            "ownerEpoch": "e",
            "expectedRevision": -1,
            "payload": 1,
        },
        {"type": "extension_state_commit", "namespace": "n", "expectedRevision": 0, "payload": 1},
        {
            "type": "extension_state_commit",
            "namespace": "n",
            "ownerEpoch": "e",
            "expectedRevision": 0,
            "payload": "x" * 65_535,
        },
    ],
)
def test_request_of_revision_n_out_of_form_is_answered(frame: dict[str, Any]) -> None:
    """It is told what is wrong, and its socket lives on."""
    with pytest.raises(Unheard) as caught:
        command_of(frame, OLDER)
    assert isinstance(caught.value.answer, contract.BusRefused)


def test_requests_of_revision_n_become_commands() -> None:
    """Each of its frames is the command of that name."""
    assert command_of({"type": "cancel_ask", "messageId": "m"}, OLDER) == contract.AskCancelled(1, "m")
    assert command_of({"type": "cancel_message", "messageId": "m"}, OLDER) == contract.MessageCancelled(
        1, "m"
    )
    commit = {
        "type": "extension_state_commit",
        "namespace": "n",
        "ownerEpoch": "e",
        "expectedRevision": 2,
        "payload": [1],
    }
    assert command_of(commit | {"requestId": "r"}, OLDER) == contract.StateCommitted(
        link=1, namespace="n", owner_epoch="e", expected_revision=2, payload=[1], request_id="r"
    )
    sent = command_of({"type": "send", "to": "x", "targetId": "i", "targetEpoch": "e"}, OLDER)
    assert isinstance(sent, contract.SendAsked)
    assert (sent.target_id, sent.target_epoch, sent.letter) == ("i", "e", None)
    assert isinstance(command_of({"type": "presence", "name": None}, OLDER), contract.PresenceTold)


def test_frames_of_the_strict_form_become_commands() -> None:
    """Each of them is the command of that name."""
    assert command_of({"type": "list", "requestId": ""}, PLAIN) == contract.ListAsked(1, "")
    with pytest.raises(Broken):
        command_of({"type": "list"}, PLAIN)
    message = {"id": "m", "timestamp": 1, "content": {"text": "x"}}
    sent = command_of({"type": "send", "to": 7, "message": message}, PLAIN)
    assert isinstance(sent, contract.SendAsked)
    assert (sent.to, sent.message_id, sent.token) == (None, "m", "t")
    half = command_of({"type": "send", "to": "x", "message": message, "targetId": "i"}, OLDER)
    assert isinstance(half, contract.SendAsked)
    assert half.is_target_broken
    whole = command_of({"type": "send", "to": "x", "message": message}, OLDER)
    assert isinstance(whole, contract.SendAsked)
    assert (whole.target_id, whole.is_target_broken) == (None, False)


def test_reads_become_commands_with_their_place() -> None:
    """What the owner is asked is whole and within bounds; a fault is answered under the request's own id."""
    ask = {"type": "last_request", "requestId": "r", "to": "x"}
    found = command_of(ask | {"entryId": "e", "offset": 3, "limit": 4}, NEWER)
    assert isinstance(found, contract.ReadAsked)
    assert found.body == {"entryId": "e", "offset": 3, "limit": 4}
    found = command_of(ask | {"type": "receipt_request", "rootSessionId": "q", "messageId": "m"}, NEWER)
    assert isinstance(found, contract.ReadAsked)
    assert (found.kind, found.body) == ("receipt", {"rootSessionId": "q", "messageId": "m"})
    for wrong in ({"offset": -1}, {"limit": 0}, {"entryId": ""}, {"type": "receipt_request"}):
        with pytest.raises(Unheard) as caught:
            command_of(ask | wrong, NEWER)
        assert isinstance(caught.value.answer, contract.ReadReturned)
        assert caught.value.answer.body == {"error": "invalid_request"}


def test_answers_of_an_owner_pass_what_is_theirs_alone() -> None:
    """Unknown members are left out; an error is a short label, or the answer is invalid."""
    page = {
        "type": "last_page",
        "token": "k",
        "entryId": "e",
        "text": "x",
        "offset": 0,
        "nextOffset": None,
        "other": 1,
    }
    found = command_of(page, NEWER)
    assert found == contract.ReadAnswered(
        link=1, kind="last", token="k", body={"entryId": "e", "text": "x", "offset": 0, "nextOffset": None}
    )
    found = command_of({"type": "receipt_facts", "token": "k", "receipt": {"a": 1}}, NEWER)
    assert isinstance(found, contract.ReadAnswered)
    assert found.body == {"receipt": {"a": 1}}
    for error, expected in (("gone", "gone"), ("x" * 201, "invalid_answer"), (7, "invalid_answer")):
        found = command_of({"type": "last_page", "token": "k", "error": error}, NEWER)
        assert isinstance(found, contract.ReadAnswered)
        assert found.body == {"error": expected}


def test_bus_and_receipts_become_commands() -> None:
    """A publication, a receipt and a list of extensions, as they were said."""
    publish = {
        "type": "extension_publish",
        "namespace": "n",
        "audience": "capable",
        "payload": 1,
        "ownerOnly": True,
    }
    found = command_of(publish | {"ownerEpoch": "e"}, OLDER)
    assert found == contract.BusPublished(
        link=1, namespace="n", audience="capable", payload=1, owner_epoch="e", is_owner_only=True
    )
    receipt = {"messageId": "m", "status": "injected", "timestamp": 1, "detail": "x"}
    assert command_of({"type": "message_receipt", "receipt": receipt}, OLDER) == contract.ReceiptTold(
        1, "m", receipt
    )
    assert command_of(
        {"type": "extension_capabilities_update", "extensions": []}, OLDER
    ) == contract.ExtensionsTold(1, ())


def test_child_that_names_another_parent_closes() -> None:
    """A lineage of more than one level is none."""
    with pytest.raises(Broken):
        join(session=SESSION | {"rootSessionId": "r", "parentSessionId": "q"})
    with pytest.raises(Broken):
        join(session=SESSION | {"model": ""})
