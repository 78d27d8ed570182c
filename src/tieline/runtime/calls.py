"""Who calls an operation, and what comes back.

Source: DESIGN.md 2, 3 "Automatic or a person's".
"""

from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from tieline.config import Scope
from tieline.engine.contract import Act
from tieline.model.identity import Peer

__all__ = ["Actor", "Params", "Reach", "Reply"]


class Reach(StrEnum):
    """How far a call looks: a scope, or all: the own scope and, on wires with projects, each of them."""

    WORKSPACE = "workspace"
    REPOSITORY = "repository"
    MACHINE = "machine"
    ALL = "all"

    @property
    def scope(self) -> Scope | None:
        """The scope that is asked for; None is the caller's own."""
        return None if self is Reach.ALL else Scope(self.value)


class Actor(NamedTuple):
    """Who acts: an exact local peer, why, and through which door."""

    peer: Peer
    act: Act
    door: str  # "mcp", "attach", "control" or "python"
    is_host: bool = False  # the host itself: it may name any of its runs
    is_in_tree: bool = False  # a process below the host: it needs a run's token while runs are live


class Reply(NamedTuple):
    """The result, and the token whose mail is consumed once the result was flushed."""

    result: dict[str, Any]
    taken: str | None = None


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """The base of all params: closed, camel case."""
