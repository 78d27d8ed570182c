"""What leaves, one short connection a message."""

import itertools

import pytest

from tests.unit.shell.peers.kit import FAR, FAR_INSTANCE, FakeLine, World
from tieline.errors import Refusal
from tieline.shell.peers import Target
from tieline.shell.peers.carriage import OPEN_MAX, WAITING_MAX, Carriage
from tieline.wire.peers.frames import IdleNotice

TARGET = Target(FAR_INSTANCE, FAR, "far-token", 7)
NOTICE = IdleNotice("00000000-0000-4000-8000-000000000001", "/own", "n")


class Ends:
    """How each message ended."""

    def __init__(self) -> None:
        self.world = World()
        self.carriage = Carriage(self.world, itertools.count(1).__next__)
        self.told: list[Refusal | None] = []

    def carry(self, target: Target = TARGET) -> None:
        """Order one message."""
        self.carriage.carry(target, [NOTICE], self.told.append)


@pytest.mark.clause("S11")
def test_carriage_believes_only_the_process_of_the_record() -> None:
    """Another process at the address is not written to; where no record names one, the key decides."""
    ends = Ends()
    ends.world.far_pid = 8
    ends.carry()
    ends.world.settle()
    ((line, _),) = ends.world.dialled
    assert line.written == b""
    assert line.is_closed
    assert [told.code for told in ends.told if told] == ["AUTHENTICATION_FAILED"]
    assert ends.carriage.relays_refused == 1
    ends.carry(Target(FAR_INSTANCE, FAR, "far-token", 0))
    ends.world.settle()
    assert ends.world.dialled[1][0].frames[1]["nonce"] == "n"


def test_carriage_opens_so_many_at_once_and_the_rest_wait_their_turn() -> None:
    """A connection that ends makes room for the next, in order."""
    ends = Ends()
    for _ in range(OPEN_MAX + 2):
        ends.carry()
    ends.world.settle()
    assert len(ends.world.dialled) == OPEN_MAX
    assert ends.carriage.lost(1)
    assert len(ends.world.dialled) == OPEN_MAX + 1
    assert ends.told == [None]
    assert not ends.carriage.lost(1)


def test_carriage_with_too_many_waiting_says_so_at_once() -> None:
    """A definite, typed no; nothing of it left."""
    ends = Ends()
    for _ in range(WAITING_MAX + 1):
        ends.carry()
    ends.world.waiting[-1]()
    assert [told.code for told in ends.told if told] == ["QUEUE_FULL"]


def test_carriage_refuses_a_frame_that_fits_no_line() -> None:
    """Before anything is opened."""
    ends = Ends()
    ends.carriage.carry(TARGET, [IdleNotice(NOTICE.message_id, "/own", "n" * (1 << 20))], ends.told.append)
    ends.world.settle()
    assert ends.world.dialled == []
    assert [told.code for told in ends.told if told] == ["MESSAGE_TOO_LARGE"]


def test_carriage_closed_while_it_dials_writes_nothing() -> None:
    """A line that comes too late is closed."""
    ends = Ends()
    dials = []
    ends.world.dial = lambda target, done: dials.append(done)  # type: ignore[method-assign, assignment]
    ends.carry()
    ends.world.settle()
    ends.carriage.close()
    assert [told.code for told in ends.told if told] == ["PEER_OFFLINE"]
    line = FakeLine()
    dials[0](line, None)
    dials[0](None, None)
    assert (line.is_closed, line.written, len(ends.told)) == (True, b"", 1)
