"""Pushes into a host's session: one at a time, each message once, evidence or the next rung."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.roots import call, two
from tieline.runtime.ladder import Ladder
from tieline.runtime.ladder.ladder import DEAF_MAX
from tieline.runtime.root import Root

pytestmark = pytest.mark.asyncio

SOON_S = 0.2


class Door:
    """A session that a test holds."""

    name = "fake"

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.is_open = True
        self.busy: bool | None = None

    async def push(self, text: str, *, is_busy: bool) -> bool:
        assert isinstance(is_busy, bool)
        self.texts.append(text)
        return self.is_open

    def is_busy(self) -> bool | None:
        return self.busy

    async def pushed(self, count: int = 1) -> str:
        """Return the newest text once so many were pushed."""
        async with asyncio.timeout(5):
            while len(self.texts) < count:  # noqa: ASYNC110 - nothing tells this but a look
                await asyncio.sleep(0.01)
        return self.texts[-1]


async def fallen(root: Root) -> None:
    """Wait until no push of this root is in flight."""
    async with asyncio.timeout(5):
        while root.node.ladder.is_out:  # noqa: ASYNC110 - nothing tells this but a look
            await asyncio.sleep(0.02)


@asynccontextmanager
async def stage(
    home: Path, *, evidence_s: float = 30.0, idle: str = "auto", **options: Any
) -> AsyncIterator[tuple[Root, Root, Door]]:
    """Give `alice`, and `bob` with a door into his session."""
    async with two(home, idle_behavior=idle, **options) as (alice, bob):
        bob.node.ladder = Ladder(bob.node, evidence_s)
        door = Door()
        bob.push_by(door)
        yield alice, bob, door


async def test_push_wakes_an_idle_session_and_is_consumed_on_evidence_only(private_home: Path) -> None:
    """Written is not read: the message counts as read when its text is seen again."""
    async with stage(private_home) as (alice, bob, door):
        await alice.send("bob", "one")
        text = await door.pushed()
        assert "one" in text
        assert len(await bob.inbox()) == 1
        told = await call(bob, "host.seen", text=f"Another session sent: {text}")
        assert told == {"ours": True, "consumed": 1}
        assert await bob.inbox() == []


async def test_push_is_one_at_a_time_and_what_came_meanwhile_goes_together(private_home: Path) -> None:
    """A burst costs two pushes: the first, and the rest in order."""
    async with stage(private_home) as (alice, bob, door):
        await alice.send("bob", "number-0")
        first = await door.pushed()
        for number in range(1, 4):
            await alice.send("bob", f"number-{number}")
        await asyncio.sleep(SOON_S)
        assert len(door.texts) == 1
        await call(bob, "host.seen", text=first)
        rest = await door.pushed(2)
        places = [rest.index(f"number-{number}") for number in range(1, 4)]
        assert places == sorted(places)
        assert "number-0" not in rest


async def test_push_in_flight_is_shown_by_no_boundary(private_home: Path) -> None:
    """A message is claimed once, and what came later does not overtake it."""
    async with stage(private_home) as (alice, bob, door):
        await alice.send("bob", "pushed")
        await door.pushed()
        await alice.send("bob", "later")
        assert (await call(bob, "host.boundary", kind="tool"))["text"] == ""


async def test_push_without_evidence_in_time_falls_to_the_next_rung_and_goes_no_second_time(
    private_home: Path,
) -> None:
    """The boundary shows it then, under the same id; the session is not told it again."""
    async with stage(private_home, evidence_s=0.1) as (alice, bob, door):
        sent = await alice.send("bob", "unheard")
        await door.pushed()
        await fallen(bob)
        shown = await call(bob, "host.boundary", kind="tool")
        assert shown["messageIds"] == [sent["messageId"]]
        assert shown["senders"] == ["alice"]
        await asyncio.sleep(SOON_S)
        assert len(door.texts) == 1


async def test_push_that_shows_itself_late_is_consumed_when_nobody_else_has_it(private_home: Path) -> None:
    """Given up and seen after all: it is not shown again."""
    async with stage(private_home, evidence_s=0.1) as (alice, bob, door):
        await alice.send("bob", "late")
        text = await door.pushed()
        await fallen(bob)
        assert await call(bob, "host.seen", text=text) == {"ours": True, "consumed": 1}
        assert await call(bob, "host.seen", text=text) == {"ours": True, "consumed": 0}
        assert (await call(bob, "host.boundary", kind="prompt"))["text"] == ""


async def test_push_waits_for_a_session_at_work_until_its_next_boundary(private_home: Path) -> None:
    """A tool may run for long: the clock begins with the boundary behind it."""
    async with stage(private_home, evidence_s=0.2) as (alice, bob, door):
        door.busy = True
        await alice.send("bob", "steer")
        await door.pushed()
        await asyncio.sleep(0.6)
        assert bob.node.ladder.is_out
        await call(bob, "host.boundary", kind="tool")
        await fallen(bob)


async def test_push_under_notify_reaches_a_session_at_work_and_wakes_no_idle_one(private_home: Path) -> None:
    """Without consent an idle model costs nothing."""
    async with stage(private_home, idle="notify") as (alice, bob, door):
        await alice.send("bob", "for later")
        await asyncio.sleep(SOON_S)
        assert door.texts == []
        await call(bob, "host.state", busy=True)
        assert "for later" in await door.pushed()


@pytest.mark.parametrize("delivery", ["queue", "passive"])
async def test_push_into_a_session_at_work_is_for_steering_mail(private_home: Path, delivery: str) -> None:
    """Queued mail waits for the turn's end, passive mail for a prompt."""
    async with stage(private_home) as (alice, bob, door):
        await call(bob, "host.state", busy=True)
        await alice.send("bob", "not now", delivery=delivery)
        await asyncio.sleep(SOON_S)
        assert door.texts == []
        await call(bob, "host.state", busy=False)
        await asyncio.sleep(SOON_S)
        assert len(door.texts) == (delivery == "queue")


async def test_push_of_a_paused_host_or_a_muted_sender_does_not_happen(private_home: Path) -> None:
    """A pause wakes nobody; a muted peer wakes nobody."""
    async with stage(private_home) as (alice, bob, door):
        await call(bob, "host.state", paused="permission")
        await alice.send("bob", "paused")
        await asyncio.sleep(SOON_S)
        assert door.texts == []
        await call(bob, "local.mute", peer="alice", muted=True)
        await call(bob, "host.state", resumed=True)
        await asyncio.sleep(SOON_S)
        assert door.texts == []


async def test_push_that_was_not_taken_leaves_the_mail_and_is_not_tried_for_ever(private_home: Path) -> None:
    """A door that takes nothing is knocked at a few times, with new mail only, until the host shows life."""
    async with stage(private_home) as (alice, bob, door):
        door.is_open = False
        for number in range(DEAF_MAX + 2):
            await alice.send("bob", f"{number}")
            await asyncio.sleep(0.1)
        assert len(door.texts) == DEAF_MAX
        assert len(await bob.inbox()) == DEAF_MAX + 2
        door.is_open = True
        await call(bob, "host.boundary", kind="tool", bytesMax=1_024)
        await asyncio.sleep(SOON_S)
        assert len(door.texts) <= DEAF_MAX + 1


async def test_push_is_evident_when_the_model_answers_the_message(private_home: Path) -> None:
    """Who answers has read."""
    async with stage(private_home) as (alice, bob, door):
        sent = await alice.send("bob", "question")
        await door.pushed()
        assert await call(bob, "host.answered", messageId="another") == {"consumed": 0}
        assert await call(bob, "host.answered", messageId=sent["messageId"]) == {"consumed": 1}


async def test_push_is_not_evident_by_an_answer_to_what_was_shown_before(private_home: Path) -> None:
    """The model may have read that elsewhere: of the rest of the push its answer says nothing."""
    async with stage(private_home) as (alice, bob, door):
        door.is_open = False
        before = await alice.send("bob", "shown before")
        await door.pushed()
        await fallen(bob)
        door.is_open = True
        new = await alice.send("bob", "new")
        assert "shown before" in await door.pushed(2)
        assert await call(bob, "host.answered", messageId=before["messageId"]) == {"consumed": 0}
        assert await call(bob, "host.answered", messageId=new["messageId"]) == {"consumed": 2}


async def test_pushes_that_show_themselves_together_are_all_evident(private_home: Path) -> None:
    """A host may put one that was given up and the one in flight into the same prompt."""
    async with stage(private_home, evidence_s=0.1) as (alice, bob, door):
        await alice.send("bob", "one")
        first = await door.pushed()
        await fallen(bob)
        bob.node.ladder._evidence_s = 30.0
        await alice.send("bob", "two")
        second = await door.pushed(2)
        assert await call(bob, "host.seen", text=first + second) == {"ours": True, "consumed": 2}


async def test_push_evidence_is_our_frame_and_not_an_id_that_a_sender_chose(private_home: Path) -> None:
    """A person who types a word that is also a message id proves nothing."""
    async with stage(private_home) as (alice, bob, door):
        await alice.send("bob", "one", message_id="please")
        await door.pushed()
        assert await call(bob, "host.seen", text="please go on") == {"ours": False, "consumed": 0}


async def test_push_of_mail_too_long_for_it_tells_that_it_waits(private_home: Path) -> None:
    """An excerpt claims nothing: the message stays unread, and is announced once."""
    limits = {"message_bytes": 60_000}
    async with stage(private_home, limits=limits) as (alice, bob, door):
        await alice.send("bob", "x" * 40_000)
        assert "xxx" in await door.pushed()
        await asyncio.sleep(SOON_S)
        assert len(door.texts) == 1
        assert not bob.node.ladder.is_out
        assert len(await bob.inbox()) == 1


async def test_push_in_flight_ends_a_wait_for_it_and_is_not_shown_twice(private_home: Path) -> None:
    """A host shows what it was given when the model's call has ended, so the call must not wait for it."""
    async with stage(private_home) as (alice, bob, door):
        asked = await bob.send("alice", "which port?")
        await alice.reply((await alice.inbox())[0].message_id, "the third")
        await door.pushed()
        async with asyncio.timeout(5):
            shown = await call(bob, "peer_messages", replyTo=asked["messageId"], waitMs=20_000)
        assert (shown["messages"], shown["inFlight"]) == ([], 1)
        assert "timedOut" not in shown
        assert "do not wait" in shown["text"]
        async with asyncio.timeout(5):
            assert (await call(bob, "peer_messages", replyTo="another", waitMs=50))["timedOut"]


async def test_door_that_only_wakes_is_for_an_idle_host_and_may_go(private_home: Path) -> None:
    """A host at work is left to its boundaries; a door that went takes nothing."""
    async with stage(private_home) as (alice, bob, door):
        bob.push_by(door, wakes_only=True)
        await call(bob, "host.state", busy=True)
        await alice.send("bob", "at work")
        await asyncio.sleep(SOON_S)
        assert door.texts == []
        await call(bob, "host.state", busy=False)
        await call(bob, "host.seen", text=await door.pushed())
        bob.push_by(None)
        await alice.send("bob", "later")
        await asyncio.sleep(SOON_S)
        assert len(door.texts) == 1
        bob.push_by(door, wakes_only=True)
        assert "later" in await door.pushed(2)


async def test_answer_that_a_push_has_just_shown_ends_a_wait_for_it(private_home: Path) -> None:
    """A host may say that it took a push while it still queues it behind the model's call."""
    async with stage(private_home) as (alice, bob, door):
        asked = await bob.send("alice", "which port?")
        await alice.reply((await alice.inbox())[0].message_id, "the third")
        text = await door.pushed()
        assert await call(bob, "host.seen", text=text) == {"ours": True, "consumed": 1}
        async with asyncio.timeout(5):
            shown = await call(bob, "peer_messages", replyTo=asked["messageId"], waitMs=20_000)
        assert (shown["messages"], shown["inFlight"]) == ([], 1)
        bob.node.host.beside = OrderedDict.fromkeys(bob.node.host.beside, 0)
        assert (await call(bob, "peer_messages", replyTo=asked["messageId"], waitMs=50))["timedOut"]


async def test_door_that_is_slow_to_wake_has_the_time_that_it_asks_for(private_home: Path) -> None:
    """The next rung has the mail when that time is over, and not before."""
    async with stage(private_home, evidence_s=0.1) as (alice, bob, door):
        door.evidence_s = 1.0  # type: ignore[attr-defined]  # a door may say it
        await alice.send("bob", "one")
        await door.pushed()
        await asyncio.sleep(0.5)
        assert bob.node.ladder.is_out
        await fallen(bob)
