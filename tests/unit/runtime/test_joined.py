"""A root of another process, joined over its control endpoint."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tieline import Root
from tieline.errors import Refused
from tieline.runtime.joined import JoinedRoot, join

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def pair(private_home: Path) -> AsyncIterator[tuple[Root, Root, JoinedRoot]]:
    """Give a root, its neighbour, and the root as another process has it."""
    home, work = str(private_home / "t"), str(private_home)
    async with (
        Root.open(home=home, workspace=work, alias="own") as root,
        Root.open(home=home, workspace=work, alias="other") as other,
    ):
        yield root, other, await join(root.who()["control"])


async def test_call_is_the_roots_own_and_a_repeated_one_sends_once(
    pair: tuple[Root, Root, JoinedRoot],
) -> None:
    """The receiver sees the root; the same id of a call is the same message."""
    root, other, joined = pair
    sent = {"to": other.who()["peerId"], "content": "hello"}
    operations = joined.operations
    first, again = [
        await operations.call(operations.root_actor, "send_peer_message", sent, call_id="c-1")
        for _ in range(2)
    ]
    assert first.result["messageId"] == again.result["messageId"]
    (message,) = await other.inbox(wait_s=5)
    assert message.sender == root.who()["peerId"]


async def test_mail_is_consumed_when_the_reader_of_this_process_took_it(
    pair: tuple[Root, Root, JoinedRoot],
) -> None:
    """Given back it is there again; taken it is gone."""
    root, other, joined = pair
    await other.send(root.who()["peerId"], "for the model")
    operations = joined.operations
    for settle, count in ((operations.unflushed, 1), (operations.flushed, 1)):
        reply = await operations.call(operations.root_actor, "peer_messages", {"waitMs": 2_000})
        assert len(reply.result["messages"]) == 1
        assert "settle" not in reply.result
        assert reply.taken is not None
        assert await settle(reply.taken) == count
        assert await settle(reply.taken) == 0
    assert (await operations.call(operations.root_actor, "peer_messages", {})).result["messages"] == []


async def test_refusal_is_the_roots_own_and_an_ended_root_is_said(
    pair: tuple[Root, Root, JoinedRoot],
) -> None:
    """Nothing is taken either way."""
    root, _other, joined = pair
    operations = joined.operations
    with pytest.raises(Refused) as refused:
        await operations.call(operations.root_actor, "send_peer_message", {"to": "nobody", "content": "x"})
    assert refused.value.code == "UNKNOWN_TARGET"
    path = root.who()["control"]
    await root.close()
    with pytest.raises(Refused) as ended:
        await join(path)
    assert ended.value.code == "NO_ROOT"


async def test_life_of_the_root_is_the_hosts_affair(pair: tuple[Root, Root, JoinedRoot]) -> None:
    """A door that closes what it joined ends nothing."""
    root, other, joined = pair
    await joined.publish("s")
    joined.push_by(None)
    joined.hook_by(None)
    assert joined.who() == {}
    await joined.close()
    assert not joined.shutdown.is_set()
    assert (await other.send(root.who()["peerId"], "still there"))["state"] == "accepted"
