"""One command of the ledger: admitted, identified, drained, or a blocker.

Theory. The record is durable before the command runs, so between the two nothing is known but that it
may have started. Publishing its processes ends that; a supervisor that dies before it leaves a record
that no look at processes can ever clear, because nobody knows what to look for.

Rule 1: every (state, step) pair is in exactly one table.
Rule 2: without published processes only three things drain a launch: its own supervisor's word, the
proof of another boot, an operator.
Rule 3: this module knows neither clock nor disk nor process; it is told.

Source: reference/native.md 2.14, 3.5, 190, 191, 195; reference/reliability.md I32, I34, I36.
"""

from enum import StrEnum

import msgspec

from tieline.model.process import ProcessIdentity
from tieline.model.resource import Launch, LaunchState, Ownership, Probe

__all__ = ["IGNORED", "MOVES", "REFUSED", "Step", "identify", "is_proven_gone", "step"]


class Step(StrEnum):
    """What may happen to a launch."""

    IDENTIFY = "identify"  # its processes are published
    LOSE = "lose"  # its supervisor is proven gone before the tree was seen to end
    SPAWN_FAILED = "spawn_failed"  # proven: nothing was started
    DRAIN = "drain"  # proven: nothing runs any more
    RECOVER = "recover"  # an operator answers for it


_A, _I, _B, _D = LaunchState.ADMITTED, LaunchState.IDENTIFIED, LaunchState.BLOCKER, LaunchState.DRAINED

MOVES: dict[tuple[LaunchState, Step], LaunchState] = {
    (_A, Step.IDENTIFY): _I,
    (_A, Step.LOSE): _B,
    (_A, Step.SPAWN_FAILED): _D,
    (_A, Step.DRAIN): _D,
    (_A, Step.RECOVER): _D,
    (_I, Step.LOSE): _B,
    (_I, Step.DRAIN): _D,
    (_I, Step.RECOVER): _D,
    (_B, Step.DRAIN): _D,
    (_B, Step.RECOVER): _D,
}
"""What changes the state."""

REFUSED: frozenset[tuple[LaunchState, Step]] = frozenset(
    {(_I, Step.SPAWN_FAILED), (_B, Step.IDENTIFY), (_B, Step.SPAWN_FAILED), (_D, Step.IDENTIFY)}
)
"""What contradicts what is known."""

IGNORED: frozenset[tuple[LaunchState, Step]] = frozenset(
    {(_I, Step.IDENTIFY), (_B, Step.LOSE)}
    | {(_D, one) for one in (Step.LOSE, Step.SPAWN_FAILED, Step.DRAIN, Step.RECOVER)}
)
"""Late or repeated: the first truth stands."""


def step(launch: Launch, taken: Step) -> Launch | None:
    """Return the launch after `taken`, or None when it does not change (`REFUSED` and `IGNORED`).

    `identify` is the step that needs more: it has its own function.
    """
    after = MOVES.get((launch.state, taken))
    if after is None or taken is Step.IDENTIFY:
        return None
    return msgspec.structs.replace(launch, state=after)


def identify(
    launch: Launch,
    processes: tuple[ProcessIdentity, ...],
    ownership: Ownership,
    cgroup: str = "",
    limit_mark: int = 0,
) -> Launch | None:
    """Return the launch with its processes, or None when it may not be told them now, or there are none.

    A launch that was told its processes may be told, by the same first process, who has left it since.
    """
    is_known = launch.state is LaunchState.IDENTIFIED
    after = LaunchState.IDENTIFIED if is_known else MOVES.get((launch.state, Step.IDENTIFY))
    if after is None or not processes:
        return None
    if is_known and (processes[:1] != launch.processes[:1] or processes == launch.processes):
        return None
    return msgspec.structs.replace(
        launch,
        state=after,
        processes=processes,
        ownership=launch.ownership if is_known else ownership,
        cgroup=cgroup or launch.cgroup,
        limit_mark=limit_mark or launch.limit_mark,
    )


def is_proven_gone(probe: Probe | None, boot_id: str, boot_id_now: str, *, has_evidence: bool) -> bool:
    """Return whether it is proven that nothing of a launch runs.

    Args:
        probe: What this look has shown, None when nobody looked.
        boot_id: The boot in which the launch was admitted, empty when it could not be read.
        boot_id_now: The present boot, likewise.
        has_evidence: Whether its processes were published.

    Returns:
        True after another boot, which no process survives, and when published processes are seen to
        be gone. A missing process of which nobody knows what it was proves nothing.
    """
    if boot_id and boot_id_now and boot_id != boot_id_now:
        return True
    return has_evidence and probe is not None and probe.state == "gone"
