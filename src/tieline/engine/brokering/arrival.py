"""Registrations, departures and presence, and who is told of them.

Rule 1: who joins is told so before anything else; then the others; then it gets the mail that waited for it.
Rule 2: a departure is told to those who could see who left, and to nobody else.
Rule 3: a live id is granted to nobody else, unless both sides say that the newest wins. A parked child's id
    is granted to that child alone.
Rule 4: a child parks under the id that it will ask for again, and only while it is not back under another:
    mail would wait there for nobody.

Source: specification of the intercom, "Discovery and groups", "Identity and targeting";
reference/intercom.md 1.2, 1.3, 1.5, 3.
"""

from typing import Final

from tieline.engine.brokering.contract import (
    Arrived,
    BusRefused,
    Changed,
    Departed,
    Extension,
    ExtensionsTold,
    Join,
    Output,
    PresenceTold,
    Registered,
)
from tieline.engine.brokering.sessions import BOUNDED_SESSIONS_MAX, Session
from tieline.engine.brokering.state import State
from tieline.engine.brokering.topology import is_child
from tieline.engine.brokering.turn import Turn

__all__ = ["change", "extend", "join", "leave"]

CHANGED_MS: Final = 1_000
"""Presence that says nothing new is told to others at most this often."""


def join(state: State, command: Join, process_id: int, turn: Turn) -> None:
    """Register a session, or close its link where its kind has no more room."""
    before = _replaced(state, command)
    features = command.features
    if features.is_bounded and before is None and state.sessions.bounded_count() >= BOUNDED_SESSIONS_MAX:
        turn.say(command.link, BusRefused(f"at most {BOUNDED_SESSIONS_MAX} sessions can register"))
        turn.closes.append(command.link)
        return
    if before is not None:
        _end(state, before, turn)
        state.mailbox.link_lost(before.link)
        turn.closes.append(before.link)
    session = Session(command, _granted_id(state, command), process_id, turn.now.wall_ms)
    state.sessions.add(session)
    turn.say(session.link, Registered(session.id, session.features))
    _tell_peers(state, session, Arrived(session.row()), turn)
    state.bus.settle(state.sessions, session.scope, _namespaces(session.extensions), turn)
    state.bus.welcome(session, (), turn)
    mail = state.mailbox.inherited_by(session, iter(state.sessions))
    state.mailbox.hand_over(session, mail, turn)
    state.mailbox.returned(session, turn)
    state.wakes.child_is_back(session.id)
    state.wakes.main_is_back(state.mailbox, session, command.token, turn)


def _replaced(state: State, command: Join) -> Session | None:
    """Return the live session whose place a registration takes, or None."""
    if command.wanted_id is None or not command.features.takes_over:
        return None
    holder = state.sessions.of_id(command.wanted_id)
    if holder is None or not holder.features.takes_over or holder.scope != command.scope:
        return None
    return holder


def _granted_id(state: State, command: Join) -> str:
    wanted = command.wanted_id
    if wanted is None or state.sessions.of_id(wanted) is not None:
        return command.token
    absent = state.mailbox.absent(wanted)
    is_foreign = absent is not None and (absent.scope, absent.lineage) != (command.scope, command.lineage)
    return command.token if absent is not None and absent.is_parked and is_foreign else wanted


def leave(state: State, session: Session, turn: Turn, *, is_parked: bool) -> None:
    """Let a session go; `is_parked` counts for a child that can be woken."""
    _end(state, session, turn)
    is_kept = is_parked and is_child(session) and session.features.wake_outcomes
    is_kept = is_kept and _comes_back(state, session)
    state.staging.sender_left(session.id)
    staged = state.staging.recipient_left(session.id)
    state.mailbox.link_lost(session.link)
    state.mailbox.left(session, turn, is_parked=is_kept)
    absent = state.mailbox.absent(session.id)
    if is_kept and absent is not None and (absent.scope, absent.lineage) == (session.scope, session.lineage):
        for one in staged:
            state.mailbox.hold(absent, one.sender, one.letter, turn)
    for other in state.sessions.seen_by(session):
        turn.say(other.link, Departed(session.id))


def _comes_back(state: State, session: Session) -> bool:
    """Return whether anybody will come for mail under this id.

    Nobody does for an id that was given in place of another, nor where the child is back already, registered
    before its former life was heard to park.
    """
    is_own = session.wanted_id in (None, session.id)
    return is_own and not any(
        other.wanted_id == session.id and (other.scope, other.lineage) == (session.scope, session.lineage)
        for other in state.sessions
    )


def _end(state: State, session: Session, turn: Turn) -> None:
    """Take a session out of every room that knows live ones."""
    state.sessions.remove(session)
    state.reads.left(state.sessions, session, turn)
    state.wakes.link_lost(session.link)
    state.bus.settle(state.sessions, session.scope, _namespaces(session.extensions), turn)


def change(state: State, session: Session, told: PresenceTold, turn: Turn) -> None:
    """Take what a session tells of itself, and tell the others who are told such things."""
    is_changed = session.change(told.changes)
    if told.is_guard_told:
        session.bind(told.application_guard)
    if not session.features.needs_plain:
        session.change({"lastActivity": turn.now.wall_ms})
    if is_changed or turn.now.mono_ms - session.told_ms >= CHANGED_MS:
        session.told_ms = turn.now.mono_ms
        _tell_peers(state, session, Changed(session.row()), turn)


def extend(state: State, session: Session, told: ExtensionsTold, turn: Turn) -> None:
    """Take a session's extensions instead of those that it had."""
    before = session.extensions
    session.extensions = told.extensions
    listed = [{"namespace": one.namespace, "ownerEligible": one.is_owner_eligible} for one in told.extensions]
    session.change({"extensions": listed})
    namespaces = (*_namespaces(before), *_namespaces(told.extensions))
    state.bus.settle(state.sessions, session.scope, namespaces, turn)
    state.bus.welcome(session, _namespaces(before), turn)


def _namespaces(extensions: tuple[Extension, ...]) -> tuple[str, ...]:
    return tuple(one.namespace for one in extensions)


def _tell_peers(state: State, session: Session, output: Output, turn: Turn) -> None:
    for other in state.sessions.seen_by(session):
        if other is not session and other.features.is_told_of_peers:
            turn.say(other.link, output)
