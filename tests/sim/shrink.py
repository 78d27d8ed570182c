"""A failing plan made short: steps are left out as long as the same invariant stays broken.

Source: reference/reliability.md 2.6 "a failing seed is committed as a regression with its history".
"""

from collections.abc import Callable

from tests.sim.plan import Plan

__all__ = ["shrunk"]

TRIES_MAX = 200


def shrunk(plan: Plan, is_failing: Callable[[Plan], bool]) -> Plan:
    """Return a plan with as few steps as `TRIES_MAX` tries find; `is_failing` runs a plan."""
    size, tries = max(1, len(plan.steps) // 2), 0
    while size and tries < TRIES_MAX:
        place, is_shorter = 0, False
        while place < len(plan.steps) and tries < TRIES_MAX:
            tries += 1
            shorter = plan._replace(steps=plan.steps[:place] + plan.steps[place + size :])
            if is_failing(shorter):
                plan, is_shorter = shorter, True
            else:
                place += size
        if not is_shorter or size > len(plan.steps):
            size //= 2
    return plan
