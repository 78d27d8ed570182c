from tests.unit.adapters.desk.test_app import ring
from tieline.adapters.desk.waiting import drawn, way_of


def name(peer: str, alias: str) -> str:
    return alias or peer


def text(view: dict[str, object]) -> str:
    return "\n".join("".join(piece.text for piece in row) for _, row in drawn(view, name, 0))


def wait(waiter: str, awaited: str, **facts: object) -> dict[str, object]:
    return {"waiter": waiter, "awaited": awaited, "kind": "ask", **facts}


def test_waits_are_drawn_as_trees_from_who_nobody_waits_for() -> None:
    """Below each wait stands what the awaited one waits for itself; each wait is drawn once."""
    view = {"waits": [wait("b", "c"), wait("a", "b"), wait("d", "b", kind="resource", subject="machine/x")]}
    assert text(view).splitlines() == [
        "  :a ──asks──▶ :b",
        "  └─ :b ──asks──▶ :c",
        "  :d ──needs machine/x──▶ :b",
    ]


def test_ring_is_named_with_every_way_out() -> None:
    """Its hops, who should give way, and what each can do; its waits are not drawn twice."""
    view = ring()
    shown = text(view)  # type: ignore[arg-type]
    assert "RING of 2" in shown
    assert shown.count("──▶") == 2
    assert "(should) can answer :db" in shown


def test_way_of_a_row_is_its_own_or_that_of_who_gives_way() -> None:
    """A ring's row means who should give way; a row that is no ring means nothing."""
    view = ring()
    found = way_of(view, ("ring", "0"))  # type: ignore[arg-type]
    assert found is not None
    assert found[1]["text"] == "answer :db"
    assert way_of(view, ("way", "0", "0")) is not None  # type: ignore[arg-type]
    for key in (None, ("none",), ("ring", "7"), ("wait", "a", "b", "")):
        assert way_of(view, key) is None  # type: ignore[arg-type]


def test_nobody_waiting_and_roots_left_out_are_said() -> None:
    """An empty graph says so, and so does a root that did not answer."""
    assert text({}) == "nobody waits for anybody"
    assert "2 roots did not answer" in text({"leftOut": 2})
