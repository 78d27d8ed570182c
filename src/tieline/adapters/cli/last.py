"""`tieline last`: a peer's last finished answer, without waking it.

Source: DESIGN.md 4; reference/open-bugs.md O49.
"""

from argparse import Namespace
from typing import Any

from tieline.adapters.cli.arguments import Alone, Parser, add_root_options
from tieline.adapters.cli.door import identity, reach, run_of
from tieline.adapters.cli.output import block, flush, line, note, write, write_json
from tieline.errors import UsageError

__all__ = ["parser", "run"]


def parser(sub: Alone) -> Parser:
    """Return the parser of this command."""
    details = "Only the answer's text goes to stdout; where a page ends, stderr says how to go on."
    made = sub.add_parser("last", "Show a peer's last finished answer, without waking it.", details)
    made.add_argument("to", metavar="TO", help="an alias or an exact peer id")
    made.add_argument("--entry", metavar="ID", help="a certain answer, as an earlier call named it")
    made.add_argument(
        "--offset", metavar="N", type=int, default=0, help="UTF-16 code units to skip (default 0)"
    )
    add_root_options(made)
    return made


def run(options: Namespace) -> int:
    """Show the answer, and return the exit code."""
    if options.offset < 0:
        raise UsageError("--offset takes a whole number from 0")
    params: dict[str, Any] = {"to": options.to.removeprefix(":"), "offset": options.offset, **run_of(options)}
    if options.entry is not None:
        params["entry"] = options.entry
    client, found, _ = reach(options, may_change=False)
    with client:
        answer = client.call("local.last", params)
    if options.json:
        write_json("last", {"to": params["to"], **answer, "root": identity(found)})
    elif answer.get("entry") is None:
        note(f":{line(params['to'], 64)} has no finished answer yet")
    else:
        write(block(answer.get("text", ""), ""))
    flush()
    if answer.get("nextOffset") is not None:
        entry, offset = line(answer.get("entry", ""), 256), line(answer["nextOffset"], 20)
        note(f"more: tieline last {line(params['to'], 64)} --entry {entry} --offset {offset}")
    return 0
