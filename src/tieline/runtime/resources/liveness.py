"""Whether a peer lives, asked of that exact peer; and what is proven where it does not answer.

Rule 1: alive is an authenticated answer of the same instance; a run's, that its root names it.
Rule 2: gone is proven: its owner's process has ended. No answer is unknown, and unknown grants nothing.
Rule 3: a peer id of which neither an owner file nor presence is left is taken for gone: a root that lives
    restores both within its heartbeat, and replacing a controller frees nothing.

Source: reference/native.md 2.13 "Liveness of a principal", 194; specification, "Identity".
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tieline.errors import TielineError
from tieline.model.identity import Peer
from tieline.model.process import Liveness
from tieline.model.resource import Document, TicketState
from tieline.shell.endpoint import hosts, owner_state

if TYPE_CHECKING:
    from tieline.runtime.node import Node

__all__ = ["of_claimants", "of_peers"]

ANSWER_S = 2.0
ASKED_MAX = 64
_WAITING = frozenset({TicketState.QUEUED, TicketState.RESERVED})


async def of_claimants(node: "Node", documents: Iterable[Document]) -> dict[str, Liveness]:
    """Return what is known of the controllers and of who waits, by peer id.

    A claimant whose own process waits beside its root is judged by that process, and not asked.
    """
    places: dict[str, str] = {}
    wanted: set[str] = set()
    for document in documents:
        if document.policy is not None:
            wanted.add(document.policy.controller)
        for ticket in document.tickets:
            if ticket.state in _WAITING and ticket.claimant.waiter is None:
                wanted.add(ticket.claimant.peer_id)
                places[ticket.claimant.peer_id] = ticket.claimant.instance_id
    return await of_peers(node, wanted, places)


async def of_peers(
    node: "Node", peer_ids: Iterable[str], places: dict[str, str] | None = None
) -> dict[str, Liveness]:
    """Return what is known of these peers; `places` gives the instance of those that are known."""
    wanted = sorted(set(peer_ids))[:ASKED_MAX]
    known = dict(places or {})
    missing = [one for one in wanted if one not in known and node.engine.own_peer(one) is None]
    if missing:
        runtime = node.places.runtime
        loop = asyncio.get_running_loop()
        seen = await loop.run_in_executor(None, lambda: [one.instance for one in hosts(runtime)])
        roots = node.book.roots()
        known |= {Peer(instance).id: instance for instance in (*seen, *(root.instance for root in roots))}
        known |= {Peer(root.instance, run.run).id: root.instance for root in roots for run in root.runs}
    answers = await asyncio.gather(*(_of_one(node, one, known.get(one)) for one in wanted))
    return dict(zip(wanted, answers, strict=True))


async def _of_one(node: "Node", peer_id: str, instance: str | None) -> Liveness:
    own = node.engine.own_peer(peer_id)
    if own is not None:
        run = None if own.run is None else node.engine.run(own.run)
        return "gone" if run is not None and not run.is_live else "alive"
    if instance is None:
        return "gone"
    if instance == node.instance:
        return "gone"  # a run of ours that is kept no more
    try:
        async with asyncio.timeout(ANSWER_S):
            await node.ask_peer(instance, "peer.directory", {"version": 1})
    except (TielineError, TimeoutError):
        runtime = node.places.runtime
        state = await asyncio.get_running_loop().run_in_executor(None, owner_state, runtime, instance)
        return "gone" if state == "gone" else "unknown"
    return "alive"
