"""`tieline acp -- AGENT ...`: an agent of the Agent Client Protocol, with our tools and mail, for any editor.

Rule: the editor starts this in the agent's place; without the agent's words there is nothing to start.

Source: reference/harnesses.md 9; DESIGN.md 4; docs/harnesses/acp.md.
"""

import argparse

__all__ = ["main", "parser"]


def parser() -> argparse.ArgumentParser:
    """Return the parser of `tieline acp`, with its full help."""
    made = argparse.ArgumentParser(
        prog="tieline acp",
        usage="tieline acp [--alias NAME] [--scope SCOPE] -- AGENT ...",
        description="Start an agent that speaks the Agent Client Protocol on standard input and output, and "
        "pass its lines on. New sessions get Tieline's tools; mail begins a turn when the agent is idle.",
        epilog="The exit code is the agent's.",
    )
    made.add_argument("--alias", default="", metavar="NAME", help="the readable name that others see")
    made.add_argument(
        "--scope",
        default="",
        choices=("workspace", "repository", "machine"),
        help="how far the agent may see and send (default: config.toml, else workspace)",
    )
    made.add_argument("agent", nargs="+", metavar="AGENT", help="the words that start the agent")
    return made


def main(argv: list[str]) -> int:
    """Serve the editor on standard input and output until it leaves or the agent ends.

    Args:
        argv: The words after `tieline acp`.

    Returns:
        The agent's exit code; 126 or 127 where it cannot be started, as in sh.
    """
    given = parser().parse_args(argv)
    from tieline.adapters.acp.proxy import Proxy  # noqa: PLC0415 - --help needs none of it
    from tieline.adapters.stdio.pipes import take_over  # noqa: PLC0415
    from tieline.runtime import loops  # noqa: PLC0415
    from tieline.runtime.root import open_root  # noqa: PLC0415

    source, sink = take_over()

    async def serve() -> int:
        return await Proxy(source, sink, given.agent, given.alias, given.scope, open_root).run()

    return loops.run(serve())
