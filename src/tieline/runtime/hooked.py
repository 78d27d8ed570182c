"""What the command of a harness's hook says to its root, and the harness's own answer.

Rule 1: the command understands neither what it hands on nor what it gets: both travel as hexadecimal digits,
which need no parser.
Rule 2: mail in an answer is given back when the command ends without saying that it wrote the answer.
Rule 3: what hooks mean is known to the door that serves the harness; here is none of that.
Rule 4: a command is judged here only for the session that is this root's. What cannot be judged is refused:
the command then judges by itself, and knows what to do where it cannot.

Source: tieline.shims.hook; DESIGN.md 3; docs/delivery.md.
"""

import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tieline.errors import Refused
from tieline.model.identity import Peer
from tieline.runtime.calls import Actor, Params, Reply
from tieline.runtime.resources.asking import Asked, asked_in, denial, reason_for

if TYPE_CHECKING:
    from tieline.runtime.node import Node

__all__ = ["TABLE", "HookAnswer", "HookDoor"]


class HookAnswer(NamedTuple):
    """What the harness is told, and the token of the mail in it; "" and "" for nothing."""

    output: str
    token: str


class HookDoor(Protocol):
    """The door of one harness, as its hooks need it."""

    async def take(self, harness: str, event: str, document: dict[str, Any], actor: Actor) -> HookAnswer:
        """Do what a hook says.

        Raises:
            Refused: CAPABILITY_DENIED, this door serves another harness.
        """

    def carried(self, token: str) -> None:
        """The harness's pipe took the answer that this token is of."""


class Hook(Params, frozen=True):
    """`host.hook`."""

    harness: str
    event: str
    input: str = ""


class Carried(Params, frozen=True):
    """`host.carried`."""

    token: str


class Judge(Params, frozen=True):
    """`host.judge`."""

    input: str


async def hook(node: "Node", actor: Actor, asked: Hook, _call: str | None) -> Reply:
    """Do what a hook says; return what its command prints."""
    door = _door(node)
    held = _document(asked.input) if asked.input else {}
    answer = await door.take(asked.harness, asked.event, held, actor)
    return Reply({"output": answer.output.encode().hex(), "token": answer.token})


async def carried(node: "Node", _actor: Actor, asked: Carried, _call: str | None) -> Reply:
    """The command wrote the answer that this token is of."""
    _door(node).carried(asked.token)
    return Reply({})


def _judged(node: "Node", command: Asked) -> str:
    """Return what the hook prints of a command; in a thread, since it reads the shared records."""
    from tieline.runtime.resources.gating import judged_by  # noqa: PLC0415 - most roots never gate

    where = node.places
    judged, holders = judged_by(command, where.home, where.coordination, Peer(node.instance))
    if not judged.keys:
        return ""
    return json.dumps(denial(reason_for(judged.reason, judged.use, holders))) + "\n"


async def judge(node: "Node", _actor: Actor, asked: Judge, _call: str | None) -> Reply:
    """Return what a hook before a shell command prints: nothing where the command may start as it is.

    Raises:
        Refused: CAPABILITY_DENIED, it is of another session, or says not where it would run.
    """
    held = _document(asked.input)
    if held.get("session_id") != node.session:
        raise Refused("CAPABILITY_DENIED", "this root is of another session")
    command, output = asked_in(held), ""
    if command is not None:
        if not command.directory:
            raise Refused("CAPABILITY_DENIED", "where the command would run is not said")
        output = await asyncio.to_thread(_judged, node, command)
    return Reply({"judged": True, "output": output.encode().hex()})


def _document(digits: str) -> dict[str, Any]:
    """Return what a harness gave its hook.

    Raises:
        Refused: INVALID_PARAMS, it is no JSON object.
    """
    try:
        held = json.loads(bytes.fromhex(digits))
    except (ValueError, RecursionError):
        held = None
    if not isinstance(held, dict):
        raise Refused("INVALID_PARAMS", "input is one JSON object in hexadecimal digits")
    return held


def _door(node: "Node") -> HookDoor:
    if node.host.hooks is None:
        raise Refused("CAPABILITY_DENIED", "no door of this root serves the hooks of a harness")
    return node.host.hooks


TABLE: dict[str, Any] = {
    "host.hook": (Hook, hook),
    "host.carried": (Carried, carried),
    "host.judge": (Judge, judge),
}
