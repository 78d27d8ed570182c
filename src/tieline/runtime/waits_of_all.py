"""Who waits for whom among all roots of this user, put together from what each of them knows.

Rule 1: a root knows its own waits, and rings that it is in; a person's screen asks all of them.
Rule 2: asking is bounded in number and time; who does not answer is left out, and counted.

Source: docs/json-shapes.md, "waits"; DESIGN.md 4.
"""

import time
from collections.abc import Iterable
from typing import Any, Final

from tieline.errors import TielineError
from tieline.runtime.client import Client
from tieline.runtime.locate import survey

__all__ = ["joined", "waits_of_all"]

ROOTS_MAX: Final = 64
ANSWER_S: Final = 0.5
WHOLE_S: Final = 2.0


def waits_of_all(coordination: str) -> dict[str, Any]:
    """Return the waits and rings of every live root, as `local.waits` shapes them; blocks up to `WHOLE_S`.

    Args:
        coordination: The directory that the roots share.
    """
    views: list[dict[str, Any]] = []
    left_out = 0
    until = time.monotonic() + WHOLE_S
    try:
        roots = [root for root in survey(coordination).roots if root.life != "gone" and root.control]
    except TielineError:
        roots = []
    for number, root in enumerate(roots):
        if number >= ROOTS_MAX or time.monotonic() >= until:
            left_out += 1
            continue
        try:
            with Client(root.control) as client:
                views.append(client.call("local.waits", {}, ANSWER_S))
        except TielineError as error:
            left_out += error.code != "NO_ROOT"
    return {**joined(views), "leftOut": left_out}


def joined(views: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return several roots' views as one: each wait and each ring once, with all ways out that are known."""
    waits: dict[tuple[str, ...], dict[str, Any]] = {}
    rings: dict[tuple[str, ...], dict[str, Any]] = {}
    for view in views:
        for wait in view.get("waits") or ():
            key = tuple(str(wait.get(name) or "") for name in ("waiter", "awaited", "kind", "subject"))
            waits[key] = {**wait, **waits.get(key, {})}
        for ring in view.get("cycles") or ():
            named = tuple(str(peer["peerId"]) for peer in ring["peers"])
            known = rings.setdefault(named, {**ring, "ways": []})
            known["ways"] += [way for way in ring.get("ways") or () if way not in known["ways"]]
    return {
        "waits": [waits[key] for key in sorted(waits)],
        "cycles": [rings[named] for named in sorted(rings)],
    }
