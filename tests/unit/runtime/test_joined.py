"""A root of another process, joined over its control endpoint."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tieline import Root
from tieline.errors import Refused
from tieline.runtime import joined as subject
from tieline.runtime.joined import JoinedRoot, join, root_beside
from tieline.runtime.options import RootOptions
from tieline.runtime.root import open_root
from tieline.shell.process import identify

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


async def test_run_that_joined_acts_as_itself_and_ends_with_its_process(
    pair: tuple[Root, Root, JoinedRoot],
) -> None:
    """Who looks sees one peer with a run below it; what the run sends, and is sent, is its own."""
    root, other, _joined = pair
    run = await join(root.who()["control"], "thread-1")
    operations = run.operations
    own = (await operations.call(operations.root_actor, "list_peers", {})).result["self"]
    assert own["instanceId"] == root.who()["instanceId"]
    assert own["runId"] == "thread-1"
    sent = {"to": other.who()["peerId"], "content": "hello"}
    await operations.call(operations.root_actor, "send_peer_message", sent)
    (message,) = await other.inbox(wait_s=5)
    assert message.sender == own["peerId"]
    await other.reply(message.message_id, "for the run")
    assert await root.inbox() == []
    shown = (
        await operations.call(operations.root_actor, "host.boundary", {"kind": "tool", "run": "thread-1"})
    ).result
    assert "for the run" in shown["text"]
    assert await operations.flushed(shown["token"]) == 1
    await run.close()
    assert not root.node.host.has_runs
    await run.close()


async def test_root_beside_is_that_of_the_session_and_of_the_same_host(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sessions in one host, or one session shown by two hosts, are not taken for each other."""
    host = identify(os.getppid())
    assert host is not None
    home = str(private_home / "t")
    monkeypatch.setenv("TIELINE_HOME", home)
    options = RootOptions(home=home, workspace=str(private_home), session="s", host_pid=host.pid)
    async with await open_root(options) as root:
        own = root.who()["instanceId"]
        assert root_beside("s", "another") == root.who()["control"]
        assert root_beside("s", own) is None
        assert root_beside("s2", "another") is None
        monkeypatch.setattr(subject, "identify", lambda _pid: identify(os.getpid()))
        assert root_beside("s", "another") is None
