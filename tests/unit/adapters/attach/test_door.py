"""The attach door with a root that a test holds."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.adapters.fake_root import INSTANCE, FakeHost, FakeReply, FakeRoot, serving
from tieline.adapters.attach import door
from tieline.errors import OutcomeUnknown, RecoveryRequired, Refused, UsageError
from tieline.model.identity import Peer
from tieline.runtime.options import RootOptions


class Stage:
    """A host, a root and the door between them."""

    def __init__(self) -> None:
        self.host, self.root = FakeHost(), FakeRoot()
        self.task: asyncio.Task[int]


Story = Callable[[Stage], Awaitable[None]]


@pytest.fixture(autouse=True)
def no_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the door from ending the test process."""
    monkeypatch.setattr(door, "end_within", lambda _seconds, _code: None)


def play(
    story: Story,
    *,
    options: RootOptions = RootOptions(),  # noqa: B008
    is_parent: bool = False,
    failure: BaseException | None = None,
    is_attached: bool = True,
) -> Stage:
    """Tell `story` to an attached host; return what was on the stage."""

    async def main() -> Stage:
        stage = Stage()
        if failure is not None:
            stage.root.failures.append(failure)
        async with serving(
            stage.host,
            lambda inlet, outlet: door.Door(inlet, outlet, options, stage.root.open, is_parent=is_parent),
        ) as stage.task:
            if is_attached:
                assert (await stage.host.line())["method"] == "attached"
            await story(stage)
        return stage

    return asyncio.run(main())


def test_attached_is_the_first_line_and_tells_no_secret() -> None:
    """A host learns who it is before it says anything."""

    async def story(stage: Stage) -> None:
        stage.host.ask(1, "list_peers")
        line = await stage.host.line()
        assert line["method"] == "attached"
        assert line["params"] == {
            "version": 1,
            "instanceId": INSTANCE,
            "peerId": Peer(INSTANCE).id,
            "alias": "me",
            "sessionId": "s",
            "endpoint": "/e",
            "control": "/c",
            "home": "/h",
            "coordinationDirectory": "/d",
        }

    play(story, is_attached=False)


def test_request_reaches_the_operation_as_the_host_and_is_answered() -> None:
    """The door frames; the root decides."""

    async def story(stage: Stage) -> None:
        stage.root.operations.gives("send_peer_message", {"state": "accepted"})
        stage.host.ask("a", "send_peer_message", {"to": "x", "content": "y", "callId": "c1"})
        assert await stage.host.line() == {"jsonrpc": "2.0", "id": "a", "result": {"state": "accepted"}}
        actor, method, params, call_id = stage.root.operations.asked[0]
        assert (actor.is_host, method, params, call_id) == (
            True,
            "send_peer_message",
            {"to": "x", "content": "y"},
            "c1",
        )

    play(story)


def test_refusals_travel_with_code_and_next_action() -> None:
    """JSON-RPC's own numbers where it has one, ours in the data always."""

    async def story(stage: Stage) -> None:
        async def refuse(params: dict[str, Any]) -> FakeReply:
            if params["content"] == "lost":
                raise OutcomeUnknown("no answer", "m1")
            raise Refused("QUEUE_FULL", "inbox holds 32 of 32", is_retryable=True)

        stage.root.operations.answers["send_peer_message"] = refuse
        stage.host.ask(1, "send_peer_message", {"content": "x"})
        error = (await stage.host.line())["error"]
        assert (error["code"], error["message"]) == (-32000, "inbox holds 32 of 32")
        assert error["data"]["code"] == "QUEUE_FULL"
        assert error["data"]["retryable"] is True
        assert "same message id" in error["data"]["action"]
        stage.host.ask(2, "send_peer_message", {"content": "lost"})
        data = (await stage.host.line())["error"]["data"]
        assert (data["code"], data["messageId"]) == ("DELIVERY_UNKNOWN", "m1")
        stage.host.ask(3, "no.such.method")
        assert (await stage.host.line())["error"]["code"] == -32601
        stage.host.ask(4, "send_peer_message", {"callId": 7})
        assert (await stage.host.line())["error"]["code"] == -32602

    play(story)


@pytest.mark.clause("O48", "K33")
@pytest.mark.parametrize("bad", [b'{"a":"\xff\xfe"}', b"{", b"[]", b'{"jsonrpc":"2.0"}', b'{"a":1,"a":2}'])
def test_bad_line_is_one_error_with_null_id_and_the_next_is_served(bad: bytes) -> None:
    """The pipe is the host's own: one bad line costs one error."""

    async def story(stage: Stage) -> None:
        stage.root.operations.gives("host.state", {})
        stage.host.send_bytes(bad + b"\n")
        stage.host.ask(1, "host.state")
        first, second = await stage.host.line(), await stage.host.line()
        assert first["id"] is None
        assert first["error"]["data"]["code"] in ("PARSE_ERROR", "INVALID_RPC")
        assert second == {"jsonrpc": "2.0", "id": 1, "result": {}}

    play(story)


@pytest.mark.clause("native-81")
def test_notification_of_a_method_is_neither_carried_out_nor_answered() -> None:
    """A message without an id cannot be sent."""

    async def story(stage: Stage) -> None:
        stage.root.operations.gives("send_peer_message", {})
        stage.root.operations.gives("host.state", {})
        stage.host.note("send_peer_message", {"to": "x", "content": "y"})
        stage.host.ask(1, "host.state")
        assert (await stage.host.line())["id"] == 1
        assert [method for _, method, _, _ in stage.root.operations.asked] == ["host.state"]

    play(story)


@pytest.mark.clause("native-135")
def test_cancel_ends_a_wait_with_an_answer_and_consumes_nothing() -> None:
    """A wait is abortable, and its request is answered all the same."""

    async def story(stage: Stage) -> None:
        begun = stage.root.operations.waits("peer_messages")
        stage.host.ask(1, "peer_messages", {"waitMs": 30_000})
        await begun.wait()
        stage.host.note("cancel", {"id": 1})
        line = await stage.host.line()
        assert (line["id"], line["error"]["data"]["code"]) == (1, "WAIT_TIMEOUT")
        assert stage.root.operations.was_flushed == []

    play(story)


@pytest.mark.clause("O01", "I16")
def test_read_mail_is_consumed_after_its_bytes_were_taken() -> None:
    """The token is settled by the flush."""

    async def story(stage: Stage) -> None:
        stage.root.operations.gives("peer_messages", {"messages": []}, taken="token")
        stage.host.ask(1, "peer_messages")
        await stage.host.line()
        await asyncio.sleep(0.05)
        assert stage.root.operations.was_flushed == ["token"]

    play(story)


@pytest.mark.clause("native-199")
def test_events_are_pushed_in_order() -> None:
    """What the root tells, the host gets."""

    async def story(stage: Stage) -> None:
        tell = stage.root.operations.callbacks[0]
        tell("peer_update", {"event": {"cursor": "1"}})
        tell("wake", {"reason": "mail", "count": 1})
        assert await stage.host.line() == {
            "jsonrpc": "2.0",
            "method": "peer_update",
            "params": {"event": {"cursor": "1"}},
        }
        assert (await stage.host.line())["method"] == "wake"

    play(story)


@pytest.mark.clause("native-143")
def test_end_of_input_answers_admitted_work_and_withdraws_presence() -> None:
    """A send that was admitted is answered; a wait is cut; the root is closed; the exit is 0."""

    async def story(stage: Stage) -> None:
        async def send(_params: Any) -> FakeReply:
            await asyncio.sleep(0.1)
            return FakeReply({"state": "accepted"})

        stage.root.operations.answers["send_peer_message"] = send
        begun = stage.root.operations.waits("peer_messages")
        stage.host.ask(1, "send_peer_message")
        stage.host.ask(2, "peer_messages")
        await begun.wait()
        stage.host.leave()
        lines = {line["id"]: line for line in [await stage.host.line(), await stage.host.line()]}
        assert lines[1]["result"] == {"state": "accepted"}
        assert lines[2]["error"]["data"]["code"] == "WAIT_TIMEOUT"
        async with asyncio.timeout(5):
            assert await stage.task == 0

    stage = play(story)
    assert stage.root.is_closed
    assert stage.root.operations.callbacks == []


def test_shutdown_of_the_root_ends_the_door() -> None:
    """`host.shutdown`, from this pipe or from a command, is an orderly end."""

    async def story(stage: Stage) -> None:
        stage.root.shutdown.set()
        async with asyncio.timeout(5):
            assert await stage.task == 0

    assert play(story).root.is_closed


@pytest.mark.clause("K33")
def test_output_closed_while_the_input_is_open_ends_the_door() -> None:
    """A host that reads no more is gone."""

    async def story(stage: Stage) -> None:
        stage.root.operations.gives("peer_messages", {}, taken="token")
        stage.host.break_output()
        stage.host.ask(1, "peer_messages")
        async with asyncio.timeout(5):
            assert await stage.task == 0

    stage = play(story)
    assert stage.root.is_closed
    assert stage.root.operations.was_flushed == []


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (Refused("COMMUNICATION_DISABLED", "switched off"), 1),
        (UsageError("config.toml, line 3: wrong"), 2),
        (RecoveryRequired("the store is in doubt"), 5),
    ],
)
def test_root_that_does_not_open_is_told_and_gives_its_exit_code(failure: BaseException, code: int) -> None:
    """The first line is then an error, and the exit code its branch."""

    async def story(stage: Stage) -> None:
        line = await stage.host.line()
        assert line["id"] is None
        assert line["error"]["data"]["code"] == failure.code  # type: ignore[attr-defined]
        assert await stage.task == code

    play(story, failure=failure, is_attached=False)


@pytest.mark.parametrize(
    ("failure", "told", "code"),
    [
        (PermissionError(13, "Permission denied", "/h"), "PERMISSION_DENIED", 1),
        (NotADirectoryError(20, "Not a directory"), "UNSAFE_ENDPOINT", 1),
        (UnicodeDecodeError("utf-8", b"", 0, 1, "x"), "RECOVERY_REQUIRED", 5),
    ],
)
def test_root_that_does_not_open_for_an_untyped_reason_is_told_too(
    failure: BaseException, told: str, code: int
) -> None:
    """A host waits for its first line, whatever the defect."""

    async def story(stage: Stage) -> None:
        line = await stage.host.line()
        assert (line["id"], line["error"]["data"]["code"]) == (None, told)
        assert await stage.task == code

    play(story, failure=failure, is_attached=False)


def test_unpublished_root_is_published_with_the_session_that_the_host_names() -> None:
    """`--no-publish` lasts until `host.state` names the session."""

    async def story(stage: Stage) -> None:
        stage.root.operations.gives("host.state", {})
        stage.host.ask(1, "host.state", {"busy": True})
        await stage.host.line()
        assert stage.root.published == []
        stage.host.ask(2, "host.state", {"session": "s9"})
        await stage.host.line()
        assert stage.root.published == ["s9"]

    play(story, options=RootOptions(is_published=False))


def test_team_frame_without_parent_is_not_served() -> None:
    """The teammate channel is there only with `--parent`."""

    async def story(stage: Stage) -> None:
        stage.root.operations.gives("host.state", {})
        stage.host.note("team.peerRequest", {"operation": "list"})
        stage.host.ask(1, "host.state")
        assert (await stage.host.line())["id"] == 1
        stage.host.ask(2, "team.peerRequest")
        assert (await stage.host.line())["error"]["data"]["code"] == "INVALID_RPC"

    play(story)


def test_requests_beyond_the_bound_are_refused_typed() -> None:
    """32 in progress; the 33rd is told at once."""

    async def story(stage: Stage) -> None:
        stage.root.operations.waits("peer_messages")
        for identity in range(33):
            stage.host.ask(identity, "peer_messages")
        line = await stage.host.line()
        assert (line["id"], line["error"]["data"]["code"]) == (32, "RESOURCE_BUSY")

    play(story)
