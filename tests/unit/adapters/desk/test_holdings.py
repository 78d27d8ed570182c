from tests.unit.adapters.desk.kit import NOW_MS
from tests.unit.adapters.desk.test_app import RESOURCE
from tieline.adapters.desk.holdings import rows_of


def test_rows_name_what_each_can_be_acted_on_by() -> None:
    """Holder and blocker are their launch, a waiting one is its request; used resources come first."""
    rows = dict(rows_of([{"resource": "machine/a", "state": "free"}, RESOURCE], 80, NOW_MS))
    assert next(iter(rows)) == ("resource", "machine/db")
    assert ("launch", "machine/db", "l-1") in rows
    assert ("launch", "machine/db", "l-0") in rows
    assert ("ticket", "machine/db", "r-1") in rows
    assert list(rows)[-1] == ("resource", "machine/a")


def test_damaged_and_orphaned_resources_are_said() -> None:
    """A record that cannot be believed, an agent that ended, a controller that ended: each in words."""
    holder = {**RESOURCE["holder"], "isOrphan": True}  # type: ignore[dict-item]
    shape = {**RESOURCE, "holder": holder, "controllerLife": "gone"}
    damaged = {"resource": "machine/x", "state": "damaged", "fault": "its digest is wrong\x1b"}
    shown = "\n".join(
        "".join(piece.text for piece in row) for _, row in rows_of([shape, damaged], 80, NOW_MS)
    )
    assert "its agent has ended; its command still runs" in shown
    assert "which has ended" in shown
    assert "its digest is wrong\\x1b" in shown


def test_nothing_used_says_how_to_use_one() -> None:
    """No resource at all is a sentence."""
    ((key, row),) = rows_of([], 80, NOW_MS)
    assert key == ("none",)
    assert "tieline run" in row[0].text
