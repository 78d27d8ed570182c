"""What a name means among the sessions of brokers, and how each of them is shown.

Rule 1: an exact id wins; a name or a sufficiently long prefix of an id resolves when exactly one fits.
Rule 2: a name that is also the begin of another session's id is ambiguous, never guessed.
Rule 3: only the rows that are given count: who is hidden from us is not among them.

Source: reference/intercom.md 2, cases 109 to 111; specification of the intercom, "Identity and targeting".
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tieline.errors import Refusal
from tieline.wire.intercom.reading import trim

__all__ = ["PREFIX_MIN", "shown_targets", "target_of"]

PREFIX_MIN: Final = 8
CANDIDATES_MAX: Final = 8

Row = Mapping[str, Any]


def _name(row: Row) -> str:
    name = row.get("name")
    return trim(name).lower() if isinstance(name, str) else ""


def target_of(rows: Sequence[Row], target: str) -> str | Refusal:
    """Return the id of the one session that `target` names, or why there is none."""
    if any(row["id"] == target for row in rows):
        return target
    wanted = trim(target).lower()
    if not wanted:
        return Refusal("UNKNOWN_TARGET", "a target is a name, an id, or 8 or more characters of one")
    same = [row["id"] for row in rows if row["id"].lower() == wanted]
    if same:
        return same[0] if len(same) == 1 else _ambiguous(rows, same, target)
    named = [row["id"] for row in rows if _name(row) == wanted]
    begun = [row["id"] for row in rows if row["id"].lower().startswith(wanted)]
    if len(wanted) < PREFIX_MIN and begun and not named:
        options = _options(rows, begun)
        text = f"too short: an id is named by {PREFIX_MIN} or more of its characters: {', '.join(options)}"
        return Refusal("UNKNOWN_TARGET", text, candidates=options)
    is_counted = len(wanted) >= PREFIX_MIN or bool(named)
    found = list(dict.fromkeys([*named, *(begun if is_counted else ())]))
    if len(found) > 1:
        return _ambiguous(rows, found, target)
    return (
        found[0] if found else Refusal("UNKNOWN_TARGET", f"no intercom session {target[:64]!r} is connected")
    )


def _ambiguous(rows: Sequence[Row], found: Sequence[str], target: str) -> Refusal:
    options = _options(rows, found)
    text = f"{len(found)} intercom sessions fit {target[:64]!r}: use one of {', '.join(options)}"
    return Refusal("AMBIGUOUS_TARGET", text, candidates=options)


def _options(rows: Sequence[Row], ids: Iterable[str]) -> tuple[str, ...]:
    shown = shown_targets(rows)
    return tuple(shown[one] for one in ids)[:CANDIDATES_MAX]


def shown_targets(rows: Sequence[Row]) -> dict[str, str]:
    """Return for each id the shortest begin of it, 8 characters or more, that names it and nobody else."""
    ids = [row["id"] for row in rows]
    names = {_name(row) for row in rows}
    lowered = sorted(one.lower() for one in ids)
    shown: dict[str, str] = {}
    for one in ids:
        least = max(PREFIX_MIN, _shared(lowered, one.lower()) + 1)
        while least < len(one) and one[:least].lower() in names:
            least += 1
        shown[one] = one[:least]
    return shown


def _shared(lowered: Sequence[str], one: str) -> int:
    """Return how many characters `one` shares with its nearest neighbours in order."""
    place = _place(lowered, one)
    near = [lowered[at] for at in (place - 1, place + 1) if 0 <= at < len(lowered)]
    return max((_common(one, other) for other in near), default=0)


def _place(lowered: Sequence[str], one: str) -> int:
    low, high = 0, len(lowered)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if lowered[middle] < one else (low, middle)
    return low


def _common(one: str, other: str) -> int:
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count
