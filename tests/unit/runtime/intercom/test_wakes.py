"""Wakes of parked children: the host's word, or its silence, once."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.intercom.kit import intercom_of, station
from tests.unit.runtime.roots import call
from tieline.errors import Refused
from tieline.runtime.intercom.postal import SHARED
from tieline.runtime.intercom.wakes import WAKE_MS
from tieline.wire.intercom.client import WakeAsked

pytestmark = pytest.mark.asyncio


@pytest.mark.clause("intercom-104")
async def test_wake_is_answered_once_by_the_host_or_by_its_silence(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a host it failed at once; with one after 30 s; an answer that comes later is refused."""
    async with station(private_home) as at:
        root = await at.root("main")
        wakes, link = intercom_of(root).wakes, intercom_of(root).post.members[SHARED].link
        assert link is not None
        told: list[tuple[str, bool, str]] = []
        monkeypatch.setattr(
            link, "answer_wake", lambda token, *, is_woken, detail: told.append((token, is_woken, detail))
        )
        wakes.asked(SHARED, WakeAsked("t1", "child", "m"))
        assert (told[0][:2], wakes.deadline_ms) == (("t1", False), None)
        events: list[dict[str, Any]] = []
        root.operations.subscribe(lambda _kind, params: events.append(params.get("event", {})))
        for token in ("t2", "t3"):
            wakes.asked(SHARED, WakeAsked(token, "child", "m"))
        assert [(one["type"], one["token"], one["sessionId"]) for one in events] == [
            ("intercom_wake", "t2", "child"), ("intercom_wake", "t3", "child"),
        ]  # fmt: skip
        await call(root, "intercom.wake_outcome", token="t2", ok=True)
        assert told[1] == ("t2", True, "")
        assert wakes.deadline_ms is not None
        wakes.tick(root.node.now().mono_ms + WAKE_MS)
        assert told[2][:2] == ("t3", False)
        with pytest.raises(Refused):
            await call(root, "intercom.wake_outcome", token="t3", ok=True)
