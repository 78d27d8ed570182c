"""The public names as a caller types them: all of this passes `mypy --strict`."""

from typing import Any, assert_type

import tieline
from tieline import (
    Attachment,
    Capability,
    Delivery,
    Durability,
    Message,
    OutcomeUnknown,
    Peer,
    ProtocolError,
    Receipt,
    RecoveryRequired,
    Refused,
    Root,
    Scope,
    State,
    TielineError,
    UsageError,
)

assert_type(tieline.__version__, str)


async def root() -> None:
    """Open, send, ask, read, close."""
    assert_type(await Root.open(), Root)
    async with await Root.open(alias="reviewer") as awaited:
        assert_type(awaited, Root)
    async with Root.open(alias="reviewer", scope="machine") as opened:
        assert_type(opened, Root)
        assert_type(await opened.peers(query="build"), list[dict[str, Any]])
        assert_type(await opened.send("builder", "ready", topic="build", wait_s=1.5), dict[str, Any])
        assert_type(await opened.ask("builder", "passed?", timeout_s=60), Message | None)
        assert_type(await opened.inbox(consume=True, wait_s=2), list[Message])
        assert_type(await opened.reply("m-1", "yes"), dict[str, Any])
        assert_type((await opened.recover("instance")).message_count, int)
        assert_type(opened.who(), dict[str, Any])


async def answered(opened: Root) -> str:
    """A reply may be absent: a caller looks before it reads."""
    reply = await opened.ask("builder", "passed?")
    if reply is None:
        return "no answer"
    assert_type(reply.sender, str)
    assert_type(reply.topic, str | None)
    assert_type(reply.sequence, int)
    return reply.content


def next_step(error: TielineError) -> str:
    """Every branch of the error tree is one of its base, with a code and a next action."""
    match error:
        case Refused():
            assert_type(error.is_retryable, bool)
            return error.code
        case OutcomeUnknown():
            return str(error.message_id)
        case UsageError() | ProtocolError() | RecoveryRequired():
            return error.action
        case _:
            return error.code


def values(receipt: Receipt) -> tuple[State, Durability | None]:
    """The values of the model are what they say."""
    assert_type(Peer("instance", "run").id, str)
    assert_type(Peer("instance").run, str | None)
    assert_type(Attachment("name", "text").media_type, str)
    assert_type(Scope.WORKSPACE.rank, int)
    members: tuple[str, str] = (Capability.SEND, Delivery.QUEUE)
    assert members
    return receipt.state, receipt.durability
