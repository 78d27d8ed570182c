"""What is said at the end: for every harness how its tests went, or that they did not run, and why.

Rule: every harness is named, also the one that could not be installed; nothing that did not run is
counted as good.

Source: requirement "A harness that cannot be installed is reported as not run, by name".
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from tests.harness.cache import Found

__all__ = ["PREFIX", "lines"]

PREFIX = "harness: "


def lines(
    found: Iterable[Found], outcomes: Mapping[str, Counter[str]], selected: Mapping[str, int]
) -> list[str]:
    """Return one line per harness.

    Args:
        found: All harnesses, installed or not.
        outcomes: By harness, how many of its tests `passed`, `failed` or were `skipped`.
        selected: By harness, how many of its tests were to run.
    """
    told = []
    for one in found:
        counted = outcomes.get(one.name, Counter())
        if not one.command:
            told.append(f"{PREFIX}{one.name}: NOT RUN: {one.reason}")
            continue
        ran = counted["passed"] + counted["failed"]
        missing = selected.get(one.name, 0) - ran
        words = [f"{counted['passed']} passed"]
        words += [f"{counted['failed']} FAILED"] if counted["failed"] else []
        words += [f"{missing} not run"] if missing else []
        told.append(
            f"{PREFIX}{one.name} {one.version}: {', '.join(words) if ran or missing else 'NOT RUN: no test'}"
        )
    return told
