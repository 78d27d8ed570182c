"""The teammate channel, carried out with a root that a test holds."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.adapters.fake_root import INSTANCE, FakeReply, FakeRoot
from tieline.adapters.attach import teammate
from tieline.adapters.attach.parent import Parent
from tieline.errors import Refused
from tieline.model.identity import Peer

IDS = {"taskId": "t", "runId": "e", "targetRunId": "r"}
CHILD = Peer(INSTANCE, "r")


class Team:
    """A parent whose notifications a test reads."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.root = FakeRoot()
        self.said: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        self.parent = Parent(self.root, group, self._put)  # type: ignore[arg-type]  # the fake has what is used
        self.root.operations.gives("host.run_begin", {"run": "r", "peerId": CHILD.id, "token": "secret"})
        self.root.operations.gives("host.run_end", {})

    def _put(self, method: str, params: dict[str, Any]) -> "asyncio.Future[bool]":
        self.said.put_nowait((method, params))
        written: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        written.set_result(True)
        return written

    def ask(self, request: str, operation: str, params: dict[str, Any] | None = None, **ids: str) -> None:
        frame = {**IDS, **ids, "requestId": request, "operation": operation, "params": params or {}}
        assert self.parent.take("team.peerRequest", frame) is None

    async def hears(self) -> tuple[str, dict[str, Any]]:
        async with asyncio.timeout(2):
            return await self.said.get()

    async def result(self, request: str) -> dict[str, Any]:
        method, params = await self.hears()
        assert method == "team.peerResult"
        assert {name: params[name] for name in IDS} == IDS
        assert params["requestId"] == request
        return params

    async def bound(self) -> None:
        self.ask("bind", "bind", {"alias": "kid"})
        await self.result("bind")


Story = Callable[[Team], Awaitable[None]]


def play(story: Story, *, is_bound: bool = True) -> None:
    """Tell `story` to a team whose task is bound."""

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            team = Team(group)
            if is_bound:
                await team.bound()
            await story(team)
            await team.parent.close(0.2)

    asyncio.run(main())


@pytest.mark.clause("native-144")
def test_bind_begins_the_run_and_gives_the_child_no_token() -> None:
    """A child gets its identity and no key to it."""

    async def story(team: Team) -> None:
        team.ask("1", "bind", {"alias": "kid"})
        answer = await team.result("1")
        assert answer["result"] == {"run": "r", "peerId": CHILD.id}
        _, method, params, _ = team.root.operations.asked[0]
        assert (method, params) == ("host.run_begin", {"alias": "kid", "run": "r"})

    play(story, is_bound=False)


def test_bind_whose_run_does_not_begin_leaves_nothing_bound() -> None:
    """A refused run is not active."""

    async def story(team: Team) -> None:
        async def refuse(_params: Any) -> FakeReply:
            raise Refused("TARGET_ENDED", "this run was used before")

        team.root.operations.answers["host.run_begin"] = refuse
        team.ask("1", "bind")
        assert (await team.result("1"))["error"]["code"] == "TARGET_ENDED"
        team.ask("2", "list")
        assert (await team.result("2"))["error"]["code"] == "TARGET_ENDED"

    play(story, is_bound=False)


@pytest.mark.clause("native-137", "native-141")
@pytest.mark.parametrize(
    ("operation", "method", "params", "asked"),
    [
        ("list", "list_peers", {"query": "q"}, {"query": "q"}),
        ("send", "send_peer_message", {"to": "a", "content": "b"}, {"to": "a", "content": "b"}),
        ("messages", "peer_messages", {"waitMs": 5}, {"waitMs": 5, "consume": False}),
    ],
)
def test_child_acts_as_its_own_run_through_the_same_operations(
    operation: str, method: str, params: dict[str, Any], asked: dict[str, Any]
) -> None:
    """The actor is the bound run, never the root; nothing is consumed by looking."""

    async def story(team: Team) -> None:
        team.root.operations.gives(method, {"ok": 1}, taken="token")
        team.ask("1", operation, params)
        assert (await team.result("1"))["result"] == {"ok": 1}
        actor, called, given, _ = team.root.operations.asked[-1]
        assert (actor.peer, actor.is_host, called, given) == (CHILD, False, method, asked)
        assert team.root.operations.was_flushed == []

    play(story)


def test_child_that_names_a_run_is_refused() -> None:
    """The run comes from the binding alone."""

    async def story(team: Team) -> None:
        team.root.operations.gives("send_peer_message", {})
        team.ask("1", "send", {"to": "a", "content": "b", "run": "other"})
        assert (await team.result("1"))["error"]["code"] == "INVALID_PARAMS"
        assert len(team.root.operations.asked) == 1

    play(story)


def test_resolve_takes_exact_names_over_all_pages_and_never_guesses() -> None:
    """An alias that two peers have is ambiguous; a part of a name is no name."""

    async def story(team: Team) -> None:
        pages = {
            None: {
                "peers": [{"peerId": "p1", "alias": "api"}, {"peerId": "p2", "alias": "api-2"}],
                "cursor": "c",
            },
            "c": {"peers": [{"peerId": "p3", "alias": "web"}, {"peerId": "p4", "alias": "web"}]},
        }

        async def listing(params: dict[str, Any]) -> FakeReply:
            return FakeReply(pages[params.get("cursor")])

        team.root.operations.answers["list_peers"] = listing
        for number, (name, told) in enumerate(
            [("api", "p1"), ("p4", "p4"), ("web", "AMBIGUOUS_TARGET"), ("ap", "UNKNOWN_TARGET")]
        ):
            team.ask(str(number), "resolve", {"to": name})
            answer = await team.result(str(number))
            assert told == (
                answer["result"]["peer"]["peerId"] if "result" in answer else answer["error"]["code"]
            )
        team.ask("x", "resolve", {"name": "api"})
        assert (await team.result("x"))["error"]["code"] == "INVALID_PARAMS"

    play(story)


@pytest.mark.clause("I42")
def test_status_of_a_message_of_others_looks_like_none() -> None:
    """A child sees its own messages only."""

    async def story(team: Team) -> None:
        other = Peer(INSTANCE).id
        known = {"sent": [{"receipt": {"from": other}}], "received": [{"message": {"to": other}}]}
        team.root.operations.gives("local.status", known)
        team.ask("1", "status", {"messageId": "m"})
        assert (await team.result("1"))["error"]["code"] == "UNKNOWN_TARGET"
        known["received"].append({"message": {"to": CHILD.id}})
        team.ask("2", "status", {"messageId": "m"})
        assert (await team.result("2"))["result"] == {"sent": [], "received": [{"message": {"to": CHILD.id}}]}

    play(story)


BOUNDARY = {"text": "mail", "messageIds": ["m1", "m2"], "token": "token", "generation": 3, "remaining": 1}


@pytest.mark.clause("native-143", "I16")
@pytest.mark.parametrize(("is_recorded", "flushed"), [(True, ["token"]), (False, [])])
def test_consume_counts_only_what_the_child_says_it_recorded(is_recorded: bool, flushed: list[str]) -> None:
    """Context first, consumption after, by the child's own word."""

    async def story(team: Team) -> None:
        team.root.operations.gives("host.boundary", BOUNDARY)
        team.ask("1", "consume", {"kind": "tool"})
        method, params = await team.hears()
        assert method == "team.peerContext"
        assert params == {**IDS, "requestId": "1", "text": "mail", "messageIds": ["m1", "m2"]}
        assert team.root.operations.was_flushed == []
        team.parent.take("team.peerContextCommit", {**IDS, "requestId": "1", "recorded": is_recorded})
        answer = await team.result("1")
        assert ("result" in answer) is is_recorded
        assert team.root.operations.was_flushed == flushed
        assert (team.root.operations.was_unflushed == []) is is_recorded

    play(story)


def test_consume_word_of_another_run_counts_nothing() -> None:
    """A commit is bound to its request, its task, its execution and its run."""

    async def story(team: Team) -> None:
        team.root.operations.gives("host.boundary", BOUNDARY)
        team.ask("1", "consume")
        await team.hears()
        for changed in ({"runId": "x"}, {"targetRunId": "x"}, {"taskId": "x"}, {"requestId": "x"}):
            team.parent.take("team.peerContextCommit", {**IDS, "requestId": "1", **changed, "recorded": True})
        await asyncio.sleep(0.02)
        assert team.said.empty()
        assert team.root.operations.was_flushed == []

    play(story)


def test_consume_not_recorded_in_time_is_withdrawn_and_stays_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the deadline the child is told, and the mail is there for the next boundary."""
    monkeypatch.setattr(teammate, "COMMIT_MS", 30)

    async def story(team: Team) -> None:
        team.root.operations.gives("host.boundary", BOUNDARY)
        team.ask("1", "consume")
        assert (await team.hears())[0] == "team.peerContext"
        assert (await team.hears())[0] == "team.peerCancel"
        assert (await team.result("1"))["error"]["code"] == "WAIT_TIMEOUT"
        assert team.root.operations.was_unflushed == ["token"]

    play(story)


def test_consume_without_mail_is_an_empty_result() -> None:
    """Nothing is offered when there is nothing."""

    async def story(team: Team) -> None:
        empty = {"text": "", "messageIds": [], "token": None, "generation": 3, "remaining": 0}
        team.root.operations.gives("host.boundary", empty)
        team.ask("1", "consume")
        answer = await team.result("1")
        assert answer["result"] == {"messageIds": [], "consumed": 0, "generation": 3, "remaining": 0}

    play(story)


def test_consume_excerpt_alone_is_shown_and_consumes_nothing() -> None:
    """A message too long for any boundary is announced to the child too, and stays unread."""

    async def story(team: Team) -> None:
        team.root.operations.gives("host.boundary", {**BOUNDARY, "token": None, "messageIds": []})
        team.ask("1", "consume")
        assert (await team.hears())[1]["text"] == "mail"
        team.parent.take("team.peerContextCommit", {**IDS, "requestId": "1", "recorded": True})
        assert (await team.result("1"))["result"]["consumed"] == 0
        assert team.root.operations.was_flushed == team.root.operations.was_unflushed == []

    play(story)


def test_record_consumes_the_named_messages_as_the_child() -> None:
    """What the child read and recorded counts as read, at most 128 at once."""

    async def story(team: Team) -> None:
        team.root.operations.gives("peer_messages", {}, taken="token")
        team.ask("1", "record", {"messageIds": ["m1", "m2"]})
        assert (await team.result("1"))["result"] == {"consumed": 2}
        assert team.root.operations.was_flushed == ["token", "token"]
        assert team.root.operations.asked[-1][0].peer == CHILD
        for number, bad in enumerate(
            [{"messageIds": ["m"] * 129}, {"messageIds": "m"}, {"messageIds": [1]}, {}]
        ):
            team.ask(f"bad{number}", "record", bad)
            assert (await team.result(f"bad{number}"))["error"]["code"] == "INVALID_PARAMS"

    play(story)


@pytest.mark.clause("native-143")
def test_end_cuts_waits_joins_sends_and_then_ends_the_run() -> None:
    """Retirement drains what was admitted and takes nothing new."""

    async def story(team: Team) -> None:
        begun = team.root.operations.waits("peer_messages")

        async def send(_params: Any) -> FakeReply:
            await asyncio.sleep(0.05)
            return FakeReply({"state": "accepted"})

        team.root.operations.answers["send_peer_message"] = send
        team.ask("wait", "messages", {"waitMs": 30_000})
        team.ask("send", "send", {"to": "a", "content": "b"})
        await begun.wait()
        team.ask("end", "end")
        team.ask("late", "list")
        told = {params["requestId"]: params for _, params in [await team.hears() for _ in range(4)]}
        assert told["late"]["error"]["code"] == "TARGET_ENDED"
        assert told["wait"]["error"]["code"] == "WAIT_TIMEOUT"
        assert told["send"]["result"] == {"state": "accepted"}
        assert told["end"]["result"] == {}
        assert list(told)[-1] == "end"
        assert team.root.operations.asked[-1][1:3] == ("host.run_end", {"run": "r"})

    play(story)


def test_cancel_ends_a_wait_and_lets_a_send_end() -> None:
    """A child may take a wait back; what changes something goes on."""

    async def story(team: Team) -> None:
        begun = team.root.operations.waits("peer_messages")

        async def send(_params: Any) -> FakeReply:
            await asyncio.sleep(0.05)
            return FakeReply({})

        team.root.operations.answers["send_peer_message"] = send
        team.ask("wait", "messages")
        team.ask("send", "send")
        await begun.wait()
        for request in ("wait", "send", "unknown"):
            team.parent.take("team.peerCancel", {**IDS, "requestId": request})
        assert (await team.result("wait"))["error"]["code"] == "WAIT_TIMEOUT"
        assert (await team.result("send"))["result"] == {}

    play(story)


def test_request_past_its_deadline_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """35 s at most: a send is then unknown, not refused."""
    monkeypatch.setattr(teammate, "REQUEST_MS", 30)

    async def story(team: Team) -> None:
        team.root.operations.waits("send_peer_message")
        team.ask("1", "send")
        assert (await team.result("1"))["error"]["code"] == "DELIVERY_UNKNOWN"
        team.ask("1", "list")  # its id is free again
        assert (await team.result("1"))["error"]["code"] == "METHOD_NOT_FOUND"

    play(story)


@pytest.mark.clause("native-137", "native-142")
@pytest.mark.parametrize("operation", sorted(teammate.RESOURCE_OPERATIONS))
def test_resource_operation_reaches_the_root_as_the_child(operation: str) -> None:
    """The parent's root carries it out, for the run that is bound and for no other."""
    method = "coordinate_resource" if operation == "resource.coordinate" else operation

    async def story(team: Team) -> None:
        team.root.operations.gives(method, {"done": True})
        team.ask("1", operation, {"launchId": "l"})
        assert (await team.result("1"))["result"] == {"done": True}
        actor, asked, params, _ = team.root.operations.asked[-1]
        assert (actor.peer, actor.is_host, asked, params) == (CHILD, False, method, {"launchId": "l"})
        team.ask("2", operation, {"launchId": "l", "run": "another"})
        assert (await team.result("2"))["error"]["code"] == "INVALID_PARAMS"

    play(story)


@pytest.mark.parametrize("operation", sorted(teammate.RESOURCE_OPERATIONS))
def test_resource_operation_after_the_task_ended_is_clean_up_or_refused(operation: str) -> None:
    """What was started can be told to its end; nothing new begins."""
    is_clean_up = operation in teammate.CLEAN_UP

    async def story(team: Team) -> None:
        team.root.operations.gives(operation, {})
        team.ask("end", "end")
        await team.result("end")
        team.ask("1", operation, {"launchId": "l"})
        answer = await team.result("1")
        assert ("result" in answer) is is_clean_up
        assert is_clean_up or answer["error"]["code"] == "TARGET_ENDED"

    play(story)


@pytest.mark.parametrize(
    ("params", "expected_ms"),
    [({}, 35_000), ({"waitMs": 0}, 5_000), ({"waitMs": 300_000}, 305_000), ({"waitMs": 9_999_999}, 305_000)],
)
def test_wait_for_a_grant_has_its_own_time(params: dict[str, Any], expected_ms: int) -> None:
    """Five seconds more than asked, 305 s at most; every other request has its 35 s."""
    assert teammate.time_ms("resource.wait", params) == expected_ms
    assert teammate.time_ms("resource.claim", params) == teammate.REQUEST_MS


def test_event_of_a_run_is_told_to_that_run_alone() -> None:
    """An event goes where its mail goes."""

    async def story(team: Team) -> None:
        team.parent.tell({"event": {"cursor": "4", "to": Peer(INSTANCE).id, "from": "x"}})
        team.parent.tell({"gap": True})
        team.parent.tell({"event": {"cursor": "5", "to": CHILD.id, "from": "x"}})
        method, params = await team.hears()
        assert method == "team.peerEvent"
        assert params["event"]["cursor"] == "5"
        assert params["targetRunId"] == "r"
        event = {"type": "resource", "resource": "machine/x", "sequence": 3, "cursor": "5", "to": CHILD.id}
        team.parent.tell({"event": event})
        assert (await team.hears())[1]["requestId"] == "event-machine/x-3"
        assert team.said.empty()

    play(story)


def test_frame_without_ids_is_refused_to_the_host() -> None:
    """What cannot be answered to a child is told to the host."""

    async def story(team: Team) -> None:
        refusal = team.parent.take("team.peerRequest", {"operation": "list"})
        assert refusal is not None
        assert refusal.code == "INVALID_PARAMS"

    play(story)
