"""Our roots among JavaScript sessions, over a broker of the second stack and over ours.

Each test names the numbered behaviours of reference/intercom.md 8 that it shows.
"""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.contract.js.brokers import BROKERS, OURS, THEIRS, OurBroker, broker
from tests.contract.js.intercom import Failed, JsBroker, JsEnd, Room, room
from tieline import connect
from tieline.engine.contract import Act
from tieline.errors import OutcomeUnknown, Refused
from tieline.model.identity import Peer
from tieline.runtime.calls import Actor
from tieline.runtime.node import Node
from tieline.runtime.options import RootOptions
from tieline.runtime.root import Root
from tieline.shell.hub import Paths, place_of

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(120)]


class Place(Room):
    """A broker, JavaScript sessions and roots there."""

    def __init__(self, path: Path, home: Path, kind: str) -> None:
        super().__init__(path)
        self.home, self.kind = home, kind
        self.environment = {**os.environ, "TIELINE_INTERCOM_ENABLED": "true"}
        self.environment.pop("PI_CODING_AGENT_DIR", None)

    async def root(self, alias: str, **environment: str) -> Root:
        """Return a root whose home nobody shares, once a broker has it."""
        home = self.home / alias
        home.mkdir(mode=0o700, exist_ok=True)
        (self.home / "w").mkdir(exist_ok=True)
        options = RootOptions(
            home=str(home), workspace=str(self.home / "w"), alias=alias, session="s-" + alias, host_pid=1
        )
        made = Root(await Node.open(options, {**self.environment, **environment}))
        self.stack.push_async_callback(made.close)
        assert made.node.intercom is not None
        await made.node.intercom.roster.connected()
        return made


@pytest_asyncio.fixture(params=BROKERS)
async def place(request: pytest.FixtureRequest, private_home: Path) -> AsyncIterator[Place]:
    """Give a room at a running broker, once at theirs and once at ours."""
    path = private_home / "i" / "broker.sock"
    async with broker(request.param, path):
        made = Place(path, private_home, request.param)
        try:
            yield made
        finally:
            await made.stack.aclose()


@pytest_asyncio.fixture
async def ours(private_home: Path) -> AsyncIterator[Place]:
    """Give a room at our broker."""
    path = private_home / "i" / "broker.sock"
    async with broker(OURS, path):
        made = Place(path, private_home, OURS)
        try:
            yield made
        finally:
            await made.stack.aclose()


async def tool(root: Root, action: str, **fields: Any) -> dict[str, Any]:
    """Call the tool as the root's model does; what it read is flushed."""
    return await call(root, "intercom", action=action, **fields)


async def call(root: Root, method: str, **params: Any) -> dict[str, Any]:
    """Call an operation as the root's host does."""
    actor = Actor(Peer(root.node.instance), Act.AGENT, "attach", is_host=True)
    reply = await root.operations.call(actor, method, params)
    if reply.taken is not None:
        await root.operations.flushed(reply.taken)
    return reply.result


def peer_of(root: Root) -> str:
    """Return a root's id at its broker."""
    assert root.node.intercom is not None
    return root.node.intercom.peer


async def until(is_so: Callable[[], Awaitable[bool]], *, seconds: float = 10) -> None:
    """Look until it is so."""
    async with asyncio.timeout(seconds):
        while not await is_so():  # noqa: ASYNC110 - nothing but a look tells it
            await asyncio.sleep(0.05)


async def row_of(end: JsEnd, peer: str) -> dict[str, Any]:
    """Return how a JavaScript session sees another."""
    return next(row for row in await end.call("list") if row["id"] == peer)


async def until_row(end: JsEnd, peer: str, **facts: Any) -> None:
    """Wait until a JavaScript session sees these facts of another."""

    async def is_so() -> bool:
        return facts.items() <= (await row_of(end, peer)).items()

    await until(is_so)


# ---------------------------------------------------------------- a root and a session


@pytest.mark.clause("intercom-17", "intercom-40", "intercom-41", "intercom-112")
async def test_root_is_a_session_like_others_and_tells_what_it_does(place: Place) -> None:
    """Its id is its native session's; idle, thinking and idle again are seen; it is listed once."""
    far, root = await place.f("far"), await place.root("api")
    assert peer_of(root) == "pi-" + hashlib.sha256(b"s-api").hexdigest()[:32]
    row = await row_of(far, peer_of(root))
    assert (row["name"], row["status"], row["acceptsAsks"]) == ("api", "idle", True)
    assert len(row["projectId"]) == 64
    await call(root, "host.state", busy=True, model="m-1")
    await until_row(far, peer_of(root), status="thinking", acceptsAsks=False, model="m-1")
    await call(root, "host.state", busy=True, activity="tool:bash")
    await until_row(far, peer_of(root), status="tool:bash")
    await call(root, "host.state", busy=False)
    await until_row(far, peer_of(root), status="idle", acceptsAsks=True)
    (seen,) = [peer for peer in await root.peers() if peer["alias"] == "far"]
    assert (seen["wire"], seen["availability"], seen["busy"]) == ("intercom", "available", False)
    listed = await tool(root, "list")
    assert [(one["name"], one["state"]) for one in listed["sessions"]] == [("far", "idle")]


@pytest.mark.clause("intercom-43", "intercom-50", "intercom-72")
async def test_root_and_session_exchange_messages_exactly(place: Place) -> None:
    """Text, attachments and delivery both ways; a plain name finds the session; nothing is custody."""
    far, root = await place.f("far"), await place.root("api")
    text = "\u00e4 \u2028 \U0001f600 end"
    item = {"type": "snippet", "name": "a.py", "content": "x = 1\n", "language": "python"}
    sent = await tool(root, "send", to="FAR", message=text, attachments=[item], delivery="queue")
    came = await far.got(text)
    assert (came["content"]["attachments"], came["delivery"]) == ([item], "queue")
    assert came["from"]["id"] == peer_of(root)
    assert (sent["receipt"]["state"], sent["receipt"]["outcome"]) == ("unknown", "BROKER_ACCEPTED")
    await far.call("send", to=peer_of(root), text=text, attachments=[item], message_id="m-back")
    (mail,) = await root.inbox(wait_s=5)
    assert (mail.content, mail.message_id, mail.from_alias, mail.delivery) == (text, "m-back", "far", "steer")
    shape = (await call(root, "peer_messages"))["messages"][0]
    assert shape["attachments"][0] == {
        "name": "a.py", "mediaType": "text/x-intercom-snippet; language=python", "text": "x = 1\n",
    }  # fmt: skip


@pytest.mark.clause("intercom-52")
async def test_id_that_was_admitted_never_publishes_twice(place: Place) -> None:
    """Neither unread nor read; a new id is a new message, whatever its text."""
    far, root = await place.f("far"), await place.root("api")
    for _ in range(2):
        await far.call("send", to=peer_of(root), text="once", message_id="same")
    assert len(await root.inbox(wait_s=5, consume=True)) == 1
    await far.call("send", to=peer_of(root), text="once", message_id="same")
    await far.call("send", to=peer_of(root), text="once", message_id="other")
    assert [one.message_id for one in await root.inbox(wait_s=5)] == ["other"]


@pytest.mark.clause("intercom-90", "intercom-91")
async def test_root_asks_a_session_and_gets_its_answer(place: Place) -> None:
    """The wait ends with the correlated reply and its attachments, not with another message."""
    far, root = await place.f("far"), await place.root("api")
    asking = asyncio.create_task(tool(root, "ask", to="far", message="which?"))
    asked = await far.got("which?")
    assert (asked["expectsReply"], asked["delivery"]) == (True, "steer")
    await far.call("send", to=peer_of(root), text="something else")
    await far.call("send", to=peer_of(root), text="stray", replyTo="never-asked")
    item = {"type": "context", "name": "n", "content": "c"}
    await far.call("reply", text="the second", attachments=[item])
    answered = await asking
    assert (answered["status"], answered["reply"]["content"]) == ("answered", "the second")
    assert answered["reply"]["attachments"][0]["text"] == "c"
    assert answered["receipt"]["state"] == "replied"
    assert {one.content for one in await root.inbox(wait_s=1)} == {"something else", "stray"}


@pytest.mark.clause("intercom-90", "intercom-105")
async def test_session_asks_a_root_and_gets_its_answer(place: Place) -> None:
    """The question waits in `pending`, is counted in presence, and the reply without a name answers it."""
    far, root = await place.f("far"), await place.root("api")
    asking = asyncio.create_task(far.call("ask", to=peer_of(root), text="ready?", message_id="q-1"))
    (mail,) = await root.inbox(wait_s=5)
    assert (mail.ask, mail.delivery) == (True, "steer")
    await until_row(far, peer_of(root), pendingAsks=1)
    (waiting,) = (await tool(root, "pending"))["asks"]
    assert (waiting["replyTo"], waiting["fromAlias"], waiting["preview"]) == ("q-1", "far", "ready?")
    await tool(root, "reply", message="yes")
    assert (await asking)["reply"]["text"] == "yes"
    await until_row(far, peer_of(root), pendingAsks=0)
    assert (await tool(root, "pending"))["asks"] == []
    with pytest.raises(Refused, match="No active intercom context"):
        await tool(root, "reply", message="again")


@pytest.mark.clause("intercom-92", "intercom-96", "intercom-99")
async def test_ask_ends_with_its_peer_and_waits_for_no_busy_one(place: Place) -> None:
    """Who leaves ends the wait; who takes no questions is told one and not waited for, unless asked to."""
    far, busy, root = await place.f("far"), await place.f("busy"), await place.root("api")
    asking = asyncio.create_task(tool(root, "ask", to="far", message="there?"))
    await far.got("there?")
    await far.call("leave")
    assert (await asking)["reasonCode"] == "peer_left"
    await busy.call("presence", facts={"acceptsAsks": False, "status": "thinking"})
    told = await tool(root, "ask", to="busy", message="quick?")
    assert (told["status"], told["reason"]) == ("delivered", "peer_busy")
    asking = asyncio.create_task(tool(root, "ask", to="busy", message="explicit?", delivery="queue"))
    await busy.got("explicit?")
    await busy.call("reply", text="fine", replyTo=(await busy.got("explicit?"))["id"])
    assert (await asking)["status"] == "answered"
    asking = asyncio.create_task(busy.call("ask", to=peer_of(root), text="mine?"))
    await root.inbox(wait_s=5)
    await busy.call("cancel")
    with pytest.raises(Failed):
        await asking
    await busy.call("leave")

    async def is_over() -> bool:
        return not (await tool(root, "pending"))["asks"]

    await until(is_over)


@pytest.mark.clause("intercom-95")
async def test_second_question_at_once_is_refused_and_crossing_ones_never_both_wait(place: Place) -> None:
    """One place to wait in; and of two that ask each other one is told that the other waits."""
    far, root = await place.f("far"), await place.root("api")
    asking = asyncio.create_task(tool(root, "ask", to="far", message="one?"))
    await far.got("one?")
    with pytest.raises(Refused, match="Already waiting"):
        await tool(root, "ask", to="far", message="two?")
    theirs = await far.call("ask", to=peer_of(root), text="crossing?", message_id="z-after-ours")
    failure = theirs["reply"]["attachments"][0]
    assert failure["name"] == "pi-intercom-recipient-turn-failure"
    assert "waits for your answer" in failure["content"]
    await far.call("reply", text="done")
    assert (await asking)["status"] == "answered"


@pytest.mark.clause("intercom-97")
async def test_failure_of_a_recipient_is_one_by_its_attachment_alone(place: Place) -> None:
    """The same words without it are an answer."""
    far, root = await place.f("far"), await place.root("api")
    failure = {"type": "context", "name": "pi-intercom-recipient-turn-failure", "content": "boom"}
    for attachments, status in (([failure], "failed"), (None, "answered")):
        asking = asyncio.create_task(tool(root, "ask", to="far", message=f"{status}?"))
        await far.got(f"{status}?")
        more = {} if attachments is None else {"attachments": attachments}
        await far.call("reply", text="Recipient turn failed: boom", **more)
        assert (await asking)["status"] == status


@pytest.mark.clause("intercom-46", "intercom-109", "intercom-110", "intercom-114")
async def test_targets_of_the_tool_are_never_guessed(place: Place) -> None:
    """A shared name is refused with what could be meant, which then works; nobody and ourselves are, too."""
    one, two, root = await place.f("twin"), await place.f("twin"), await place.root("api")
    with pytest.raises(Refused) as caught:
        await tool(root, "send", to="twin", message="x")
    assert (caught.value.code, len(caught.value.candidates)) == ("AMBIGUOUS_TARGET", 2)
    listed = {row["sessionId"]: row["target"] for row in (await tool(root, "list"))["sessions"]}
    await tool(root, "send", to=listed[one.id], message="to the first")
    assert await one.got("to the first")
    assert two.texts() == []
    for to, words in (
        ("api", "current session"),
        ("nobody", "no intercom session"),
        (one.id[:5], "too short"),
    ):
        with pytest.raises(Refused, match=words):
            await tool(root, "send", to=to, message="x")


async def test_message_to_a_session_that_just_left_is_rejected(place: Place) -> None:
    """The broker's definite no is final, and is told as one."""
    far, root = await place.f("far"), await place.root("api")
    await tool(root, "list")
    peer = (await root.peers())[0]["peerId"]
    await far.call("leave")
    with pytest.raises(Refused) as caught:
        await root.send(peer, "too late")
    assert caught.value.code in ("UNKNOWN_TARGET", "PEER_OFFLINE")


@pytest.mark.clause("intercom-65", "intercom-70")
async def test_replaced_updates_leave_the_newest_unread(place: Place) -> None:
    """What a busy recipient holds of a thread is replaced; what its sender replaced never publishes."""
    far, root = await place.f("far"), await place.root("api")
    await call(root, "host.state", busy=True)
    await until_row(far, peer_of(root), acceptsAsks=False)
    for number in range(3):
        update = {"delivery": "queue", "queueMode": "replace", "threadId": "t"}
        await far.call("send", to=peer_of(root), text=f"v{number}", message_id=f"u{number}", **update)

    async def is_replaced() -> bool:
        return [one.content for one in await root.inbox()] == ["v2"]

    await until(is_replaced)
    await far.call("send", to=peer_of(root), text="v0", message_id="u0", delivery="queue")
    assert [one.content for one in await root.inbox()] == ["v2"]


# ---------------------------------------------------------------- roots among themselves


async def test_two_roots_are_as_sure_as_their_broker_lets_them(place: Place) -> None:
    """Over a broker that relays receipts the recipient's own word comes; an old one tells less."""
    alice, bob = await place.root("alice"), await place.root("bob")
    sent = await tool(alice, "send", to="bob", message="hello")
    if place.kind == OURS:
        assert (sent["receipt"]["state"], sent["receipt"]["durability"]) == ("accepted", "synced")
    else:
        assert (sent["receipt"]["state"], sent["receipt"]["outcome"]) == ("unknown", "BROKER_ACCEPTED")
    (mail,) = await bob.inbox(wait_s=5, consume=True)
    asking = asyncio.create_task(tool(alice, "ask", to="bob", message="which?"))
    (question,) = await bob.inbox(wait_s=5, asks=True)
    with pytest.raises(Refused, match="waits for your answer"):
        await tool(bob, "ask", to="alice", message="and you?")
    await bob.reply(question.message_id, "this")
    assert (await asking)["reply"]["content"] == "this"
    assert mail.from_alias == "alice"


@pytest.mark.clause("intercom-136")
async def test_last_answer_is_read_where_the_broker_can(place: Place) -> None:
    """Pages of UTF-16 units, a pinned entry, an explicit empty history; an old broker is said to be old."""
    alice, bob = await place.root("alice"), await place.root("bob")
    if place.kind == THEIRS:
        with pytest.raises(Refused, match="too old"):
            await tool(alice, "last", to="bob")
        return
    assert (await tool(alice, "last", to="bob"))["empty"] is True
    text = "\U0001f600" * 10_000
    await call(bob, "host.answer", entry="e-1", text=text)
    page = await tool(alice, "last", to="bob")
    await call(bob, "host.answer", entry="e-2", text="newer")
    rest = await tool(alice, "last", to="bob", entryId=page["entryId"], offset=page["nextOffset"])
    assert (page["nextOffset"], page["text"] + rest["text"], rest["nextOffset"]) == (16_384, text, None)
    assert (await tool(alice, "last", to="bob"))["text"] == "newer"
    with pytest.raises(Refused, match="no such entry"):
        await tool(alice, "last", to="bob", entryId="never")
    assert await bob.inbox() == []


async def test_root_is_found_again_after_its_broker_restarted(ours: Place) -> None:
    """The connection is made anew under the same id; mail for a broker that is gone waits until then."""
    far, root = await ours.f("far"), await ours.root("api")
    await tool(root, "list")
    peer = (await root.peers())[0]["peerId"]
    first = peer_of(root)
    pid = int((ours.socket.parent / "broker.pid").read_text().splitlines()[0])
    os.kill(pid, 9)
    await far.lost()
    receipt = await root.send(peer, "waits", wait_s=0)
    assert receipt["state"] == "pending"

    async def is_back() -> bool:
        return peer_of(root) == first

    await until(is_back, seconds=20)
    assert root.node.intercom is not None
    await root.node.intercom.roster.look()
    again = await JsEnd.begin("intercom-client-f.mjs", f"--socket={ours.socket}")
    ours.stack.push_async_callback(again.discard)
    await again.register("back")
    await tool(root, "send", to="back", message="after")
    assert await again.got("after")


async def test_root_joins_both_brokers_and_is_one_session(private_home: Path) -> None:
    """Sessions of the agent directory's broker and of the shared one are reached, each over its own."""
    environment = {**os.environ, "PI_CODING_AGENT_DIR": str(private_home / "a"), "TMPDIR": str(private_home)}
    agent = Path(place_of(environment, Paths.AGENT).socket)
    shared = private_home / "i" / "broker.sock"
    async with AsyncExitStack() as stack:
        old = await JsBroker.start(agent)
        stack.push_async_callback(old.discard)
        new = await OurBroker.begin(shared.parent)
        stack.push_async_callback(new.discard)
        older = await stack.enter_async_context(room(agent))
        made = Place(shared, private_home, OURS)
        stack.push_async_callback(made.stack.aclose)
        made.environment = {**environment, "TIELINE_INTERCOM_ENABLED": "true"}
        root, other = await made.root("api"), await made.root("other")
        left, right = await older.f("left"), await made.f("right")

        async def is_whole() -> bool:
            return len((await tool(root, "list"))["sessions"]) == 3

        await until(is_whole)
        names = [one["name"] for one in (await tool(root, "list"))["sessions"]]
        assert sorted(names) == ["left", "other", "right"]
        for far in (left, right):
            await tool(root, "send", to=far.who["sessionId"], message="hello")
            assert (await far.got("hello"))["from"]["id"] == peer_of(root)
        status = await tool(root, "status")
        assert [one["connected"] for one in status["brokers"]] == [True, True]
        assert "older revision" in status["warnings"][0]
        assert other.node.intercom is not None


async def test_root_and_a_session_of_revision_n_talk_at_our_broker(ours: Place) -> None:
    """The ancestor's session lists us with what its reader demands, and both directions work."""
    far, root = await ours.n("ancestor"), await ours.root("api")
    assert peer_of(root) in [row["id"] for row in await far.call("list")]
    await tool(root, "send", to="ancestor", message="to n")
    assert await far.got("to n")
    await far.call("send", to=peer_of(root), text="from n")
    assert [one.content for one in await root.inbox(wait_s=5)] == ["from n"]


# ---------------------------------------------------------------- groups, guards, receipts


@pytest.mark.clause("intercom-42", "intercom-56", "intercom-57")
async def test_roots_of_groups_see_only_whom_they_may(ours: Place) -> None:
    """A child root sees its main and siblings; another main sees neither, even by exact id."""
    main, other = await ours.root("main"), await ours.root("other")
    group = {"PI_INTERCOM_ROOT_SESSION_ID": "s-main", "PI_INTERCOM_PARENT_SESSION_ID": "s-main"}
    child = await ours.root("child", **group)

    async def names(root: Root) -> list[str]:
        return sorted(one["name"] for one in (await tool(root, "list"))["sessions"])

    assert (await names(main), await names(child), await names(other)) == (
        ["child", "other"], ["main"], ["main"],
    )  # fmt: skip
    with pytest.raises(Refused) as caught:
        await tool(other, "send", to=peer_of(child), message="x")
    assert caught.value.code == "UNKNOWN_TARGET"
    await tool(main, "send", to="child", message="down")
    assert [one.content for one in await child.inbox(wait_s=5)] == ["down"]
    begun = await call(main, "host.run_begin", run="r")
    assert begun["environment"] == group


async def test_wrong_pair_stops_the_wire_and_not_the_root(ours: Place) -> None:
    """It says why, to the tool and in the log; the root itself goes on."""
    root = await ours.root("odd", PI_INTERCOM_ROOT_SESSION_ID="s-main")
    assert peer_of(root) == ""
    with pytest.raises(Refused, match="PI_INTERCOM_PARENT_SESSION_ID is not set"):
        await tool(root, "list")
    assert await root.peers() == []


@pytest.mark.clause("intercom-135", "intercom-137")
async def test_companion_sends_under_a_guard_and_reads_what_became_of_it(ours: Place) -> None:
    """The whole binding holds at broker and root, or nothing arrives; the receipt is of the exact text."""
    root = await ours.root("api")
    assert root.node.intercom is not None
    environment = {**ours.environment}
    session = {"name": "c", "cwd": "/srv", "model": "none", "rootSessionId": "c", "incarnation": "c-1"}
    async with await connect(spawn=False, session=session, environment=environment) as client:
        seen = await call(root, "intercom.context", version=1)
        target = {name: seen[name] for name in ("rootSessionId", "peerId", "incarnation")}
        guard = {**target, "applicationGuard": "rev-1"}
        common = {"text": "do \u00e4", "delivery": "steer", "guard": guard}
        refused = await client.send(guard["peerId"], message_id="g-0", **common)
        assert refused["accepted"] is False
        assert await call(root, "intercom.guard", version=1, target=target, revision="rev-1") == {
            "revision": "rev-1"
        }

        async def is_guarded() -> bool:
            return any(one.get("applicationGuard") == "rev-1" for one in await client.list_sessions())

        await until(is_guarded)
        hint = {"tool": "publish", "commandId": "6f0f2a8e-6f43-4d51-9b57-0a4b5a2f9e11"}
        sent = await client.send(guard["peerId"], message_id="g-1", reply_hint=hint, **common)
        assert sent == {"messageId": "g-1", "accepted": True, "queued": False, "reason": ""}
        (mail,) = await root.inbox(wait_s=5)
        assert (mail.content, mail.ask) == ("do \u00e4", False)
        kept = {"root_session_id": "s-api", "message_id": "g-1"}

        async def is_kept() -> bool:  # it is told of once it is on disk
            return "receipt" in await client.receipt(guard["peerId"], **kept)

        await until(is_kept)
        told = await client.receipt(guard["peerId"], **kept)
        facts = told["receipt"]
        assert facts["textSha256"] == hashlib.sha256("do \u00e4".encode()).hexdigest()
        assert (facts["guard"], facts["replyHint"], facts["placementEntryId"]) == (guard, hint, None)
        assert facts["sender"] == {"peerId": client.session_id, "rootSessionId": "c", "incarnation": "c-1"}
        assert "\u00e4" not in str(facts)
        await root.inbox(consume=True)
        for asked, error in (
            ({"root_session_id": "s-api", "message_id": "never"}, "receipt_not_found"),
            ({"root_session_id": "other", "message_id": "g-1"}, "publication_unavailable"),
        ):
            assert await client.receipt(guard["peerId"], **asked) == {"error": error}
        after = (await client.receipt(guard["peerId"], root_session_id="s-api", message_id="g-1"))["receipt"]
        assert after["placementEntryId"] is not None
        assert (await client.last(guard["peerId"]))["empty"] is True
        assert await call(root, "intercom.guard", version=1, target=target, revision=None) == {
            "revision": None
        }
        assert (await client.send(guard["peerId"], message_id="g-2", **common))["accepted"] is False
        stale = {**target, "incarnation": "old"}
        assert await call(root, "intercom.guard", version=1, target=stale, revision="x") == {
            "error": "context_changed"
        }
        assert (await call(root, "intercom.context", version=2)) == {"error": "unsupported_version"}
    assert not client.is_connected
    with pytest.raises((Refused, OutcomeUnknown)):
        await client.list_sessions()


@pytest.mark.clause("intercom-104")
async def test_wake_of_a_parked_child_that_fails_ends_the_question(ours: Place) -> None:
    """The main's host is asked, says no, and who waits is told so; the question still waits for the child."""
    main = await ours.root("main")
    group = {"PI_INTERCOM_ROOT_SESSION_ID": "s-main", "PI_INTERCOM_PARENT_SESSION_ID": "s-main"}
    child, asker = await ours.root("child", **group), await ours.root("asker", **group)
    told: list[dict[str, Any]] = []
    main.operations.subscribe(lambda _kind, params: told.append(params.get("event", {})))
    await tool(asker, "list")
    peer = next(one["peerId"] for one in await asker.peers() if one["alias"] == "child")
    child.node.host.is_parked = True
    await child.close()
    asking = asyncio.create_task(call(asker, "local.ask", to=peer, content="there?", timeoutMs=5_000))

    async def is_asked() -> bool:
        return any(one.get("type") == "intercom_wake" for one in told)

    await until(is_asked)
    wakes = [one for one in told if one.get("type") == "intercom_wake"]
    await call(main, "intercom.wake_outcome", token=wakes[0]["token"], ok=False, detail="it crashed")
    assert asker.node.intercom is not None

    async def is_told() -> bool:
        assert asker.node.intercom is not None
        return asker.node.intercom.wake_fault(wakes[0]["messageId"]) == "it crashed"

    await until(is_told)
    asking.cancel()
    again = await ours.root("child", **group)
    assert [one.content for one in await again.inbox(wait_s=5)] == ["there?"]
