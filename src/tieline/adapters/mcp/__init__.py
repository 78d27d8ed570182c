"""`tieline mcp`: the door for a coding agent that speaks the Model Context Protocol over stdio.

Rule 1: the first answers come from constants, before the root's modules are imported; the root is
imported and opened right after the first answer was written.
Rule 2: at the top nothing heavy is imported, here and in what is imported here.
Rule 3: what the process writes to its output is protocol and nothing else.

Source: DESIGN.md 2, 4, 6; reference/substrate.md 6; docs/mcp.md.
"""

import os

from tieline.adapters.mcp import aside
from tieline.adapters.mcp.early import EarlyAnswers
from tieline.adapters.stdio.pipes import Inlet, Outlet, take_over

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

__all__ = ["main", "parser"]


def parser() -> "argparse.ArgumentParser":
    """Return the parser of `tieline mcp`, with its full help."""
    import argparse  # noqa: PLC0415 - a host starts this without options, and pays for every import

    made = argparse.ArgumentParser(
        prog="tieline mcp",
        description="Serve one coding agent over the Model Context Protocol on standard input and output. "
        'A host starts it: {"command": "tieline", "args": ["mcp"]}. It ends when its input ends.',
        epilog="Everything else comes from config.toml and TIELINE_ variables; `tieline doctor` shows what "
        "holds.",
    )
    made.add_argument(
        "--alias",
        default="",
        metavar="NAME",
        help="the readable name that others see (default: made from the project)",
    )
    made.add_argument(
        "--scope",
        default="",
        choices=("workspace", "repository", "machine"),
        help="how far this agent may see and send (default: config.toml, else workspace)",
    )
    made.add_argument(
        "--session", default="", metavar="ID", help="the host's session id, where the host does not tell it"
    )
    made.add_argument("--harness", default="", metavar="NAME", help="what the host is called in listings")
    made.add_argument("--model", default="", metavar="NAME", help="the model that listings show")
    made.add_argument(
        "--workspace", default="", metavar="DIR", help="the folder the agent works in (default: this one)"
    )
    return made


def main(argv: list[str]) -> int:
    """Serve the host on standard input and output until it leaves.

    Args:
        argv: The words after `tieline mcp`.

    Returns:
        0 when the host left, also when it never asked for anything; 1 when its output took nothing.
    """
    given = vars(parser().parse_args(argv)) if argv else {}
    source, sink = take_over()
    outlet = Outlet(sink)
    if aside.is_served(os.environ, os.getppid()) or _is_proxied():
        return _stand_aside(source, outlet)
    answers = EarlyAnswers()

    def answer(line: bytes) -> bool:
        answered = answers.answer(line)
        if answered:
            outlet.write(answered)
        return answered is not None

    inlet = Inlet(source, answer)
    # The host waits: nothing is imported before its first answer is written.
    while not answers.is_answered and not inlet.has_waiting():
        if not inlet.step():
            os.close(source)
            return 0
    inlet.run()
    serving = _import_serving()
    return int(serving.serve(inlet, outlet, answers, serving.Options(**given)))


def _is_proxied() -> bool:
    """Return whether `tieline acp` serves the sessions of the agent that started this."""
    if aside.PROXY_VARIABLE not in os.environ:
        return False
    from tieline.runtime.proxied import is_proxied  # noqa: PLC0415 - who is not behind it does not pay for it

    return is_proxied(os.environ)


def _stand_aside(source: int, outlet: Outlet) -> int:
    """Answer until the host leaves, without tools and without a root."""
    inlet = Inlet(source, lambda line: outlet.write(aside.answer(line)) or True)
    while inlet.step():
        pass
    os.close(source)
    return 0


def _import_serving() -> "Any":
    """Import what serves tool calls, as fast as it goes: a first call may be waiting for it.

    The collector finds nothing in what an import makes, and looks at all of it again and again. The loop
    imports TLS, which no door of this process speaks, but does without where it is not there.
    """
    import gc  # noqa: PLC0415 - built in
    import sys  # noqa: PLC0415 - built in

    gc.disable()
    is_without_tls = "ssl" not in sys.modules
    if is_without_tls:
        sys.modules["ssl"] = None  # type: ignore[assignment]  # documented: the import then fails
    try:
        from tieline.adapters.mcp import serving  # noqa: PLC0415 - this is the import that waits
    finally:
        if is_without_tls:
            del sys.modules["ssl"]
        gc.freeze()
        gc.enable()
    return serving
