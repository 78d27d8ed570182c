"""A root's own side of shared resources: deciding off the loop, events for its peers, granting in order.

Theory. Most roots never touch a resource: until one does, the desk costs a look at one directory's time with
every heartbeat, and loads nothing. Once a resource names this root, as claimant, participant or controller,
that resource's file is watched, and looked at once a second beside that. What becomes of other resources
wakes nobody: the next heartbeat finds one that has come to name this root. A root that lives for one command
tells and grants nobody anything, and does not look.

Rule 1: what blocks runs in one thread of its own, so the loop never waits for a lock.
Rule 2: nothing is granted here but what is open, or what this root controls while it was told to grant in
    order; a grant in order costs no model turn.
Rule 3: the end of a run or of this root gives back what was not used; what runs is left to its proof.

Source: reference/native.md 2.13, 3.5 "grant mode", "watch"; reference/reliability.md I31 to I36.
"""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from tieline.errors import Refusal, TielineError
from tieline.model.identity import Peer, Principal
from tieline.model.resource import FINISHED, Document, ResourceKey, TicketState, key_digest
from tieline.runtime.resources.watching import FilesWatch, Glance

if TYPE_CHECKING:
    from tieline.runtime.node import Node
    from tieline.runtime.resources.coordinator import Coordinator
    from tieline.runtime.resources.feed import Feed, Told

__all__ = ["Desk"]

LOOK_S = 1.0
_Result = TypeVar("_Result")
_UNUSED = frozenset({TicketState.QUEUED, TicketState.RESERVED})


class Desk:
    """The resources, as one root and its runs see them."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._directory = node.places.coordination
        self._glance = Glance(f"{self._directory}/peer-resources")
        self._files = Glance(f"{self._directory}/peer-resources")
        self._coordinator: Coordinator | None = None
        self._feed: Feed | None = None
        self._executor: ThreadPoolExecutor | None = None
        self._watch: FilesWatch | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[Any] | None = None
        self._is_asked_again = False
        self._is_closed = False
        self.is_passive = node.options.mode == "command"  # looks at nothing by itself
        self._documents: dict[ResourceKey, Document] = {}
        self._own_stamps: tuple[tuple[int, int, int] | None, ...] = ()
        self._due_mono_ms: int | None = None
        self._is_all_in_order = node.settings.resource.auto_grant == "fifo"
        self._in_order: set[ResourceKey] = set()
        self.launches: dict[str, Any] = {}

    # ------------------------------------------------------------ deciding

    @property
    def coordinator(self) -> "Coordinator":
        """The door to the files; made at its first use. Its calls block: see `run`."""
        if self._coordinator is None:
            made = import_module("tieline.runtime.resources.coordinator").Coordinator(self._directory)
            self._coordinator = made
        return self._coordinator

    async def run(self, work: "Callable[[Coordinator], _Result]") -> _Result:
        """Return what `work` makes of the coordinator, in the desk's own thread; look again afterwards."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="resources")
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, lambda: work(self.coordinator))
        finally:
            self.beat()

    def principal(self, peer: Peer) -> Principal:
        """Return a local peer as it acts."""
        acting = self._node.acting(peer)
        return Principal(peer, frozenset(acting["capabilities"]), alias=str(acting["alias"]))

    def grants_in_order(self, key: ResourceKey) -> bool:
        """Return whether this root, where it controls the resource, grants it in order by itself."""
        return self._is_all_in_order or key in self._in_order

    def grant_in_order(self, key: ResourceKey, *, is_wanted: bool) -> None:
        """Grant this resource in order from now on, or only where the root's own setting says so for all."""
        (self._in_order.add if is_wanted else self._in_order.discard)(key)

    async def observe(self, keys: Iterable[ResourceKey]) -> None:
        """Let proof and time work, and grant what may be granted here without anybody's decision."""
        own = self.principal(Peer(self._node.instance))
        only = None if self._is_all_in_order else frozenset(self._in_order)
        liveness = import_module("tieline.runtime.resources.liveness")
        asked = sorted(set(keys))
        documents = await self.run(lambda coordinator: coordinator.readable(asked))
        wanted = [document.resource for document in documents]
        for key in set(asked).difference(wanted):
            self._documents.pop(key, None)  # damaged: what this root has there is judged when it is mended
        peers = await liveness.of_claimants(self._node, documents)
        outcome = await self.run(lambda coordinator: coordinator.observe(wanted, own, peers, only))
        self._due_mono_ms = outcome.deadline_mono_ms

    # ------------------------------------------------------------ telling

    def unread(self, peer: Peer) -> "list[Told]":
        """Return the events that a peer was not told yet."""
        return [] if self._feed is None else self._feed.unread(peer.id)

    def kept(self, peer_ids: Iterable[str], after: int) -> "list[Told]":
        """Return every event that is kept for these peers from a place in this root's history on."""
        if self._feed is None:
            return []
        return [told for peer_id in peer_ids for told in self._feed.after(peer_id, after)]

    @staticmethod
    def shape(told: "Told") -> dict[str, Any]:
        """Return an event as doors show it."""
        shape = import_module("tieline.runtime.resources.shapes").event(told.event, told.position)
        return {**shape, "to": told.recipient}

    def read(self, token: str, told: "list[Told]") -> None:
        """Take these for read under `token` until `settle`."""
        if self._feed is not None:
            self._feed.read(token, told)

    def settle(self, token: str, *, is_taken: bool) -> None:
        """Confirm a read, or take it back."""
        if self._feed is not None:
            self._feed.settle(token, is_taken=is_taken)

    # ------------------------------------------------------------ looking

    async def changed(self) -> list[Document]:
        """Return the documents that were put there since the last call; for roots that do not look.

        Raises:
            Refused, RecoveryRequired: as `Coordinator.known_keys`.
        """
        return await self.run(self._changed)

    def beat(self) -> None:
        """Look at the resources where their directory has changed; costs one call of the system."""
        if not (self._is_closed or self.is_passive) and self._glance.is_changed():
            self.look()

    def look(self) -> None:
        """Look at the resources as soon as may be."""
        if self._is_closed or self.is_passive:
            return
        if self._looking is not None:
            self._is_asked_again = True
            return
        self._looking = self._node.tasks.start(self._look_until_settled())

    async def _look_until_settled(self) -> None:
        try:
            while True:
                self._is_asked_again = False
                await self._look()
                if not self._is_asked_again:
                    return
        finally:
            self._looking = None
            self._arm()

    async def _look(self) -> None:
        changed = await self.run(self._changed)
        own = frozenset(peer.id for peer in self._node.owners())
        for document in changed:
            self._tell(document, own)
            if _concerns(document, own):
                self._documents[document.resource] = document
            else:
                self._documents.pop(document.resource, None)
        if changed:
            self._node.waits.take_documents(self._documents.values())
        due = self._due()
        if due:
            await self.observe(due)
        if not self._documents:
            self._rest()
            return
        if self._watch is None:
            self._watch = FilesWatch(f"{self._directory}/peer-resources")
            if self._watch.descriptor >= 0:
                asyncio.get_running_loop().add_reader(self._watch.descriptor, self._on_change)
        own_files = self._own_files()
        self._watch.follow(own_files)
        self._own_stamps = self._files.stamps(own_files)
        if any(self._files.is_newer(name) for name in own_files):
            self.look()  # what came between the look and the watch

    def _changed(self, coordinator: "Coordinator") -> list[Document]:
        names = self._files.changed()
        if not names:
            return []
        try:
            keys = [key for key in coordinator.known_keys() if f"{key_digest(key)}.json" in names]
            return coordinator.readable(keys)
        except TielineError:
            self._files = Glance(self._files.path)  # all of it is looked at again when the index is mended
            raise

    def _tell(self, document: Document, own: frozenset[str]) -> None:
        if self._feed is None:
            self._feed = import_module("tieline.runtime.resources.feed").Feed()
        for told in self._feed.take(document, own, self._position()):
            self._node.tell_resource(self.shape(told))

    def _position(self) -> int:
        page = self._node.engine.page(Peer(self._node.instance), 0, 0)
        return 0 if isinstance(page, Refusal) else page.latest_cursor

    def _due(self) -> list[ResourceKey]:
        """Return the resources of which this root may decide something now."""
        root = Peer(self._node.instance).id
        own = frozenset(peer.id for peer in self._node.owners())
        is_late = self._due_mono_ms is not None and self._node.now().mono_ms >= self._due_mono_ms
        return [
            key
            for key, document in self._documents.items()
            if _is_ours_to_grant(document, root, own, is_in_order=self.grants_in_order(key))
            and (_is_free(document) or is_late or not _is_tended(document))
        ]

    def _own_files(self) -> list[str]:
        return [f"{key_digest(key)}.json" for key in self._documents]

    def _is_own_changed(self) -> bool:
        return self._files.stamps(self._own_files()) != self._own_stamps

    def _on_change(self) -> None:
        if self._watch is not None and self._watch.drain() and self._is_own_changed():
            self.look()

    def _arm(self) -> None:
        """Look once a second while a resource concerns this root."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._documents and not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._poll)

    def _poll(self) -> None:
        self._timer = None
        if self._is_own_changed() or self._due():
            self.look()
        else:
            self._arm()

    def _rest(self) -> None:
        if self._watch is not None:
            if self._watch.descriptor >= 0:
                asyncio.get_running_loop().remove_reader(self._watch.descriptor)
            self._watch.close()
            self._watch = None

    # ------------------------------------------------------------ ending

    async def ended(self, peer: Peer) -> None:
        """Give back what an ended peer of this root has not used; its running commands keep theirs."""
        if self._coordinator is None and not self._documents:
            return
        command = import_module("tieline.engine.coordination").EndClaimant
        own = self.principal(Peer(self._node.instance))

        def end(coordinator: "Coordinator") -> None:
            keys = [
                document.resource
                for document in coordinator.readable(coordinator.known_keys())
                if any(
                    ticket.claimant.peer_id == peer.id and ticket.state in _UNUSED
                    for ticket in document.tickets
                )
            ]
            if keys:
                coordinator.decide(keys, command(own, peer.id))

        await self.run(end)

    async def close(self) -> None:
        """Give back what this root and its runs have not used, and let go of the files."""
        if self._is_closed:
            return
        try:
            for peer in self._node.owners():
                await self.ended(peer)
        except (TielineError, OSError) as error:
            self._node.log.failure("resources", error)  # they end by the proof of our own end
        self._is_closed = True
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        if self._timer is not None:
            self._timer.cancel()
        self._rest()
        if self._executor is not None:
            if self._coordinator is not None:
                await self.run(lambda coordinator: coordinator.close())
            self._executor.shutdown(wait=False)


def _concerns(document: Document, own: frozenset[str]) -> bool:
    """Return whether a resource names one of these peers."""
    policy = document.policy
    named = set(document.enrolment)
    if policy is not None:
        named |= {policy.controller, *policy.participants}
    named |= {one.claimant.peer_id for one in document.tickets if one.state not in FINISHED}
    return not own.isdisjoint(named)


def _is_ours_to_grant(document: Document, root: str, own: frozenset[str], *, is_in_order: bool) -> bool:
    """Return whether this root decides who is next: of what it controls, and for its own on what is open."""
    if not document.queue:
        return False
    if document.policy is not None:
        return is_in_order and document.policy.controller == root
    return any(ticket.claimant.peer_id in own and ticket.claimant.waiter is None for ticket in document.queue)


def _is_free(document: Document) -> bool:
    return document.holder is None and not document.blockers


def _is_tended(document: Document) -> bool:
    return bool(import_module("tieline.runtime.resources.holders").is_tended(document))
