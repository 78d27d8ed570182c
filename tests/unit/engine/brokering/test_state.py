"""Everything that one broker knows."""

from tieline.engine.brokering.state import State
from tieline.wire.intercom.saying import FrameCodec


def test_new_broker_knows_nobody() -> None:
    """All rooms are empty and share one codec."""
    codec = FrameCodec()
    state = State(codec)
    rooms = (
        state.sessions,
        state.staging,
        state.mailbox,
        state.asks,
        state.records,
        state.reads,
        state.wakes,
    )
    assert [len(room) for room in rooms] == [0] * 7
    assert state.codec is codec
