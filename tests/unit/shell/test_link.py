"""Lines over real sockets: whose they are, what is read of them; a listener without descriptors."""

import asyncio
import contextlib
import errno
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tieline.engine.contract import Standing
from tieline.errors import Refused
from tieline.shell import link
from tieline.shell.endpoint import bind_endpoint
from tieline.shell.process import PeerCredentials, self_identity
from tieline.shell.switchboard import Far
from tieline.wire.native.protocol import Advertised

pytestmark = pytest.mark.asyncio


class Board:
    """What a line feeds: it takes everybody and keeps what came."""

    def __init__(self) -> None:
        self.lines: list[link.SocketLine] = []
        self.got = bytearray()
        self.lost_numbers: list[int] = []

    def accepted(self, line: link.SocketLine) -> int:
        self.lines.append(line)
        return len(self.lines)

    def received(self, number: int, data: bytes) -> None:
        self.got += data

    def lost(self, number: int) -> None:
        self.lost_numbers.append(number)


@contextmanager
def listening(home: Path, failed: list[BaseException]) -> Iterator[tuple[Any, str]]:
    """Give a board that serves a socket, and the socket's path."""
    board, path = Board(), str(home / "x.sock")
    sock = socket.socket(socket.AF_UNIX)
    sock.setblocking(False)
    sock.bind(path)
    sock.listen(128)
    listener = link.serve(board, sock, failed.append)  # type: ignore[arg-type]
    try:
        yield board, path
    finally:
        listener.close()
        for line in board.lines:
            line.close()


async def until(condition: Any, seconds: float = 3.0) -> None:
    """Wait until `condition()` holds."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - nothing but a look tells it
            await asyncio.sleep(0.005)


@pytest.mark.clause("S7")
async def test_line_of_a_connection_knows_the_kernels_pid_and_hands_bytes_on(private_home: Path) -> None:
    """The far end's pid is known before its bytes; bytes go both ways; its end is told."""
    with listening(private_home, []) as (board, path):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"hello")
        await until(lambda: bytes(board.got) == b"hello")
        assert board.lines[0].pid == os.getpid()
        board.lines[0].write(b"answer")
        assert await reader.readexactly(6) == b"answer"
        writer.close()
        await until(lambda: board.lost_numbers == [1])


@pytest.mark.clause("S7")
async def test_line_of_another_user_is_hung_up_on_before_a_byte(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the kernel names another uid, the switchboard never hears of the connection."""
    monkeypatch.setattr(link, "peer_credentials", lambda _sock: PeerCredentials(1, os.geteuid() + 1, 0))
    with listening(private_home, []) as (board, path):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"hello")
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        assert board.lines == []
        writer.close()


@pytest.mark.clause("K14")
async def test_line_whose_far_end_does_not_read_is_not_read_either(private_home: Path) -> None:
    """Who asks and never reads answers stops being heard; once it reads, it is heard again."""
    with listening(private_home, []) as (board, path):
        reader, writer = await asyncio.open_unix_connection(path, limit=1 << 12)
        writer.write(b"a")
        await until(lambda: bytes(board.got) == b"a")
        line = board.lines[0]
        for _ in range(64):
            line.write(b"x" * 16_384)
        writer.write(b"b")
        await asyncio.sleep(0.1)
        assert bytes(board.got) == b"a"
        assert len(await reader.readexactly(64 * 16_384)) == 64 * 16_384
        await until(lambda: bytes(board.got) == b"ab")
        writer.close()


@pytest.mark.clause("K14")
async def test_line_with_too_much_waiting_is_hung_up_on(private_home: Path) -> None:
    """What waits for a far end that reads nothing is bounded: past it the link ends, visibly."""
    with listening(private_home, []) as (board, path):
        _, writer = await asyncio.open_unix_connection(path, limit=1 << 12)
        await until(lambda: board.lines)
        line = board.lines[0]
        for _ in range(80):
            line.write(b"x" * 65_536)
        await until(lambda: board.lost_numbers == [1])
        line.write(b"nobody is there any more")
        writer.transport.abort()


async def test_line_paused_by_its_switchboard_reads_on_when_told(private_home: Path) -> None:
    """A pause holds bytes back in the kernel; none is lost."""
    with listening(private_home, []) as (board, path):
        _, writer = await asyncio.open_unix_connection(path)
        await until(lambda: board.lines)
        board.lines[0].pause(is_paused=True)
        writer.write(b"held")
        await asyncio.sleep(0.05)
        assert bytes(board.got) == b""
        board.lines[0].pause(is_paused=False)
        await until(lambda: bytes(board.got) == b"held")
        writer.close()


@pytest.mark.clause("K7", "O32")
async def test_listener_without_descriptors_tells_it_once_and_goes_on(private_home: Path) -> None:
    """Out of descriptors: one word per rest, open links are served; freed: it accepts again."""
    failed: list[BaseException] = []
    with listening(private_home, failed) as (board, path):
        _, writer = await asyncio.open_unix_connection(path)
        await until(lambda: board.lines)
        clients = [socket.socket(socket.AF_UNIX) for _ in range(20)]
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        held: list[int] = []
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 2, before[1]))
            with contextlib.suppress(OSError):
                while True:
                    held.append(os.open("/dev/null", os.O_RDONLY))
            begun_s = os.times().user + os.times().system
            for client in clients:
                client.setblocking(False)
                client.connect(path)
            await asyncio.sleep(1.2)
            writer.write(b"still served")
            await until(lambda: bytes(board.got) == b"still served")
            assert 1 <= len(failed) <= 4
            assert {getattr(error, "errno", None) for error in failed} == {errno.EMFILE}
            assert len(board.lines) == 1
            assert os.times().user + os.times().system - begun_s < 0.3
        finally:
            for descriptor in held:
                os.close(descriptor)
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        await until(lambda: len(board.lines) == 21, 1.0)
        for client in clients:
            client.close()
        writer.close()


async def test_listener_stopped_leaves_its_socket_and_its_lines(private_home: Path) -> None:
    """Stopped, it accepts nobody and hangs up on nobody; another may accept on the same socket."""
    board, path = Board(), str(private_home / "x.sock")
    sock = socket.socket(socket.AF_UNIX)
    sock.setblocking(False)
    sock.bind(path)
    sock.listen(8)
    first = link.serve(board, sock, lambda error: None)  # type: ignore[arg-type]
    _, one = await asyncio.open_unix_connection(path)
    await until(lambda: len(board.lines) == 1)
    first.stop()
    _, two = await asyncio.open_unix_connection(path)
    await asyncio.sleep(0.05)
    assert len(board.lines) == 1
    second = link.serve(board, sock, lambda error: None)  # type: ignore[arg-type]
    await until(lambda: len(board.lines) == 2)
    second.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_unix_connection(path)
    one.write(b"x")
    await until(lambda: bytes(board.got) == b"x")
    for writer in (one, two):
        writer.close()
    for line in board.lines:
        line.close()


def far(instance: str, path: str) -> Far:
    """Return what presence would say."""
    return Far(Advertised(instance, "key"), path, os.getpid(), Standing(frozenset(), is_in_scope=True))


@pytest.mark.clause("native-60", "S4")
async def test_dial_connects_to_a_verified_endpoint_only(private_home: Path) -> None:
    """A private socket of the instance's name is dialled; a broad, misnamed or absent one is not."""
    endpoint = bind_endpoint(str(private_home), "far-1", owner=self_identity())
    board = Board()
    listener = link.serve(board, endpoint.sock, lambda error: None)  # type: ignore[arg-type]
    line = await link.dial(Board(), far("far-1", endpoint.path))  # type: ignore[arg-type]
    assert line.pid == os.getpid()
    assert line.number is None
    line.close()
    for path, instance, code in (
        (endpoint.path, "far-2", "UNSAFE_ENDPOINT"),
        (str(private_home / "far-2.sock"), "far-2", "PEER_OFFLINE"),
        ("far-1.sock", "far-1", "UNSAFE_ENDPOINT"),
    ):
        with pytest.raises(Refused) as caught:
            await link.dial(board, far(instance, path))  # type: ignore[arg-type]
        assert caught.value.code == code
    os.chmod(endpoint.path, 0o666)
    with pytest.raises(Refused) as caught:
        await link.dial(board, far("far-1", endpoint.path))  # type: ignore[arg-type]
    assert caught.value.code == "UNSAFE_ENDPOINT"
    listener.close()
    endpoint.close()


async def test_refusal_of_an_error_keeps_code_and_whether_to_try_again() -> None:
    """What the shell raised is what the engine reads."""
    refusal = link.refusal_of(Refused("RESOURCE_BUSY", "busy", is_retryable=True))
    assert (refusal.code, refusal.text, refusal.is_retryable) == ("RESOURCE_BUSY", "busy", True)
    assert not link.refusal_of(Refused("UNSAFE_ENDPOINT", "broad")).is_retryable


@pytest.mark.clause("pi-peers-21", "pi-peers-23")
async def test_dial_window_writes_whole_half_closes_and_learns_of_the_end(private_home: Path) -> None:
    """The far end reads to the end and may still close; a link or nothing is not dialled."""
    got, board = bytearray(), Board()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.extend(await reader.read())
        writer.close()

    path = str(private_home / "w.sock")
    server = await asyncio.start_unix_server(serve, path)
    line = await link.dial_window(board, path)
    line.number = 5
    line.write(b"one line\n")
    line.finish()
    await until(lambda: board.lost_numbers == [5])
    assert bytes(got) == b"one line\n"
    line.finish()  # after its end: nothing
    os.symlink(path, private_home / "link.sock")
    for place, code in (("link.sock", "UNSAFE_ENDPOINT"), ("none.sock", "PEER_OFFLINE")):
        with pytest.raises(Refused) as caught:
            await link.dial_window(board, str(private_home / place))
        assert caught.value.code == code
    server.close()
