"""Who is there, once, and what a name means."""

from pathlib import Path

import pytest

from tests.unit.runtime.intercom.kit import Station, intercom_of, station, tool, until
from tests.unit.runtime.roots import call
from tieline.errors import Refusal, Refused
from tieline.model.identity import Peer
from tieline.runtime.intercom import tool as tool_module
from tieline.runtime.intercom.roster import _read_refused, is_row_busy
from tieline.runtime.node import Node
from tieline.runtime.options import RootOptions
from tieline.runtime.root import Root

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize(
    ("row", "is_busy"),
    [
        ({"acceptsAsks": True, "status": "thinking"}, False),
        ({"acceptsAsks": False}, True),
        ({"status": "idle \u00b7 here"}, False),
        ({"status": "tool:bash"}, True),
        ({}, None),
    ],
)
async def test_state_of_a_session_is_what_it_says(row: dict[str, object], is_busy: bool | None) -> None:
    """Whether it takes questions goes before its status; without either nothing is known."""
    assert is_row_busy(row) is is_busy


async def neighbours(at: Station) -> list[Root]:
    """Return two roots of one home, who reach each other natively and meet at the broker."""
    roots = []
    for alias in ("alice", "bob"):
        options = RootOptions(
            home=str(at.home / "h"), workspace=str(at.home), alias=alias, session="s-" + alias, host_pid=1
        )
        root = Root(await Node.open(options, at.environment))
        at.stack.push_async_callback(root.close)
        await intercom_of(root).roster.connected()
        roots.append(root)
    return roots


async def test_root_that_is_reached_natively_is_listed_once_and_natively(private_home: Path) -> None:
    """The same agent on two wires is one entry, and a send over the intercom's name goes the native way."""
    async with station(private_home) as at:
        alice, bob = await neighbours(at)
        await intercom_of(alice).roster.look()
        assert [(one["alias"], one["wire"]) for one in await alice.peers()] == [("bob", "native")]
        sent = await tool(alice, "send", to=intercom_of(bob).peer, message="one way")
        assert (sent["receipt"]["wire"], sent["receipt"]["state"]) == ("native", "accepted")
        assert [one.content for one in await bob.inbox()] == ["one way"]
        (row,) = (await tool(alice, "list"))["sessions"]
        assert (row["wire"], row["peerId"]) == ("native", bob.who()["peerId"])


async def test_session_that_claims_to_be_a_root_does_not_say_whether_that_takes_questions(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question to who is reached natively waits for its answer, whatever another session says of it."""
    monkeypatch.setattr(tool_module, "ASK_WAIT_MS", 100)
    async with station(private_home) as at:
        alice, bob = await neighbours(at)
        await intercom_of(alice).roster.look()
        rows = intercom_of(alice).post.rows()
        lying = {name: (member, {**row, "acceptsAsks": False}) for name, (member, row) in rows.items()}
        monkeypatch.setattr(intercom_of(alice).post, "rows", lambda: lying)
        to = intercom_of(bob).peer
        assert (await tool(alice, "ask", to=to, message="green?"))["status"] == "pending"
        await call(bob, "host.state", busy=True)
        await until(lambda: any(one.is_busy for one in alice.node.book.roots()))
        assert (await tool(alice, "ask", to=to, message="red?"))["reason"] == "peer_busy"


async def test_names_of_the_wire_resolve_everywhere_and_the_gone_by_exact_id_alone(
    private_home: Path,
) -> None:
    """Other case and the begin of an id work in every door; who left is nobody's namesake any more."""
    async with station(private_home) as at:
        one, other = await at.root("one"), await at.root("other")
        await one.send("OTHER", "by name")
        await one.send(intercom_of(other).peer[:12], "by prefix")
        assert [item.content for item in await other.inbox(wait_s=5)] == ["by name", "by prefix"]
        peer, session_id = (await one.peers())[0]["peerId"], intercom_of(other).peer
        roster = intercom_of(one).roster
        await other.close()
        await until(lambda: not roster.rows())
        assert isinstance(roster.peer_of("other"), Refusal)
        assert roster.peer_of(session_id) == Peer(roster.absent(session_id).instance)  # type: ignore[union-attr]
        with pytest.raises(Refused) as caught:
            await one.send(peer, "too late")
        assert caught.value.code == "UNKNOWN_TARGET"
        found = roster.peer_of("one")
        assert isinstance(found, Refusal)
        assert "current session" in found.text


async def test_last_answer_of_a_session_is_read_through_every_door(private_home: Path) -> None:
    """`Root.last` asks the session, as it asks a native peer; who is gone is said to be."""
    async with station(private_home) as at:
        one, other = await at.root("one"), await at.root("other")
        other.node.host.add_answer(None, "e", "done", 1)
        assert (await one.last("other"))["text"] == "done"
        with pytest.raises(Refused) as caught:
            await intercom_of(one).roster.read_last(Peer("intercom:nobody"), None, 0)
        assert caught.value.code == "PEER_OFFLINE"


async def test_read_that_is_refused_says_what_is_true_and_what_helps(private_home: Path) -> None:
    """A place where no page begins is the caller's to correct; who tells nothing is not called old."""
    async with station(private_home) as at:
        one, other = await at.root("one"), await at.root("other")
        other.node.host.add_answer(None, "e", "\U0001f600", 1)
        for fields, code, advice in (
            ({"entryId": "e", "offset": 1}, "INVALID_PARAMS", "nextOffset"),
            ({"entryId": "gone"}, "UNKNOWN_TARGET", "leave the entry out"),
        ):
            with pytest.raises(Refused) as caught:
                await tool(one, "last", to="other", **fields)
            assert (caught.value.code, advice in caught.value.action) == (code, True)
        silent = _read_refused("unsupported")
        assert (silent.code, "old" in str(silent)) == ("CAPABILITY_DENIED", False)
        assert _read_refused("busy").is_retryable


async def test_roots_of_one_native_session_see_each_other_under_the_ids_that_they_got(
    private_home: Path,
) -> None:
    """The later one gets another id; it takes the first for itself as little as the first does it."""
    async with station(private_home) as at:
        first = await at.root("first")
        later = await at.root("later", session="s-first")
        assert intercom_of(later).peer != intercom_of(first).peer
        for root, other in ((first, later), (later, first)):
            listed = await tool(root, "list")
            assert [row["sessionId"] for row in listed["self"]] == [intercom_of(root).peer]
            assert [row["sessionId"] for row in listed["sessions"]] == [intercom_of(other).peer]
        sent = await tool(later, "send", to="first", message="are you me?")
        assert sent["accepted"]


async def test_claim_of_an_instance_that_no_other_wire_shows_hides_nobody(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sessions that both say it, at two brokers under two ids, are both shown: one may be lying."""
    async with station(private_home) as at:
        one = intercom_of(await at.root("one"))
        member = next(iter(one.post.members.values()))
        rows = {
            name: (member, {"id": name, "cwd": "/w", "model": "m", "tielineInstance": "claimed"})
            for name in ("pi-first", "pi-other")
        }
        monkeypatch.setattr(one.post, "rows", lambda: rows)
        shown = one.roster.roots([])
        assert [root.address for root in shown] == ["pi-first", "pi-other"]
        assert len({root.instance for root in shown}) == 2
        assert one.roster.shown_as("pi-first") != one.roster.shown_as("pi-other")
