"""Requests in progress: bounded, answered once, their mail consumed only after a flush."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.adapters.fake_root import FakeOperations, FakeReply
from tieline.adapters.stdio.calls import QUEUED_BYTES_MAX, Call, Calls, Outbound, encode
from tieline.adapters.stdio.pipes import Outlet
from tieline.errors import TielineError


class Desk:
    """Calls over a pipe, with lines that say only what happened."""

    def __init__(self, calls_max: int = 2) -> None:
        self.read, sink = os.pipe()
        self.operations = FakeOperations()
        self.outbound = Outbound(Outlet(sink))
        self.calls = Calls(
            self.outbound,
            self._give,
            calls_max=calls_max,
            waits=frozenset({"wait"}),
            result=lambda call, _result: f"{call.id} result\n".encode(),
            failure=lambda call, error: f"{call.id} {error.code}\n".encode(),
            withdrawn=lambda call: f"{call.id} withdrawn\n".encode(),
        )

    async def _give(self, _call: Call) -> FakeOperations:
        return self.operations

    async def line(self) -> str:
        async with asyncio.timeout(5):
            data = await asyncio.get_running_loop().run_in_executor(None, os.read, self.read, 65_536)
        return data.decode()


def call(identity: int, method: str) -> Call:
    """Return a call of nobody in particular."""
    return Call(identity, None, method, {})


def run(story: Callable[[Desk, asyncio.TaskGroup], Awaitable[None]], **options: Any) -> None:
    """Tell `story` to calls over a pipe."""

    async def main() -> None:
        desk = Desk(**options)
        async with asyncio.TaskGroup() as group:
            await story(desk, group)
            await desk.calls.close(0.2, is_reader_gone=True)

    asyncio.run(main())


@pytest.mark.clause("O01", "I16")
def test_call_mail_is_consumed_after_its_bytes_were_taken() -> None:
    """The token is settled when, and only when, the pipe took the whole line."""

    async def story(desk: Desk, group: asyncio.TaskGroup) -> None:
        desk.operations.gives("read", {}, taken="token")
        desk.calls.admit(call(1, "read"), group)
        assert await desk.line() == "1 result\n"
        await asyncio.sleep(0.05)
        assert desk.operations.was_flushed == ["token"]
        assert desk.operations.was_unflushed == []

    run(story)


@pytest.mark.clause("O01", "K33")
def test_call_host_closed_its_pipe_leaves_mail_unread() -> None:
    """Bytes that nobody took consume nothing."""

    async def story(desk: Desk, group: asyncio.TaskGroup) -> None:
        os.close(desk.read)
        desk.operations.gives("read", {}, taken="token")
        desk.calls.admit(call(1, "read"), group)
        await desk.outbound.broken.wait()
        await asyncio.sleep(0.05)
        assert desk.operations.was_flushed == []
        assert desk.operations.was_unflushed == ["token"]

    run(story)


@pytest.mark.clause("native-135")
def test_call_withdrawn_wait_ends_and_consumes_nothing() -> None:
    """A wait is abortable."""

    async def story(desk: Desk, group: asyncio.TaskGroup) -> None:
        begun = desk.operations.waits("wait")
        desk.calls.admit(call(1, "wait"), group)
        await begun.wait()
        desk.calls.withdraw(1)
        assert await desk.line() == "1 withdrawn\n"
        assert desk.operations.was_flushed == []
        assert desk.calls.is_empty

    run(story)


def test_call_withdrawn_while_it_is_answered_leaves_mail_unread() -> None:
    """A host that withdrew the request does not look at its result."""

    async def story(desk: Desk, group: asyncio.TaskGroup) -> None:
        desk.operations.gives("read", {}, taken="token")
        desk.calls.admit(call(1, "read"), group)
        await asyncio.sleep(0)  # the operation has answered and the line is with the writer
        desk.calls.withdraw(1)
        await asyncio.sleep(0.05)
        assert desk.operations.was_flushed == []
        assert desk.operations.was_unflushed == ["token"]

    run(story)


def test_call_withdrawn_send_goes_on_to_its_end() -> None:
    """What changes something is never cut off by the host; only its answer is dropped."""

    async def story(desk: Desk, group: asyncio.TaskGroup) -> None:
        may_end, ended = asyncio.Event(), asyncio.Event()

        async def send(_params: Any) -> FakeReply:
            await may_end.wait()
            ended.set()
            return FakeReply({})

        desk.operations.answers["send"] = send
        desk.calls.admit(call(1, "send"), group)
        await asyncio.sleep(0)
        desk.calls.withdraw(1)
        may_end.set()
        async with asyncio.timeout(1):
            await ended.wait()
        await asyncio.sleep(0.05)
        assert desk.outbound.queued_lines == 0

    run(story)


@pytest.mark.clause("native-156")
def test_call_beyond_the_bound_is_refused_typed_at_once() -> None:
    """The bound holds, and the refused request disturbs none in progress."""

    async def story(desk: Desk, group: asyncio.TaskGroup) -> None:
        begun = desk.operations.waits("wait")
        for identity in (1, 2, 3):
            desk.calls.admit(call(identity, "wait"), group)
        assert await desk.line() == "3 RESOURCE_BUSY\n"
        await begun.wait()
        assert len(desk.operations.asked) == 2

    run(story)


def test_call_repeated_id_in_progress_is_refused() -> None:
    """An id names one request at a time."""

    async def story(desk: Desk, group: asyncio.TaskGroup) -> None:
        desk.operations.waits("wait")
        desk.calls.admit(call(1, "wait"), group)
        desk.calls.admit(call(1, "wait"), group)
        assert await desk.line() == "1 INVALID_RPC\n"

    run(story)


def test_call_defect_is_one_typed_failure_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    """A defect ends one call as unknown, tells no content, and the next call is served."""

    async def story(desk: Desk, group: asyncio.TaskGroup) -> None:
        async def fails(_params: Any) -> FakeReply:
            raise KeyError("secret words")

        desk.operations.answers["bad"] = fails
        desk.calls.admit(call(1, "bad"), group)
        assert await desk.line() == "1 DELIVERY_UNKNOWN\n"
        desk.operations.gives("good", {})
        desk.calls.admit(call(2, "good"), group)
        assert await desk.line() == "2 result\n"

    run(story)
    said = capsys.readouterr().err
    assert "KeyError" in said
    assert "secret" not in said


def test_close_joins_admitted_work_and_cuts_waits() -> None:
    """At an orderly end a send is answered, a wait is cut, and nothing new is taken."""

    async def story(desk: Desk, group: asyncio.TaskGroup) -> None:
        desk.operations.waits("wait")

        async def send(_params: Any) -> FakeReply:
            await asyncio.sleep(0.05)
            return FakeReply({})

        desk.operations.answers["send"] = send
        desk.calls.admit(call(1, "wait"), group)
        desk.calls.admit(call(2, "send"), group)
        await asyncio.sleep(0)
        await desk.calls.close(1, is_reader_gone=False)
        desk.calls.admit(call(3, "send"), group)
        await asyncio.sleep(0.05)
        assert await desk.line() == "1 withdrawn\n2 result\n3 TARGET_ENDED\n"

    run(story)


@pytest.mark.clause("O33")
def test_close_without_a_reader_consumes_nothing() -> None:
    """Once the host is gone no result counts as read, also when the pipe still takes it."""

    async def story(desk: Desk, group: asyncio.TaskGroup) -> None:
        async def read(_params: Any) -> FakeReply:
            await asyncio.sleep(0.05)
            return FakeReply({}, "token")

        desk.operations.answers["read"] = read
        desk.calls.admit(call(1, "read"), group)
        await asyncio.sleep(0)
        await desk.calls.close(1, is_reader_gone=True)
        assert desk.operations.was_flushed == []
        assert desk.operations.was_unflushed == ["token"]

    run(story)


def test_close_work_without_end_is_cut_off_in_time() -> None:
    """Nothing holds the door open."""

    async def story(desk: Desk, group: asyncio.TaskGroup) -> None:
        begun = desk.operations.waits("send")
        desk.calls.admit(call(1, "send"), group)
        await begun.wait()
        async with asyncio.timeout(1):
            await desk.calls.close(0.1, is_reader_gone=False)
        assert desk.calls.is_empty
        assert await desk.line() == "1 withdrawn\n"

    run(story)


@pytest.mark.clause("I49")
def test_outbound_slow_host_closes_the_room_until_it_reads() -> None:
    """What is written and not taken is bounded: there is no room until the host reads."""

    async def story(desk: Desk, _group: asyncio.TaskGroup) -> None:
        written = desk.outbound.put(b"x" * (QUEUED_BYTES_MAX + 1))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await desk.outbound.has_room()
        while not written.done():
            await desk.line()
        async with asyncio.timeout(1):
            await desk.outbound.has_room()

    run(story)


def test_encode_text_of_any_language_is_one_ascii_line() -> None:
    """Readers that split at U+2028 see one line all the same."""
    line = encode({"text": "a\u2028b\n\u00fc"})
    assert line.isascii()
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")


def test_failure_base_has_a_code() -> None:
    """Every failure has a code, the least specific too."""
    assert TielineError("x").code
