"""`tieline recover`: unread mail of an ended instance, for review. Without a name: which there are.

Rule 1: nothing is moved, nothing is marked as read, nothing is sent again; original ids are kept.
Rule 2: it reads a copy; the originals are shown to be unchanged.

Source: DESIGN.md 4, 8; reference/native.md 1Q (182 to 185).
"""

import os
from argparse import Namespace

from tieline.adapters.cli.arguments import Alone, Parser, add_json
from tieline.adapters.cli.delivery import words
from tieline.adapters.cli.letters import show
from tieline.adapters.cli.output import block, flush, line, note, table, write, write_json
from tieline.runtime.ended import DAMAGED_ACTION, Ended, Recovered, ended_instances, recover
from tieline.runtime.locate import places

__all__ = ["parser", "run"]

SHOWS_TEXT = "`tieline recover INSTANCE` shows the mail"
NONE_TEXT = "no ended instance left unread or unsettled mail; --all lists what is kept of the others"


def parser(sub: Alone) -> Parser:
    """Return the parser of this command."""
    details = "Nothing is moved, marked as read or sent again. Without INSTANCE, ended instances are listed."
    made = sub.add_parser("recover", "Show the unread mail of an ended instance, for review.", details)
    made.add_argument("instance", metavar="INSTANCE", nargs="?", help="the ended instance")
    made.add_argument("--all", action="store_true", help="also list instances with nothing left to review")
    made.add_argument("--session", metavar="ID", help="refuse unless the instance served this saved session")
    add_json(made)
    return made


def run(options: Namespace) -> int:
    """List or show, and return the exit code."""
    where = places(os.environ)
    if options.instance is None:
        return _list(where.home, options)
    found = recover(where.home, options.instance, options.session)
    if options.json:
        write_json("recover", found._asdict())
    else:
        _show(found)
    flush()
    if not options.json:
        held = f", {len(found.held)} held" if found.held else ""
        note(
            f"{len(found.messages)} unread, {len(found.sent)} sent and not settled{held}; nothing was changed"
        )
    return 0


def _show(found: Recovered) -> None:
    for message in found.messages:
        show(message)
    for item in found.sent:
        receipt = item.get("receipt") or {}
        state, to = line(receipt.get("state", ""), 16), line(receipt.get("to", ""), 64)
        write(f"sent  {state}  to {to}  id {line(receipt.get('messageId', ''), 256)}")
        write(f"  {words(receipt, is_left=True)}; the sender has ended: ask the recipient")
        if item.get("expired"):
            write("  its time is over: the recipient took it before that, or never will")
        content = (item.get("message") or {}).get("content")
        if content is not None:
            write(block(content))

    for item in found.held:
        name = line(item.get("fromAlias") or item.get("from", "?"), 64)
        write(f"held  from {name}  id {line(item.get('messageId', ''), 256)}")
        write("  the agent ended before you let it in or sent it away: it never arrived; ask its sender")


def _shape(item: Ended) -> dict[str, object]:
    return {
        "instanceId": item.instance,
        "sessionId": item.session,
        "unread": item.unread_count,
        "unsettled": item.unsettled_count,
        "held": item.held_count,
        "messages": item.message_count,
        "fault": item.fault or None,
    }


def _count(number: int | None) -> str:
    return "unknown" if number is None else str(number)


def _list(home: str, options: Namespace) -> int:
    found = [
        item
        for item in ended_instances(home)
        if options.all or item.unread_count or item.unsettled_count or item.held_count or item.fault
    ]
    if options.json:
        write_json("recover", {"instances": [_shape(item) for item in found]})
    elif found:
        rows: list[tuple[str, ...]] = [
            (
                line(item.instance, 128),
                f"{_count(item.unread_count)} unread",
                f"{_count(item.unsettled_count)} not settled"
                + (f", {item.held_count} held" if item.held_count else ""),
                line(item.fault or f"session {item.session}", 200),
            )
            for item in found
        ]
        write(table(rows))
    flush()
    if not options.json:
        if any(item.fault for item in found):
            note(f"of a damaged store nothing can be shown: {DAMAGED_ACTION}")
        if not found or any(not item.fault for item in found):
            note(SHOWS_TEXT if found else NONE_TEXT)
    return 0
