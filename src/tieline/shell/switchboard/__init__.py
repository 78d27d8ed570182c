"""All native links of one root: who is connected, what is asked of whom, what they ask of us."""

from tieline.shell.switchboard.ports import Far, Line, World
from tieline.shell.switchboard.switchboard import Switchboard

__all__ = ["Far", "Line", "Switchboard", "World"]
