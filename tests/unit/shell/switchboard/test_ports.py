"""The values that a switchboard is told."""

import msgspec
import pytest

from tests.unit.shell.switchboard.kit import FakeLine, World
from tieline.engine.contract import Standing
from tieline.shell.switchboard import Far, Line
from tieline.wire.native.protocol import Advertised


def test_far_end_of_presence_cannot_be_changed() -> None:
    """What presence said is a value: it is read again, never edited."""
    far = Far(Advertised("far-1", "key"), "/run/far-1.sock", 7, Standing(frozenset(), is_in_scope=True))
    with pytest.raises(AttributeError):
        far.pid = 8  # type: ignore[misc]
    assert msgspec.structs.replace(far, pid=8).pid == 8


def test_line_of_a_test_fits_the_port() -> None:
    """The fakes of these tests are what the ports ask for."""
    line: Line = FakeLine(1)
    line.write(b"x")
    line.pause(is_paused=True)
    line.close()
    assert World().lookup("nobody", is_fresh=True) is None
