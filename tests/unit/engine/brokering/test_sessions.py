"""The sessions of one broker."""

import pytest

from tests.unit.engine.brokering.kit import DIRECT, RECORDED, seated, session
from tieline.engine.brokering.contract import Lineage
from tieline.engine.brokering.features import Features


def test_session_is_found_by_id_and_link_until_it_is_removed() -> None:
    """A live session is known by both, in the order of registration; then by neither."""
    one, two = session("one", 1), session("two", 2)
    sessions = seated(one, two)
    assert (sessions.of_id("one"), sessions.of_link(2), len(sessions)) == (one, two, 2)
    assert list(sessions) == [one, two]
    sessions.remove(one)
    assert (sessions.of_id("one"), sessions.of_link(1), list(sessions)) == (None, None, [two])


def test_second_live_session_under_an_id_or_link_is_our_own_defect() -> None:
    """Ids and links are never shared."""
    sessions = seated(session("one", 1))
    with pytest.raises(AssertionError):
        sessions.add(session("one", 2))
    with pytest.raises(AssertionError):
        sessions.add(session("two", 1))


@pytest.mark.clause("intercom-20")
def test_id_and_time_are_the_hubs_where_the_session_does_not_say() -> None:
    """The id inside a session is overwritten; when it was last seen is its own word or now."""
    row = session("one", 1, id="mine").row()
    assert (row.fields["id"], row.fields["lastSeen"]) == ("one", 1_000)
    assert session("one", 1, lastSeen=4.5).row().fields["lastSeen"] == 4.5


def test_change_is_shown_and_says_whether_it_differs() -> None:
    """The next row shows what changed; None takes away; an old row stays what it was."""
    one = session("one", 1, status="idle")
    before = one.row()
    assert one.row() is before
    assert one.change({"status": "busy"})
    assert not one.change({"status": "busy"})
    assert one.change({"name": None})
    assert one.name is None
    assert one.get("status") == "busy"
    assert (before.fields["status"], one.row().fields.get("name")) == ("idle", None)


@pytest.mark.clause("intercom-65", "intercom-66")
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"status": "idle"}, True),
        ({"status": "idle · x", "acceptsAsks": True}, True),
        ({"status": "idle", "acceptsAsks": False}, False),
        ({"status": "idler"}, False),
        ({"status": "thinking"}, False),
        ({}, False),
    ],
)
def test_idle_is_what_a_session_says(fields: dict[str, object], expected: bool) -> None:
    """A status of idle, with anything behind a blank, unless it takes no asks."""
    assert session("one", 1, **fields).is_idle is expected


@pytest.mark.clause("intercom-135")
def test_only_a_main_that_announced_it_is_guarded() -> None:
    """A guarded row shows the capability, and the revision while there is one."""
    able = Features(needs_plain=True, guarded_delivery=True)
    main = session("one", 1, able, Lineage("r"))
    assert main.is_guarded
    assert main.row().fields["guardedDelivery"] == 1
    assert "applicationGuard" not in main.row().fields
    main.bind("g")
    assert main.row().fields["applicationGuard"] == "g"
    for other in (
        session("two", 2, able, Lineage("r", "r")),
        session("two", 2, able),
        session("two", 2, DIRECT, Lineage("r")),
    ):
        assert not other.is_guarded
        assert "guardedDelivery" not in other.row().fields


def test_bounded_sessions_are_counted_apart() -> None:
    """Only the kind that is bounded counts; who is seen is who is visible."""
    sessions = seated(
        session("one", 1), session("two", 2, RECORDED), session("three", 3, RECORDED, scope="s")
    )
    assert sessions.bounded_count() == 2
    first = sessions.of_id("one")
    assert first is not None
    assert [one.id for one in sessions.seen_by(first)] == ["one", "two"]


@pytest.mark.clause("intercom-26")
def test_null_under_an_unknown_field_is_kept() -> None:
    """A change takes away what it names, and nothing else."""
    one = session("one", 1, other=None, status="x")
    assert one.change({"status": None, "lastSeen": 5})
    fields = one.row().fields
    assert ("status" in fields, fields["other"], fields["lastSeen"]) == (False, None, 5)
    assert not one.change({"status": None})
