"""`tieline desk`: a person's screen among the agents, and a root of its own under the person's name.

Rule 1: nothing but this room imports textual; without it the command says in one sentence what to install.
Rule 2: the root is open before the screen is: what refuses it is told as by any command.
Rule 3: the desk is reached by what its root is asked; text of others passes the one sanitiser.

Source: DESIGN.md 2, 4; reference/native.md 1N; docs/howto-desk.md.
"""

import argparse
import os
import sys
from importlib.util import find_spec

from tieline.errors import Refused

__all__ = ["main", "parser", "person_alias"]

INSTALL = "pip install 'tieline[desk]'"


def parser() -> argparse.ArgumentParser:
    """Return the parser of `tieline desk`, with its full help."""
    made = argparse.ArgumentParser(
        prog="tieline desk",
        description="Sit down among the agents: who is there, what was said, what is unanswered, who holds "
        "what, who waits for whom, and what happened. It is an agent's equal: others see it under your name "
        "and write to it. `?` lists the keys; docs/howto-desk.md explains them.",
        epilog="Exit codes: 0 left in order; 1 the root was refused, or the screen's package is not "
        "installed; 2 wrong usage; 5 recovery required. It needs a terminal.",
        allow_abbrev=False,
    )
    made.add_argument(
        "--alias", default="", metavar="NAME", help="your name among the agents (default: your user name)"
    )
    made.add_argument(
        "--scope",
        default="",
        choices=("workspace", "repository", "machine"),
        help="how far you see and send (default: config.toml, else workspace)",
    )
    made.add_argument(
        "--workspace", default="", metavar="DIR", help="the folder you work in (default: this one)"
    )
    made.add_argument(
        "--home", default="", metavar="DIR", help="private home (default: TIELINE_HOME, else ~/.tieline)"
    )
    return made


def person_alias(name: str) -> str:
    """Return an alias made of a user's name, or "" where none can be."""
    letters = "".join(one if one.isascii() and (one.isalnum() or one in "_-") else "-" for one in name)
    made = letters.strip("-_")[:64]
    return made if made[:1].isalpha() else ""


def main(argv: list[str]) -> int:
    """Show the desk until the person leaves it.

    Args:
        argv: The words after `tieline desk`.

    Returns:
        0 after leaving in order.

    Raises:
        Refused: CAPABILITY_DENIED, the screen's package or a terminal is not there; as a root.
    """
    given = parser().parse_args(argv)
    if find_spec("textual") is None:
        refused = Refused("CAPABILITY_DENIED", "the desk's screen is not installed")
        raise refused.advising(f"install it: `{INSTALL}`; every other command works without it")
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout and sys.stdout.isatty()):
        refused = Refused("CAPABILITY_DENIED", "the desk needs a terminal")
        raise refused.advising(
            "start it in one; `tieline peers`, `inbox` and `log` print the same for a program"
        )
    from tieline.adapters.desk.opening import serve  # noqa: PLC0415 - --help and a refusal need none of it
    from tieline.runtime import loops  # noqa: PLC0415
    from tieline.runtime.options import RootOptions  # noqa: PLC0415

    user = os.environ.get("USER") or os.environ.get("LOGNAME") or ""
    alias = given.alias or os.environ.get("TIELINE_ALIAS", "") or person_alias(user)
    options = RootOptions(
        home=given.home,
        workspace=given.workspace,
        alias=alias,
        scope=given.scope,
        harness="desk",
        host_pid=os.getpid(),
    )
    return loops.run(serve(options))
