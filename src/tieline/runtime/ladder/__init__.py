"""By which way a message reaches the model: pushed, at a boundary of the host, or when the model asks.

Source: DESIGN.md 3 "Exposure and consumption"; docs/delivery.md.
"""

from tieline.runtime.ladder.flags import Flags
from tieline.runtime.ladder.ladder import Ladder, PushDoor

__all__ = ["Flags", "Ladder", "PushDoor"]
