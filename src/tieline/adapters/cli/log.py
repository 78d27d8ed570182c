"""`tieline log`: what happened at a root, or with --all among all, oldest first.

Source: DESIGN.md 4; reference/native.md 2.8 "Event".
"""

from argparse import Namespace
from typing import Any

from tieline.adapters.cli import log_all
from tieline.adapters.cli.arguments import Alone, Parser, add_root_options
from tieline.adapters.cli.door import foreign_root, identity, reach, run_of
from tieline.adapters.cli.letters import show_event
from tieline.adapters.cli.output import flush, line, note, write_json, write_json_line
from tieline.errors import UsageError

__all__ = ["parser", "run"]


DETAILS = """Without --all: the events of one root. With --all: what every live root of this user keeps, and
what ended ones left, put together by message, with both ends and all receipts. Nothing is consumed.
--jsonl prints one event, or one message, a line, as JSON."""


def parser(sub: Alone) -> Parser:
    """Return the parser of this command."""
    made = sub.add_parser("log", "Show what happened, oldest first.", DETAILS)
    made.add_argument("--query", metavar="Q", help="only events that hold this text, without regard to case")
    made.add_argument("--peer", metavar="P", help="only events from or to this alias or peer id")
    made.add_argument("--after", metavar="CURSOR", help="only what came after this cursor")
    made.add_argument("--limit", metavar="N", type=int, help="at most N events, 1 to 1000")
    made.add_argument("--jsonl", action="store_true", help="one JSON object a line")
    made.add_argument("--all", action="store_true", help="of all agents of this user, one message a line")
    made.add_argument("--since", metavar="WHEN", help="with --all: 30m, 2h, 1d, today or a time (default 1d)")
    made.add_argument("--until", metavar="WHEN", help="with --all: only what came before")
    made.add_argument("--state", metavar="S[,S]", help="with --all: only messages that stand so")
    made.add_argument("--before", metavar="CURSOR", help="with --all: only what is older than this place")
    add_root_options(made)
    return made


def run(options: Namespace) -> int:
    """Show the history, and return the exit code."""
    _check(options)
    if options.all:
        return log_all.run(options)
    params: dict[str, Any] = {**run_of(options)}
    for name in ("query", "after", "limit"):
        if getattr(options, name) is not None:
            params[name] = getattr(options, name)
    if options.peer is not None:
        params["peer"] = options.peer.removeprefix(":")
    client, found, _ = reach(options, may_change=False)
    with client:
        answer = client.call("local.log", params)
    events = [event for event in answer.get("events", []) if isinstance(event, dict)]
    if options.jsonl:
        for event in events:
            write_json_line({"version": 1, **event})
    elif options.json:
        write_json("log", {"events": events, "cursor": answer.get("cursor"), "root": identity(found)})
    else:
        for event in events:
            show_event(event)
    flush()
    if not (options.json or options.jsonl):
        for text in foreign_root(found):
            note(text)
        counted = "1 event" if len(events) == 1 else f"{len(events)} events"
        note(f"{counted}; cursor {line(answer.get('cursor', ''), 20)}")
    return 0


def _check(options: Namespace) -> None:
    if options.all and options.after is not None:
        raise UsageError("--after is a place in one root's history; --before and --since go with --all")
    if options.after is not None and not (options.after.isascii() and options.after.isdigit()):
        raise UsageError("--after takes a cursor: a decimal number as `tieline log` prints it")
    if options.limit is not None and not 1 <= options.limit <= 1_000:
        raise UsageError("--limit takes a whole number from 1 to 1000")
    for name in ("since", "until", "state", "before"):
        if getattr(options, name) is not None and not options.all:
            raise UsageError(f"--{name} goes with --all, which shows the messages of all agents")
