"""Many histories, over two processes, and what they came to.

Rule 1: the simulator that gives two histories for one seed is refused, whatever it found.
Rule 2: no violation in N histories is a bound (p < 3/N at 95 %), and it is printed as one.
Rule 3: a failing seed is printed with its shortened history and the command that repeats it.

Source: reference/reliability.md 2.1 "Determinism check", 2.6; section 1 "Antithesis".
"""

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.sim.checker import INVARIANTS, check
from tests.sim.plan import Plan, draw
from tests.sim.shrink import shrunk
from tests.sim.world import SimWorld

__all__ = ["Report", "main", "run_seed"]

CHECKOUT = Path(__file__).resolve().parents[2]
SEEDS = Path(__file__).with_name("seeds.txt")
HISTORIES = 2_000
PROCESSES = 2
CHUNK = 25
HASHED_SEEDS = (7, 20, 23)
"""Seeds that are run twice under two hash seeds; the one that divides by twenty has the real journal."""
FAILURES_SHOWN_MAX = 3


class Report(NamedTuple):
    """What one history came to."""

    seed: int
    steps: int
    faults: dict[str, int]
    counts: dict[str, int]
    violations: list[tuple[str, str]]
    is_real_disk: bool


def run_seed(seed: int) -> Report:
    """Return the report of one seed."""
    return _run(draw(seed))


def _run(plan: Plan) -> Report:
    world = SimWorld(plan)
    try:
        history = world.run()
    except AssertionError as error:
        # The product's own assertions stay on; one that fails is as much a violation as a broken promise.
        violations = [("assert", f"{type(error).__name__}: {error}")]
        return Report(
            plan.seed, world.clock.steps_count, world.faults_count, {}, violations, plan.is_real_disk
        )
    verdict = check(history.entries)
    return Report(
        plan.seed,
        world.clock.steps_count,
        world.faults_count,
        verdict.counts,
        verdict.violations,
        plan.is_real_disk,
    )


def _run_chunk(seeds: Sequence[int]) -> list[Report]:
    return [run_seed(seed) for seed in seeds]


def digests(seeds: Sequence[int]) -> list[str]:
    """Return the digests of the seeds' histories."""
    return [SimWorld(draw(seed)).run().digest() for seed in seeds]


# ------------------------------------------------------------ determinism


def is_deterministic(seeds: Sequence[int]) -> bool:
    """Return whether two processes with different hash seeds give the same histories."""
    command = [sys.executable, "-m", "tests.sim", "--digests", *map(str, seeds)]
    children = []
    for hash_seed in ("0", "random"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        children.append(
            subprocess.Popen(command, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, text=True)
        )
    said = [child.communicate()[0].split() for child in children]
    return all(lines == said[0] and len(lines) == len(seeds) for lines in said)


# ------------------------------------------------------------ reporting


def kept_seeds() -> list[int]:
    """Return the seeds that failed once, from seeds.txt."""
    lines = SEEDS.read_text(encoding="utf-8").splitlines()
    return [int(line.split("#")[0]) for line in lines if line.split("#")[0].strip()]


def _chunks(seeds: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(seeds), CHUNK):
        yield seeds[start : start + CHUNK]


def explain(report: Report) -> None:
    """Print a failing seed: what broke, its shortened history, and how to repeat it."""
    broken = dict(report.violations[::-1])
    print(f"seed {report.seed}: {len(report.violations)} violations")
    for name, text in list(broken.items())[:8]:
        print(f"  {name}: {text}")
    name = next(iter(broken))
    plan = shrunk(draw(report.seed), lambda one: name in dict(_run(one).violations))
    print(f"  shortened to {len(plan.steps)} steps (limits as drawn):")
    for step in plan.steps:
        print(f"    {step}")
    world = SimWorld(plan)
    try:
        lines = world.run().lines()
    except AssertionError:
        lines = world.history.lines()
    print(f"  the last of {len(lines)} entries:")
    for line in lines[-12:]:
        print("    " + line[:200])
    print(f"  repeat with: python -m tests.sim --seed {report.seed} --histories 1 --show", flush=True)


def summary(reports: Sequence[Report], seconds: float) -> None:
    """Print what was run, what was drawn, and what was checked."""
    faults: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for report in reports:
        faults.update(report.faults)
        counts.update(report.counts)
    number = len(reports)
    failing = [report for report in reports if report.violations]
    real = sum(report.is_real_disk for report in reports)
    print(f"histories  {number}, {real} of them on the real journal, {number / max(seconds, 0.001):.0f}/s")
    print(f"steps      {sum(report.steps for report in reports)}")
    print("faults     " + ", ".join(f"{name} {faults[name]}" for name in sorted(faults)))
    print("checks     " + ", ".join(f"{name} {counts[name]}" for name in INVARIANTS))
    if not failing:
        print(f"violations 0: p < {3 / max(1, number):.2g} per history at 95 % (rule of three)")
    else:
        broken = Counter(name for report in failing for name in dict(report.violations))
        print("violations " + ", ".join(f"{name} in {broken[name]}" for name in sorted(broken)))


# ------------------------------------------------------------ main


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments ask for; return 0 when no promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description="many roots in one process")
    parser.add_argument("--histories", type=int, default=HISTORIES, help="how many seeds to run")
    parser.add_argument("--seed", type=int, default=1, help="the first of them")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--show", action="store_true", help="print the whole history of the first seed")
    parser.add_argument("--digests", type=int, nargs="+", help="print the digests of these seeds and end")
    options = parser.parse_args(arguments)
    if options.digests:
        print("\n".join(digests(options.digests)))
        return 0
    if options.show:
        print("\n".join(SimWorld(draw(options.seed)).run().lines()))
    started = time.monotonic()
    if not is_deterministic(HASHED_SEEDS):
        print("the simulator is refused: one seed gives two histories")
        print("0 passed, 1 failed")
        return 1
    seeds = [*kept_seeds(), *range(options.seed, options.seed + options.histories)]
    reports: list[Report] = []
    with ProcessPoolExecutor(max_workers=options.processes) as pool:
        for part in pool.map(_run_chunk, _chunks(seeds)):
            reports += part
    failing = [report for report in reports if report.violations]
    for report in failing[:FAILURES_SHOWN_MAX]:
        explain(report)
    if len(failing) > FAILURES_SHOWN_MAX:
        print("also failing: " + " ".join(str(report.seed) for report in failing[FAILURES_SHOWN_MAX:]))
    summary(reports, time.monotonic() - started)
    print(f"{len(reports) - len(failing)} passed, {len(failing)} failed")
    return 1 if failing else 0
