"""A root of one's own: the Python API, and how a door opens one.

    async with Root.open(alias="reviewer") as root:
        receipt = await root.send("builder", "The build is ready for review.")
        answer = await root.ask("builder", "Did the tests pass?", timeout_s=60)

Rule 1: every call goes through the operations that all doors share.
Rule 2: a program's own root is a person's act: the specification's rate alone binds it.

Source: DESIGN.md 3, 4.
"""

import asyncio
from collections.abc import Coroutine, Generator, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import msgspec

from tieline.engine.contract import Act
from tieline.errors import Refused
from tieline.model.identity import Peer
from tieline.runtime.calls import Actor
from tieline.runtime.hooked import HookDoor
from tieline.runtime.ladder import Flags, PushDoor
from tieline.runtime.node import Node
from tieline.runtime.operations import Operations
from tieline.runtime.options import RootOptions
from tieline.store import recovery

__all__ = ["Message", "Root", "RootOptions", "open_root"]


class Message(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A received message. `sender` is the authenticated peer id; `content` is external text."""

    message_id: str
    sender: str = msgspec.field(name="from")
    to: str
    content: str
    sequence: int
    state: str
    received_at: str
    expires_at: str | None = None  # None: kept until it is consumed
    from_alias: str = ""
    from_project: str = ""
    topic: str | None = None
    reply_to: str | None = None
    correlation_id: str | None = None
    thread: str | None = None
    delivery: str = "steer"
    ask: bool = False
    automatic_depth: int = 0
    exposure_count: int = 0


async def open_root(options: RootOptions) -> "Root":
    """Open a root for a door.

    Raises:
        UsageError: a setting is wrong.
        Refused: COMMUNICATION_DISABLED, UNSAFE_ENDPOINT, UNSUPPORTED_PLATFORM, PERMISSION_DENIED.
    """
    return Root(await Node.open(options))


class Root:
    """One running root. Use `async with Root.open(...) as root`, or await it and close it."""

    def __init__(self, node: Node) -> None:
        self.node = node

    @classmethod
    def open(
        cls,
        *,
        alias: str = "",
        home: str = "",
        coordination_directory: str = "",
        workspace: str = "",
        session: str = "",
        scope: str = "",
        harness: str = "python",
        model: str = "",
    ) -> "Opening[Self]":
        """Return a root that listens and is published, to `await` or to use by `async with`, which closes it.

        Args:
            alias: Readable name, a letter then letters, digits, `_`, `-`; generated when empty.
            home: Private directory; empty for `TIELINE_HOME` or `~/.tieline`.
            coordination_directory: What roots share; empty for as configured.
            workspace: Where this program works; empty for the current directory.
            session: Id of a saved conversation; empty for none.
            scope: `workspace`, `repository` or `machine`; empty for as configured.
            harness: What the listing calls this program.
            model: The model's name, when there is one.

        Raises:
            UsageError: a setting is wrong.
            Refused: COMMUNICATION_DISABLED, UNSAFE_ENDPOINT, UNSUPPORTED_PLATFORM, PERMISSION_DENIED.
        """
        options = RootOptions(
            home=home, coordination=coordination_directory, workspace=workspace, session=session, alias=alias,
            scope=scope, harness=harness, model=model, mode="rpc",
        )  # fmt: skip
        return Opening(cls._opened(options))

    @classmethod
    async def _opened(cls, options: RootOptions) -> Self:
        return cls(await Node.open(options))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End in order; what was admitted is joined first."""
        await self.node.close()

    # ------------------------------------------------------------ for doors

    @property
    def operations(self) -> Operations:
        """The table of operations."""
        return self.node.operations

    def who(self) -> dict[str, Any]:
        """Return who this root is and where its things are."""
        return self.node.who()

    def push_by(self, door: PushDoor | None, *, wakes_only: bool = False) -> None:
        """Push mail into the host's session through `door` from now on, where that is allowed.

        With `wakes_only` it is for an idle session alone; None takes the door away.
        """
        self.node.ladder.climb(door, wakes_only=wakes_only)

    @property
    def is_automatic(self) -> bool:
        """Whether mail may wake an idle session."""
        return self.node.host.is_automatic

    def hook_by(self, door: HookDoor) -> Flags:
        """Serve the commands of the host's hooks by `door`; return the files that tell them of mail."""
        self.node.host.hooks = door
        return Flags(self.node)

    async def publish(self, session: str | None = None) -> None:
        """Let others see this root, under the session that the host named."""
        await self.node.publish(session)

    @property
    def shutdown(self) -> asyncio.Event:
        """Set when the host asked this root to end."""
        return self.node.shutdown

    # ------------------------------------------------------------ for programs

    async def _call(self, method: str, **params: object) -> dict[str, Any]:
        actor = Actor(Peer(self.node.instance), Act.PERSON, "python", is_host=True)
        given = {name: value for name, value in params.items() if value is not None}
        reply = await self.operations.call(actor, method, given)
        if reply.taken is not None:
            await self.operations.flushed(reply.taken)
        return reply.result

    async def peers(self, *, scope: str | None = None, query: str = "") -> list[dict[str, Any]]:
        """Return everybody in scope: descriptors as docs/json-shapes.md says.

        Raises:
            Refused: SCOPE_DENIED when `scope` is wider than this root's own.
        """
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            page = await self._call("list_peers", scope=scope, query=query, cursor=cursor)
            found.extend(page["peers"])
            cursor = page.get("cursor")
            if cursor is None:
                return found

    async def send(
        self,
        to: str,
        content: str,
        *,
        topic: str | None = None,
        reply_to: str | None = None,
        delivery: str | None = None,
        thread: str | None = None,
        message_id: str | None = None,
        expiry_s: float | None = None,
        wait_s: float = 3.0,
    ) -> dict[str, Any]:
        """Send one message and return its receipt (docs/json-shapes.md), waiting up to `wait_s` seconds.

        The state is then what is known: accepted or better, or pending or unknown, which are retried.

        Raises:
            Refused: nothing was taken; `code` says what would help.
            RecoveryRequired: the store of this root is in doubt; the same `message_id` may be sent later.
        """
        result = await self._call(
            "local.send",
            to=to,
            content=content,
            topic=topic,
            replyTo=reply_to,
            delivery=delivery,
            thread=thread,
            messageId=message_id,
            waitMs=_ms(wait_s),
            expiryMs=None if expiry_s is None else _ms(expiry_s),
        )
        return _one(result)

    async def ask(
        self, to: str, content: str, *, topic: str | None = None, timeout_s: float = 600.0
    ) -> Message | None:
        """Send a question and return its correlated reply, or None when none came in `timeout_s` seconds.

        Raises:
            Refused: the question was refused.
            OutcomeUnknown: it expired unread.
        """
        result = await self._call("local.ask", to=to, content=content, topic=topic, timeoutMs=_ms(timeout_s))
        if result["reply"] is None:
            return None
        if result["token"] is not None:
            await self._call("host.taken", token=result["token"])
        return msgspec.convert(result["reply"], Message)

    async def reply(self, message_id: str, content: str, *, wait_s: float = 3.0) -> dict[str, Any]:
        """Answer a received message; returns the reply's receipt.

        Raises:
            Refused: INVALID_REPLY when no received message has this id; else as `send`.
        """
        result = await self._call("local.reply", messageId=message_id, content=content, waitMs=_ms(wait_s))
        return _one(result)

    async def inbox(self, *, wait_s: float = 0.0, consume: bool = False, asks: bool = False) -> list[Message]:
        """Return all unread mail, oldest first; `consume` marks it consumed. A preview consumes nothing."""
        found: list[Message] = []
        after, wait_ms = None, _ms(wait_s)
        while True:
            result = await self._call("local.inbox", waitMs=wait_ms, consume=consume, asks=asks, after=after)
            if result["token"] is not None:
                await self._call("host.taken", token=result["token"])
            found += [msgspec.convert(item, Message) for item in result["messages"]]
            if not result["remaining"] or not result["messages"]:
                return found
            after, wait_ms = result["cursor"], 0

    async def last(self, to: str, *, entry: str | None = None, offset: int = 0) -> dict[str, Any]:
        """Return a page of the peer's last finished answer, without waking it.

        Its `entry` is None where there is no answer yet.
        """
        return await self._call("local.last", to=to, entry=entry, offset=offset)

    async def status(self, message_id: str) -> dict[str, Any]:
        """Return all that this root knows of a message id, with its history.

        Raises:
            Refused: UNKNOWN_TARGET when it knows nothing of it.
        """
        return await self._call("local.status", messageId=message_id)

    async def waits(self) -> dict[str, Any]:
        """Return who waits for whom, as far as this root knows, and the rings of it (docs/json-shapes.md)."""
        return await self._call("local.waits")

    async def recover(self, instance: str, *, session: str | None = None) -> recovery.Recovered:
        """Return an ended instance's unread mail and unsettled sends for review; nothing is moved.

        Raises:
            Refused: STILL_ALIVE while that instance runs; SCOPE_DENIED for another saved session.
            RecoveryRequired: its store is damaged; the bytes are kept.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            None, lambda: recovery.recover(self.node.places.home, instance, session=session)
        )


_Opened = TypeVar("_Opened", bound=Root)


class Opening(Coroutine[Any, Any, _Opened], Generic[_Opened]):
    """A root that is being opened: awaited it is the root, entered it is closed at the end of the block."""

    def __init__(self, opening: Coroutine[Any, Any, _Opened]) -> None:
        self._opening = opening

    def __await__(self) -> Generator[Any, Any, _Opened]:
        return self._opening.__await__()

    def send(self, value: Any) -> Any:
        """Go on, as a coroutine does."""
        return self._opening.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise inside, as a coroutine does."""
        return self._opening.throw(*error)

    def close(self) -> None:
        """Give it up, as a coroutine does."""
        self._opening.close()

    async def __aenter__(self) -> _Opened:
        self._root = await self._opening
        return self._root

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._root.close()


def _one(result: dict[str, Any]) -> dict[str, Any]:
    """Return the one receipt, or raise the one error."""
    errors: Sequence[dict[str, Any]] = result["errors"]
    if errors:
        raise Refused(errors[0]["code"], errors[0]["text"], is_retryable=errors[0]["retryable"])
    receipt: dict[str, Any] = result["receipts"][0]
    return receipt


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
