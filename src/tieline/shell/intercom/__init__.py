"""The intercom post of one root: its connections to brokers, and what the engine orders over them."""

from tieline.shell.intercom.member import Member
from tieline.shell.intercom.ports import Line, Registration, World
from tieline.shell.intercom.post import FIRST_LINK, Post

__all__ = ["FIRST_LINK", "Line", "Member", "Post", "Registration", "World"]
