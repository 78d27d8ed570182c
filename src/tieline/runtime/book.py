"""Names to peers, as one root sees them now: listings, exact targets, and the runs of others.

Rule 1: an exact route reads its owner's record anew, and asks that root alone for its runs.
Rule 2: what a name means is decided in `engine.directory`; this module brings it the facts.

Source: reference/native.md 26 to 32, 2.4.
"""

from typing import TYPE_CHECKING, Any

from tieline.config import Scope
from tieline.engine import directory
from tieline.engine.directory import Listing, Root, Run
from tieline.errors import Refusal, Refused
from tieline.model.identity import Availability, Descriptor, Peer, is_peer_id
from tieline.runtime import render
from tieline.wire.native import mapping

if TYPE_CHECKING:
    from tieline.runtime.node import Node

__all__ = ["Book"]


class Book:
    """The directory of one root."""

    def __init__(self, node: "Node") -> None:
        self._node = node

    def roots(self) -> list[Root]:
        """Return everybody else, and ourselves where a name of ours may be meant."""
        found, windows = self._node.neighbours.roots(self._node.now()), self._node.windows
        if windows is not None:
            found = windows.roots(found, self._node.neighbours.pids)
        return found if self._node.intercom is None else self._node.intercom.roster.roots(found)

    def own_root(self) -> Root:
        """Return ourselves as a directory entry, with our live runs."""
        runs = tuple(
            Run(item.run, item.alias, "thinking", tuple(item.capabilities))
            for item in self._node.engine.live_runs()
        )
        windows = self._node.windows
        return Root(
            ref=windows.ref if windows is not None else "",
            address=windows.address if windows is not None else "",
            instance=self._node.instance,
            session=self._node.session,
            alias=self._node.alias,
            project=self._node.project,
            activity=self._node.host.activity,
            availability=Availability.AVAILABLE,
            capabilities=self._node.capabilities,
            place=self._node.place,
            runs=runs,
            harness=self._node.options.harness,
            model=self._node.host.model,
            is_busy=self._node.host.is_busy,
            context_percent=self._node.host.context_percent,
        )

    async def refresh_runs(self, scope: Scope, *, is_exact: bool = False) -> None:
        """Ask the roots in scope for their runs; with `is_exact` also those asked within the last second."""
        if scope.rank > self._node.settings.scope.rank:
            return
        if self._node.intercom is not None:
            await self._node.intercom.roster.look()
        ask = self._ask_runs if is_exact else self._ask_runs_lately
        await self._node.neighbours.refresh(self.roots(), scope, ask)

    async def _ask_runs_lately(self, instance: str) -> tuple[Run, ...] | None:
        if self._node.neighbours.has_fresh_runs(instance, self._node.now()):
            return ()
        return await self._ask_runs(instance)

    async def _ask_runs(self, instance: str) -> tuple[Run, ...] | None:
        far = self._node.neighbours.far(instance)
        try:
            told = await self._node.ask_peer(instance, "peer.directory", {"version": 1})
        except Refused:
            return None
        names = frozenset(far.advertised.capabilities if far is not None else ())
        runs = mapping.children_told(told, instance, names)
        self._node.neighbours.runs_told(instance, runs, self._node.now())
        return runs

    def listing(
        self, scope: Scope, query: str, cursor: str | None, *, is_crossing: bool = False
    ) -> Listing | Refusal:
        """Return one page of who can be seen; with `is_crossing` the windows of every project."""
        return directory.listing(
            self._node.place,
            self.roots(),
            scope=scope,
            query=query,
            cursor=cursor,
            page_size=self._node.settings.limits.directory_page_size,
            is_crossing=is_crossing,
        )

    @property
    def other_projects_count(self) -> int:
        """Windows of other projects, which a listing does not show unless it crosses."""
        return directory.others_count(self.roots())

    async def resolve(
        self, target: str, scope: Scope | None, *, is_crossing: bool = False
    ) -> Descriptor | Refusal:
        """Return the one peer that `target` names now; its owner's record is read anew."""
        owner = self._node.neighbours.owner_of(target) if is_peer_id(target) else None
        if owner is not None and target != Peer(owner).id:
            await self._ask_runs_lately(owner)  # whether it still runs, its root says at acceptance
        root = None if owner is None else self._node.neighbours.root(owner)
        if root is None and self._node.windows is not None:
            self._node.windows.look()
        known = [self.own_root(), *self.roots()] if root is None else [root]
        found = directory.resolve(self._node.place, known, target, scope, is_crossing=is_crossing)
        if isinstance(found, Refusal) and found.code == "UNKNOWN_TARGET" and owner is None:
            await self.refresh_runs(scope or self._node.settings.scope, is_exact=True)
            known = [self.own_root(), *self.roots()]
            found = directory.resolve(self._node.place, known, target, scope, is_crossing=is_crossing)
        if isinstance(found, Refusal) and found.code == "UNKNOWN_TARGET" and self._node.intercom is not None:
            meant = self._node.intercom.roster.peer_of(target)  # its names are looser than ours
            if isinstance(meant, Refusal):
                return found if meant.code == "UNKNOWN_TARGET" and not meant.candidates else meant
            absent = self._node.intercom.roster.absent(meant.id)
            known = known if absent is None else [*known, absent]
            found = directory.resolve(self._node.place, known, meant.id, scope, is_crossing=is_crossing)
        if isinstance(found, Refusal) and owner is not None and found.code == "UNKNOWN_TARGET":
            code = "TARGET_ENDED" if target != Peer(owner).id else "PEER_OFFLINE"
            return Refusal(code, "this peer was here and is not any more")
        return found

    def known_peer_id(self, text: str) -> str:
        """Return the peer id that an id or alias of the directory or of received mail means.

        Raises:
            Refused: UNKNOWN_TARGET or AMBIGUOUS_TARGET.
        """
        if is_peer_id(text):
            return text
        known = [self.own_root(), *self.roots()]
        found = directory.resolve(self._node.place, known, text, is_crossing=True)
        if isinstance(found, Refusal):
            raise Refused.of(found)
        return found.peer.id

    def age_ms(self, instance: str) -> int | None:
        """Return the age of a listed record."""
        return self._node.neighbours.age_ms(instance)

    @property
    def presence_faults(self) -> int:
        """Records that could not be read in the last scan."""
        return self._node.neighbours.faults

    def describe_self(self, peer: Peer) -> dict[str, Any]:
        """Return the acting peer as a descriptor."""
        own = directory.resolve(self._node.place, [self.own_root()], peer.id)
        assert isinstance(own, Descriptor), "a local peer is in its own directory"
        return render.descriptor(own, is_self=True)
