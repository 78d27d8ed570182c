"""`coordinate_resource` and the other operations on shared resources: what they take.

Rule 1: each operation takes its own fields and no others; text in a field gives no authority.
Rule 2: nothing of the coordination is loaded before somebody asks for it: most roots never do.

Source: reference/native.md 136, 2.13, 2.15; specification, "Model tools".
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from tieline.errors import Refused
from tieline.runtime.calls import Actor, Params, Reply

if TYPE_CHECKING:
    from tieline.runtime.node import Node

__all__ = ["FIELDS", "TABLE"]

FIELDS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "status": (frozenset({"resource"}), frozenset()),
    "request": (frozenset({"resource", "reason"}), frozenset({"request_id"})),
    "grant": (frozenset({"request_id"}), frozenset({"epoch"})),
    "release": (frozenset({"request_id"}), frozenset()),
    "cancel_request": (frozenset({"request_id"}), frozenset()),
    "set_controller": (
        frozenset({"resource", "controller", "participants", "profile"}),
        frozenset({"epoch"}),
    ),
}
"""Each operation's required and optional fields. Source: reference/native.md 2.13."""
_WIRE_NAMES = {"request_id": "requestId"}


class CoordinateResource(Params, frozen=True):
    """`coordinate_resource`."""

    operation: Literal["status", "request", "grant", "release", "cancel_request", "set_controller"]
    resource: str | None = None
    reason: str | None = None
    request_id: str | None = None
    epoch: int | None = None
    controller: str | None = None
    participants: tuple[str, ...] | None = None
    profile: Literal["build", "strict"] | None = None
    run: str | None = None

    def check(self) -> None:
        """Refuse a field that is missing, or that this operation does not take.

        Raises:
            Refused: INVALID_PARAMS, naming the field.
        """
        required, optional = FIELDS[self.operation]
        for name in ("resource", "reason", "request_id", "epoch", "controller", "participants", "profile"):
            shown = _WIRE_NAMES.get(name, name)
            is_given = getattr(self, name) is not None
            if is_given and name not in required | optional:
                raise Refused("INVALID_PARAMS", f"{self.operation} takes no {shown}")
            if not is_given and name in required:
                raise Refused("INVALID_PARAMS", f"{self.operation} needs {shown}")
        if self.epoch is not None and self.epoch < 0:
            raise Refused("INVALID_PARAMS", "epoch is a whole number from 0")


class ListResources(Params, frozen=True):
    """`resource.list`."""

    run: str | None = None


class SetResourcePolicy(Params, frozen=True):
    """`resource.policy`: what a person may say of a resource beyond `set_controller`."""

    resource: str
    is_open: bool = False
    unenrol: tuple[str, ...] = ()
    enrol: tuple[str, ...] = ()
    controller: str | None = None
    participants: tuple[str, ...] | None = None
    profile: Literal["build", "strict"] | None = None
    epoch: int | None = None
    is_takeover: bool = False
    is_auto_grant: bool = False
    run: str | None = None


class Command(Params, frozen=True):
    """`resource.requirements`: a command as a host is about to start it."""

    command: tuple[str, ...]
    cwd: str


class ClaimLaunch(Params, frozen=True):
    """`resource.claim`."""

    launch_id: str
    command: tuple[str, ...]
    cwd: str
    resources: tuple[str, ...] | None = None
    reason: str | None = None
    request_id: str | None = None


class WaitForGrant(Params, frozen=True):
    """`resource.wait`."""

    launch_id: str
    wait_ms: int = 30_000


class BeforeSpawn(Params, frozen=True):
    """`resource.beforeSpawn`: the command once more, as it is about to be started."""

    launch_id: str
    command: tuple[str, ...]
    cwd: str


class OfLaunch(Params, frozen=True):
    """What names a launch and nothing else."""

    launch_id: str


class RecordSpawn(Params, frozen=True):
    """`resource.recordSpawn`: the first process of the command, which leads its own group."""

    launch_id: str
    pid: int


async def _coordinate(node: "Node", actor: Actor, asked: CoordinateResource, _call: str | None) -> Reply:
    asked.check()
    return await _acting().coordinate(node, actor, asked)  # type: ignore[no-any-return]  # loaded late


async def _list(node: "Node", actor: Actor, asked: ListResources, _call: str | None) -> Reply:
    return await _acting().list_all(node, actor, asked)  # type: ignore[no-any-return]  # loaded late


async def _policy(node: "Node", actor: Actor, asked: SetResourcePolicy, _call: str | None) -> Reply:
    return await _acting().policy(node, actor, asked)  # type: ignore[no-any-return]  # loaded late


def _acting() -> Any:
    return import_module("tieline.runtime.resources.acting")


def _launching(name: str) -> Any:
    async def handle(node: "Node", actor: Actor, asked: Any, _call: str | None) -> Reply:
        module = import_module("tieline.runtime.resources.hosted")
        return await getattr(module, name)(node, actor, asked)  # type: ignore[no-any-return]  # loaded late

    return handle


TABLE: dict[str, Any] = {
    "coordinate_resource": (CoordinateResource, _coordinate),
    "resource.list": (ListResources, _list),
    "resource.policy": (SetResourcePolicy, _policy),
    "resource.requirements": (Command, _launching("requirements")),
    "resource.claim": (ClaimLaunch, _launching("claim")),
    "resource.wait": (WaitForGrant, _launching("wait")),
    "resource.beforeSpawn": (BeforeSpawn, _launching("before_spawn")),
    "resource.beginLaunch": (OfLaunch, _launching("begin_launch")),
    "resource.recordSpawn": (RecordSpawn, _launching("record_spawn")),
    "resource.publishLaunch": (OfLaunch, _launching("publish_launch")),
    "resource.complete": (OfLaunch, _launching("complete")),
    "resource.finishLaunch": (OfLaunch, _launching("finish_launch")),
    "resource.failed": (OfLaunch, _launching("failed")),
}
