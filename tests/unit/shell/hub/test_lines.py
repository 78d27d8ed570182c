"""The sockets of a broker's sessions: who may connect, and what a far end that does not read costs."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tieline.shell.hub import lines
from tieline.shell.hub.lines import UNREAD_BYTES_MAX, HubLine, serve

pytestmark = pytest.mark.asyncio
FRAME_BYTES = 1_048_576


class Recorded:
    """Sessions that only remember."""

    def __init__(self) -> None:
        self.lines: list[HubLine] = []
        self.data = b""
        self.gone: list[int] = []
        self.freed: list[int] = []

    def readable(self, number: int) -> None:
        self.freed.append(number)

    def accepted(self, line: HubLine) -> int:
        self.lines.append(line)
        return len(self.lines)

    def received(self, number: int, data: bytes) -> None:
        self.data += data

    def lost(self, number: int) -> None:
        self.gone.append(number)


async def until(condition: object) -> None:
    """Wait until `condition()` holds."""
    assert callable(condition)
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - nothing tells it
            await asyncio.sleep(0.01)


@asynccontextmanager
async def listening(home: Path, sessions: Recorded) -> AsyncIterator[str]:
    path = str(home / "s")
    sock = socket.socket(socket.AF_UNIX)
    sock.setblocking(False)
    sock.bind(path)
    sock.listen()
    listener = serve(sessions, sock, lambda error: None)
    try:
        yield path
    finally:
        listener.close()


async def test_line_hands_bytes_on_and_tells_its_end(private_home: Path) -> None:
    """The kernel's word on the process comes with it; what is handed over before a close arrives."""
    sessions = Recorded()
    async with listening(private_home, sessions) as path:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"hello")
        await until(lambda: sessions.data == b"hello")
        (line,) = sessions.lines
        assert line.process_id == os.getpid()
        assert line.is_open
        line.write(b"answer")
        line.close()
        line.close()
        assert await reader.read() == b"answer"
        await until(lambda: sessions.gone == [1])
        assert not line.is_open
        line.write(b"late")
        line.close()
        line.abort()
        writer.close()


@pytest.mark.clause("S7")
async def test_line_of_another_user_or_of_nobody_is_hung_up_on(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No byte of it is read."""
    sessions = Recorded()

    def nobody(sock: socket.socket) -> object:
        raise OSError

    async with listening(private_home, sessions) as path:
        ours = os.geteuid()
        for patch in (("geteuid", lambda: ours + 1), None):
            with monkeypatch.context() as context:
                if patch is None:
                    context.setattr(lines, "peer_credentials", nobody)
                else:
                    context.setattr(os, *patch)
                reader, writer = await asyncio.open_unix_connection(path)
                writer.write(b"x")
                try:
                    assert await reader.read() == b""
                except ConnectionError:
                    continue  # as good: hung up on
                finally:
                    writer.close()
    assert (sessions.lines, sessions.data) == ([], b"")


@pytest.mark.clause("K14")
async def test_far_end_that_does_not_read_costs_a_bounded_number_of_bytes(private_home: Path) -> None:
    """Up to the bound all of it waits, and nothing is read from it; then it is hung up on."""
    sessions = Recorded()
    async with listening(private_home, sessions) as path:
        _, writer = await asyncio.open_unix_connection(path, limit=1)
        await until(lambda: sessions.lines)
        (line,) = sessions.lines
        sent = 0
        while line.is_open and sent <= 4 * UNREAD_BYTES_MAX:
            line.write(bytes(FRAME_BYTES))
            sent += FRAME_BYTES
            writer.write(b"more")
            await asyncio.sleep(0)
        assert UNREAD_BYTES_MAX < sent < UNREAD_BYTES_MAX + 4 * FRAME_BYTES
        assert len(sessions.data) < 16
        await until(lambda: sessions.gone == [1])
        writer.close()


async def test_far_end_that_reads_again_is_read_again(private_home: Path) -> None:
    """The pause ends with its cause."""
    sessions = Recorded()
    async with listening(private_home, sessions) as path:
        reader, writer = await asyncio.open_unix_connection(path, limit=1)
        await until(lambda: sessions.lines)
        (line,) = sessions.lines
        for _ in range(4):
            line.write(bytes(FRAME_BYTES))
        writer.write(b"question")
        await asyncio.sleep(0.05)
        assert sessions.data == b""
        assert line.is_paused
        assert line.unread_bytes > 0
        assert sessions.freed == []
        got = 0
        while got < 4 * FRAME_BYTES:
            got += len(await reader.read(FRAME_BYTES))
        await until(lambda: sessions.data == b"question")
        assert sessions.freed == [1]
        assert (line.is_paused, line.unread_bytes) == (False, 0)
        line.abort()
        assert line.is_closing
        line.hold(is_held=True)
        writer.close()


async def test_far_end_that_is_held_is_not_read_until_it_is_let_go(private_home: Path) -> None:
    """Also where it reads meanwhile: both causes have to end."""
    sessions = Recorded()
    async with listening(private_home, sessions) as path:
        reader, writer = await asyncio.open_unix_connection(path, limit=1)
        await until(lambda: sessions.lines)
        (line,) = sessions.lines
        line.hold(is_held=True)
        line.write(bytes(4 * FRAME_BYTES))
        writer.write(b"question")
        got = 0
        while got < 4 * FRAME_BYTES:
            got += len(await reader.read(FRAME_BYTES))
        await until(lambda: sessions.freed == [1])
        await asyncio.sleep(0.02)
        assert sessions.data == b""
        line.hold(is_held=False)
        await until(lambda: sessions.data == b"question")
        line.abort()
        await until(lambda: sessions.gone == [1])
        assert line.unread_bytes == 0
        writer.close()


async def test_far_end_that_takes_nothing_is_given_up_soon_after_a_close(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A close waits for what was handed over, and not for ever."""
    monkeypatch.setattr(lines, "CLOSE_SECONDS_MAX", 0.1)
    sessions = Recorded()
    async with listening(private_home, sessions) as path:
        _, writer = await asyncio.open_unix_connection(path, limit=1)
        await until(lambda: sessions.lines)
        (line,) = sessions.lines
        line.write(bytes(4 * FRAME_BYTES))
        line.close()
        assert line.is_open
        await until(lambda: sessions.gone == [1])
        writer.close()
