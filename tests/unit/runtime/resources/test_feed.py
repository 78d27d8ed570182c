"""Which resource events a peer was told."""

import msgspec
import pytest

from tieline.model.resource import Document, ResourceEvent, ResourceKey
from tieline.runtime.resources import feed as feed_module
from tieline.runtime.resources.feed import Feed, Told

KEY = ResourceKey("machine/x")


def document(*audiences: tuple[str, ...], first: int = 1, dropped: int = 0) -> Document:
    """Return a resource with an event for each of these audiences."""
    events = tuple(
        ResourceEvent(KEY, first + number, 0, "queued", 0, audience)
        for number, audience in enumerate(audiences)
    )
    last = first + len(audiences) - 1
    return Document(KEY, events=events, event_sequence=last, events_dropped=dropped)


def sequences(told: list[Told]) -> list[int]:
    """Return the numbers of events."""
    return [one.event.sequence for one in told]


@pytest.mark.clause("native-203", "I38")
def test_event_is_taken_once_for_each_of_its_audience() -> None:
    """(resource, sequence, recipient) is one event, however often the document is read."""
    feed = Feed()
    found = feed.take(document(("a", "b"), ("b",), ("z",)), frozenset({"a", "b"}), 7)
    assert [(one.recipient, one.event.sequence) for one in found] == [("a", 1), ("b", 1), ("b", 2)]
    assert feed.take(document(("a", "b"), ("b",), ("z",)), frozenset({"a", "b"}), 8) == []
    assert sequences(feed.unread("b")) == [1, 2]
    assert sequences(feed.unread("z")) == []


def test_read_that_was_not_confirmed_is_told_again() -> None:
    """At least once: only a flush ends it, and two readers at once do not both get it."""
    feed = Feed()
    feed.take(document(("a",)), frozenset({"a"}), 0)
    feed.read("t-1", feed.unread("a"))
    assert feed.unread("a") == []
    feed.settle("t-1", is_taken=False)
    assert sequences(feed.unread("a")) == [1]
    feed.read("t-2", feed.unread("a"))
    feed.settle("t-2", is_taken=True)
    feed.settle("t-2", is_taken=False)
    assert feed.unread("a") == []
    assert sequences(feed.after("a", 0)) == [1]


def test_replay_gives_what_came_after_a_place_in_the_history() -> None:
    """A log shows an event where its reader's own history stood."""
    feed = Feed()
    feed.take(document(("a",)), frozenset({"a"}), 3)
    feed.take(document(("a",), first=2), frozenset({"a"}), 9)
    assert sequences(feed.after("a", 4)) == [2]
    assert sequences(feed.after("a", 0)) == [1, 2]


def test_kept_events_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go first, and are no longer unread either."""
    monkeypatch.setattr(feed_module, "KEPT_MAX", 2)
    feed = Feed()
    feed.take(document(("a",), ("a",), ("a",)), frozenset({"a"}), 0)
    assert sequences(feed.unread("a")) == [2, 3]
    older = msgspec.structs.replace(document(("a",)), event_sequence=1)
    assert feed.take(older, frozenset({"a"}), 0) == []
