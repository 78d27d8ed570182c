"""`tieline forget`: remove what an ended instance left on disk.

Rule: unread mail, and sends of which it is not known whether they arrived, are removed only where
`--unread` says so; a live instance is never touched.

Source: DESIGN.md 4, 8.
"""

import os
from argparse import Namespace

from tieline.adapters.cli.arguments import Alone, Parser, add_json
from tieline.adapters.cli.output import flush, line, write, write_json
from tieline.runtime.ended import forget
from tieline.runtime.locate import places

__all__ = ["parser", "run"]


def parser(sub: Alone) -> Parser:
    """Return the parser of this command."""
    details = (
        "Its messages and its log go. Refused while it lives, and, unless --unread is given, while it holds\n"
        "mail that nobody read or sends of which it is not known whether they arrived."
    )
    made = sub.add_parser("forget", "Remove what an ended instance left on disk.", details)
    made.add_argument("instance", metavar="INSTANCE", help="the ended instance")
    made.add_argument("--unread", action="store_true", help="remove its unread mail and unsettled sends, too")
    add_json(made)
    return made


def run(options: Namespace) -> int:
    """Forget the instance, and return the exit code."""
    where = places(os.environ)
    forgotten = forget(where.home, options.instance, is_unread_too=options.unread)
    if options.json:
        write_json("forget", {"instanceId": options.instance, **forgotten})
    else:
        counted = f"{forgotten['messages']} messages, {forgotten['unread']} of them unread"
        counted += f", {forgotten['unsettled']} sent and not settled"
        write(f"{line(options.instance, 128)} is forgotten: {counted}")
    flush()
    return 0
