"""How the desk opens and ends."""

import asyncio
import os
from pathlib import Path

import pytest

from tieline import Refused
from tieline.adapters.desk import opening
from tieline.adapters.desk.app import Desk
from tieline.runtime.options import RootOptions

pytestmark = pytest.mark.asyncio


def options(home: Path, **facts: str) -> RootOptions:
    return RootOptions(home=str(home), workspace=str(home), alias="me", host_pid=os.getpid(), **facts)


async def test_desk_is_closed_with_its_root(private_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is shown its root is published; afterwards nothing of it is left; a shutdown ends it."""
    seen: list[int] = []

    async def shown(desk: Desk) -> None:
        seen.append(len(os.listdir(private_home / "active-agents")))
        desk.port._root.node.request_shutdown()  # type: ignore[attr-defined]
        await asyncio.sleep(0.05)
        assert desk._exit

    monkeypatch.setattr(Desk, "run_async", shown)
    assert await opening.serve(options(private_home)) == 0
    assert seen == [1]
    assert os.listdir(private_home / "active-agents") == []


async def test_defect_of_the_desk_is_raised_after_the_screen(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect ends the screen first; then whoever runs it is told, and the root is closed."""

    async def shown(desk: Desk) -> None:
        desk._exception = ZeroDivisionError("ours")

    monkeypatch.setattr(Desk, "run_async", shown)
    with pytest.raises(ZeroDivisionError):
        await opening.serve(options(private_home))
    assert os.listdir(private_home / "active-agents") == []


async def test_root_that_is_refused_shows_no_screen(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What refuses the root is raised before anything is drawn."""
    (private_home / "config.toml").write_text("[communication]\nenabled = false\n", encoding="utf-8")
    monkeypatch.setattr(Desk, "run_async", None)
    with pytest.raises(Refused) as caught:
        await opening.serve(options(private_home))
    assert caught.value.code == "COMMUNICATION_DISABLED"
