"""`tieline attach`: the door for a host in any language, as lines of JSON-RPC on stdio.

Rule: the door is one root, for as long as its input is open; docs/attach.md says all that a host needs.

Source: DESIGN.md 3; reference/native.md 2.15.
"""

import argparse

__all__ = ["main", "parser"]


def parser() -> argparse.ArgumentParser:
    """Return the parser of `tieline attach`, with its full help."""
    made = argparse.ArgumentParser(
        prog="tieline attach",
        description="Open a root for the program that starts this, and serve it with one JSON-RPC 2.0 object "
        "a line on standard input and output. The first line out is the notification `attached`. It ends in "
        "order when its input ends. docs/attach.md has every method.",
        epilog="Exit codes: 0 ended in order; 1 the root was refused (the code is on standard error and in "
        "the first line); 2 wrong usage; 5 recovery required.",
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
    made.add_argument("--session", default="", metavar="ID", help="the id of the host's saved conversation")
    made.add_argument(
        "--mode",
        default="interactive",
        choices=("interactive", "command", "rpc", "acp", "teammate"),
        help="how the host runs (default: interactive)",
    )
    made.add_argument("--model", default="", metavar="NAME", help="the model that listings show")
    made.add_argument("--harness", default="", metavar="NAME", help="what the host is called in listings")
    made.add_argument(
        "--workspace", default="", metavar="DIR", help="the folder the agent works in (default: this one)"
    )
    made.add_argument(
        "--home", default="", metavar="DIR", help="private home (default: TIELINE_HOME, else ~/.tieline)"
    )
    made.add_argument(
        "--coordination",
        default="",
        metavar="DIR",
        help="the directory that roots share (default: as configured)",
    )
    made.add_argument(
        "--idle-behavior",
        default="",
        choices=("notify", "auto"),
        help="auto: tell the host to wake its model when mail comes (default: config.toml, else notify)",
    )
    made.add_argument(
        "--no-publish",
        action="store_true",
        help="show no presence before the host has named its session with host.state",
    )
    made.add_argument(
        "--parent", action="store_true", help="also serve the host's teammates, by the team.* notifications"
    )
    return made


def main(argv: list[str]) -> int:
    """Serve the host on standard input and output until it leaves.

    Args:
        argv: The words after `tieline attach`.

    Returns:
        0 after an orderly end; 1, 2 or 5 where the root did not open.
    """
    given = parser().parse_args(argv)
    from tieline.adapters.attach.door import Door  # noqa: PLC0415 - --help needs none of it
    from tieline.adapters.stdio.pipes import Inlet, Outlet, take_over  # noqa: PLC0415
    from tieline.runtime import loops  # noqa: PLC0415
    from tieline.runtime.options import RootOptions  # noqa: PLC0415
    from tieline.runtime.root import open_root  # noqa: PLC0415

    source, sink = take_over()
    inlet, outlet = Inlet(source, lambda _line: False), Outlet(sink)
    options = RootOptions(
        home=given.home,
        coordination=given.coordination,
        workspace=given.workspace,
        session=given.session,
        alias=given.alias,
        scope=given.scope,
        idle_behavior=given.idle_behavior,
        mode=given.mode,
        harness=given.harness,
        model=given.model,
        is_published=not given.no_publish,
    )

    async def serve() -> int:
        door = Door(inlet, outlet, options, open_root, is_parent=given.parent)
        inlet.run()
        return await door.run()

    return loops.run(serve())
