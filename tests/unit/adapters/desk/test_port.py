"""The port of a real root."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.unit.runtime.roots import two
from tieline import Refused
from tieline.adapters.desk.port import RootPort
from tieline.runtime.timeline import TimelineQuery

pytestmark = pytest.mark.asyncio


async def test_port_asks_as_a_person_and_is_told(private_home: Path) -> None:
    """What it sends is a person's; events come from below; a read counts as taken once it is here."""
    async with two(private_home) as (alice, bob):
        port = RootPort(alice)
        told: list[str] = []
        end = port.subscribe(lambda kind, _params: told.append(kind))
        sent = await port.call("local.send", to="bob", content="go", replyTo=None)
        assert sent["receipts"][0]["state"] == "accepted"
        (mail,) = await bob.inbox()
        await bob.reply(mail.message_id, "done")
        found = (await port.call("local.conversations"))["messages"]
        assert [one["content"] for one in found] == ["go", "done"]
        await port.call("peer_messages", messageId=found[1]["messageId"])
        (answer,) = (await port.call("local.conversations", after=None))["messages"][1:]
        assert answer["receipt"]["state"] == "consumed"
        assert "peer_update" in told
        end()
        assert port.who()["alias"] == "alice"


async def test_port_sees_changes_timeline_and_waits(private_home: Path) -> None:
    """A look at the directories is cheap and true; the timeline and the waits are those of all roots."""
    async with two(private_home) as (alice, bob):
        port = RootPort(alice)
        assert "agents" in port.changes()
        assert port.changes() == frozenset()
        await bob.publish()
        assert port.changes() == {"agents"}
        await alice.send("bob", "for the timeline")
        page = await port.timeline(TimelineQuery(since_ms=port.day_ms()))
        assert [one.text for one in page.entries] == ["for the timeline"]
        assert (await port.waits())["cycles"] == []
        assert len(port.clock(port.now_ms())) == 8
        assert len(port.clock(port.now_ms() - 200_000_000)) == 11


async def test_port_keeps_and_exports_privately(private_home: Path) -> None:
    """What is kept is under the person's name; an export says where it is, or that it failed."""
    async with two(private_home) as (alice, bob):
        port = RootPort(alice)
        port.keep({"version": 1})
        assert port.kept() == {"version": 1}
        assert RootPort(bob).kept() == {}
        path = await port.export("x.jsonl", "{}\n")
        assert json.loads(await asyncio.to_thread(Path(path).read_text, encoding="utf-8")) == {}
        assert await port.export("no/such/place", "x") == ""


async def test_port_answers_for_no_launch_that_is_not_there(private_home: Path) -> None:
    """A launch that holds nothing has no evidence and is not recovered."""
    async with two(private_home) as (alice, _bob):
        port = RootPort(alice)
        with pytest.raises(Refused):
            await port.evidence("machine/db", "l-1")
        with pytest.raises(Refused):
            await port.recover("machine/db", "l-1", "looked")
        await asyncio.sleep(0)
