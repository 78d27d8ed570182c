"""Child executions of a root: begun once, ended once, never mistaken for one another.

Rule 1: a run's id is used once; an ended run keeps its identity, so that late mail is told so.
Rule 2: unread mail of an ended run stays accepted, with the outcome TARGET_ENDED; what still waited for a
    person's consent is rejected with it; what the run sent goes on.

Source: reference/native.md 1B, 2.8, 3.4 "child runs"; reference/reliability.md I6, I28.
"""

from tieline.engine.contract import BeginRun, EndRun, RunRow
from tieline.engine.messaging import courier
from tieline.engine.messaging.turn import Turn
from tieline.errors import Refusal
from tieline.machine.inbox import Step
from tieline.model.identity import Peer, is_plain_id

__all__ = ["begin", "end"]


def begin(turn: Turn, command: BeginRun) -> None:
    """Make a run known, or refuse."""
    custody = turn.custody
    if not is_plain_id(command.run):
        turn.refuse(Refusal("INVALID_PARAMS", "runId is not an id of 1 to 256 characters"))
    elif command.run in custody.runs:
        turn.refuse(Refusal("TARGET_ENDED", "this run id was used before"))
    elif custody.live_count >= custody.limits.published_runs:
        text = f"{custody.live_count} of {custody.limits.published_runs} runs are live"
        turn.refuse(Refusal("QUEUE_FULL", text, is_retryable=True))
    else:
        capabilities = tuple(sorted(command.capabilities))
        turn.write(RunRow(command.run, command.alias, capabilities, is_live=True, at_ms=turn.now.wall_ms))


def end(turn: Turn, command: EndRun) -> None:
    """End a run; ending it twice, or one that never was, changes nothing."""
    custody = turn.custody
    row = custody.runs.get(command.run)
    if row is None or not row.is_live:
        return
    owner = Peer(custody.own, command.run)
    mailbox = custody.mailbox(owner.id)
    # Its mail first: afterwards the run may be the one too many that is forgotten.
    for cursor in sorted([*mailbox.held, *mailbox.unread, *mailbox.prepared]):
        record = custody.records[cursor]
        if turn.move_received(record, Step.END):
            courier.owe(turn, record)
    for token in [one for one, exposure in custody.exposures.items() if exposure.owner == owner]:
        custody.evident.difference_update(custody.exposures.pop(token).cursors)
    turn.write(RunRow(row.run, row.alias, row.capabilities, is_live=False, at_ms=turn.now.wall_ms))
