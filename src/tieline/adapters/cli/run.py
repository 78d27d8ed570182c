"""`tieline run`: hold what a command needs, run it, and let go when its whole tree is gone.

Rule 1: the command's streams and exit code are passed through; what this prints goes to stderr.
Rule 2: own exit codes are kept apart: 2 wrong usage, 125 refused, 124 wait timed out, 126 and 127 as in sh.
Rule 3: who waits sees one line for each change; on a terminal that line is kept up to date in its place.

Source: DESIGN.md 2, 4; reference/native.md 2.14, 3.5.
"""

import os
import shlex
import sys
import time
from argparse import Namespace
from typing import Any

from tieline.adapters.cli.arguments import Alone, Parser, add_root_options, milliseconds
from tieline.adapters.cli.door import OwnRoot, reach_or_none
from tieline.adapters.cli.output import fail, line, note
from tieline.adapters.cli.ringed import RingWatch
from tieline.errors import Refused, TielineError, UsageError, next_action
from tieline.runtime.client import Client

__all__ = ["Teller", "described", "parser", "run"]

REFUSED, TIMED_OUT, WRONG_USAGE = 125, 124, 2
EXIT_CODES = {"RESOURCE_WAIT_TIMEOUT": TIMED_OUT, "USAGE": WRONG_USAGE, "INVALID_PARAMS": WRONG_USAGE}
WAIT_MS = 300_000
SPACE_ADVICE = "free some space on the disk that the text names, then start it again; nothing was started"
USAGE = "tieline run [--resource KEY ...] [--gate] [options] -- COMMAND [ARGUMENT ...]"
DETAILS = """KEY is machine/NAME or repository/NAME (the id of this repository is filled in). Nobody has to
configure a resource: who comes first holds it, the others wait in line. It is freed when nothing of the
command's tree runs any more, also when this command, or the agent that called it, was killed.
--gate finds the resources by the rules of config.toml instead, and runs at once what needs none.
The command gets TIELINE_FENCE, TIELINE_LAUNCH_ID and TIELINE_RESOURCE.

exit codes: the command's own; 2 wrong usage or a wrong config.toml, nothing was started; 124 waited
too long, nothing was started; 125 refused, nothing was started; 126 cannot be executed; 127 not found."""


def parser(sub: Alone) -> Parser:
    """Return the parser of this command."""
    made = sub.add_parser("run", "Hold what a command needs while it runs.", DETAILS, USAGE)
    made.add_argument(
        "--resource", action="append", default=[], metavar="KEY", help="what it needs; repeat for several"
    )
    made.add_argument("--gate", action="store_true", help="find what it needs by the rules of config.toml")
    made.add_argument(
        "--timeout", metavar="S", type=milliseconds, help="seconds to wait for the grant (default 300)"
    )
    made.add_argument("--reason", metavar="TEXT", help="what the others in line are shown")
    made.add_argument("--ticket", metavar="ID", help="use this ticket, requested before")
    made.add_argument(
        "--on-orphan", choices=("keep", "stop"), default="keep",
        help="when this front end dies: let the command go on (default), or stop it",
    )  # fmt: skip
    made.add_argument("--no-terminal", action="store_true", help="give the command no terminal of its own")
    made.add_argument("command", nargs="+", metavar="COMMAND [ARGUMENT ...]", help="after --: what to run")
    add_root_options(made)
    return made


def run(options: Namespace) -> int:
    """Wait, run, and return the command's exit code, or one of our own."""
    try:
        return _run(options)
    except TielineError as error:
        if error.code == "QUEUE_FULL" and error.action == next_action("QUEUE_FULL"):
            error.advising(SPACE_ADVICE)  # no message is meant here
        fail(error, "run", as_json=options.json)
        return EXIT_CODES.get(error.code, REFUSED)
    except KeyboardInterrupt:
        note("tieline run: interrupted while waiting; nothing was started")
        return 130


def _run(options: Namespace) -> int:
    if not options.resource and not options.gate:
        raise UsageError(
            "name what it needs with --resource, or let --gate find it; see `tieline run --help`"
        )
    reached = _reached(options)
    if reached is None:
        from tieline.runtime.locate import places

        where = places(os.environ)
        with OwnRoot(where) as client:
            return _launch(options, client, client.call("local.who"), where.coordination)
    client, _, where = reached
    with client:
        who = client.call("local.who", {"run": options.run} if options.run else {})
        return _launch(options, client, who, str(who["coordinationDirectory"]))


def _reached(options: Namespace) -> Any:
    """Return as `reach_or_none`, None also where every root there is belongs to another container.

    None of those can be the agent above this command, and what they hold is theirs alone: a resource that
    they do not use is free here.
    """
    try:
        return reach_or_none(options)
    except Refused as error:
        is_named = options.instance or options.run or os.environ.get("TIELINE_INSTANCE")
        if error.code != "FOREIGN_NAMESPACE" or is_named:
            raise
        return None


def _launch(options: Namespace, client: Client, who: dict[str, Any], coordination: str) -> int:
    from tieline.runtime.resources.claims import claimant_of
    from tieline.runtime.resources.coordinator import Coordinator
    from tieline.runtime.resources.running import Run

    principal, claimant = claimant_of(who, coordination + "/peer-runtime")
    coordinator = Coordinator(coordination)
    try:
        order = _order(options, who)
        teller = Teller()
        with RingWatch(client, "tieline run", order.keys, options.run, teller.note):
            end = Run(coordinator, coordination, principal, claimant, order).run(teller, _warn)
    finally:
        coordinator.close()
    if end.outcome == "lost":
        note(f"tieline run: RECOVERY_REQUIRED: {line(end.text, 400)}")
    elif end.outcome == "not_started":
        code = f"{end.code}: " if end.code else ""
        note(f"tieline run: {code}{line(end.text, 400)}; nothing was started")
    else:
        is_believed = _tell_damage(coordination, order.keys)
        if not end.is_tree_gone and is_believed:
            note("tieline run: processes of the command still run; the resource stays held until they end")
    return end.exit_code


def _tell_damage(coordination: str, keys: tuple[Any, ...]) -> bool:
    """Say which records were lost or damaged while the command ran; return whether there was none."""
    from tieline.runtime.resources.coordinator import Coordinator

    fresh = Coordinator(coordination)  # what this process saw of the files before is not asked
    is_believed = True
    try:
        for key in keys:
            fresh.store.read(key)
    except TielineError as error:
        is_believed = False
        note(f"tieline run: the command has ended; {error.code}: {line(str(error), 400)}")
        note(f"  next: {line(error.action, 400)}")
    finally:
        fresh.close()
    return is_believed


def _order(options: Namespace, who: dict[str, Any]) -> Any:
    from tieline.runtime.resources.claims import full_keys
    from tieline.runtime.resources.gating import verdict_on
    from tieline.runtime.resources.running import Order

    directory = os.getcwd()
    keys = full_keys(options.resource, directory)
    classes: tuple[str, ...] = ()
    required: tuple[Any, ...] = ()
    verdict = verdict_on(tuple(options.command), "", directory, str(who["home"]))
    if options.gate:
        required = tuple(verdict.keys)
        keys = tuple(sorted({*keys, *required}))
    classes = verdict.names
    return Order(
        keys=keys,
        command=tuple(options.command),
        timeout_ms=WAIT_MS if options.timeout is None else options.timeout,
        reason=options.reason or "",
        on_orphan=options.on_orphan,
        classes=classes,
        required=required,
        ticket_id=options.ticket,
        is_terminal_wanted=not options.no_terminal,
    )


def _warn(text: str) -> None:
    """Say why what the environment claims was not believed."""
    note(f"tieline run: {line(text, 600)}")


class Teller:
    """Says for whom this waits, at which place and for how long already."""

    def __init__(self) -> None:
        self._is_last = False

    def note(self, text: str) -> None:
        """Tell something else on a line that stays."""
        self._is_last = False
        note(text)

    def __call__(self, standing: Any) -> None:
        """Tell a standing: a new one everywhere, a later word of the same on a terminal only."""
        text = f"tieline run: {described(standing)}"
        stream = sys.stderr
        is_terminal = stream is not None and stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        if not is_terminal:
            if standing.is_new:
                note(text)
            return
        try:
            columns = os.get_terminal_size(stream.fileno()).columns
        except (OSError, ValueError):
            columns = 80
        # The line that was told last is written over: nothing else writes here while this waits.
        note(("\x1b[1A\r\x1b[K" if self._is_last else "") + line(text, max(20, columns - 1)))
        self._is_last = True


def described(standing: Any) -> str:
    """Return one line: what is waited for, who holds it since when, the place in line, and how long."""
    snapshot = standing.snapshot
    holder = snapshot.holder
    parts = [f"waiting for {snapshot.resource}"]
    if holder is not None:
        what = line(holder.executable or "a command", 64)
        for_s = max(0, time.time_ns() // 1_000_000 - holder.since_ms) // 1_000
        parts.append(f"held by :{line(holder.alias, 64)} ({what}) for {for_s} s")
    elif snapshot.blockers:
        parts.append(f"{len(snapshot.blockers)} commands from before the policy still run")
    if standing.unproven:
        launch = shlex.quote(line(standing.unproven, 64))
        parts.append(
            "nothing proves that its command lives or has ended:"
            f" `tieline resource recover {snapshot.resource} --launch {launch}` shows what is seen, to answer"
            " for it"
        )
    if snapshot.controller and snapshot.controller_life == "gone":
        name = line(snapshot.controller_alias or snapshot.controller, 64)
        parts.append(
            f"CONTROLLER_UNAVAILABLE: its controller :{name} has ended, nobody grants it; an agent that may"
            f" control: `tieline resource policy {snapshot.resource} --controller me --auto-grant`"
        )
    elif snapshot.controller and holder is None and not snapshot.blockers:
        name = line(snapshot.controller_alias or snapshot.controller, 64)
        doubt = " (whether it lives is not known)" if snapshot.controller_life == "unknown" else ""
        parts.append(f"its controller :{name}{doubt} has to grant it")
    if standing.place:
        parts.append(f"place {standing.place} of {max(standing.place, len(snapshot.queue))}")
    parts.append(f"waited {standing.waited_ms // 1_000} s")
    return "; ".join(parts)
