"""What doors show of a resource."""

import shlex
from typing import Any

import pytest

from tieline.model.process import ProcessIdentity
from tieline.model.resource import (
    Blocker,
    Claimant,
    HolderView,
    Launch,
    Mark,
    QueueEntry,
    ResourceKey,
    Snapshot,
    TicketState,
)
from tieline.runtime.resources.shapes import (
    advice,
    damaged,
    enrolment_advice,
    headline,
    next_action,
    snapshot,
)
from tieline.store.resources import Damage

KEY = ResourceKey("machine/x")
WAITING = QueueEntry("r-1", "peer-1", "web", "a reason", 5)


def holder(state: TicketState) -> HolderView:
    """Return a holder in this state."""
    return HolderView("r-0", "peer-0", "api", state, 3, 1_000, "ref", "l-0", "make", "supervised", 20_000)


def seen(state: str = "available", **fields: Any) -> Snapshot:
    """Return a resource as an enrolled viewer sees it."""
    return Snapshot(**{"resource": KEY, "state": state, "is_configured": True, "is_enrolled": True, **fields})


@pytest.mark.parametrize(
    ("item", "life", "words"),
    [
        (seen(is_configured=False), {}, "it is free: `tieline run --resource machine/x"),
        (seen(controller_alias="lead"), {}, "nobody holds it, and :lead grants it: `tieline run --resource"),
        (seen(queue=(WAITING,), controller_alias="lead"), {}, ":lead grants it: `tieline resource grant"),
        (seen(queue=(WAITING,)), {}, "its controller grants it"),
        (seen(queue=(WAITING,), is_configured=False), {}, "the oldest in line is about to get it"),
        (seen(holder=holder(TicketState.RESERVED)), {}, "starts within 30 s, or the right lapses"),
        (seen(holder=holder(TicketState.RUNNING)), {}, "wait in line"),
        (seen(holder=holder(TicketState.RUNNING)), {"isOrphan": True, "supervisor": 42}, "`kill -TERM 42`"),
        (seen(holder=holder(TicketState.STARTING)), {"canEnd": False}, "recover machine/x --launch l-0"),
        (seen(blockers=(Blocker("l-9", "p", "old", "make", "b", 0),)), {}, "recover machine/x --launch l-9"),
        (seen(is_enrolled=False, state="busy"), {}, "ask its controller to enrol you"),
    ],
)  # fmt: skip
def test_every_state_has_a_next_action(item: Snapshot, life: dict[str, Any], words: str) -> None:
    """What helps is said; it is never to end another's process or to remove a file."""
    action = next_action(item, life)
    assert words in action
    assert not {"rm ", "kill -9", "pkill"} & {part for part in ("rm ", "kill -9", "pkill") if part in action}


@pytest.mark.clause("native-3.6.20")
@pytest.mark.parametrize("name", ["x; touch /p", "$(id)", "a b", "`id`", "it's"])
def test_id_in_a_command_to_type_is_one_word_of_a_shell(name: str) -> None:
    """Who chooses an id does not write the line that its reader is told to run."""
    asked = QueueEntry(name, "peer-1", "web", "a reason", 5)
    held = HolderView("r", "p", "api", TicketState.STARTING, 3, 1, "ref", name, "make", "supervised", 1)
    blocked = Blocker(name, "p", "old", "make", "b", 0)
    shown = (
        next_action(seen(queue=(asked,)), {}),
        next_action(seen(holder=held), {"canEnd": False}),
        next_action(seen(blockers=(blocked,)), {}),
    )
    for action in shown:
        line = action[action.index("`tieline") + 1 : action.rindex("`")]
        assert shlex.split(line)[-1] == name


def test_snapshot_for_others_has_no_more_than_its_state() -> None:
    """Who is not enrolled learns free or busy."""
    shape = snapshot(seen(is_enrolled=False, state="busy", is_configured=True), 5)
    assert set(shape) == {"resource", "state", "configured", "enrolled", "nextAction"}


def test_headline_says_who_holds_and_who_waits() -> None:
    """One line for a person or a model."""
    shape = snapshot(seen("running", holder=holder(TicketState.RUNNING), queue=(WAITING,)), 4_000)
    assert headline(shape) == (
        "machine/x: running; held by :api (make) since 1970-01-01T00:00:01.000Z, fence 3; waiting: :web"
    )
    assert shape["holder"]["heldMs"] == 3_000


@pytest.mark.parametrize("code", ["SCOPE_DENIED", "CAPABILITY_DENIED", "TARGET_ENDED", "RECOVERY_REQUIRED"])
def test_advice_of_a_no_names_the_resource(code: str) -> None:
    """What helps can be typed; a code that says it well enough by itself has none."""
    assert "tieline resource" in advice(code, KEY)
    assert KEY in advice(code, KEY)
    assert advice("RESERVATION_EXPIRED", KEY) == ""


def test_damaged_shape_hides_the_commands_from_who_is_not_enrolled() -> None:
    """The fault is for everybody, who holds is for the enrolled."""
    life = ProcessIdentity("b", 1, 2, 3, None, "linux")
    claimant = Claimant("p", "i", "api", life)
    launch = Launch("l", "n", "d", "make", "w", claimant, 1, "b", supervisor=life)
    damage = Damage(KEY, "it is damaged", "id", Mark(fence=3), is_mark_known=True, launches=(launch,))
    shape = damaged(damage, [launch], is_enrolled=True)
    assert shape["living"][0]["launchId"] == "l"
    hidden = damaged(damage, [launch], is_enrolled=False)
    assert "living" not in hidden
    assert hidden["fault"] == "it is damaged"
    assert damaged(damage, [], is_enrolled=True)["nextAction"] == damage.action


@pytest.mark.parametrize(
    ("life", "words", "others"),
    [
        ("alive", ("ask :lead", "--enrol :web", "--unenrol :web"), ("has ended",)),
        ("unknown", ("ask :lead", "--enrol :web"), ("has ended",)),
        ("gone", (":lead has ended", "--controller me", "--enrol :web"), ("ask :lead",)),
    ],
)
def test_peer_that_is_left_out_is_sent_to_nobody_who_has_ended(
    life: Any, words: tuple[str, ...], others: tuple[str, ...]
) -> None:
    """The commands are exact, and who is to give them is not proven gone."""
    item = seen(may_claim=False, controller_alias="lead", controller_life=life, viewer_alias="web")
    action = next_action(item, {})
    assert all(word in action for word in words)
    assert not any(word in action for word in others)
    assert "--unenrol" not in enrolment_advice(KEY, "lead", "web", is_gated=False)


def test_controller_that_has_ended_is_told_with_the_command_that_replaces_it() -> None:
    """Proven death is told in every view; doubt is told as doubt."""
    gone = seen(queue=(WAITING,), controller="c", controller_alias="lead", controller_life="gone")
    shape = snapshot(gone, 5)
    assert "`tieline resource policy machine/x --controller me --auto-grant`" in shape["nextAction"]
    assert shape["controllerLife"] == "gone"
    assert "its controller has ended" in headline(shape)
    doubt = seen(queue=(WAITING,), controller="c", controller_alias="lead", controller_life="unknown")
    assert "whether it lives is not known" in next_action(doubt, {})
