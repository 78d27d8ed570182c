"""`tieline setup`: switch on what is off until a person says so.

Source: DESIGN.md 4.
"""

from argparse import Namespace

from tieline.adapters.cli.arguments import Alone, Parser
from tieline.adapters.cli.wiring import add_words, switch

__all__ = ["parser", "run"]


def parser(sub: Alone) -> Parser:
    """Return the parser of this command."""
    details = "It changes config.toml, shows the change first, and can be repeated."
    made = sub.add_parser("setup", "Let agents speak with windows of another kind, too.", details)
    add_words(made)
    return made


def run(options: Namespace) -> int:
    """Switch it, and return the exit code."""
    return switch(options, is_on=True)
