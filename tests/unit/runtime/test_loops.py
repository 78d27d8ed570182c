"""Which event loop a door runs in."""

import asyncio
import sys

import pytest

from tieline.runtime import loops


async def kind() -> str:
    return type(asyncio.get_running_loop()).__module__


def test_loop_is_uvloop_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The setup installs it; a comparison may ask for the other one."""
    monkeypatch.delenv("TIELINE_LOOP", raising=False)
    assert loops.run(kind()) == "uvloop"
    monkeypatch.setenv("TIELINE_LOOP", "asyncio")
    assert loops.run(kind()).startswith("asyncio")


def test_loop_without_uvloop_is_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without the extra works."""
    monkeypatch.delenv("TIELINE_LOOP", raising=False)
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert loops.run(kind()).startswith("asyncio")
