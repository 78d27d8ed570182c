"""The command reference, made of the parsers: `python -m tieline.adapters.cli.reference` prints it.

With the word `limits` it prints the table that docs/configuration.md holds, made of `config.LIMITS`.

Rule 1: what the page says of a command is what its parser does; a test compares the two.
Rule 2: the form of the page is made here, not by argparse, whose layout differs between interpreters.

Source: DESIGN.md 4; STYLE.md 6.
"""

import argparse
import importlib
import sys

from tieline.adapters.cli.arguments import Shelf, actions_of
from tieline.adapters.cli.main import EXIT_CODES, commands_here
from tieline.adapters.cli.output import flush, write
from tieline.config import LIMITS

__all__ = ["limits", "main", "page", "parsers"]

HEAD = """# Commands

Printed from the program by `python -m tieline.adapters.cli.reference`; do not edit it here.

Data goes to stdout, everything else to stderr. `--json` prints one object with `"version": 1`
(see [the shapes](../json-shapes.md)). Options may stand anywhere; after `--` every word is taken as it
is. `NO_COLOR` and a stdout that is no terminal turn colour off. `TIELINE_DEBUG=1` prints the trace of an
error.
"""


def parsers() -> dict[str, tuple[argparse.ArgumentParser, str, str]]:
    """Return (parser, summary, details) of every command, in the order of the help page."""
    found: dict[str, tuple[argparse.ArgumentParser, str, str]] = {}
    for name, (place, summary) in commands_here().items():
        if place.startswith("cli."):
            shelf = Shelf()
            importlib.import_module(f"tieline.adapters.{place}").parser(shelf)
            found[name] = shelf.made[name]
        else:
            made = importlib.import_module(f"tieline.adapters.{place}").parser()
            found[name] = (made, summary[0].upper() + summary[1:] + ".", "")
    return found


def page() -> str:
    """Return the whole reference as Markdown, without a line end at its end."""
    parts = [HEAD, "## Exit codes\n", "| code | meaning |\n| --- | --- |"]
    parts[-1] += "".join(f"\n| {code} | {meaning} |" for code, meaning in EXIT_CODES.items())
    for name, (made, summary, details) in parsers().items():
        parts.append(_section(name, made, summary, details))
    return "\n".join(parts).rstrip("\n")


def limits() -> str:
    """Return the table of every limit as Markdown, without a line end at its end."""
    rows = ["| key | default | lowest | highest | unit | why it is there |", "| --- " * 6 + "|"]
    for name, bound in LIMITS.items():
        numbers = f"{bound.default:,} | {bound.low:,} | {bound.high:,}"
        rows.append(f"| `{name}` | {numbers} | {bound.unit} | {_cell(bound.reason)} |")
    return "\n".join(rows)


def _section(name: str, made: argparse.ArgumentParser, summary: str, details: str) -> str:
    positionals = [action for action in actions_of(made) if not action.option_strings]
    options = [action for action in actions_of(made) if action.option_strings and action.dest != "help"]
    words = ["tieline", name]
    for action in positionals:
        shown = str(action.metavar or action.dest)
        shown = "|".join(map(str, action.choices)) if action.choices else shown
        words.append(f"[{shown}]" if action.nargs in ("?", "*") else shown)
    if options:
        words.append("[options]")
    lines = [f"\n## tieline {name}\n", f"    {' '.join(words)}\n", summary]
    if details:
        lines.append(f"\n{details}")
    rows = [_row(action) for action in (*positionals, *options)]
    if rows:
        lines += ["", "| word | meaning |", "| --- | --- |", *rows]
    return "\n".join(lines)


def _row(action: argparse.Action) -> str:
    if action.option_strings:
        value = "" if action.nargs == 0 else str(action.metavar or "").strip() or action.dest.upper()
        if action.choices:
            value = "|".join(map(str, action.choices))
        word = ", ".join(action.option_strings) + (f" {value}" if value else "")
    else:
        word = "|".join(map(str, action.choices)) if action.choices else str(action.metavar or action.dest)
    return f"| `{_cell(word)}` | {_cell(action.help or '')} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def main(words: list[str]) -> int:
    """Print the page, or with the word `limits` that table; return 0."""
    write(limits() if words == ["limits"] else page())
    flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
