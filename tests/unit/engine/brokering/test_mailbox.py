"""Mail for who is gone."""

from typing import Any

import pytest

from tests.unit.engine.brokering.kit import DIRECT, RECORDED, letter, session, turn
from tieline.engine.brokering.contract import Delivery, Drop, Lineage, Put
from tieline.engine.brokering.mailbox import (
    ABSENT_MS,
    HANDOVER_MS,
    HELD_PER_CHILD_MAX,
    HELD_RECORDED_MAX,
    Absent,
    Mailbox,
)
from tieline.engine.brokering.sessions import Session
from tieline.wire.intercom.saying import FrameCodec

CODEC = FrameCodec()
KID = Lineage("r", "r")


def box(*leavers: Session, is_parked: bool = True) -> Mailbox:
    mailbox = Mailbox(CODEC)
    for one in leavers:
        mailbox.left(one, turn(), is_parked=is_parked)
    return mailbox


def absent(mailbox: Mailbox, name: str) -> Absent:
    one = mailbox.absent(name)
    assert one is not None
    return one


def hold(mailbox: Mailbox, name: str, identity: str = "m", **parts: Any) -> list[Put | Drop]:
    made = turn()
    assert mailbox.hold(absent(mailbox, name), session("s", 9).row(), letter(identity, **parts), made)
    return made.rows


def test_only_who_parks_or_has_a_mailbox_is_remembered() -> None:
    """An ordinary session that leaves is forgotten; a parked one is in the journal."""
    made = turn()
    mailbox = Mailbox(CODEC)
    assert not mailbox.remembers_anybody
    mailbox.left(session("plain", 1), made, is_parked=False)
    mailbox.left(session("n", 2, RECORDED), made, is_parked=False)
    assert made.rows == []
    mailbox.left(session("kid", 3, lineage=KID), made, is_parked=True)
    assert [(row.kind, row.key) for row in made.rows] == [("parked", "kid")]
    assert [one.id for one in mailbox] == ["n", "kid"]
    assert mailbox.remembers_anybody


@pytest.mark.clause("intercom-131")
def test_handed_mail_is_held_until_its_socket_lived_on() -> None:
    """A socket that dies within the time has its mail again; after it, mail and absence are gone."""
    mailbox = box(session("kid", 1, lineage=KID))
    hold(mailbox, "kid", "one")
    hold(mailbox, "kid", "two")
    back = session("kid", 2, lineage=KID)
    made = turn()
    mail = mailbox.inherited_by(back, iter([back]))
    assert [one.message_id for one in mail] == ["one", "two"]
    assert mailbox.handover_due_ms is None
    mailbox.hand_over(back, mail, made)
    mailbox.returned(back, made)
    assert [type(output) for _, output in made.outputs] == [Delivery, Delivery]
    assert made.rows == []
    assert mailbox.handover_due_ms == 1_000 + HANDOVER_MS
    assert mailbox.inherited_by(back, iter([back])) == []
    mailbox.link_lost(2)
    mailbox.left(back, turn(), is_parked=False)
    assert not absent(mailbox, "kid").is_back
    mailbox.hand_over(back, mailbox.inherited_by(back, iter([back])), turn())
    mailbox.returned(back, turn())
    early, late = turn(999 + HANDOVER_MS), turn(1_000 + HANDOVER_MS)
    mailbox.settle((), early)
    assert early.rows == []
    mailbox.settle({2}, late)
    assert late.rows == []
    assert mailbox.handover_due_ms == late.now.mono_ms + HANDOVER_MS
    late = turn(1_000 + 2 * HANDOVER_MS)
    mailbox.settle({7}, late)
    assert [row.kind for row in late.rows] == ["mail", "mail", "parked"]
    assert (len(mailbox), mailbox.absent("kid")) == (0, None)


@pytest.mark.clause("intercom-131", "intercom-134")
def test_what_was_kept_is_held_again_after_a_restart() -> None:
    """Mail and absences read back are what they were; numbers go on; what is neither is refused."""
    mailbox = box(session("kid", 1, lineage=KID))
    rows = hold(mailbox, "kid", "q", is_ask=True)
    parked = turn()
    mailbox.left(session("kid", 1, lineage=KID), parked, is_parked=True)
    after = Mailbox(CODEC)
    for row in rows:
        assert isinstance(row, Put)
        after.restore_held(CODEC.parse(row.body))
    for row in parked.rows:
        assert isinstance(row, Put)
        after.restore_absent(CODEC.parse(row.body))
    (held,) = after.held_for("kid")
    assert (held.message_id, held.is_ask, held.sender.session_id, held.sender.features) == (
        "q",
        True,
        "s",
        DIRECT,
    )
    assert absent(after, "kid").lineage == KID
    assert hold(after, "kid", "next")[0].key > rows[0].key
    for wrong in ({}, 7, {"recipient": {}}, {"sender": 7}):
        with pytest.raises((ValueError, AttributeError)):
            after.restore_held(wrong)
        with pytest.raises(ValueError, match="not an absence"):
            after.restore_absent(wrong)


def test_recorded_mail_is_kept_for_a_day_and_its_sender_can_take_it_back() -> None:
    """What was withdrawn is gone at once, what is too old is told; the absence ends with it."""
    mailbox = box(session("n", 1, RECORDED), is_parked=False)
    hold(mailbox, "n", "one")
    hold(mailbox, "n", "two")
    made = turn()
    withdrawn = mailbox.withdraw("s", "one", made)
    assert withdrawn is not None
    assert mailbox.withdraw("s", "one", made) is None
    assert mailbox.withdraw("z", "two", made) is None
    assert mailbox.sweep(turn(ABSENT_MS)) == []
    assert [one.message_id for one in mailbox.sweep(turn(1_000 + ABSENT_MS))] == ["two"]
    assert not mailbox.remembers_anybody


@pytest.mark.clause("intercom-134")
def test_heir_is_the_only_one_of_its_name_and_directory() -> None:
    """Two alike inherit nothing, one does; a parked child has no heir but itself."""
    mailbox = box(session("n", 1, RECORDED, name="w"), is_parked=False)
    hold(mailbox, "n")
    one, two = session("x", 2, RECORDED, name="w"), session("y", 3, RECORDED, name="w")
    assert mailbox.inherited_by(one, iter([one, two])) == []
    assert len(mailbox.inherited_by(one, iter([one]))) == 1
    assert mailbox.inherited_by(session("z", 4, RECORDED, name="w", cwd="/else"), iter([])) == []
    mailbox = box(session("kid", 1, name="w", lineage=KID))
    hold(mailbox, "kid")
    assert mailbox.inherited_by(one, iter([one])) == []
    assert mailbox.inherited_by(session("kid", 5, lineage=Lineage("other", "other")), iter([])) == []


def test_full_mailbox_refuses_and_keeps_what_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bound refuses the next message: per child, for all of the second kind, and in bytes."""
    mailbox = box(session("kid", 1, lineage=KID))
    for number in range(HELD_PER_CHILD_MAX):
        hold(mailbox, "kid", str(number))
    sender = session("s", 9).row()
    assert not mailbox.hold(absent(mailbox, "kid"), sender, letter("more"), turn())
    mailbox.left(session("n", 2, RECORDED), turn(), is_parked=False)
    for number in range(HELD_RECORDED_MAX):
        hold(mailbox, "n", str(number))
    assert not mailbox.hold(absent(mailbox, "n"), sender, letter("more"), turn())
    assert len(mailbox) == HELD_PER_CHILD_MAX + HELD_RECORDED_MAX
    monkeypatch.setattr("tieline.engine.brokering.mailbox.HELD_BYTES_MAX", 500)
    mailbox = box(session("kid", 1, lineage=KID))
    hold(mailbox, "kid")
    assert not mailbox.hold(absent(mailbox, "kid"), sender, letter("more"), turn())


def test_absences_are_bounded_and_one_with_mail_is_never_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest absence without mail gives way; where each has mail, a newcomer is not remembered."""
    monkeypatch.setattr("tieline.engine.brokering.mailbox.ABSENT_MAX", 2)
    mailbox = box(session("one", 1, lineage=KID), session("two", 2, lineage=KID))
    hold(mailbox, "one")
    made = turn()
    mailbox.left(session("three", 3, lineage=KID), made, is_parked=True)
    assert [one.id for one in mailbox] == ["one", "three"]
    assert Drop("parked", "two") in made.rows
    hold(mailbox, "three")
    mailbox.left(session("four", 4, lineage=KID), turn(), is_parked=True)
    assert [one.id for one in mailbox] == ["one", "three"]
    mailbox.forget("nobody", turn())


@pytest.mark.clause("intercom-133", "intercom-134")
def test_mail_of_one_scope_is_not_for_the_same_id_in_another() -> None:
    """Who comes and goes under the id meanwhile is somebody else: it gets no mail and displaces none."""
    mailbox = box(session("n", 1, RECORDED, scope="a"), is_parked=False)
    hold(mailbox, "n", "secret")
    mailbox.left(session("n", 2, RECORDED, scope="b"), turn(), is_parked=False)
    other, same = session("n", 3, RECORDED, scope="b"), session("n", 4, RECORDED, scope="a")
    assert mailbox.inherited_by(other, iter([other])) == []
    assert [one.message_id for one in mailbox.inherited_by(same, iter([same]))] == ["secret"]
