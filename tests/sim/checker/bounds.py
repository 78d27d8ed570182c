"""I49 to I51: bounded memory, recovery that may be repeated, and an end to everything.

Source: reference/reliability.md 2.4 "Bounds and recovery".
"""

from collections.abc import Callable

from tests.sim.checker.claims import Claim
from tests.sim.checker.reading import Reading, key_of

__all__ = ["INVARIANTS"]

PIECE_BYTES_MAX = 70_000  # what the network delivers at once
CIRCUITS_MAX = 96
WINDOW_MARGIN = 1


def i49_bounds(reading: Reading, claim: Claim) -> None:
    """A line without an end is hung up on, and no more requests are asked at once than allowed."""
    for _, entry in reading.all_of("read"):
        if entry.root in reading.honest:
            most = reading.starts[entry.root]["frame"] + PIECE_BYTES_MAX
            claim(entry.data["loose"] <= most, entry.root, "went on reading a line of", entry.data["loose"])
    for _, entry in reading.all_of("baseline"):
        claim(entry.data["circuits"] <= CIRCUITS_MAX, entry.root, "keeps", entry.data["circuits"], "lines")


def i50_recovery(reading: Reading, claim: Claim) -> None:
    """Recovering twice says what recovering once says, and what is loaded is what was stored."""
    for _, entry in reading.all_of("recovered"):
        claim(entry.data["first"] == entry.data["second"], entry.root, "recovers to something else each time")
    for place, entry in reading.all_of("loaded"):
        facts = [fact for fact in reading.durable.get(entry.root, ()) if fact.stored_at < place]
        if not any(fact.row["row"] == "prune" for fact in facts):
            claim(
                entry.data["rows"] == len(facts),
                entry.root,
                "loaded",
                entry.data["rows"],
                "rows of",
                len(facts),
            )


def i51_liveness(reading: Reading, claim: Claim) -> None:
    """After everything was healed and time has passed, everything that can end has ended."""
    for _, entry in reading.all_of("baseline"):
        claim(not entry.data["doubt"], entry.root, "stays in doubt")
        claim(entry.data["idle"], entry.root, "still waits for its store")
    for root in reading.honest:
        if not reading.is_alive(root):
            continue
        for cursor, fact in reading.messages.get(root, {}).items():
            row = fact.row
            if cursor in reading.pruned.get(root, {}):
                continue
            state, outcome = reading.last_state(root, cursor)
            if row["box"] == "out":
                if reading.receiver(row):
                    claim(
                        state not in ("pending", "unknown"),
                        root,
                        "never learned what became of",
                        row["message"],
                    )
                continue
            moves = reading.states(root, cursor)
            is_shown = bool(moves) and moves[-1].row["note"] == "prepared"
            if row["deadline_ms"] + 1_000 < reading.end_ms and not is_shown:
                is_ended = state != "accepted" or outcome is not None
                claim(is_ended, root, "still holds", row["message"], "past its life")
            _told(reading, claim, root, row, state)


def _told(reading: Reading, claim: Claim, root: str, row: dict[str, str], state: str) -> None:
    """Claim that the sender knows what its recipient finally says."""
    sender = row["sender_instance"]
    if not reading.is_alive(sender) or state not in ("consumed", "replied", "expired"):
        return
    for fact in reading.sent.get(sender, {}).get(key_of(row), [])[-1:]:
        if fact.row["cursor"] not in reading.pruned.get(sender, {}):
            known, _ = reading.last_state(sender, fact.row["cursor"])
            claim(known == state, sender, "knows", known, "of", row["message"], "which is", state, "at", root)


INVARIANTS: dict[str, Callable[[Reading, Claim], None]] = {
    "I49": i49_bounds,
    "I50": i50_recovery,
    "I51": i51_liveness,
}
