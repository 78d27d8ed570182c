"""What will happen in a history: drawn from its seed before it begins, so that it can be shortened.

Rule 1: all of it comes from the seed; a step names what it does by small numbers that are resolved
against whoever lives by then, so that a plan with steps left out still makes sense.
Rule 2: the weights and the knobs are drawn too: a history is about one or two kinds of trouble.

Source: reference/reliability.md 2.1 "Knobs", 2.3; section 1 "FoundationDB", "TigerBeetle".
"""

import random
from typing import NamedTuple

from tests.sim.hostile import ACTS
from tieline.config import Limits

__all__ = ["FAULTS", "Plan", "Step", "draw"]

REAL_DISK_EVERY = 20
STEPS_MIN, STEPS_MAX = 14, 44

TALK = {
    "send": 30,
    "agent_send": 6,
    "ask": 4,
    "cross_asks": 2,
    "reply": 10,
    "again": 4,
    "changed": 2,
    "burst": 2,
    "expose": 10,
    "expose_taken": 10,
    "taken": 5,
    "untaken": 2,
    "prompt": 2,
    "begin_run": 3,
    "end_run": 3,
    "mute": 1,
    "page": 6,
    "list": 4,
    "resolve": 3,
    "directory": 2,
    "wait": 4,
    "outbox": 2,
    "duplicate": 2,
}
FAULTS = {
    "crash": 4,
    "restart": 4,
    "close": 1,
    "stop": 4,
    "part": 4,
    "swallow": 3,
    "deaf": 3,
    "cut": 5,
    "slow_net": 3,
    "one_byte": 2,
    "disk_full": 3,
    "disk_doubt": 4,
    "disk_slow": 3,
    "reopen_fails": 2,
    "wall_jump": 3,
    "hide": 2,
    "hostile": 12,
    "unproven": 2,
    "sleep": 2,
}
"""Every kind of trouble, with its weight."""


class Step(NamedTuple):
    """One thing that happens: when (ms from the start), what, and numbers that say to whom."""

    at_ms: int
    kind: str
    a: int
    b: int
    n: int


class Plan(NamedTuple):
    """One history before it happens."""

    seed: int
    roots: int
    limits: tuple[Limits, ...]
    auto: tuple[bool, ...]
    has_hostile: bool
    is_hostile_tieline: bool
    out_of_scope: tuple[tuple[int, int], ...]
    is_real_disk: bool
    steps: tuple[Step, ...]
    end_ms: int


def draw(seed: int) -> Plan:
    """Return the plan of a seed."""
    chance = random.Random(f"plan/{seed}")
    roots = chance.choice((2, 2, 3, 3, 4))
    count = chance.randint(STEPS_MIN, STEPS_MAX)
    loved = dict.fromkeys(chance.sample(sorted(FAULTS), 3))
    weights = {**TALK, **{name: weight * (6 if name in loved else 1) for name, weight in FAULTS.items()}}
    if chance.random() < 0.15:
        weights = {**weights, **dict.fromkeys(FAULTS, 0)}  # calm: what must work when nothing fails
    pace_ms = chance.choice((20, 200, 1_000, 4_000))
    names, heaviness = list(weights), list(weights.values())
    steps: list[Step] = []
    at_ms = 50
    for _ in range(count):
        kind = chance.choices(names, heaviness)[0]
        steps.append(
            Step(at_ms, kind, chance.randrange(1 << 16), chance.randrange(1 << 16), chance.randrange(1 << 16))
        )
        at_ms += chance.randint(0, pace_ms)
    has_hostile = chance.random() < 0.5
    scopes = tuple((a, b) for a in range(roots) for b in range(roots) if a < b and chance.random() < 0.05)
    return Plan(
        seed=seed,
        roots=roots,
        limits=tuple(_limits(chance) for _ in range(roots)),
        auto=tuple(chance.random() < 0.3 for _ in range(roots)),
        has_hostile=has_hostile,
        is_hostile_tieline=chance.random() < 0.5,
        out_of_scope=scopes,
        is_real_disk=seed % REAL_DISK_EVERY == 0,
        steps=tuple(steps),
        end_ms=at_ms + 2_000,
    )


def _limits(chance: random.Random) -> Limits:
    """Return limits that make rare branches common."""
    expiry_ms = chance.choice((2_000, 20_000, 60_000, 60_000))
    return Limits(
        inbox_messages=chance.choice((1, 2, 4, 32, 32)),
        pending_requests=chance.choice((1, 2, 32, 32)),
        connections=chance.choice((1, 2, 16, 16)),
        storage_bytes=chance.choice((65_536, 10_485_760, 10_485_760)),
        rate_per_second=chance.choice((1, 10, 10)),
        rate_burst=chance.choice((1, 20, 20)),
        handshake_ms=chance.choice((50, 2_000, 2_000)),
        acknowledgement_ms=chance.choice((50, 500, 2_000, 2_000)),
        expiry_ms=expiry_ms,
        max_expiry_ms=max(expiry_ms, chance.choice((60_000, 300_000))),
        retention_ms=60_000,
        automatic_replies=chance.choice((2, 8, 8)),
        agent_sends_max=chance.choice((3, 20)),
        published_runs=chance.choice((2, 64)),
        events_kept=chance.choice((100, 10_000)),
        ended_runs_kept=chance.choice((1, 4_096)),
        boundary_messages=chance.choice((1, 16)),
    )


def hostile_act(step: Step) -> str:
    """Return which bad thing a step is."""
    return ACTS[step.n % len(ACTS)]
