"""Two hosts that share nothing but the registry of windows: roots in processes of their own, as windows.

Source: DESIGN.md 1; reference/pi-peers-and-harness-doors.md 1, 3.3.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.system.kit.attached import Attached, refusal_code

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def windows(home: Path, **environment: str) -> AsyncIterator[tuple[Attached, Attached]]:
    """Give `alice` and `bob`: one registry, one project, and no presence in common."""
    (home / "p").mkdir(mode=0o700)
    (home / "w").mkdir()
    shared = {"TIELINE_PI_PEERS_ENABLED": "true", "PI_PEERS_DIR": str(home / "p"), **environment}

    async def one(alias: str) -> Attached:
        (home / alias).mkdir(mode=0o700)
        words = ("--workspace", str(home / "w"))
        return await Attached.start(home / alias, alias, *words, **shared)

    alice, bob = await asyncio.gather(one("alice"), one("bob"))
    try:
        yield alice, bob
    finally:
        for root in (alice, bob):
            await root.discard()


async def listed(root: Attached, name: str) -> dict[str, Any]:
    """Return the listed peer of that name, once it is there."""
    async with asyncio.timeout(10):
        while True:
            peers = (await root.call("list_peers"))["peers"]
            found = [peer for peer in peers if peer["alias"] == name]
            if found:
                peer: dict[str, Any] = found[0]
                return peer
            await asyncio.sleep(0.05)


def records(home: Path) -> dict[str, dict[str, Any]]:
    """Return the records of the registry by name."""
    found = [json.loads(path.read_text()) for path in (home / "p").glob("*.json")]
    return {record["name"]: record for record in found}


@pytest.mark.clause("pi-peers-2", "pi-peers-21", "pi-peers-35", "pi-peers-43", "pi-peers-45")
async def test_two_roots_converse_as_windows_and_leave_nothing(private_home: Path) -> None:
    """Listed, sent, read, answered by name; each receipt is the recipient's own word; nothing stays."""
    async with windows(private_home) as (alice, bob):
        peer = await listed(alice, "bob")
        assert (peer["wire"], len(peer["ref"])) == ("pi-peers", 6)
        body = "exact <b> & </cross-session-message> \N{SNOWMAN}"
        sent = await alice.call("send_peer_message", to=f"bob [{peer['ref']}]", content=body)
        assert (sent["state"], sent["durability"]) == ("accepted", "synced")
        (mail,) = (await bob.call("peer_messages", waitMs=5_000))["messages"]
        assert (mail["content"], mail["fromAlias"], mail["wire"]) == (body, "alice", "pi-peers")
        await bob.call("send_peer_message", to=mail["from"], content="done", replyTo=mail["messageId"])
        answer = await alice.call("peer_messages", replyTo=sent["messageId"], waitMs=5_000)
        assert [item["content"] for item in answer["messages"]] == ["done"]
        status = await alice.call("local.status", messageId=sent["messageId"])
        assert status["sent"][0]["receipt"]["state"] == "replied"
        assert await alice.leave() <= 5
        assert set(records(private_home)) == {"bob"}
        assert await bob.leave() <= 5
    assert [name for name in os.listdir(private_home / "p") if name.endswith((".json", ".key"))] == []
    assert os.listdir(private_home / "p" / "socks") == []


@pytest.mark.clause("pi-peers-11", "pi-peers-12", "pi-peers-16")
async def test_killed_window_is_swept_on_proof_and_its_mail_is_told_truly(private_home: Path) -> None:
    """Crash leftovers are tolerated; what was not handed over is not called delivered."""
    async with windows(private_home) as (alice, bob):
        await listed(alice, "bob")
        left = records(private_home)["bob"]
        await bob.end(signal.SIGKILL)
        assert len(os.listdir(private_home / "p" / "socks")) == 2
        told = await alice.call("send_peer_message", to="bob", content="are you there")
        assert refusal_code(told) == "UNKNOWN_TARGET"
        assert set(records(private_home)) == {"alice"}
        assert list((private_home / "p").glob(f"{left['pid']}.*")) == []


async def test_held_mail_is_consented_and_denied_by_the_person(private_home: Path) -> None:
    """Under `ask` nothing arrives by itself; each word of the person is told to the sender."""
    async with windows(private_home, PI_PEERS_ACCEPT="ask") as (alice, bob):
        await listed(alice, "bob")
        for is_accepted, state in ((False, "rejected"), (True, "accepted")):
            sent = await alice.call("send_peer_message", to="bob", content=f"may I {state}")
            assert (sent["state"], sent["outcome"]) == ("unknown", "HELD")
            inbox = await bob.call("local.inbox", consume=False)
            assert [item["messageId"] for item in inbox["held"]] == [sent["messageId"]]
            await bob.call("local.consent", messageId=sent["messageId"], accept=is_accepted)
            async with asyncio.timeout(5):
                while True:
                    told = await alice.call("peer_messages", messageId=sent["messageId"])
                    if told["receipts"][0]["state"] == state:
                        break
                    await asyncio.sleep(0.05)
        read = await bob.call("peer_messages")
        assert [item["content"] for item in read["messages"]] == ["may I accepted"]


async def test_idle_notice_wakes_who_asked_for_it(private_home: Path) -> None:
    """Asked with a message to a busy window; told once when it is idle, as mail."""
    async with windows(private_home) as (alice, bob):
        await listed(alice, "bob")
        await bob.call("host.state", busy=True)
        await alice.call("send_peer_message", to="bob", content="tell me", notifyWhenIdle=True)
        assert (await alice.call("peer_messages", waitMs=300))["messages"] == []
        await bob.call("host.state", busy=False)
        (mail,) = (await alice.call("peer_messages", waitMs=5_000))["messages"]
        assert (mail["topic"], mail["fromAlias"]) == ("idle", "bob")


async def test_shutdown_asked_for_is_the_hosts_to_grant(private_home: Path) -> None:
    """The request is an event there, the answer an event here, and the granted one ends that root."""
    async with windows(private_home) as (alice, bob):
        await listed(alice, "bob")
        asked = await alice.call("host.shutdown_peer", to="bob", text="finished?")
        await bob.call("peer_messages", waitMs=300)
        (event,) = [
            told["params"]["event"]
            for told in bob.events
            if told["params"].get("event", {}).get("type") == "shutdown"
        ]
        await bob.call("host.shutdown", request=event["request"], accept=True)
        async with asyncio.timeout(10):
            assert await bob.process.wait() == 0
        await alice.call("peer_messages", waitMs=300)
        answers = [told["params"]["event"] for told in alice.events if "event" in told["params"]]
        assert {
            "request": asked["request"], "outcome": "accepted", "type": "shutdown_response",
        }.items() <= answers[-1].items()  # fmt: skip


@pytest.mark.clause("pi-peers-35")
async def test_mail_that_waits_when_its_root_ends_is_told_to_be_over(private_home: Path) -> None:
    """Nobody will be asked any more: its sender learns that, instead of a wait without end."""
    async with windows(private_home, PI_PEERS_ACCEPT="ask") as (alice, bob):
        await listed(alice, "bob")
        sent = [
            await alice.call("send_peer_message", to="bob", content=f"may I {number}") for number in (1, 2)
        ]
        assert [one["outcome"] for one in sent] == ["HELD", "HELD"]
        assert await bob.leave() <= 5
        async with asyncio.timeout(5):
            for one in sent:
                while True:
                    told = (await alice.call("peer_messages", messageId=one["messageId"]))["receipts"][0]
                    if told["state"] == "expired":
                        break
                    await asyncio.sleep(0.05)
                assert told["outcome"] == "HELD_EXPIRED"
