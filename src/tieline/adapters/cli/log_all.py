"""`tieline log --all`: what happened among all agents of this user, one message a line, oldest first.

Rule 1: what roots keep is read, and nothing is changed; what could not be read is said on stderr.
Rule 2: a line says where its message stands, and when each receipt came, and no more than is known.

Source: DESIGN.md 4; docs/json-shapes.md, "log".
"""

import os
import re
import time
from argparse import Namespace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tieline.adapters.cli.output import clock, flush, line, note, write, write_json, write_json_line
from tieline.errors import UsageError

if TYPE_CHECKING:
    from tieline.runtime.timeline import TimelineQuery

__all__ = ["moment_ms", "run"]

DAY_MS = 86_400_000
LIMIT = 200
STATES = ("pending", "unknown", "accepted", "consumed", "replied", "rejected", "expired")
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": DAY_MS}
_SPAN = re.compile(r"([0-9]{1,9})([smhd])\Z")
TEXT_COLUMNS = 80


def moment_ms(text: str, now_ms: int) -> int:
    """Return the wall milliseconds that a person means by a span before now, `today`, or a time in UTC.

    Raises:
        UsageError: it is none of these.
    """
    span = _SPAN.match(text)
    if span is not None:
        return now_ms - int(span[1]) * _UNITS_MS[span[2]]
    if text == "today":
        midnight = datetime.fromtimestamp(now_ms / 1_000).astimezone()
        return int(midnight.replace(hour=0, minute=0, second=0, microsecond=0).timestamp() * 1_000)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{line(text, 64)!r} is no moment: give 30m, 2h, 1d, today or a time like 2026-12-01T05:00:00Z"
        ) from None
    return int((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1_000)


def run(options: Namespace) -> int:
    """Show the timeline, and return the exit code."""
    from tieline.runtime.locate import places  # the reader's start is paid by who reads
    from tieline.runtime.timeline import Timeline, shape

    where = places(os.environ)
    query = _query(options)
    reader = Timeline(where.home, where.coordination)
    reader.refresh(query.since_ms)
    page = reader.page(query)
    if options.jsonl:
        for entry in page.entries:
            write_json_line({"version": 1, "type": "timeline", **shape(entry)})
    elif options.json:
        entries = [shape(entry) for entry in page.entries]
        write_json("log", {"entries": entries, "before": page.cursor, "faults": list(page.faults)})
    else:
        for entry in page.entries:
            write(_line(shape(entry)))
    flush()
    for fault in page.faults:
        note(f"tieline log: {line(fault, 400)}")
    if not (options.json or options.jsonl):
        count = len(page.entries)
        note(f"{count} message{'' if count == 1 else 's'}")
        if page.cursor is not None:
            note(f"older ones: --before {page.cursor}")
    return 0


def _query(options: Namespace) -> "TimelineQuery":
    from tieline.runtime.timeline import TimelineQuery

    now_ms = time.time_ns() // 1_000_000
    states = frozenset(options.state.split(",")) if options.state else frozenset()
    unknown = sorted(states.difference(STATES))
    if unknown:
        raise UsageError(
            f"--state takes {', '.join(STATES)}, several with commas; not {line(unknown[0], 32)!r}"
        )
    return TimelineQuery(
        text=options.query or "",
        peer=options.peer or "",
        states=states,
        since_ms=now_ms - DAY_MS if options.since is None else moment_ms(options.since, now_ms),
        until_ms=None if options.until is None else moment_ms(options.until, now_ms),
        limit=options.limit or LIMIT,
        before=options.before,
    )


def _line(entry: dict[str, Any]) -> str:
    """Return one message on one line: who to whom, where it stands, its text, and every receipt."""
    ends = [_name(entry, "from"), _name(entry, "to")]
    state = _with_outcome(entry)
    if entry["ended"] and entry["state"] == "unknown":
        state += " (its sender ended)"
    kind = " asks" if entry["ask"] else ""
    steps = ", ".join(f"{_with_outcome(step)} {clock(step['at'])}" for step in entry["receipts"])
    head = f"{clock(entry['at'])}  {ends[0]} > {ends[1]}{kind}  {state}  {line(entry['messageId'], 256)}"
    return f"{head}  {line(entry['text'], TEXT_COLUMNS)}  [{steps}]"


def _name(entry: dict[str, Any], end: str) -> str:
    alias = entry.get(end + "Alias")
    return f":{line(alias, 64)}" if alias else line(entry[end], 64)


def _with_outcome(step: dict[str, Any]) -> str:
    outcome = step.get("outcome")
    return line(step["state"], 16) + (f" ({line(outcome, 64)})" if outcome else "")
