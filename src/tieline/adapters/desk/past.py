"""What happened among the agents: a search as a person types it, its lines, and their export.

Rule 1: `from:NAME` (or `peer:`) and `state:STATE` narrow; every other word is looked for in the text.
Rule 2: an export is JSON lines in the shape of `tieline log`, and holds what the screen found.

Source: docs/json-shapes.md, "log"; DESIGN.md 4.
"""

import json
from collections.abc import Callable

from tieline.adapters.desk.words import Piece, Row, fit, named, role_of, state_words
from tieline.model.receipt import State
from tieline.runtime.timeline import TimelineEntry, TimelinePage, TimelineQuery, shape
from tieline.text import wrapped

__all__ = ["detail", "exported", "query_of", "row"]

LINES_MAX = 500
BODY_INDENT = "  | "
_STATES = frozenset(str(state) for state in State)


def query_of(typed: str, since_ms: int) -> tuple[TimelineQuery, str]:
    """Return what a person looks for, and a sentence where a word of it means nothing."""
    words: list[str] = []
    peer, states, wrong = "", set[str](), ""
    for word in typed.split():
        name, colon, value = word.partition(":")
        if colon and value and name in ("peer", "from", "to"):
            peer = value
        elif colon and value and name == "state":
            if value in _STATES:
                states.add(value)
            else:
                wrong = f"state is one of {', '.join(sorted(_STATES))}"
        else:
            words.append(word)
    query = TimelineQuery(
        text=" ".join(words), peer=peer, states=frozenset(states), since_ms=since_ms, limit=LINES_MAX
    )
    return query, wrong


def row(entry: TimelineEntry, width: int, clock: Callable[[int], str]) -> Row:
    """Return one line of `width` columns: when, who to whom, where it stands, and its text."""
    sender, recipient = (one.alias or one.id[:13] for one in (entry.sender, entry.recipient))
    way = f"{named(sender, 11)} to {named(recipient, 11)}"
    when = clock(entry.at_ms)
    text = " ".join(entry.text.split()) if entry.text else "(its text waits for a person's word)"
    mark = "? " if entry.is_ask else "  "
    rest = max(10, width - len(when) - 28 - 10 - 3)
    return (
        Piece(when + " ", "weak"),
        Piece(fit(way, 26) + " ", "strong"),
        Piece(fit(entry.state, 9) + " ", role_of(entry.state)),
        Piece(mark, "warn" if entry.is_ask else ""),
        Piece(fit(text[:400], rest)),
    )


def exported(page: TimelinePage) -> str:
    """Return the lines as JSON lines, in ASCII: no sequence of another's making is in a file of ours."""
    return "".join(
        json.dumps({"version": 1, "command": "log", **shape(entry)}, ensure_ascii=True) + "\n"
        for entry in page.entries
    )


def detail(
    entry: TimelineEntry | None, width: int, clock: Callable[[int], str], page: TimelinePage
) -> list[Row]:
    """Return one line whole: its text, every receipt with its time, and what is known now."""
    faults: list[Row] = [(Piece(fit(fault, width), "warn"),) for fault in page.faults[:4]]
    if entry is None:
        return [(Piece("nothing that fits happened today", "weak"),), *faults]
    topic = f"  [{entry.topic}]" if entry.topic else ""
    found: list[Row] = [(Piece(fit(f"{entry.message_id}{topic}, {entry.wire}", width), "weak"),)]
    found += [
        (Piece(BODY_INDENT, "weak"), Piece(line)) for line in wrapped(entry.text, max(16, width - 4), 200)
    ]
    for step in entry.receipts:
        words = state_words(step.state, step.outcome)
        found.append(
            (
                Piece("  " + clock(step.at_ms) + " ", "weak"),
                Piece(fit(step.state, 9), role_of(step.state)),
                Piece(fit(" " + words, max(4, width - 20)), "weak"),
            )
        )
    found += [(Piece("  "), Piece(line, "weak")) for line in wrapped(entry.sentence(), max(16, width - 2), 4)]
    return found + faults
