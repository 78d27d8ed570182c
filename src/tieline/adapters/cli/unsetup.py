"""`tieline unsetup`: take out what `tieline setup` put in.

Source: DESIGN.md 4.
"""

from argparse import Namespace

from tieline.adapters.cli.arguments import Alone, Parser
from tieline.adapters.cli.wiring import add_words, switch

__all__ = ["parser", "run"]


def parser(sub: Alone) -> Parser:
    """Return the parser of this command."""
    details = (
        "Every file is then what it was before, to the byte, where nobody wrote it since; otherwise what "
        "setup put in is gone, and the rest stays. A switch that you wrote yourself becomes false."
    )
    made = sub.add_parser("unsetup", "Take out what setup put in.", details)
    add_words(made, is_on=False)
    return made


def run(options: Namespace) -> int:
    """Switch it, and return the exit code."""
    return switch(options, is_on=False)
