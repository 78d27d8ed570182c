"""Waits and rings of waits in the shapes of the doors, with words for a person.

Rule 1: the words say who waits for whom by name, and what the reader can do about it.
Rule 2: a resource's waits are those of its record: who is queued waits for its holder.

Source: docs/json-shapes.md, "log"; reference/native.md 3.5.
"""

from collections.abc import Iterable, Mapping
from shlex import quote
from typing import TYPE_CHECKING, Any

from tieline.engine.waiting import Cycle, Wait, WayOut, gives_way, ways_out
from tieline.model.identity import Peer
from tieline.model.moment import to_iso
from tieline.model.resource import Document

if TYPE_CHECKING:
    from tieline.runtime.node import Node

__all__ = ["event", "may_change_by_time", "names", "of_document", "sentence", "view"]


def names(node: "Node") -> dict[str, str]:
    """Return the aliases that are known, by peer id."""
    return {
        peer_id: alias
        for root in [*node.book.roots(), node.book.own_root()]
        for peer_id, alias in [
            (Peer(root.instance).id, root.alias),
            *((Peer(root.instance, run.run).id, run.alias) for run in root.runs),
        ]
        if alias
    }


def of_document(document: Document, granted_before_ms: int) -> set[Wait]:
    """Return who waits for whom over one resource.

    Args:
        document: As it was read last.
        granted_before_ms: A free resource whose request is older than this waits for its controller.
    """
    holder = document.holder
    found: set[Wait] = set()
    for ticket in document.queue:
        awaited = ""
        if holder is not None:
            awaited = holder.claimant.peer_id
        elif document.blockers:
            awaited = document.blockers[0].peer_id
        elif document.policy is not None and ticket.requested_ms <= granted_before_ms:
            awaited = document.policy.controller
        waiter = ticket.claimant.peer_id
        if awaited and awaited != waiter:  # a second command of one agent waits for no other agent
            found.add(
                Wait(waiter, awaited, "resource", document.resource, ticket.requested_ms, ticket.request_id)
            )
    return found


def may_change_by_time(document: Document) -> bool:
    """Return whether `of_document` may find another wait later without a change of the document."""
    return bool(document.queue) and document.holder is None and not document.blockers


def _name(peer_id: str, aliases: Mapping[str, str]) -> str:
    alias = aliases.get(peer_id)
    return f":{alias}" if alias else peer_id


def sentence(cycle: Cycle, aliases: Mapping[str, str]) -> str:
    """Return a ring in one line: who waits for whom, and over what."""
    parts = []
    for wait in cycle.waits:
        over = "an answer" if wait.kind == "ask" else (wait.subject or "a resource")
        parts.append(f"{_name(wait.waiter, aliases)} waits for {_name(wait.awaited, aliases)} ({over})")
    return "; ".join(parts)


def _way_text(way: WayOut, aliases: Mapping[str, str]) -> str:
    """Return what one peer can do, as a command where there is one."""
    subject, other = way.wait.subject, _name(way.other, aliases)
    match way.act:
        case "answer":
            return f"answer {other}" + (f": `tieline reply {quote(subject)} TEXT`" if subject else "")
        case "give_up":
            return f"stop waiting for {other}" + (f" (question {subject})" if subject else "")
        case "cancel":
            request = way.wait.request
            return f"cancel the request for {subject or 'the resource'}" + (
                f": `tieline resource cancel {quote(request)}`, or end the command that waits"
                if request
                else ""
            )
        case "release":
            return f"let go of {subject or 'the resource'}, which {other} waits for"


def _wait(wait: Wait, aliases: Mapping[str, str]) -> dict[str, Any]:
    shape: dict[str, Any] = {
        "waiter": wait.waiter,
        "waiterAlias": aliases.get(wait.waiter),
        "awaited": wait.awaited,
        "awaitedAlias": aliases.get(wait.awaited),
        "kind": wait.kind,
        "subject": wait.subject or None,
        "request": wait.request or None,
        "since": to_iso(wait.since_ms) if wait.since_ms else None,
    }
    return {name: value for name, value in shape.items() if value is not None}


def _ways(cycle: Cycle, peer: str, aliases: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {"peer": peer, "act": way.act, "other": way.other, "text": _way_text(way, aliases)}
        | ({"subject": way.wait.subject} if way.wait.subject else {})
        | ({"request": way.wait.request} if way.wait.request else {})
        for way in ways_out(cycle, peer)
    ]


def _cycle(cycle: Cycle, aliases: Mapping[str, str], of: Iterable[str]) -> dict[str, Any]:
    return {
        "peers": [
            {"peerId": peer} | ({"alias": aliases[peer]} if peer in aliases else {}) for peer in cycle.peers
        ],
        "waits": [_wait(wait, aliases) for wait in cycle.waits],
        "givesWay": gives_way(cycle).waiter,
        "ways": [way for peer in cycle.peers if peer in of for way in _ways(cycle, peer, aliases)],
        "text": sentence(cycle, aliases),
    }


def view(
    waits: Iterable[Wait], cycles: Iterable[Cycle], aliases: Mapping[str, str], own: frozenset[str]
) -> dict[str, Any]:
    """Return waits and rings; of each ring the ways out of our own peers, and of all where none is ours."""
    shapes = []
    for cycle in cycles:
        ours = own.intersection(cycle.peers)
        shapes.append(_cycle(cycle, aliases, ours or cycle.peers))
    return {"waits": [_wait(wait, aliases) for wait in waits], "cycles": shapes}


def event(
    cycle: Cycle, peer: str, aliases: Mapping[str, str], cursor: int, at_ms: int, *, is_standing: bool
) -> dict[str, Any]:
    """Return what a peer is told of a ring that it is in."""
    shape = _cycle(cycle, aliases, (peer,))
    text = f"The ring of waits is broken: {shape['text']}."
    if is_standing:
        way = " or ".join(one["text"] for one in shape["ways"])
        gives = "you" if shape["givesWay"] == peer else _name(shape["givesWay"], aliases)
        text = (
            f"A ring of waits, in which nobody goes on before another one gives way: {shape['text']}."
            f" You can {way}. Where all can, {gives} should."
        )
    return {
        "type": "wait_cycle",
        "cursor": str(cursor),
        "state": "standing" if is_standing else "broken",
        "to": peer,
        "at": to_iso(at_ms),
        **shape,
        "text": text,
    }
