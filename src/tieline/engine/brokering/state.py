"""Everything that one broker knows, in its rooms.

Rule: a room knows its own rules; only `routing`, `arrival` and `hub` know more than one.

Source: reference/intercom.md 1.2 to 1.7.
"""

from tieline.engine.brokering.asks import Asks
from tieline.engine.brokering.bus import Bus
from tieline.engine.brokering.contract import Codec
from tieline.engine.brokering.mailbox import Mailbox
from tieline.engine.brokering.reads import Reads
from tieline.engine.brokering.records import Records
from tieline.engine.brokering.sessions import Sessions
from tieline.engine.brokering.staging import Staging
from tieline.engine.brokering.waking import Wakes

__all__ = ["State"]


class State:
    """The rooms of one broker."""

    __slots__ = ("asks", "bus", "codec", "mailbox", "reads", "records", "sessions", "staging", "wakes")

    def __init__(self, codec: Codec) -> None:
        """Begin with nobody."""
        self.codec = codec
        self.sessions = Sessions()
        self.staging = Staging()
        self.mailbox = Mailbox(codec)
        self.asks = Asks(codec)
        self.records = Records()
        self.bus = Bus(codec)
        self.reads = Reads()
        self.wakes = Wakes()
