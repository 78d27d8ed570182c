"""`tieline mute`: keep a peer's mail without being woken or notified by it.

Source: DESIGN.md 4.
"""

from argparse import Namespace

from tieline.adapters.cli.arguments import Alone, Parser, add_root_options
from tieline.adapters.cli.door import identity, reach, run_of
from tieline.adapters.cli.output import flush, line, write, write_json

__all__ = ["parser", "run"]


def parser(sub: Alone) -> Parser:
    """Return the parser of this command."""
    details = "Its messages are kept and can be read; they wake nobody and notify nobody."
    made = sub.add_parser("mute", "Silence one peer, or let it be heard again.", details)
    made.add_argument("peer", metavar="PEER", help="an alias or an exact peer id")
    made.add_argument("--off", action="store_true", help="let it be heard again")
    add_root_options(made)
    return made


def run(options: Namespace) -> int:
    """Mute or unmute, and return the exit code."""
    peer = options.peer.removeprefix(":")
    client, found, _ = reach(options, may_change=True)
    with client:
        answer = client.call("local.mute", {"peer": peer, "muted": not options.off, **run_of(options)})
    if options.json:
        write_json(
            "mute", {"peer": answer.get("peer", peer), "muted": not options.off, "root": identity(found)}
        )
    else:
        word = "heard again" if options.off else "silent: its mail is kept and wakes nobody"
        write(f":{line(peer, 64)} is {word}")
    flush()
    return 0
