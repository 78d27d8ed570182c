"""A root among the windows of pi and oh-my-pi: its own window, those of others, and what they ask."""

from tieline.runtime.windows.surroundings import is_window_name
from tieline.runtime.windows.windows import Windows

__all__ = ["Windows", "is_window_name"]
