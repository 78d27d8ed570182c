"""How commands read their words: one parser class, the options that many share, and typed values.

Rule 1: a wrong word raises `UsageError`; nothing here prints or exits, but for --help.
Rule 2: options may stand anywhere among the words; after `--` every word is taken as it is.
Rule 3: a value is checked here only for its form; what it means is for the root to judge.

Source: DESIGN.md 2 and 4; reference/open-bugs.md O07.
"""

import argparse
import os
import sys
from typing import Final, NoReturn

from tieline.errors import Refused, UsageError

__all__ = [
    "Alone",
    "Parser",
    "Shelf",
    "actions_of",
    "add_json",
    "add_message_options",
    "add_root_options",
    "milliseconds",
    "parse",
    "recipients_and_text",
    "text_of",
]

WIDTH: Final = 100
SECONDS_MAX: Final = 86_400
DELIVERY_HELP: Final = (
    "steer: at the next safe boundary of a busy turn; queue: when the turn ends; passive: wakes nobody"
)
TEXT_BYTES_MAX: Final = 1_048_576
"""The highest message size that any root may be set to; read no more than that."""


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Lays help out without asking the terminal, which would import what no other command needs."""

    def __init__(self, prog: str) -> None:
        columns = os.environ.get("COLUMNS", "")
        super().__init__(prog, max_help_position=28, width=int(columns) if columns.isdecimal() else WIDTH)


class Parser(argparse.ArgumentParser):
    """A parser that raises where argparse would print and exit."""

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError` with argparse's sentence."""
        raise UsageError(f"{message}; see `{self.prog} --help`")


class Alone:
    """Where one command's parser is made when only that command runs."""

    def add_parser(self, name: str, summary: str, details: str = "", usage: str | None = None) -> Parser:
        """Return the parser of the command `name`; `usage` where argparse would write it badly."""
        return Parser(
            prog=f"tieline {name}",
            usage=usage,
            description=summary + (f"\n\n{details}" if details else ""),
            allow_abbrev=False,
            formatter_class=Formatter,
        )


class Shelf(Alone):
    """The same, and it keeps what was made: for the reference and the completion scripts."""

    def __init__(self) -> None:
        self.made: dict[str, tuple[Parser, str, str]] = {}

    def add_parser(self, name: str, summary: str, details: str = "", usage: str | None = None) -> Parser:
        """Return the parser of the command `name`, and keep it under that name."""
        made = super().add_parser(name, summary, details, usage)
        self.made[name] = (made, summary, details)
        return made


def actions_of(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return what a parser takes, positionals and options, in the order in which they were added."""
    return list(parser._actions)  # noqa: SLF001 - argparse keeps it and offers no other way to it


def parse(parser: Parser, words: list[str]) -> argparse.Namespace:
    """Return the options; words that are no options may stand before, between and after them.

    Raises:
        UsageError: a word is wrong or missing.
    """
    plain: list[str] = []
    if "--" in words:
        at = words.index("--")
        words, plain = words[:at], words[at + 1 :]
    positionals = [action for action in actions_of(parser) if not action.option_strings]
    if not positionals:
        if plain:
            raise UsageError(f"unexpected word {plain[0]!r}; see `{parser.prog} --help`")
        return parser.parse_args(words)
    known, rest = _options_only(parser, positionals, words)
    given = rest + plain
    if any(word.startswith("-") and word != "-" for word in rest):
        wrong = next(word for word in rest if word.startswith("-") and word != "-")
        raise UsageError(f"unknown option {wrong}; a text that begins with - goes after --")
    return parser.parse_args(["--", *given], known) if given else parser.parse_args([], known)


def _options_only(
    parser: Parser, positionals: list[argparse.Action], words: list[str]
) -> tuple[argparse.Namespace, list[str]]:
    """Return what the options say, and the words that belong to none."""
    kept = [(action, action.nargs, action.default, action.required) for action in positionals]
    try:
        for action in positionals:
            action.nargs = argparse.SUPPRESS
            action.default = argparse.SUPPRESS
        return parser.parse_known_args(words)
    finally:
        for action, nargs, default, is_required in kept:
            action.nargs, action.default, action.required = nargs, default, is_required


def add_json(parser: Parser) -> None:
    """Offer `--json`."""
    parser.add_argument("--json", action="store_true", help="print one versioned JSON object")


def add_root_options(parser: Parser) -> None:
    """Offer `--instance`, `--run` and `--json`: what every command that asks a root has."""
    parser.add_argument("--instance", metavar="ID", help="ask this instance's root, and no other")
    parser.add_argument("--run", metavar="TOKEN", help="act as the run that this capability was made for")
    add_json(parser)


def add_message_options(parser: Parser, *, with_id: bool = True) -> None:
    """Offer what a message may carry besides its text; `with_id` also its id, and how far to look."""
    parser.add_argument("--topic", help="what it is about; at most 256 characters")
    parser.add_argument("--delivery", choices=("steer", "queue", "passive"), help=DELIVERY_HELP)
    parser.add_argument("--thread", help="the thread it belongs to")
    parser.add_argument(
        "--replace", action="store_true", help="take the place of its thread's earlier unread message"
    )
    attaching = "a text file that travels with it; may be repeated"
    parser.add_argument("--attach", metavar="FILE", action="append", default=[], help=attaching)
    if with_id:
        reaching = "how far to look for TO (default: as configured); all: also windows of every project"
        parser.add_argument("--scope", choices=("workspace", "repository", "machine", "all"), help=reaching)
        parser.add_argument(
            "--id", metavar="ID", help="the message id; the same id again is the same message"
        )
    parser.add_argument(
        "--expires", metavar="S", type=milliseconds, help="seconds until it expires unread (default 600)"
    )


def milliseconds(text: str) -> int:
    """Return whole milliseconds for seconds given in decimal, 0 to one day.

    Raises:
        argparse.ArgumentTypeError: it is no such number.
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"must be 0 to {SECONDS_MAX} seconds, not {text}")
    return round(seconds * 1_000)


def recipients_and_text(words: list[str], prog: str) -> tuple[list[str], str]:
    """Return the recipients and the text of `TO [TO ...] TEXT`, or of one word as it is typed at the desk.

    A leading colon, as a person writes an alias, is not part of the name.

    Raises:
        UsageError: the text is missing, or empty, or a recipient is.
    """
    if len(words) == 1 and words[0].lstrip().startswith(":"):
        from tieline.composer import direct

        typed = direct(words[0])
        if typed is not None:
            return [typed.mention.alias], typed.content
    if len(words) < 2:
        raise UsageError(f"TO and TEXT are needed; see `{prog} --help`")
    recipients = list(dict.fromkeys(word.removeprefix(":") for word in words[:-1]))
    if not all(recipients):
        raise UsageError("a recipient is an alias or a peer id, not an empty word")
    return recipients, text_of(words[-1])


def text_of(word: str) -> str:
    """Return the text that `word` stands for; `-` reads stdin to its end, without one last line end.

    Raises:
        UsageError: it is empty, or not UTF-8.
        Refused: `MESSAGE_TOO_LARGE`, stdin holds more than any root may be set to.
    """
    if word == "-":
        if sys.stdin is None:
            raise UsageError("stdin is closed; there is no text to read")
        data = sys.stdin.buffer.read(TEXT_BYTES_MAX + 1)
        if len(data) > TEXT_BYTES_MAX:
            raise Refused("MESSAGE_TOO_LARGE", f"stdin holds more than {TEXT_BYTES_MAX} bytes")
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise UsageError("the text on stdin is not UTF-8") from None
        text = text.removesuffix("\n").removesuffix("\r")
    else:
        text = word
        # Bytes of the command line that are not UTF-8 come in as lone surrogates.
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise UsageError("the text is not UTF-8")
    if not text:
        raise UsageError("the text is empty")
    return text
