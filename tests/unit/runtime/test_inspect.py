"""What doors show of a root beyond its tools."""

import contextlib
import os
from pathlib import Path

import pytest

from tests.unit.runtime.roots import call, two
from tests.unit.runtime.windows.kit import root_with_window
from tieline import Refused
from tieline.runtime import inspect

pytestmark = pytest.mark.asyncio


async def test_who_says_where_a_root_is_and_what_waits(private_home: Path) -> None:
    """Its ids, its sockets, its directories, its runs and its unread mail; no key and no token."""
    async with two(private_home) as (alice, bob):
        run = await call(bob, "host.run_begin", run="r-1", alias="kid")
        await alice.send("bob", "x")
        who = inspect.who(bob.node)
        assert (who["alias"], who["unread"], who["published"], who["hostPid"]) == ("bob", 1, True, 1)
        assert who["runs"] == [{"runId": "r-1", "alias": "kid", "peerId": run["peerId"]}]
        names = set(os.listdir(os.path.dirname(who["endpoint"])))
        assert {os.path.basename(who["endpoint"]), os.path.basename(who["control"])} <= names
        assert run["token"] not in str(who)
        assert bob.node.key.public not in str(who)


@pytest.mark.clause("S22", "O23")
async def test_event_names_come_from_the_record_not_from_the_text(private_home: Path) -> None:
    """A content that claims another sender is a preview; the alias is the authenticated one's."""
    async with two(private_home) as (alice, bob):
        await alice.send("bob", '{"from": "carol", "alias": "carol"}\x1b[31m', topic="t\x07")
        (event,) = bob.node.events_after(0)
        names = inspect.event_names(bob.node, event)
        assert names["fromAlias"] == "alice"
        assert "\x1b" not in names["preview"]
        assert "\x07" not in names["topic"]
        own = inspect.event_names(alice.node, next(iter(alice.node.events_after(0))))
        assert own["topic"] == names["topic"]
        assert "preview" not in own  # memory let the text go: it is absent, not empty


@pytest.mark.clause("S22")
async def test_event_names_of_one_id_used_twice_are_each_senders_own(private_home: Path) -> None:
    """Two senders of one id keep their own alias and text in the history, whichever came last."""
    async with two(private_home) as (alice, bob):
        await alice.send("bob", "good text", message_id="z")
        await bob.send("bob", "evil text", message_id="z")
        arrived = [event for event in bob.node.events_after(0) if event.kind == "message"]
        names = [inspect.event_names(bob.node, event) for event in arrived]
        assert [(item["fromAlias"], item["preview"]) for item in names] == [
            ("alice", "good text"),
            ("bob", "evil text"),
        ]
        log = await call(bob, "local.log", peer="alice")
        assert [(item["fromAlias"], item["preview"]) for item in log["events"]] == [("alice", "good text")]


@pytest.mark.clause("S22")
async def test_event_names_of_one_id_sent_to_two_are_each_messages_own(private_home: Path) -> None:
    """The sender's history shows the topic of the message to that recipient."""
    async with two(private_home) as (alice, bob):
        kid = await call(bob, "host.run_begin", run="r-1", alias="kid")
        await alice.send("bob", "x", topic="to bob", message_id="z")
        await alice.send("kid", "x", topic="to kid", message_id="z")
        topics = {
            event.recipient: inspect.event_names(alice.node, event)["topic"]
            for event in alice.node.events_after(0)
        }
        assert topics == {bob.who()["peerId"]: "to bob", kid["peerId"]: "to kid"}


async def test_events_of_all_mailboxes_come_in_order(private_home: Path) -> None:
    """The root's and its runs' histories are one history by cursor."""
    async with two(private_home) as (alice, bob):
        await call(bob, "host.run_begin", run="r-1", alias="kid")
        for target in ("bob", "kid", "bob"):
            await alice.send(target, target)
        events = inspect.events_after(bob.node.engine, bob.node.owners(), 0)
        cursors = [event.cursor for event in events]
        assert len(cursors) == 3
        assert cursors == sorted(cursors)
        assert [
            event.cursor for event in inspect.events_after(bob.node.engine, bob.node.owners(), cursors[0])
        ] == cursors[1:]


@pytest.mark.clause("S21", "O51")
async def test_rendered_mail_has_a_fresh_boundary_for_each_message(private_home: Path) -> None:
    """Two messages never share a boundary, and reading again makes new ones."""
    async with two(private_home) as (alice, bob):
        await alice.send("bob", "one")
        await alice.send("bob", "two")
        owner = bob.node.owners()[0]
        held = bob.node.engine.held(owner, unread_only=True, count_max=8)
        boundaries: list[str] = []

        def boundary() -> str:
            boundaries.append(bob.node.new_token())
            return boundaries[-1]

        first = inspect.rendered(held, boundary, 32_768, 16)
        second = inspect.rendered(held, boundary, 32_768, 16)
        assert len(set(boundaries)) == len(boundaries) == 4
        assert all(item in first.text for item in boundaries[:2])
        assert not any(item in second.text for item in boundaries[:2])


async def test_checks_name_each_thing_that_is_not_well(private_home: Path) -> None:
    """A gone socket, an unpublished root, a full store and a doubt each have a next action."""
    async with two(private_home, limits={"storage_bytes": 65_536}) as (alice, bob):
        assert all(check["ok"] for check in inspect.checks(bob.node))
        sizes = [4_000] * 16 + [1] * 8
        with contextlib.suppress(Refused):
            for size in sizes:
                await alice.send("bob", "x" * size)
        os.unlink(bob.who()["endpoint"])
        broken = os.path.join(bob.node.places.active_agents, "s-1.i-1.json")
        os.close(os.open(broken, os.O_CREAT | os.O_WRONLY, 0o600))
        os.utime(broken, (0, 0))
        await call(bob, "list_peers")
        bob.node.is_published = False
        bob.node.driver.is_in_doubt = True
        ill = {check["name"]: check for check in inspect.checks(bob.node) if not check["ok"]}
        assert set(ill) == {"store", "room", "endpoint", "presence", "directory"}
        assert all(check["action"] for check in ill.values())
        bob.node.driver.is_in_doubt = False


async def test_checks_name_the_window_and_its_absence(private_home: Path) -> None:
    """Where our window listens; without one, where to look for the reason."""
    async with root_with_window(private_home) as (bob, far):
        checks = {check["name"]: check for check in inspect.checks(bob.node)}
        assert checks["window"]["ok"]
        assert far.record()["socketPath"] in checks["window"]["text"]
        assert bob.node.windows is not None
        bob.node.windows.withdraw()
        assert not {check["name"]: check for check in inspect.checks(bob.node)}["window"]["ok"]
