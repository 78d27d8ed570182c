"""The client's two ends: every kind of file, in order, and nobody waits for one who does not read."""

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tieline.adapters.acp.streams import CHUNK_BYTES, Sink, Source

pytestmark = pytest.mark.asyncio
SECONDS_MAX = 20.0


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Give the two ends of a pipe."""
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue


async def all_of(source: Source) -> bytes:
    found = b""
    while data := await source.read(CHUNK_BYTES):
        found += data
    source.close()
    return found


@pytest.mark.parametrize("kind", ["file", "nothing", "pipe", "non-blocking pipe"])
async def test_source_reads_any_kind_of_file_to_its_end(
    tmp_path: Path, pipe: tuple[int, int], kind: str
) -> None:
    """A loop's own readers take pipes alone, and change their mode."""
    given = b"" if kind == "nothing" else b"a\nb"
    number = pipe[0]
    if kind in ("file", "nothing"):
        place = tmp_path / "given"
        place.write_bytes(given)
        number = os.open(place if kind == "file" else os.devnull, os.O_RDONLY)
    else:
        os.set_blocking(number, kind == "pipe")
        threading.Timer(0.1, lambda: (os.write(pipe[1], given), os.close(pipe[1]))).start()
    async with asyncio.timeout(SECONDS_MAX):
        assert await all_of(Source(number)) == given
    assert os.get_blocking(number) == (kind != "non-blocking pipe")


async def test_sink_keeps_lines_whole_and_in_order(pipe: tuple[int, int]) -> None:
    """Also one that is longer than a pipe, beside others."""
    sink = Sink(pipe[1])
    lines = [b"a" * 300_000, b"b", b"c" * 100_000]
    async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as group:
        for line in lines:
            group.create_task(sink.write(line))
        source = Source(pipe[0])
        found = b""
        while len(found) < sum(map(len, lines)):
            found += await source.read(CHUNK_BYTES)
    assert found == b"".join(lines)
    assert not sink.is_waiting
    sink.close()
    source.close()


async def test_sink_of_a_client_that_has_left_says_so_once_and_takes_all(pipe: tuple[int, int]) -> None:
    """Who writes on is told nothing: the end is told by `broken`."""
    os.close(pipe[0])
    sink = Sink(pipe[1])
    async with asyncio.timeout(SECONDS_MAX):
        await sink.write(b"x\n")
        await sink.broken.wait()
        await sink.write(b"y\n")
    assert sink.moved_count == 0
    sink.close()


async def test_client_that_does_not_read_is_given_up(pipe: tuple[int, int]) -> None:
    """Nobody waits for it then, and the process may end."""
    sink = Sink(pipe[1])
    async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as group:
        group.create_task(sink.write(b"x" * 1_000_000))
        assert await asyncio.to_thread(os.read, pipe[0], 1) == b"x"
        assert sink.is_waiting
        sink.close()
    assert not sink.is_waiting
