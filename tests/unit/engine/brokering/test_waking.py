"""Wakes of parked children; whole conversations are in tests/scripts/test_intercom_reads.py."""

import pytest

from tests.unit.engine.brokering.kit import letter, seated, session, turn
from tieline.engine.brokering.contract import Lineage, WakeFailed, WakeTold, WakeWanted
from tieline.engine.brokering.features import Features
from tieline.engine.brokering.mailbox import Mailbox
from tieline.engine.brokering.waking import Wakes
from tieline.wire.intercom.saying import FrameCodec

ABLE = Features(needs_plain=True, wake_outcomes=True)
KID = Lineage("r", "r")


class House:
    """A main, a sibling, a parked child with an ask that waits."""

    def __init__(self) -> None:
        self.main = session("main", 1, ABLE, Lineage("r"))
        self.sibling = session("sib", 2, ABLE, KID)
        self.sessions = seated(self.main, self.sibling, session("other", 3, ABLE, Lineage("q")))
        self.mailbox = Mailbox(FrameCodec())
        self.mailbox.left(session("kid", 4, ABLE, KID), turn(), is_parked=True)
        child = self.mailbox.absent("kid")
        assert child is not None
        self.child = child
        self.mailbox.hold(child, self.sibling.row(), letter("q", is_ask=True), turn())
        self.wakes = Wakes()

    def told(self, link_owner: object, *, is_ok: bool = False) -> list[object]:
        made = turn()
        assert link_owner in (self.main, self.sibling)
        owner = self.main if link_owner is self.main else self.sibling
        self.wakes.told(self.sessions, self.mailbox, owner, WakeTold(owner.link, "t", is_ok, "why"), made)
        return list(made.outputs)


@pytest.mark.clause("intercom-104")
def test_failed_wake_is_told_to_the_waiting_ask_once() -> None:
    """Only the main that was asked can say so, and a success tells nothing."""
    house = House()
    made = turn()
    house.wakes.ask(house.sessions, house.child, "q", "t", made)
    assert made.outputs == [(1, WakeWanted("t", "kid", "q"))]
    assert house.told(house.sibling) == []
    assert house.told(house.main) == [(2, WakeFailed("q", "why"))]
    assert house.told(house.main) == []
    house.wakes.ask(house.sessions, house.child, "q", "t", turn())
    assert house.told(house.main, is_ok=True) == []
    assert len(house.wakes) == 0


@pytest.mark.clause("intercom-131")
def test_returning_main_is_asked_for_each_child_with_active_mail() -> None:
    """Passive mail alone asks for no wake; a stranger is not asked."""
    house = House()
    made = turn()
    house.wakes.main_is_back(house.mailbox, house.main, "t", made)
    assert made.outputs == [(1, WakeWanted("t-0", "kid", "q"))]
    assert len(house.wakes) == 1
    stranger = house.sessions.of_id("other")
    assert stranger is not None
    made = turn()
    house.wakes.main_is_back(house.mailbox, stranger, "t", made)
    house.wakes.main_is_back(house.mailbox, house.sibling, "t", made)
    assert made.outputs == []
    house.mailbox.withdraw("sib", "q", turn())
    house.mailbox.hold(house.child, house.sibling.row(), letter("p", is_passive=True), turn())
    house.wakes.main_is_back(house.mailbox, house.main, "t", made)
    assert made.outputs == []


def test_wakes_end_with_the_child_or_the_main() -> None:
    """A child that is back needs none; a main that left is asked anew when it returns."""
    house = House()
    house.wakes.link_lost(1)
    house.wakes.ask(house.sessions, house.child, "q", "t", turn())
    house.wakes.child_is_back("kid")
    assert len(house.wakes) == 0
    house.wakes.ask(house.sessions, house.child, "q", "t", turn())
    house.wakes.link_lost(1)
    assert len(house.wakes) == 0
    house.sessions.remove(house.main)
    made = turn()
    house.wakes.ask(house.sessions, house.child, "q", "t", made)
    assert made.outputs == []
