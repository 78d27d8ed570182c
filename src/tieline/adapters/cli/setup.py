"""`tieline setup`: put Tieline into the harnesses, and switch on what is off until a person says so.

Source: DESIGN.md 4.
"""

from argparse import Namespace

from tieline.adapters.cli.arguments import Alone, Parser
from tieline.adapters.cli.wiring import add_words, switch

__all__ = ["parser", "run"]


def parser(sub: Alone) -> Parser:
    """Return the parser of this command."""
    details = (
        "It edits the harness's own configuration, or config.toml for a wire: the change is shown first, "
        "comments and everything else stay, and it can be repeated. A harness that is named is set up also "
        "where only its configuration folder is there."
    )
    made = sub.add_parser("setup", "Put Tieline into the coding agents of this machine.", details)
    add_words(made, is_on=True)
    return made


def run(options: Namespace) -> int:
    """Switch it, and return the exit code."""
    return switch(options, is_on=True)
