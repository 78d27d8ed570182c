"""`tieline reply`: answer a message that was received; its sender is the recipient.

Source: DESIGN.md 4; reference/native.md 1K, 212.
"""

from argparse import Namespace

from tieline.adapters.cli.arguments import (
    Alone,
    Parser,
    add_message_options,
    add_root_options,
    milliseconds,
    text_of,
)
from tieline.adapters.cli.delivery import SLACK_S, Outcome, fields, report
from tieline.adapters.cli.door import identity, reach
from tieline.errors import UsageError

__all__ = ["parser", "run"]

WAIT_MS = 3_000
WAIT_MS_MAX = 3_600_000
"""What every root takes."""


def parser(sub: Alone) -> Parser:
    """Return the parser of this command."""
    details = (
        "ID is the id of the received message, as `tieline inbox` shows it; where two senders chose the\n"
        "same id, `tieline send PEER-ID --reply-to ID TEXT` says which of them. TEXT - reads stdin."
    )
    made = sub.add_parser("reply", "Answer a message that was received.", details)
    made.add_argument("id_of", metavar="ID", help="the message to answer")
    made.add_argument("text", metavar="TEXT", help="the answer")
    add_message_options(made, with_id=False)
    waiting = "seconds to wait for the recipient's word, at most 3600 (default 3)"
    made.add_argument("--wait", metavar="S", type=milliseconds, default=WAIT_MS, help=waiting)
    add_root_options(made)
    return made


def run(options: Namespace) -> int:
    """Reply, and return the exit code."""
    if options.wait > WAIT_MS_MAX:
        raise UsageError(f"--wait takes at most {WAIT_MS_MAX // 1_000} seconds")
    params = {**fields(options, text_of(options.text)), "messageId": options.id_of, "waitMs": options.wait}
    client, found, _ = reach(options, may_change=True)
    with client:
        outcome = Outcome()
        outcome.add(client.call("local.reply", params, options.wait / 1_000 + SLACK_S))
        return report("reply", outcome, options, {"root": identity(found)})
