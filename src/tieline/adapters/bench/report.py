"""How a run is shown: to a person as aligned columns, to a program as one versioned object.

Rule 1: an aim that is missed says so, and so does one whose figure is not there.
Rule 2: nothing is said that this run did not measure.

Source: DESIGN.md 4, 7; reference/native.md 205, 206.
"""

from typing import Any, Final

from tieline.adapters.bench.figures import AIMS, Figure, Judged, judge
from tieline.adapters.bench.machine import busy_note
from tieline.adapters.bench.rounds import Run

__all__ = ["ROWS", "judged", "shape", "text"]

VERSION: Final = 1
"""Of the JSON shape."""

ROWS: Final = (
    ("limit", "limit: echo and one synced write"),
    ("echo_c", "  echo of the same bytes, in C"),
    ("echo_python", "  echo of the same bytes, blocking Python"),
    ("synced_write", "  synced write of the same bytes"),
    ("accept", "accepted over a warm link"),
    ("accept_cold", "accepted, with dial and handshake"),
    ("send", "a whole send, warm"),
    ("send_cold", "a whole send, the first over its route"),
    ("send_at_defaults", "a whole send, at default limits"),
    ("ring_cold", "ring: first send of each root to the next"),
    ("ring_warm", "ring: later sends"),
    ("inbox_told", "sent until the recipient's host is told"),
    ("inbox_read", "sent until its host holds the text"),
    ("rate_one_sender", "one sender, one after the other"),
    ("rate_one_route_pipelined", "one sender, one route, 32 waiting"),
    ("rate_one_link_pipelined", "one link, 32 under way, recipient alone"),
    ("rate_8_senders", "8 senders, each one after the other"),
    ("routes_serial_rate", "one root to another, one after the other"),
    ("routes_32_rate", "one root to 32 runs of another"),
    ("ping_idle", "a bystander's ping, nothing else going on"),
    ("ping_no_store", "  while 32 requests without a store are under way"),
    ("ping_at_routes", "  while 32 routes are being stored"),
    ("accept_little_stored", "accepted with 100 stored"),
    ("accept_much_stored", "accepted with {stored} stored"),
    ("python_pass", "python -c pass"),
    ("mcp_initialize", "tieline mcp: initialize answered"),
    ("mcp_first_call", "tieline mcp: first tool call answered"),
    ("cli_peers", "tieline peers"),
    ("mcp_pss", "idle root with the MCP door, PSS"),
)
"""Figures in the order in which they are shown, each with its words."""


def judged(figures: dict[str, Figure]) -> list[Judged]:
    """Return every aim with what came of it."""
    return [judge(aim, figures) for aim in AIMS]


def shape(run: Run, machine: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON shape of a run."""
    return {
        "version": VERSION,
        "command": "bench",
        "machine": machine,
        "busyNote": busy_note(machine["load"][0], machine["processors"]) or None,
        "plan": run.plan._asdict(),
        "limits": run.crew.raised,
        "figures": {name: run.figures[name].shape() for name, _ in ROWS if name in run.figures},
        "counts": {**run.counts, "failures": dict(run.crew.failures)},
        "processes": run.processes,
        "aims": [
            {
                "name": one.aim.name,
                "measured": one.measured,
                "limit": one.limit,
                "ratio": one.ratio,
                "bound": one.aim.bound,
                "stretch": one.aim.stretch,
                "isLeast": one.aim.is_least,
                "part": one.aim.part,
                "verdict": one.verdict,
            }
            for one in judged(run.figures)
        ],
    }


def text(run: Run, machine: dict[str, Any]) -> str:
    """Return a run as a person reads it."""
    plan = run.plan
    lines = [f"{name:<11} {value}" for name, value in machine.items()]
    raised = ", ".join(f"{name} {value}" for name, value in run.crew.raised.items())
    lines.append(
        f"{'measured':<11} {plan.size_bytes} bytes a message, {plan.peers} peers in the ring,"
        f" {plan.samples} samples in {plan.rounds} rounds; no provider's time is in it"
    )
    lines += [f"{'limits':<11} raised: {raised}", ""]
    lines += _table([("", "p50", "p99", "", "samples"), *_figures(run)])
    lines += ["", *_table([("process", "PSS KiB", "CPU s", "descriptors"), *_processes(run)])]
    counts, failures = run.counts, sum(run.crew.failures.values())
    told = (
        f"{counts['accepted']} said to be accepted; in the recipients' stores: {counts['lost']} lost,"
        f" {counts['duplicates']} duplicates; {failures} sends failed"
        + "".join(f" ({code} {count})" for code, count in run.crew.failures.items())
    )
    lines += ["", told, ""]
    lines += _table([("aim", "measured", "limit", "ratio", "wanted", ""), *map(_aim, judged(run.figures))])
    note = busy_note(machine["load"][0], machine["processors"])
    lines += ["", note] if note else []
    return "\n".join(line.rstrip() for line in lines)


def _figures(run: Run) -> list[tuple[str, ...]]:
    return [
        (
            words.format(stored=run.plan.stored),
            number(figure.p50),
            number(figure.p99) if figure.sample_count > 1 else "",
            figure.unit,
            str(figure.sample_count),
        )
        for name, words in ROWS
        if (figure := run.figures.get(name)) is not None
    ]


def _processes(run: Run) -> list[tuple[str, ...]]:
    return [
        (f"{one['process']} ({one['part']})", str(one["pssKib"]), str(one["cpuS"]), str(one["descriptors"]))
        for one in run.processes
    ]


def _aim(one: Judged) -> tuple[str, ...]:
    aim = one.aim
    wanted = f"{'at least' if aim.is_least else 'at most'} {aim.bound:g}"
    wanted += f" (stretch {aim.stretch:g})" if aim.stretch is not None else ""
    if one.measured is None or one.ratio is None:
        return aim.name, "-", "-", "-", wanted, f"{one.verdict}: not measured"
    limit = "-" if one.limit is None else number(one.limit)
    name = f"{aim.name}, p99" if aim.part == "p99" else aim.name
    return name, number(one.measured), limit, f"{one.ratio:.2f}", wanted, one.verdict


def number(value: float) -> str:
    """Return a figure with as many digits as it is worth."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}"


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if place in (0, len(row) - 1) else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
