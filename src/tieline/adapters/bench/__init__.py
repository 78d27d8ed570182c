"""`tieline bench`: the measured speed of this build on this machine, beside the limit of the machine.

Rule 1: it runs when a person asks for it, in a private folder that it removes; it reaches no root but
those that it started, and leaves no process.
Rule 2: a probe on one machine says nothing of another: host, kernel, file system and load are printed.

Source: DESIGN.md 4, 7; reference/native.md 1S (204 to 207), 2.17.
"""

import argparse
import json
import signal
import sys

from tieline.errors import UsageError

__all__ = ["main", "parser"]

PEERS_MAX = 50
SAMPLES_MAX = 100_000
BYTES_MIN, BYTES_MAX = 20, 1_048_576
STORED = 100_000


def parser() -> argparse.ArgumentParser:
    """Return the parser of `tieline bench`, with its full help."""
    made = argparse.ArgumentParser(
        prog="tieline bench",
        description="Measure acceptance, sends, throughput, start-up and memory, with independent processes, "
        "beside what the machine allows: an echo of the same bytes and one synced write of them. Every aim "
        "is shown with its ratio. It takes about two minutes, and both processors.",
        epilog="Exit codes: 0 measured, whatever the ratios; 1 a process failed, or a message was lost or "
        "stored twice; 130 interrupted. docs/performance.md explains each figure.",
        allow_abbrev=False,
    )
    made.add_argument(
        "--peers", type=int, default=2, metavar="N", help="roots in the ring (default 2, at most 50)"
    )
    made.add_argument(
        "--bytes",
        type=int,
        default=1_024,
        metavar="B",
        help="of each message's text (default 1024, at least 20)",
    )
    made.add_argument(
        "--samples", type=int, default=600, metavar="S", help="of each serial figure (default 600)"
    )
    made.add_argument(
        "--quick", action="store_true", help="a look in 30 s: few samples, 3000 stored messages"
    )
    made.add_argument("--json", action="store_true", help="print one JSON object")
    return made


def main(argv: list[str]) -> int:
    """Measure and print.

    Args:
        argv: The words after `tieline bench`.

    Returns:
        0 when everything was measured and nothing was lost or stored twice; else 1.

    Raises:
        UsageError: a number is out of its range.
    """
    given = parser().parse_args(argv)
    for name, value, low, high in (
        ("--peers", given.peers, 2, PEERS_MAX),
        ("--bytes", given.bytes, BYTES_MIN, BYTES_MAX),
        ("--samples", given.samples, 1, SAMPLES_MAX),
    ):
        if not low <= value <= high:
            raise UsageError(f"{name} is a whole number from {low} to {high}")
    from tieline.adapters.bench import report  # noqa: PLC0415 - --help needs none of it
    from tieline.adapters.bench.crew import BenchFailed  # noqa: PLC0415
    from tieline.adapters.bench.measure import measure  # noqa: PLC0415
    from tieline.adapters.bench.rounds import Plan  # noqa: PLC0415

    if given.quick:
        plan = Plan(given.peers, given.bytes, min(given.samples, 100), 5, 1.0, 3_000)
    else:
        plan = Plan(given.peers, given.bytes, given.samples, 12, 2.0, STORED)
    before = signal.signal(signal.SIGTERM, _interrupted)
    try:
        run, where = measure(plan, is_silent=given.json)
    except (BenchFailed, OSError) as error:
        sys.stderr.write(f"tieline bench: {error}\n")
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)
    shown = json.dumps(report.shape(run, where)) if given.json else report.text(run, where)
    sys.stdout.write(shown + "\n")
    return 1 if run.counts["lost"] or run.counts["duplicates"] else 0


def _interrupted(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
