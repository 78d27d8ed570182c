"""One command on one or several resources: time and proof first, then the command, all or nothing.

Rule 1: the same documents, facts and moment give the same result; a refused command leaves what time
and proof have done, and nothing else.
Rule 2: a command for several resources takes effect on all of them or on none.

Source: STYLE.md 1; reference/native.md 2.13, 3.5.
"""

from collections.abc import Mapping
from typing import assert_never

from tieline.engine.coordination.claiming import claim, end_claimant, inherited, request, withdraw
from tieline.engine.coordination.commands import (
    BUNDLE_KEYS_MAX,
    AutoGrant,
    Begin,
    Cancel,
    Claim,
    Command,
    Complete,
    EndClaimant,
    Facts,
    Grant,
    Observe,
    Outcome,
    Recover,
    Release,
    Request,
    SetPolicy,
    SpawnFailed,
    Started,
    Status,
    Unenrol,
)
from tieline.engine.coordination.governing import set_policy, unenrol
from tieline.engine.coordination.granting import MissingError, auto_grant, grant, start_clock
from tieline.engine.coordination.observing import observe
from tieline.engine.coordination.turn import Turn
from tieline.engine.coordination.using import begin, complete, recover, spawn_failed, started
from tieline.engine.coordination.viewing import snapshot
from tieline.errors import Refusal
from tieline.model.moment import Moment
from tieline.model.resource import Document, ResourceKey, Ticket

__all__ = ["handle", "handle_all"]

_Turns = dict[ResourceKey, Turn]
_Result = Outcome | Refusal | Ticket | tuple[Ticket, ...] | None


def handle(document: Document, command: Command, facts: Facts, now: Moment) -> tuple[Document, Outcome]:
    """Return one resource after `command`, and what came of it: `handle_all` for one document."""
    documents, outcome = handle_all({document.resource: document}, command, facts, now)
    return documents[document.resource], outcome


def handle_all(
    documents: Mapping[ResourceKey, Document], command: Command, facts: Facts, now: Moment
) -> tuple[dict[ResourceKey, Document], Outcome]:
    """Return the resources after `command`, and what came of it.

    Args:
        documents: As they were read under their locks. A `Claim` is for all of them; any other
            command finds the ones that concern it.
        command: What is asked.
        facts: What the shell has observed.
        now: This turn's moment.

    Returns:
        The documents, of which those that did not change are the very objects that came in, and the
        outcome. With `needs` in it nothing has changed: ask again with those documents as well.
    """
    before = {key: Turn(documents[key], facts, now) for key in sorted(documents)}
    for turn in before.values():
        observe(turn)
    turns: _Turns = {}
    for key, turn in before.items():
        turns[key] = Turn(turn.document, facts, now)
        turns[key].events = list(turn.events)
    try:
        result = _apply(turns, command)
    except MissingError as missing:
        return dict(documents), Outcome(needs=tuple(sorted(missing.keys)))
    if isinstance(result, Refusal):
        turns, outcome = before, Outcome(refusal=result)
    elif isinstance(result, Outcome):
        outcome = result
    elif isinstance(result, Ticket):
        outcome = Outcome(tickets=(result,))
    else:
        outcome = Outcome(tickets=result or ())
    for turn in turns.values():
        turn.prune()
    deadlines = [at for turn in turns.values() if (at := turn.deadline_mono_ms()) is not None]
    return {key: turn.document for key, turn in turns.items()}, outcome._replace(
        events=tuple(event for turn in turns.values() for event in turn.events),
        deadline_mono_ms=min(deadlines, default=None),
    )


def _apply(turns: _Turns, command: Command) -> _Result:
    """Carry the command out on the resources that it concerns."""
    match command:
        case Observe():
            return None
        case Status() | Request() | SetPolicy() | Unenrol():
            return _on_one(turns[command.resource], command)
        case Claim():
            return _claim(turns, command)
        case AutoGrant():
            return auto_grant(turns, command)
        case Grant():
            return grant(_with_request(turns, command.request_id), command, turns)
        case Release() | Cancel():
            return withdraw(_with_request(turns, command.request_id), command)
        case EndClaimant():
            return _on_each(turns, command)
        case Begin() | Started() | SpawnFailed() | Complete():
            return _on_fences(turns, command)
        case Recover():
            return _recover(turns, command)
        case _:
            assert_never(command)


def _on_one(turn: Turn, command: Status | Request | SetPolicy | Unenrol) -> _Result:
    match command:
        case Status():
            return Outcome(snapshot=snapshot(turn, command.caller))
        case Request():
            return request(turn, command)
        case SetPolicy():
            return set_policy(turn, command)
        case Unenrol():
            return unenrol(turn, command)
        case _:
            assert_never(command)


def _with_request(turns: _Turns, request_id: str) -> Turn:
    """Return the resource that has this ticket; any of them refuses one that nobody has."""
    return next(
        (turn for turn in turns.values() if turn.document.ticket(request_id) is not None),
        next(iter(turns.values())),
    )


def _claim(turns: _Turns, command: Claim) -> _Result:
    if len(turns) > BUNDLE_KEYS_MAX:
        return Refusal("INVALID_PARAMS", f"a command needs at most {BUNDLE_KEYS_MAX} resources")
    named = command.ticket_id
    if named is not None and all(turn.document.ticket(named) is None for turn in turns.values()):
        return Refusal("INVALID_PARAMS", "no ticket here has this request id")
    if command.inherits_from is not None and command.inherits_from not in _proven(turns):
        return Refusal("SCOPE_DENIED", "the command does not run inside the launch that it names")
    held = {key: ticket for key, turn in turns.items() if (ticket := inherited(turn, command)) is not None}
    wanted = tuple(key for key in turns if key not in held)
    bundle = wanted if len(wanted) > 1 else ()
    tickets: list[Ticket] = []
    for number, key in enumerate(wanted, 1):
        request_id = f"{command.request_id}.{number}" if bundle else command.request_id
        claimed = claim(turns[key], command, bundle, request_id)
        if isinstance(claimed, Refusal):
            return claimed
        tickets.append(claimed)
    if tickets:
        start_clock(tickets[0], turns)
    current = [turns[key].document.launched(command.launch_id) for key in wanted]
    return Outcome(tickets=tuple(one for one in current if one is not None), inherited=tuple(held))


def _proven(turns: _Turns) -> frozenset[str]:
    return next(iter(turns.values())).facts.ancestors


def _on_each(turns: _Turns, command: EndClaimant) -> _Result:
    tickets: list[Ticket] = []
    for turn in turns.values():
        ended = end_claimant(turn, command)
        if isinstance(ended, Refusal):
            return ended
        tickets += ended
    return tuple(tickets)


def _on_fences(turns: _Turns, command: Begin | Started | SpawnFailed | Complete) -> _Result:
    missing = frozenset(command.fences) - frozenset(turns)
    if missing:
        raise MissingError(missing)
    tickets: list[Ticket] = []
    for key in sorted(command.fences):
        result = _on_fence(turns[key], command)
        if isinstance(result, Refusal):
            return result
        tickets.append(result)
    return tuple(tickets)


def _on_fence(turn: Turn, command: Begin | Started | SpawnFailed | Complete) -> Ticket | Refusal:
    match command:
        case Begin():
            return begin(turn, command)
        case Started():
            return started(turn, command)
        case SpawnFailed():
            return spawn_failed(turn, command)
        case Complete():
            return complete(turn, command)
        case _:
            assert_never(command)


def _recover(turns: _Turns, command: Recover) -> _Result:
    """Recover wherever the launch stands; refused when it stands nowhere, or is alive anywhere."""
    tickets: list[Ticket] = []
    refusals: list[Refusal] = []
    for turn in turns.values():
        result = recover(turn, command)
        if isinstance(result, Refusal):
            refusals.append(result)
        else:
            tickets += result
    lives = [refusal for refusal in refusals if refusal.code != "INVALID_PARAMS"]
    if lives or len(refusals) == len(turns):
        return (lives or refusals)[0]
    return tuple(tickets)
