"""`tieline broker`: the intercom's broker, in the foreground; a first session starts one by itself.

Rule 1: whoever starts it learns from its first line where it answers; nothing else goes to stdout.
Rule 2: a starter that reads nothing, or leaves, ends no broker.

Source: DESIGN.md 2, 4; reference/intercom.md 6.3, 6.4.
"""

import contextlib
import os
from argparse import Namespace

from tieline.adapters.cli.arguments import Alone, Parser, add_json
from tieline.adapters.cli.output import flush, line, note, write, write_json
from tieline.runtime.broker import Paths, Started, paths_of, run_broker

__all__ = ["parser", "run"]


def parser(sub: Alone) -> Parser:
    """Return the parser of this command."""
    details = (
        "It stays in the foreground and leaves 5 s after the last session, unless it holds mail. Where a\n"
        "broker answers already, it says so and ends with 0. As `brokerCommand` of a JavaScript extension,\n"
        'with `brokerArgs` ["broker"], it serves where that extension\'s sessions look.'
    )
    made = sub.add_parser("broker", "Serve the intercom: the hub of its sessions.", details)
    made.add_argument(
        "script",
        metavar="SCRIPT",
        nargs="?",
        default="",
        help="the extension's own broker, which an extension adds; never run, it tells where sessions look",
    )
    made.add_argument(
        "--paths",
        choices=tuple(one.value for one in Paths),
        default="",
        help="shared: /tmp/pi-intercom-UID, or PI_INTERCOM_RUNTIME_DIR; agent: one broker for each agent"
        " directory, its socket in the temporary directory; folder: everything in the agent directory"
        " (default: as SCRIPT tells, else shared)",
    )
    add_json(made)
    return made


def run(options: Namespace) -> int:
    """Serve until nobody needs a broker any more, and return the exit code."""

    def started(what: Started) -> None:
        # A starter that reads nothing has what it wants: the socket answers.
        with contextlib.suppress(OSError):
            _tell(what, as_json=options.json)

    paths = paths_of(options.script, options.paths)
    run_broker(os.environ, paths, started, is_extensions=bool(options.script))
    return 0


def _tell(what: Started, *, as_json: bool) -> None:
    if as_json:
        write_json("broker", {"socket": what.socket, "started": what.is_ours})
    elif what.is_ours:
        write(f"Intercom broker started at {line(what.socket, 400)}")
    else:
        note(f"an intercom broker answers already at {line(what.socket, 400)}")
    flush()
