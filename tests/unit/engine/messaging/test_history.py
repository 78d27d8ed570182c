"""Show that a page of events is exact, and that what was pruned is told."""

import pytest

from tieline.engine.contract import Page
from tieline.engine.messaging.history import History
from tieline.errors import Refusal
from tieline.model.receipt import Event


def event(cursor: int, owner: str = "o", message_id: str = "m", sender: str = "s") -> Event:
    return Event(cursor, "message", owner, message_id, sender, owner)


def page(history: History, after: int, count_max: int = 100, latest: int = 50, owner: str = "o") -> Page:
    found = history.page(owner, after, count_max, latest)
    assert isinstance(found, Page)
    return found


def filled() -> History:
    history = History()
    for cursor in range(1, 11):
        history.add(event(cursor, "o" if cursor % 2 else "p"), cursor * 100)
    return history


@pytest.mark.clause("I12", "mutant-21", "native-101")
def test_page_after_a_cursor_holds_exactly_what_is_greater() -> None:
    """The event at the cursor itself is not in the page; the next one is."""
    history = filled()
    assert [one.cursor for one in page(history, 0).events] == [1, 3, 5, 7, 9]
    assert [one.cursor for one in page(history, 3).events] == [5, 7, 9]
    assert [one.cursor for one in page(history, 4, 2).events] == [5, 7]
    assert page(history, 9).events == ()
    assert page(history, 0, owner="nobody").events == ()


@pytest.mark.parametrize("after", [51, -1])
def test_page_above_the_latest_cursor_is_refused(after: int) -> None:
    """A cursor that this store never gave is a wrong parameter."""
    refusal = filled().page("o", after, 10, 50)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "INVALID_PARAMS"


@pytest.mark.clause("I12")
def test_page_across_what_was_pruned_shows_the_gap() -> None:
    """A reader that missed pruned events is told, and one that did not is not."""
    history = filled()
    history.prune(6)
    history.prune(2)  # an older prune takes nothing back
    assert len(history) == 5
    assert page(history, 4).has_gap
    assert not page(history, 5).has_gap
    assert page(history, 0).oldest_cursor == 6
    assert [one.cursor for one in page(history, 0).events] == [7, 9]
    history.prune(11)
    assert history.oldest_ms() is None
    assert page(history, 0).events == ()


def test_prunable_events_are_the_excess_and_the_old() -> None:
    """Events past the count go, and those as old as the mark."""
    history = filled()
    assert history.prunable_through(10, 0) == 0
    assert history.prunable_through(7, 0) == 3
    assert history.prunable_through(10, 400) == 4
    assert history.prunable_through(0, 0) == 10
    assert history.oldest_ms() == 100


def test_events_of_one_message_are_found_from_its_cursor() -> None:
    """The history of one record leaves out those of others, also of the same id."""
    history = History()
    for cursor, message_id, sender in (
        (1, "m", "s"),
        (2, "m", "s"),
        (3, "n", "s"),
        (4, "m", "x"),
        (5, "m", "s"),
    ):
        history.add(event(cursor, message_id=message_id, sender=sender), 0)
    assert [one.cursor for one in history.of("o", 2, "m", "s")] == [2, 5]
    assert history.of("nobody", 1, "m", "s") == ()


def test_cleared_history_is_new() -> None:
    """Nothing stays of the old one."""
    history = filled()
    history.prune(5)
    history.clear()
    assert (len(history), history.oldest_cursor, page(history, 0).events) == (0, 1, ())
