"""Show that timers come in order, and that those which stand no more never come."""

from tieline.engine.messaging.timers import Timer, TimerKind, Timers


def always(_timer: Timer) -> bool:
    return True


def test_due_timers_come_by_time_then_kind_then_key() -> None:
    """The order is the same on every run."""
    timers = Timers()
    timers.add(20, TimerKind.DEADLINE, cursor=1)
    timers.add(10, TimerKind.TOKEN, name="b")
    timers.add(10, TimerKind.TOKEN, name="a")
    timers.add(10, TimerKind.RETRY, cursor=9)
    assert timers.next_ms(always) == 10
    found = [timers.pop_due(15, always) for _ in range(4)]
    assert found == [
        (10, TimerKind.RETRY, 9, ""),
        (10, TimerKind.TOKEN, 0, "a"),
        (10, TimerKind.TOKEN, 0, "b"),
        None,
    ]
    assert len(timers) == 1
    timers.clear()
    assert timers.next_ms(always) is None


def test_timer_that_stands_no_more_is_dropped_unread() -> None:
    """What was settled before its time wakes nobody."""
    timers = Timers()
    timers.add(10, TimerKind.RETRY, cursor=1)
    timers.add(20, TimerKind.RETRY, cursor=2)
    assert timers.next_ms(lambda timer: timer[2] == 2) == 20
    assert timers.pop_due(15, lambda timer: timer[2] == 2) is None
    assert len(timers) == 1
