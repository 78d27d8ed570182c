"""Sockets that have not registered."""

import pytest

from tieline.engine.brokering.raw import RAW_ABSOLUTE_MAX, RAW_GRACE_MS, RAW_MAX, RAW_MS, RawSockets


@pytest.mark.clause("intercom-30")
def test_socket_is_cut_after_its_time() -> None:
    """A silent socket is let go exactly at its time; who registered is not."""
    raw = RawSockets()
    assert raw.due_ms is None
    assert raw.opened(1, 11, 0) == []
    assert raw.opened(2, 12, 10) == []
    assert raw.ended(1) == 11
    assert raw.ended(1) == 0
    assert raw.due_ms == 10 + RAW_MS
    assert raw.expire(9 + RAW_MS) == []
    assert raw.expire(10 + RAW_MS) == [2]
    assert len(raw) == 0


@pytest.mark.clause("intercom-30")
def test_oldest_of_too_many_gives_way_once_it_could_have_spoken() -> None:
    """Beyond the bound the oldest gives way, but not one that has just come."""
    raw = RawSockets()
    for link in range(RAW_MAX + 2):
        assert raw.opened(link, 0, 0) == []
    assert raw.due_ms == RAW_GRACE_MS
    assert raw.expire(RAW_GRACE_MS - 1) == []
    assert raw.expire(RAW_GRACE_MS) == [0, 1]
    assert raw.due_ms == RAW_MS
    for link in range(100, 100 + RAW_ABSOLUTE_MAX):
        raw.opened(link, 0, RAW_GRACE_MS)
    assert len(raw) == RAW_ABSOLUTE_MAX
