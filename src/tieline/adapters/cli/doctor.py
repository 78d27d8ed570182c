"""`tieline doctor`: what works, what does not, and the next action. It needs no root.

Source: DESIGN.md 4, 8.
"""

import os
from argparse import Namespace

from tieline.adapters.cli.arguments import Alone, Parser, add_json
from tieline.adapters.cli.output import flush, line, note, paint, write, write_json
from tieline.runtime.checkup import Check, checkup

_HARNESSES = "tieline.adapters.harness"

__all__ = ["parser", "run"]


def parser(sub: Alone) -> Parser:
    """Return the parser of this command."""
    details = (
        "Exit code 0: all is well; 1: something is not, and its line says what to do. --json has counters."
    )
    made = sub.add_parser("doctor", "Show what works, what does not, and the next action.", details)
    add_json(made)
    return made


def run(options: Namespace) -> int:
    """Examine this machine, and return the exit code."""
    found = checkup(os.environ)
    found.checks.extend(_of_harnesses())
    bad = [check for check in found.checks if not check.ok]
    if options.json:
        checks = [_shape(check) for check in found.checks]
        write_json(
            "doctor", {"ok": not bad, "checks": checks, "roots": found.roots, "counters": found.counters}
        )
    else:
        for check in found.checks:
            word = paint("ok", "good") if check.ok else paint("no", "bad")
            write(f"{word}  {line(check.name, 64)}: {line(check.text, 400)}")
            if check.action:
                write(f"    next: {line(check.action, 400)}")
    flush()
    note(f"{len(bad)} of {len(found.checks)} checks need something" if bad else "all is well")
    return 1 if bad else 0


def _of_harnesses() -> list[Check]:
    """Return what is to say of the harnesses; nothing where that room is not installed."""
    from importlib import import_module
    from importlib.util import find_spec

    if find_spec(_HARNESSES) is None:
        return []
    found: list[Check] = import_module(_HARNESSES).checks(os.environ)
    return found


def _shape(check: Check) -> dict[str, object]:
    shape: dict[str, object] = {"name": check.name, "ok": check.ok, "text": check.text}
    return {**shape, "action": check.action} if check.action else shape
