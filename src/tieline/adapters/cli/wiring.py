"""What `tieline setup` and `tieline unsetup` share: which things they know, the change, and the question.

Rule 1: what will be changed is shown before it is; nothing is written without a yes, or `--yes`.
Rule 2: twice is as once, and what was set up is taken out to the byte; a person's own lines stay.
Rule 3: only what would be taken by the next root is written.

Source: DESIGN.md 4 "setup"; docs/wire-pi-peers.md, docs/wire-intercom.md.
"""

import difflib
import os
import sys
from argparse import Namespace
from typing import Final

from tieline import config
from tieline.adapters.cli.arguments import Parser, add_json
from tieline.adapters.cli.output import flush, line, note, write, write_json
from tieline.adapters.cli.switches import switched_off, switched_on
from tieline.errors import UsageError
from tieline.runtime.configuration import configuration_path, configuration_text, replace_configuration
from tieline.runtime.options import home_directory

__all__ = ["NAMES", "add_words", "switch"]

NAMES: Final = ("pi-peers", "intercom")
"""What can be set up: the foreign wires, by their names."""


def add_words(parser: Parser) -> None:
    """Offer what both commands take."""
    parser.add_argument(
        "name",
        metavar="NAME",
        choices=NAMES,
        help="pi-peers: windows of pi and oh-my-pi; intercom: sessions that share a broker",
    )
    parser.add_argument("--dry-run", action="store_true", help="show the change, and write nothing")
    parser.add_argument("--yes", action="store_true", help="write it without a question")
    add_json(parser)


def switch(options: Namespace, *, is_on: bool) -> int:
    """Turn a wire on or off in config.toml, and return the exit code: 1 where the person said no."""
    home = home_directory("", os.environ)
    path = configuration_path(home)
    was = configuration_text(home)
    config.load(was, path, {})
    wire = options.name.replace("-", "_")
    text = switched_on(was, wire) if is_on else switched_off(was, wire)
    if getattr(config.load(text, path, {}).wires, wire).enabled != is_on:
        raise UsageError(
            f"{path}: [wires.{wire}] is written so that it cannot be changed here: change it there"
        )
    is_changed = text != was
    if not options.json:
        for part in _difference(was, text, path):
            write(line(part, 400))
        flush()
    is_written = is_changed and not options.dry_run and (options.yes or _is_wanted(options))
    if is_written:
        replace_configuration(home, text, was)
    if options.json:
        facts = {"name": options.name, "enabled": is_on, "changed": is_changed, "written": is_written}
        write_json("setup" if is_on else "unsetup", {**facts, "path": path})
        flush()
    else:
        note(_outcome(options, is_changed=is_changed, is_written=is_written, is_on=is_on))
    return 0 if is_written or not is_changed or options.dry_run else 1


def _is_wanted(options: Namespace) -> bool:
    """Ask the person.

    Raises:
        UsageError: there is nobody to ask.
    """
    if options.json or sys.stdin is None or not sys.stdin.isatty():
        raise UsageError("nobody is there to be asked: --yes writes it, --dry-run only shows it")
    note("write this? [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _difference(was: str, text: str, path: str) -> list[str]:
    parts = difflib.unified_diff(was.splitlines(), text.splitlines(), path, path, n=2, lineterm="")
    return list(parts)


def _outcome(options: Namespace, *, is_changed: bool, is_written: bool, is_on: bool) -> str:
    word = "on" if is_on else "off"
    if not is_changed:
        return f"{options.name} is {word} already: nothing to change"
    if not is_written:
        return "nothing was written"
    return (
        f"{options.name} is {word} for every agent that starts from now on; a running one keeps what it has"
    )
