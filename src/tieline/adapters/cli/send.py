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
EXPIRY_MS = 600_000
USAGE = "tieline send [options] TO [TO ...] TEXT"
DETAILS = """TO is an alias (with or without its colon) or an exact peer id; it may be repeated, and each
recipient gets a message and a receipt of its own. TEXT is the last word; - reads stdin.
Where no root is found, one is opened for this message alone; it cannot be answered once it has ended."""


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
    expiry_ms = EXPIRY_MS if options.expires is None else options.expires
    wait_ms = expiry_ms if options.wait is None else options.wait
    with OwnRoot(places(os.environ)) as own:
        note("no root found: a root of this command sends it, and cannot be answered once it has ended")
        outcome = deliver(own, recipients, params, wait_ms / 1_000)
        return report("send", outcome, options, {"root": OWN})
