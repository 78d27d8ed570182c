"""Two hosts that share nothing but the intercom: roots in processes, and the broker that they start.

Source: DESIGN.md 1, 2; reference/intercom.md 4, 6.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.system.kit.attached import Attached, refusal_code
from tieline.store import recovery

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def sessions(home: Path, *names: str) -> AsyncIterator[list[Attached]]:
    """Give roots with a home each, started at once: the broker is nobody's yet."""
    (home / "w").mkdir()
    shared = {"TIELINE_INTERCOM_ENABLED": "true", "PI_INTERCOM_RUNTIME_DIR": str(home / "i")}

    async def one(name: str) -> Attached:
        (home / name).mkdir(mode=0o700)
        words = ("--workspace", str(home / "w"), "--session", "s-" + name)
        return await Attached.start(home / name, name, *words, **shared)

    made = await asyncio.gather(*map(one, names))
    try:
        yield list(made)
    finally:
        for root in made:
            await root.discard()


async def tool(root: Attached, action: str, **fields: Any) -> dict[str, Any]:
    """Return what the tool answers."""
    return await root.call("intercom", action=action, **fields)


async def listed(root: Attached, name: str) -> dict[str, Any]:
    """Return the listed session of that name, once it is there."""
    async with asyncio.timeout(20):
        while True:
            found = [one for one in (await tool(root, "list")).get("sessions", []) if one["name"] == name]
            if found:
                row: dict[str, Any] = found[0]
                return row
            await asyncio.sleep(0.1)


def broker_of(home: Path) -> int:
    """Return the process of the broker."""
    return int((home / "i" / "broker.pid").read_text().splitlines()[0])


@pytest.mark.clause("intercom-126", "intercom-129")
async def test_roots_start_one_broker_talk_and_find_each_other_after_it_was_killed(
    private_home: Path,
) -> None:
    """One owner, whoever starts it; a question is answered; after `kill -9` a new one serves the same ids."""
    async with sessions(private_home, "alice", "bob") as (alice, bob):
        row = await listed(alice, "bob")
        first = broker_of(private_home)
        await listed(bob, "alice")
        assert broker_of(private_home) == first
        name = await alice.say("intercom", action="ask", to="bob", message="which?")
        (asked,) = (await bob.call("peer_messages", waitMs=10_000))["messages"]
        await tool(bob, "reply", message="this", replyTo=asked["messageId"])
        answered = (await alice.answer(name))["result"]
        assert (answered["status"], answered["reply"]["content"]) == ("answered", "this")
        os.kill(first, signal.SIGKILL)
        async with asyncio.timeout(5):  # what is written into a connection that just died stays unknown
            while (await alice.call("intercom.context", version=1))["connected"]:  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.01)
        sent = await alice.call("send_peer_message", to=row["peerId"], content="over the gap")
        assert sent.get("state") in ("pending", "accepted") or sent.get("outcome") == "BROKER_ACCEPTED", sent
        again = await listed(alice, "bob")
        assert again["sessionId"] == row["sessionId"]
        assert broker_of(private_home) != first
        found = await bob.call("peer_messages", waitMs=20_000)
        assert [one["content"] for one in found["messages"]] == ["over the gap"]
        await alice.leave()
        await bob.leave()


async def test_root_that_is_killed_is_gone_and_its_mail_is_kept(private_home: Path) -> None:
    """A session that died is told as left; what it accepted was on its disk, what it never got is refused."""
    async with sessions(private_home, "alice", "bob") as (alice, bob):
        row = await listed(alice, "bob")
        sent = await tool(alice, "send", to="bob", message="kept")
        assert sent["receipt"]["state"] == "accepted"
        await bob.end(signal.SIGKILL)
        async with asyncio.timeout(10):
            while (await tool(alice, "list"))["sessions"]:  # noqa: ASYNC110 - nothing but a look tells it
                await asyncio.sleep(0.05)
        late = await tool(alice, "send", to=row["sessionId"], message="too late")
        assert refusal_code(late) == "UNKNOWN_TARGET"


@pytest.mark.clause("O10")
async def test_mail_of_a_session_that_ended_goes_to_no_namesake(private_home: Path) -> None:
    """Three unread at the first "worker": another, in whatever spelling of its folder, gets none."""
    async with sessions(private_home, "alice", "worker") as (alice, worker):
        row = await listed(alice, "worker")
        for number in range(3):
            sent = await tool(alice, "send", to=row["sessionId"], message=f"for the first {number}")
            assert sent["accepted"], sent
        async with asyncio.timeout(20):  # the broker's yes says nothing of the recipient's disk
            while len((await worker.call("local.inbox"))["messages"]) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await worker.end(signal.SIGKILL)
        left = recovery.recover(str(private_home / "worker"), worker.who["instanceId"])
        assert len(left.unread) == 3
        (private_home / "other").mkdir()
        (private_home / "link").symlink_to(private_home / "w")
        shared = {"TIELINE_INTERCOM_ENABLED": "true", "PI_INTERCOM_RUNTIME_DIR": str(private_home / "i")}
        for count, folder in enumerate(("other", "link", "w/")):
            words = ("--workspace", f"{private_home}/{folder}", "--session", f"s-later-{count}")
            (private_home / f"later-{count}").mkdir(mode=0o700)
            later = await Attached.start(private_home / f"later-{count}", "worker", *words, **shared)
            try:
                async with asyncio.timeout(20):
                    while (await listed(alice, "worker"))["sessionId"] == row["sessionId"]:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
                assert (await later.call("peer_messages", waitMs=300))["messages"] == []
                gone = await tool(alice, "send", to=row["sessionId"], message="for the first still")
                assert refusal_code(gone) == "UNKNOWN_TARGET"
                assert (await later.call("peer_messages", waitMs=300))["messages"] == []
            finally:
                await later.end(signal.SIGKILL)
        await alice.leave()


@pytest.mark.clause("O27")
async def test_broker_that_stood_still_is_told_and_registers_nobody_twice(private_home: Path) -> None:
    """Stopped, it answers no list, which is said; no message is called delivered; then all goes on."""
    async with sessions(private_home, "alice", "bob") as (alice, bob):
        row = await listed(alice, "bob")
        broker = broker_of(private_home)
        os.kill(broker, signal.SIGSTOP)
        try:
            stale = await tool(alice, "list")
            assert "has not answered yet" in stale["text"], stale
            sent = await alice.call("send_peer_message", to=row["peerId"], content="while it stood")
            assert sent.get("state") in ("pending", "unknown"), sent
        finally:
            os.kill(broker, signal.SIGCONT)
        found = await bob.call("peer_messages", waitMs=20_000)
        assert [one["content"] for one in found["messages"]] == ["while it stood"]
        assert (await listed(alice, "bob"))["sessionId"] == row["sessionId"]
        assert [one["name"] for one in (await tool(alice, "list"))["sessions"]] == ["bob"]
        assert [one["name"] for one in (await tool(bob, "list"))["sessions"]] == ["alice"]
        assert broker_of(private_home) == broker
        await alice.leave()
        await bob.leave()
