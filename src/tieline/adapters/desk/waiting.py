"""Who waits for whom, drawn; each ring by its names, with what would break it.

Rule: it draws what the roots' engines found; whether there is a ring is not decided here.

Source: docs/json-shapes.md, "waits"; reference/native.md 1N.
"""

from collections.abc import Callable
from typing import Any

from tieline.adapters.desk.words import Piece, Row, age, named, safe
from tieline.runtime.glance import epoch_ms
from tieline.text import printable

__all__ = ["drawn", "way_of"]

Key = tuple[str, ...]
Name = Callable[[str, str], str]


def drawn(view: dict[str, Any], name: Name, now_ms: int) -> list[tuple[Key, Row]]:
    """Return the rings, what breaks each, then every other wait, as rows with keys."""
    rows: list[tuple[Key, Row]] = []
    ringed: set[tuple[str, str]] = set()
    for number, ring in enumerate(view.get("cycles") or ()):
        waits = ring["waits"]
        ringed |= {(str(wait["waiter"]), str(wait["awaited"])) for wait in waits}
        head = f"RING of {len(waits)}: nobody goes on before one gives way"
        rows.append((("ring", str(number)), (Piece(head, "bad"),)))
        for place, wait in enumerate(waits):
            edge = "╭▶ " if place == 0 else "╰─ " if place == len(waits) - 1 else "│  "
            rows.append(
                (("hop", str(number), str(place)), (Piece(f"  {edge}", "bad"), *_wait(wait, name, now_ms)))
            )
        for place, way in enumerate(ring.get("ways") or ()):
            who = named(name(str(way["peer"]), ""))
            should = " (should)" if way["peer"] == ring.get("givesWay") else ""
            said = f"{who}{should} can {str(way['text']).partition(': `')[0]}"
            rows.append(
                (("way", str(number), str(place)), (Piece("     f  ", "strong"), Piece(safe(said), "warn")))
            )
        rows.append((("space", str(number)), ()))
    loose = [
        wait for wait in view.get("waits") or () if (str(wait["waiter"]), str(wait["awaited"])) not in ringed
    ]
    rows += _chains(loose, name, now_ms)
    if not rows:
        rows.append((("none",), (Piece("nobody waits for anybody", "weak"),)))
    if view.get("leftOut"):
        said = f"{view['leftOut']} roots did not answer in time: their waits are not shown"
        rows.append((("left",), (Piece(said, "warn"),)))
    return rows


def _wait(wait: dict[str, Any], name: Name, now_ms: int) -> tuple[Piece, ...]:
    waiter = named(name(str(wait["waiter"]), str(wait.get("waiterAlias") or "")))
    awaited = named(name(str(wait["awaited"]), str(wait.get("awaitedAlias") or "")))
    over = "asks" if wait.get("kind") == "ask" else f"needs {wait.get('subject') or 'a resource'}"
    since_ms = epoch_ms(str(wait.get("since") or ""))
    since = "" if since_ms is None else f" {age(now_ms - since_ms)}"
    return (
        Piece(waiter, "strong"),
        Piece(f" ──{printable(over, 30)}{since}──▶ "),
        Piece(awaited, "strong"),
    )


def _chains(waits: list[dict[str, Any]], name: Name, now_ms: int) -> list[tuple[Key, Row]]:
    """Return waits as trees: below each, what the awaited one waits for itself."""
    ahead: dict[str, list[dict[str, Any]]] = {}
    for wait in waits:
        ahead.setdefault(str(wait["waiter"]), []).append(wait)
    awaited = {str(wait["awaited"]) for wait in waits}
    rows: list[tuple[Key, Row]] = []
    drawn_ones: set[int] = set()

    def draw(peer: str, depth: int) -> None:
        for wait in ahead.get(peer, ()):
            if id(wait) in drawn_ones:
                continue
            drawn_ones.add(id(wait))
            indent = "  " + "   " * (depth - 1) + ("└─ " if depth else "")
            key = ("wait", peer, str(wait["awaited"]), str(wait.get("subject") or ""))
            rows.append((key, (Piece(indent, "weak"), *_wait(wait, name, now_ms))))
            if depth < 20:
                draw(str(wait["awaited"]), depth + 1)

    for first in [*(one for one in ahead if one not in awaited), *ahead]:
        draw(first, 0)
    return rows


def way_of(view: dict[str, Any], key: Key | None) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the ring and the way out that a row means: its own, or the one of who should give way."""
    if key is None or key[0] not in ("ring", "hop", "way"):
        return None
    rings = view.get("cycles") or ()
    number = int(key[1])
    if number >= len(rings) or not rings[number].get("ways"):
        return None
    ring = rings[number]
    if key[0] == "way" and int(key[2]) < len(ring["ways"]):
        return ring, ring["ways"][int(key[2])]
    should = [way for way in ring["ways"] if way["peer"] == ring.get("givesWay")]
    return ring, (should or ring["ways"])[0]
