"""`tieline send`: hand a message over, and print its receipt.

Source: DESIGN.md 2, 4; reference/open-bugs.md O03, O04.
"""

import os
from argparse import Namespace

from tieline.adapters.cli.arguments import (
    Alone,
    Parser,
    add_message_options,
    add_root_options,
    milliseconds,
    recipients_and_text,
)
from tieline.adapters.cli.delivery import deliver, fields, report
from tieline.adapters.cli.door import OWN, OwnRoot, identity, reach_or_none
from tieline.adapters.cli.output import note
from tieline.runtime.locate import places

__all__ = ["parser", "run"]

WAIT_MS = 3_000
EXPIRY_SLACK_MS = 2_500
"""Between a message's last instant and the root's word on what became of it."""
USAGE = "tieline send [options] TO [TO ...] TEXT"
DETAILS = """TO is an alias (with or without its colon) or an exact peer id; it may be repeated, and each
recipient gets a message and a receipt of its own. TEXT is the last word; - reads stdin. One word alone,
as ':api run the tests', is read as the desk reads it: a name, then what it is told.
Outside every agent a root of the command's own sends it. That root waits until the message has arrived or
expired; it cannot be answered once it has ended, and with a shorter --wait nothing retries what is open
then. --instance sends as that agent instead."""


def parser(sub: Alone) -> Parser:
    """Return the parser of this command."""
    made = sub.add_parser("send", "Hand a message over, and print its receipt.", DETAILS, USAGE)
    made.add_argument("words", nargs="+", metavar="TO [TO ...] TEXT", help="whom to tell, and what")
    made.add_argument("--reply-to", metavar="ID", help="the received message that this one answers")
    add_message_options(made)
    waiting = "seconds to wait for the recipient's word (default 3; with an own root, until it expires)"
    made.add_argument("--wait", metavar="S", type=milliseconds, help=waiting)
    add_root_options(made)
    return made


def run(options: Namespace) -> int:
    """Send, and return the exit code."""
    recipients, text = recipients_and_text(options.words, "tieline send")
    params = fields(options, text)
    reached = reach_or_none(options)
    if reached is not None:
        client, found, _ = reached
        with client:
            wait_ms = WAIT_MS if options.wait is None else options.wait
            outcome = deliver(client, recipients, params, wait_ms / 1_000)
            return report("send", outcome, options, {"root": identity(found)})
    root = OwnRoot(places(os.environ))
    with root as own:
        note("no agent hosts this command: a root of its own sends, and cannot be answered once it has ended")
        wait_ms = options.wait
        if wait_ms is None:  # nothing else retries it: stay as long as it lives, and learn how it ended
            wait_ms = (root.expiry_ms if options.expires is None else options.expires) + EXPIRY_SLACK_MS
        outcome = deliver(own, recipients, params, wait_ms / 1_000, is_own=True)
        return report("send", outcome, options, {"root": OWN})
