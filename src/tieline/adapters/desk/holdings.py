"""Who holds what, since when, who queues, what blocks and on what evidence; a row for each thing to act on.

Rule: it shows the resource's record as the root sees it; nothing is concluded here.

Source: docs/json-shapes.md, "resource"; reference/native.md 2.13.
"""

from collections.abc import Iterable
from typing import Any

from tieline.adapters.desk.words import Piece, Row, age, fit, named, safe
from tieline.runtime.glance import epoch_ms
from tieline.text import printable

__all__ = ["rows_of"]

Key = tuple[str, ...]


def rows_of(resources: Iterable[dict[str, Any]], width: int, now_ms: int) -> list[tuple[Key, Row]]:
    """Return each resource with its holder, blockers and queue; keys say what a row is about."""
    rows: list[tuple[Key, Row]] = []
    for shape in sorted(resources, key=lambda one: (one.get("state") == "free", str(one["resource"]))):
        rows += _resource(shape, width, now_ms)
    if not rows:
        rows.append(
            (("none",), (Piece("no resource was ever used here; `tieline run --resource` uses one", "weak"),))
        )
    return rows


def _resource(shape: dict[str, Any], width: int, now_ms: int) -> list[tuple[Key, Row]]:
    key = str(shape["resource"])
    state = str(shape.get("state") or "")
    role = {"free": "good", "held": "warn", "blocked": "bad"}.get(state, "warn")
    rows: list[tuple[Key, Row]] = [
        (
            ("resource", key),
            (Piece(fit(key, max(20, width - 14)), "strong"), Piece(" " + safe(state), role)),
        )
    ]

    def add(kind: str, name: str, text: str, role: str = "") -> None:
        head, shown = (f"  {name:<9} ", safe(text))
        rows.append(
            ((kind, key, text if kind == "fact" else shown), (Piece(head, "weak"), Piece(shown, role)))
        )

    if shape.get("configured") and not shape.get("fault"):
        life = {"gone": ", which has ended", "unknown": ", whether it lives is not known"}
        doubt = life.get(str(shape.get("controllerLife")), "")
        name = shape.get("controllerAlias") or shape.get("controller") or "?"
        add(
            "fact",
            "policy",
            f"{named(name)} grants{doubt}; epoch {shape.get('epoch')}, {shape.get('profile')}",
        )
    if shape.get("fault"):
        add("fact", "damaged", str(shape["fault"]), "bad")
    holder = shape.get("holder")
    if holder:
        rows += _holder(key, holder, now_ms)
    for blocker in shape.get("blockers") or ():
        launch = str(blocker["launchId"])
        text = f"{named(blocker['alias'])} ({blocker.get('executable') or 'a command'}), launch {launch}"
        rows.append((("launch", key, launch), (Piece("  blocked   ", "weak"), Piece(safe(text), "bad"))))
    for place, entry in enumerate(shape.get("queue") or (), 1):
        request = str(entry["requestId"])
        why = entry.get("reason") or ""
        text = f"{named(entry['alias'])} for {age(int(entry['waitMs']))}: {why}  [{request}]"
        head = f"  {place}. waits  "
        rows.append((("ticket", key, request), (Piece(head, "weak"), Piece(safe(text)))))
    if shape.get("nextAction"):
        add("fact", "next", str(shape["nextAction"]), "weak")
    return rows


def _holder(key: str, holder: dict[str, Any], now_ms: int) -> list[tuple[Key, Row]]:
    since_ms = epoch_ms(str(holder.get("since") or ""))
    since = "" if since_ms is None else f", for {age(now_ms - since_ms)}"
    what = printable(str(holder.get("executable") or "a command"), 24)
    text = f"{named(holder['alias'])} ({what}), {holder['state']}, fence {holder['fence']}{since}"
    launch = str(holder.get("launchId") or "")
    kind: Key = ("launch", key, launch) if launch else ("fact", key, "holder")
    rows: list[tuple[Key, Row]] = [(kind, (Piece("  holder    ", "weak"), Piece(safe(text), "warn")))]
    if launch:
        rows.append((("launch", key, launch, "id"), (Piece("  launch    ", "weak"), Piece(safe(launch)))))
    if holder.get("isOrphan"):
        said = "its agent has ended; its command still runs"
        rows.append((("launch", key, launch, "orphan"), (Piece("  orphan    ", "weak"), Piece(said, "bad"))))
    for number, seen in enumerate(holder.get("evidence") or ()):
        rows.append(
            (("launch", key, launch, str(number)), (Piece("  seen      ", "weak"), Piece(safe(seen))))
        )
    return rows
