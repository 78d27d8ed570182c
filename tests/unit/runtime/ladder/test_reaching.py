"""Reaching the harness that runs us."""

import os
import socket
from pathlib import Path

import pytest

from tieline.runtime.ladder import reaching
from tieline.shell.process import identify


def test_host_is_an_ancestor_of_that_start() -> None:
    """A number without its start time is no process."""
    parent = identify(os.getppid())
    assert parent is not None
    assert reaching.is_our_host(parent.pid, parent.start_ticks)
    assert not reaching.is_our_host(parent.pid, parent.start_ticks + 1)
    assert not reaching.is_our_host(os.getpid(), 1)


@pytest.mark.asyncio
async def test_telling_a_process_writes_all_to_the_one_that_listens(private_home: Path) -> None:
    """The text arrives whole."""
    own = identify(os.getpid())
    assert own is not None
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(private_home / "s"))
        server.listen()
        assert await reaching.tell_process(str(private_home / "s"), b"line\n", own.pid, own.start_ticks)
        link, _ = server.accept()
        with link:
            assert link.makefile("rb").read() == b"line\n"


@pytest.mark.asyncio
async def test_conversing_reaches_the_host_alone_and_its_program(private_home: Path) -> None:
    """A host that does not listen hears nothing."""
    host = reaching.Host.ours()
    assert host is not None
    assert host.pid == os.getppid()
    assert host.words
    assert host.held_files(str(private_home)) == ()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(private_home / "s"))
        server.listen()
        assert not host.listens_at(str(private_home / "s"))
        assert not await reaching.converse_at(str(private_home / "s"), host, lambda _one: True)
    assert await reaching.converse_with(["/bin/cat"], {}, lambda one: one.ask("x", {}) is None)
