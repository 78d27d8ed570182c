"""What a session and a message must be; faults of the strict form are in tests/scripts."""

from typing import Any

import pytest

from tieline.engine.brokering.contract import Extension, Guard, Letter, Lineage
from tieline.wire.intercom import forms
from tieline.wire.intercom.forms import hint_fault

SESSION = {"cwd": "/w", "model": "m"}
RECORDED = SESSION | {"pid": 1, "startedAt": 2.5, "lastActivity": 3}
MESSAGE: dict[str, Any] = {"id": "m", "timestamp": 1, "content": {"text": "x"}}
GUARD = {"rootSessionId": "r", "peerId": "p", "incarnation": "i", "applicationGuard": "g"}
HINT = {"tool": "a_tool", "commandId": "11111111-2222-4333-8444-555555555555"}


def test_labels_texts_and_numbers() -> None:
    """A label is not empty, a text may hold tab and line ends, a boolean is no number."""
    assert [forms.is_label(one) for one in ("a", "\ud800", "", "a\n", "\x7f", "\x9f", 7, None)] == [
        True
    ] * 2 + [False] * 6
    assert [forms.is_text(one) for one in ("", "\t\r\n\u2028", "\x00", "\x0b", "\x80", 7)] == [True] * 2 + [
        False
    ] * 4
    assert [forms.is_finite(one) for one in (0, 1.5, float("inf"), float("nan"), True, "1")] == [True] * 2 + [
        False
    ] * 4


@pytest.mark.clause("intercom-26", "intercom-25")
def test_plain_session_keeps_what_it_does_not_know() -> None:
    """Unknown members stay, what only the broker says goes; a count may be written as a double."""
    told = SESSION | {"team": [1], "guardedDelivery": 1, "pendingAsks": 1e300, "projectId": "0" * 64}
    assert forms.plain_session(told) == {key: told[key] for key in told if key != "guardedDelivery"}
    for wrong in (None, [], SESSION | {"incarnation": ""}, SESSION | {"applicationGuard": None}):
        assert forms.plain_session(wrong) is None


def test_lineage_is_of_one_level() -> None:
    """A main names its root, a child its root as parent; anything else is an error."""
    assert forms.lineage({}) is None
    assert forms.lineage({"rootSessionId": "r"}) == Lineage("r")
    assert forms.lineage({"rootSessionId": "r", "parentSessionId": "r"}) == Lineage("r", "r")
    for wrong in ({"parentSessionId": "r"}, {"rootSessionId": "r", "parentSessionId": "r "}):
        with pytest.raises(ValueError, match="parent"):
            forms.lineage(wrong)


@pytest.mark.clause("intercom-34", "intercom-36")
def test_plain_presence_takes_what_may_change() -> None:
    """Other members are no change; one wrong value is a fault of the whole."""
    told = {"type": "presence", "status": "idle", "cwd": "/x", "acceptsAsks": True}
    assert forms.plain_presence(told) == {"status": "idle", "acceptsAsks": True}
    assert forms.plain_presence({"model": ""}) is None
    assert forms.plain_presence({"pendingAsks": None}) is None


@pytest.mark.clause("intercom-21", "intercom-26", "intercom-29")
def test_recorded_session_is_what_is_known_of_it() -> None:
    """What is needed must be there, what is known must be right, the rest is dropped."""
    told = RECORDED | {"name": "a\n", "team": 1, "trustedLocal": True, "extensions": []}
    assert forms.recorded_session(told) == RECORDED | {"name": "a\n", "extensions": []}
    for wrong in (
        7,
        SESSION,
        RECORDED | {"pid": True},
        RECORDED | {"name": 7},
        RECORDED | {"extensions": [{}]},
    ):
        assert forms.recorded_session(wrong) is None
    assert forms.recorded_presence({"status": None, "name": 7, "contextUsage": {"a": 1}, "cwd": "/x"}) == {
        "status": None,
        "contextUsage": {"a": 1},
    }


def test_extensions_are_few_and_well_formed() -> None:
    """At most 32 of a namespace and a flag."""
    good = {"namespace": "a/b.c_d-1", "ownerEligible": True}
    assert forms.extensions([good]) == (Extension("a/b.c_d-1", is_owner_eligible=True),)
    assert forms.extensions([good] * 33) is None
    for wrong in (
        "x",
        [7],
        [good | {"namespace": "A"}],
        [good | {"namespace": "a\n"}],
        [good | {"ownerEligible": 1}],
    ):
        assert forms.extensions(wrong) is None
    assert not forms.is_namespace("a" * 65)


def plain(**members: Any) -> Letter:
    letter = forms.plain_letter(MESSAGE | members)
    assert letter is not None
    return letter


def test_plain_letter_tells_what_routing_decides_by() -> None:
    """Its purpose, correlation and thread; the message itself goes on as it came."""
    letter = plain(
        expectsReply=True, replyTo="q", delivery="queue", queueMode="replace", threadId=" t ", extra=1
    )
    assert (letter.is_ask, letter.reply_to, letter.thread_id) == (True, "q", " t ")
    assert letter.fields["extra"] == 1
    assert plain(passive=True).is_passive
    assert plain(delivery="passive").is_passive
    assert plain(queueMode="stack", delivery="queue").thread_id is None


@pytest.mark.clause("intercom-135")
def test_guard_is_whole_or_broken_and_a_hint_needs_it() -> None:
    """A guard with each of its parts, and a hint of the right form beside it."""
    whole = plain(guard=GUARD, replyHint=HINT, expectsReply=False, delivery="steer")
    assert (whole.guard, whole.is_guardable, whole.is_guard_broken) == (
        Guard("r", "p", "i", "g"),
        True,
        False,
    )
    assert plain(guard=GUARD, replyHint=HINT | {"commandFingerprint": "f" * 64}).is_guard_broken is False
    assert plain(replyHint=HINT).is_guard_broken
    assert not plain(guard=GUARD).is_guardable
    for wrong in ("g", GUARD | {"peerId": ""}, {}):
        assert plain(guard=wrong).is_guard_broken
    for hint in (
        7,
        {},
        HINT | {"tool": "1"},
        HINT | {"commandId": "x"},
        HINT | {"commandFingerprint": "F" * 64},
    ):
        assert plain(guard=GUARD, replyHint=hint).is_guard_broken


@pytest.mark.clause("intercom-135")
def test_hint_that_breaks_its_form_is_named_with_what_is_allowed() -> None:
    """The field, and its form; a good one has no fault, with and without a fingerprint."""
    assert hint_fault(HINT) == hint_fault(HINT | {"commandFingerprint": "f" * 64}) == ""
    assert hint_fault(HINT | {"commandId": "build-7"}) == "its commandId must be a UUID"
    assert hint_fault(HINT | {"tool": "no spaces"}).startswith("its tool must be a name")
    assert hint_fault(HINT | {"commandFingerprint": None}).startswith("its commandFingerprint must be")
    assert hint_fault("x") == "it must have tool, commandId"


@pytest.mark.clause("intercom-53")
def test_recorded_letter_has_one_key_for_one_content() -> None:
    """The key follows what is said and to what end, not when or in which place of a sequence."""

    def key(**members: Any) -> str:
        letter = forms.recorded_letter(MESSAGE | members)
        assert letter is not None
        return letter.content_key

    assert key() == key(timestamp=9, senderSequence=3, expectsReply=False, other=1)
    others = [
        key(content={"text": "y"}),
        key(content={"text": "x", "attachments": [{"type": "file", "name": "", "content": "\x00"}]}),
        key(replyTo="a"),
        key(expectsReply=True),
        key(supersedes="a"),
        key(retryOf="a"),
    ]
    assert len({key(), *others}) == 7


def test_recorded_letter_may_hold_what_the_strict_form_forbids() -> None:
    """It says whether it keeps the strict form; what it forbids itself is no letter."""
    odd = forms.recorded_letter(MESSAGE | {"content": {"text": "\x07"}, "delivery": "later"})
    assert odd is not None
    assert not odd.is_plain
    for wrong in (
        7,
        MESSAGE | {"id": ""},
        MESSAGE | {"timestamp": "1"},
        MESSAGE | {"content": {}},
        MESSAGE | {"content": {"text": "x", "attachments": 7}},
        MESSAGE | {"content": {"text": "x", "attachments": [{"type": "odd"}]}},
        MESSAGE | {"content": {"text": "x", "attachments": [7]}},
        MESSAGE | {"supersedes": ""},
        MESSAGE | {"senderSequence": "1"},
    ):
        assert forms.recorded_letter(wrong) is None


def test_view_of_another_forms_session_holds_what_revision_n_takes() -> None:
    """Fields that the strict form keeps unread are not passed on as something they are not."""
    told = {
        "cwd": "/w",
        "model": "m",
        "pid": 5,
        "startedAt": "x",
        "status": None,
        "contextUsage": [1],
        "other": 1,
    }
    assert forms.recorded_view(told) == {"cwd": "/w", "model": "m", "pid": 5}
