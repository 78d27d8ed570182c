"""The post: messages to and from windows of the pi-peers wire, one short connection each."""

from tieline.shell.peers.ports import Line, Target, World
from tieline.shell.peers.post import FIRST_LINK, Post

__all__ = ["FIRST_LINK", "Line", "Post", "Target", "World"]
