"""The extension bus: who owns a namespace, what is said in it, and its state.

Rule 1: everything is within one scope. The owner of a namespace is the earliest registered session that
    speaks it and may own it; ownership is bound to that registration's epoch.
Rule 2: who does not speak a namespace neither says nor hears anything in it.
Rule 3: a state changes by its owner, from the revision that it names, and is durable before anybody hears
    of it.

Source: reference/intercom.md 1.5 "Extension bus", 133.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from tieline.engine.brokering.contract import (
    BusMessage,
    BusOwner,
    BusPublished,
    BusRefused,
    BusState,
    BusStateAnswered,
    Codec,
    Put,
    StateCommitted,
)
from tieline.engine.brokering.sessions import Session, Sessions
from tieline.engine.brokering.turn import Turn

__all__ = ["STATES_MAX", "Bus"]

STATES_MAX: Final = 1_024

_Place = tuple[str | None, str]


class Bus:
    """Owners and states of all namespaces of one broker."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._owners: dict[_Place, Session] = {}
        self._states: dict[_Place, tuple[int, Any]] = {}

    def settle(self, sessions: Sessions, scope: str | None, namespaces: Iterable[str], turn: Turn) -> None:
        """Find who owns these namespaces now, and tell who speaks them where that changed."""
        for namespace in dict.fromkeys(namespaces):
            place = (scope, namespace)
            speakers = _speakers(sessions, place)
            owner = next((one for one in speakers if _may_own(one, namespace)), None)
            if owner is self._owners.get(place):
                continue
            if owner is None:
                del self._owners[place]
            else:
                self._owners[place] = owner
            for one in speakers:
                turn.say(one.link, self._owner_word(place))

    def welcome(self, session: Session, known: Iterable[str], turn: Turn) -> None:
        """Tell a session of the owners and states of what it speaks now and did not speak among `known`."""
        before = set(known)
        for extension in session.extensions:
            place = (session.scope, extension.namespace)
            if extension.namespace in before:
                continue
            word = self._owner_word(place)
            if (session.link, word) not in turn.outputs:
                turn.say(session.link, word)
            if place in self._states:
                revision, payload = self._states[place]
                turn.say(session.link, BusState(extension.namespace, revision, payload))

    def publish(self, sessions: Sessions, sender: Session, said: BusPublished, turn: Turn) -> None:
        """Pass a message on to who it is for, and to its sender; or tell that it is refused."""
        place = (sender.scope, said.namespace)
        owner = self._owners.get(place)
        if not _speaks(sender, said.namespace):
            turn.say(sender.link, BusRefused("extension namespace is not among this session's"))
        elif said.owner_epoch is not None and (owner is None or owner.epoch != said.owner_epoch):
            turn.say(sender.link, BusRefused("extension owner epoch is stale"))
        elif said.is_owner_only and owner is not sender:
            turn.say(sender.link, BusRefused("only the extension owner may publish this"))
        elif said.audience == "owner" and owner is None:
            turn.say(sender.link, BusRefused("extension namespace has no owner"))
        else:
            epoch = None if owner is None else owner.epoch
            output = BusMessage(sender.row(), said.namespace, said.payload, epoch)
            for one in _speakers(sessions, place):
                if said.audience == "capable" or one is owner or one is sender:
                    turn.say(one.link, output)

    def commit(self, sessions: Sessions, sender: Session, asked: StateCommitted, turn: Turn) -> None:
        """Take the next state of a namespace from its owner, or tell why not."""
        place = (sender.scope, asked.namespace)
        revision = self._states.get(place, (0, None))[0]
        reason = ""
        if self._owners.get(place) is not sender or sender.epoch != asked.owner_epoch:
            reason = "not_owner"
        elif asked.expected_revision != revision:
            reason = "revision_conflict"
        elif place not in self._states and len(self._states) >= STATES_MAX:
            reason = "too_many_states"
        if not reason:
            turn.otherwise = (
                sender.link,
                BusStateAnswered(asked.namespace, False, revision, "no_space", asked.request_id),
            )
            turn.undo.append(partial(self._reset, place, self._states.get(place)))
            revision += 1
            self._states[place] = (revision, asked.payload)
            turn.rows.append(Put("extension_state", _key(place), self._codec.dump(self._document(place))))
        turn.say(
            sender.link,
            BusStateAnswered(asked.namespace, not reason, revision, reason, asked.request_id),
        )
        if not reason:
            output = BusState(asked.namespace, revision, asked.payload)
            for one in _speakers(sessions, place):
                turn.say(one.link, output)

    def _reset(self, place: _Place, state: tuple[int, Any] | None) -> None:
        if state is None:
            del self._states[place]
        else:
            self._states[place] = state

    def restore(self, document: Any) -> None:
        """Take a state that an earlier broker kept; ValueError where it is none."""
        try:
            place = (document["scope"], str(document["namespace"]))
            self._states[place] = (int(document["revision"]), document["payload"])
        except (KeyError, TypeError) as error:
            raise ValueError("not a state") from error

    def _document(self, place: _Place) -> dict[str, Any]:
        revision, payload = self._states[place]
        return {"scope": place[0], "namespace": place[1], "revision": revision, "payload": payload}

    def _owner_word(self, place: _Place) -> BusOwner:
        owner = self._owners.get(place)
        if owner is None:
            return BusOwner(place[1], None, None)
        return BusOwner(place[1], owner.id, owner.epoch)


def _speakers(sessions: Sessions, place: _Place) -> list[Session]:
    scope, namespace = place
    return [one for one in sessions if one.scope == scope and _speaks(one, namespace)]


def _speaks(one: Session, namespace: str) -> bool:
    return any(extension.namespace == namespace for extension in one.extensions)


def _may_own(one: Session, namespace: str) -> bool:
    return any(each.namespace == namespace and each.is_owner_eligible for each in one.extensions)


def _key(place: _Place) -> str:
    """Return the journal's key of a namespace: its name alone where it is in no scope."""
    return place[1] if place[0] is None else f"{place[0]}\n{place[1]}"
