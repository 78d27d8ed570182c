"""Updates that wait a moment."""

import pytest

from tests.unit.engine.brokering.kit import letter, session
from tieline.engine.brokering.staging import STAGED_MAX, STAGED_PER_SENDER_MAX, Staged, Staging


def staged(
    sender: str, recipient: str, thread: str, due_ms: int = 0, *, is_ask: bool = False, identity: str = "m"
) -> Staged:
    row = session(sender, 1).row()
    return Staged(row, recipient, letter(identity, thread_id=thread, is_ask=is_ask), due_ms, 0)


@pytest.mark.clause("intercom-65")
def test_newer_update_replaces_and_starts_the_time_anew() -> None:
    """One per sender, recipient and thread; due in the order of their times."""
    staging = Staging()
    assert staging.due_ms is None
    assert staging.put(staged("a", "b", "t", 10))
    assert staging.put(staged("a", "c", "t", 11))
    assert staging.put(staged("a", "b", "t", 20, identity="newer"))
    assert (len(staging), staging.due_ms) == (2, 11)
    assert [one.recipient_id for one in staging.due(19)] == ["c"]
    assert [one.letter.message_id for one in staging.due(20)] == ["newer"]
    assert len(staging) == 0


@pytest.mark.clause("intercom-69")
def test_bounds_refuse_new_threads_and_never_a_replacement() -> None:
    """A sender has its number of threads, all have theirs; room that is freed is room again."""
    staging = Staging()
    for number in range(STAGED_PER_SENDER_MAX):
        assert staging.put(staged("a", "b", str(number)))
    assert not staging.put(staged("a", "b", "more"))
    assert staging.put(staged("a", "b", "7"))
    for sender in range(1, STAGED_MAX // STAGED_PER_SENDER_MAX):
        for number in range(STAGED_PER_SENDER_MAX):
            assert staging.put(staged(f"s{sender}", "b", str(number)))
    assert not staging.put(staged("z", "b", "t"))
    staging.replaced("a", "b", "7")
    staging.replaced("a", "b", "unknown")
    assert staging.put(staged("z", "b", "t"))


@pytest.mark.clause("intercom-68")
def test_leavers_take_along_what_is_theirs() -> None:
    """A sender takes its asks, a recipient everything."""
    staging = Staging()
    staging.put(staged("a", "b", "ask", is_ask=True))
    staging.put(staged("a", "b", "send"))
    staging.put(staged("a", "c", "send"))
    staging.sender_left("nobody")
    staging.sender_left("a")
    assert len(staging) == 2
    assert [one.letter.thread_id for one in staging.recipient_left("b")] == ["send"]
    assert [one.recipient_id for one in staging.due(0)] == ["c"]
