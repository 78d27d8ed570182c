"""Who is on the intercom, as one root sees it: each session once, whichever wires show it.

Rule 1: a session that another wire of ours shows is shown by that one: the same instance, or the same native
    session. A claim to be somebody's twin can only hide who makes it.
Rule 2: what a name means is looked up in what the brokers let us see, and in nothing else.
Rule 3: a list is asked for anew where somebody looks; nobody's leaving is guessed.

Source: reference/intercom.md 2; DESIGN.md 1 "The same agent on several wires".
"""

import asyncio
import contextlib
import os
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tieline.config import Scope
from tieline.engine.directory import Place as Workplace
from tieline.engine.directory import Root, is_in_scope
from tieline.errors import Refusal, Refused
from tieline.model.identity import Availability, Descriptor, Peer
from tieline.model.traits import NATIVE
from tieline.runtime.signals import Watch
from tieline.shell.intercom.post import ABLE
from tieline.wire.intercom import mapping
from tieline.wire.intercom.targets import shown_targets, target_of

if TYPE_CHECKING:
    from tieline.runtime.intercom.intercom import Intercom

__all__ = ["GLANCE_SECONDS_MAX", "LOOK_SECONDS_MAX", "Roster", "Row", "is_row_busy", "takes_no_ask"]

LOOK_SECONDS_MAX: Final = 5.0
GLANCE_SECONDS_MAX: Final = 1.0
"""For who only wants to see: a model's turn stands still meanwhile, and a later look costs nothing."""
SEEN_MAX: Final = 4_096

READ_ADVICE: Final = {
    "unsupported": "ask it with a message; only sessions that announced such reads can be read",
    "entry_not_found": "read its newest answer: leave the entry out",
    "invalid_offset": "give the entryId and the nextOffset of the page before, both unchanged",
}
"""What helps a reader, where that is more than the code says."""

Row = Mapping[str, Any]


class Roster:
    """The sessions that one root can see."""

    def __init__(self, intercom: "Intercom") -> None:
        self._intercom = intercom
        self._joined: dict[str, str] = {}  # session id to the instance that is shown
        self._seen: OrderedDict[str, Row] = OrderedDict()  # who was ever listed, the last ones
        self._is_silent = False  # a broker did not answer the last look, or did not take us in

    async def look(self, seconds_max: float = LOOK_SECONDS_MAX) -> bool:
        """List anew at every broker that has us; return whether all answered in that while.

        What has not come by then is as it was last listed.
        """
        post = self._intercom.post
        if not post.is_connected:
            return False
        listed = asyncio.Event()

        def answered() -> None:
            self._is_silent = False
            listed.set()

        post.look(answered)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience(seconds_max)):
                await listed.wait()
        self._is_silent = not listed.is_set()
        return listed.is_set()

    def _patience(self, seconds_max: float) -> float:
        """Return how long to wait for brokers: a second where the last wait was in vain."""
        return min(seconds_max, GLANCE_SECONDS_MAX) if self._is_silent else seconds_max

    async def connected(self, seconds_max: float = LOOK_SECONDS_MAX) -> None:
        """Wait for a broker to have us, for a while."""
        intercom, loop = self._intercom, asyncio.get_running_loop()
        deadline = loop.time() + self._patience(seconds_max)
        for member in intercom.post.members.values():
            member.hurry()
        while intercom.is_published and not intercom.fault:
            watch = Watch(intercom.stirred)
            left = deadline - loop.time()
            if intercom.post.is_connected:
                return
            if left <= 0:
                self._is_silent = True
                return
            await watch.wait(left)

    def rows(self) -> list[Row]:
        """Return the other sessions, as brokers list them."""
        rows = self._intercom.post.rows()
        found: list[Row] = [
            row for session_id, (_, row) in rows.items() if not self._is_self(session_id, row)
        ]
        for row in found:
            self._seen[row["id"]] = row
            self._seen.move_to_end(row["id"])
        while len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)
        return found

    def absent(self, target: str) -> Root | None:
        """Return who was seen here under exactly this id or peer id, and is not listed now.

        A broker may hold mail for such a one, or say that it does not.
        """
        for session_id, row in self._seen.items():
            peer = Peer(mapping.instance_of(session_id))
            if target in (session_id, peer.id):
                return msgspec.structs.replace(_root(row, session_id), activity="gone")
        return None

    def own_rows(self) -> list[Row]:
        """Return ourselves, as brokers list us."""
        rows = self._intercom.post.rows()
        return [row for session_id, (_, row) in rows.items() if self._is_self(session_id, row)]

    def _is_self(self, session_id: str, row: Row) -> bool:
        if any(session_id == one.session_id for one in self._intercom.post.members.values()):
            return True
        told = row.get(mapping.INSTANCE_FIELD)
        if told is not None:
            return bool(told == self._intercom.node.instance)
        # Our own program's extension, under the id of our native session. A root that says another instance
        # is somebody else, also under the id that we would have had.
        return session_id == mapping.peer_id_of(self._intercom.context.session)

    def roots(self, known: list[Root]) -> list[Root]:
        """Return what other wires show and the sessions that they do not, each once."""
        place = self._intercom.node.place
        # One that we may not reach over its other wire is reached over this one.
        reached = [root for root in known if root.wire != NATIVE.name or is_in_scope(place, root.place)]
        by_session = {mapping.peer_id_of(root.session): root.instance for root in reached if root.session}
        instances = {root.instance for root in reached}
        rows = self.rows()
        shown = shown_targets(rows)
        self._joined.clear()
        found = list(known)
        for row in rows:
            told = row.get(mapping.INSTANCE_FIELD)
            twin = by_session.get(row["id"]) if told is None else told if told in instances else None
            if twin is not None:
                self._joined[row["id"]] = str(twin)
            else:
                self._joined[row["id"]] = mapping.instance_of(row["id"])
                found.append(_root(row, shown[row["id"]]))
        return found

    def peer_of(self, target: str) -> Peer | Refusal:
        """Return whom a name, an id or the begin of one means among the sessions last listed."""
        found = target_of(self.rows(), target)
        if isinstance(found, Refusal):
            absent = self.absent(target)
            if absent is not None:
                return Peer(absent.instance)
            if target_of([*self.own_rows()], target) in [row["id"] for row in self.own_rows()]:
                return Refusal("INVALID_PARAMS", "Cannot message the current session")
            return found
        return self.shown_as(found)

    def shown_as(self, session_id: str) -> Peer:
        """Return the peer that a session is shown as, by whichever wire."""
        return Peer(self._joined.get(session_id, mapping.instance_of(session_id)))

    def session_of(self, peer: Peer) -> str | None:
        """Return the session id of a peer, whichever wire shows it."""
        for session_id, instance in self._joined.items():
            if instance == peer.instance:
                return session_id
        return self._intercom.post.session_of(peer.instance)

    def row_of(self, session_id: str) -> Row | None:
        """Return a session as it was last listed."""
        found = self._intercom.post.rows().get(session_id)
        return None if found is None else found[1]

    # ------------------------------------------------------------ reading others

    async def read_last(self, peer: Peer, entry: str | None, offset: int) -> dict[str, Any]:
        """Return one page of a session's last answer, without waking it.

        Raises:
            Refused: PEER_OFFLINE, CAPABILITY_DENIED: it or its broker cannot tell; UNKNOWN_TARGET: no such
                entry any more.
        """
        session_id = self.session_of(peer)
        if session_id is None:
            raise Refused("PEER_OFFLINE", "this session is not connected")
        body: dict[str, Any] = {"offset": offset} | ({} if entry is None else {"entryId": entry})
        told = await self.read("last", session_id, body)
        return {
            "entry": told.get("entryId"),
            "text": told.get("text", ""),
            "offset": told.get("offset", 0),
            "nextOffset": told.get("nextOffset"),
        }

    async def read(self, kind: str, session_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a session answers to a read.

        Raises:
            Refused: as `read_last`.
        """
        future: asyncio.Future[dict[str, Any] | Refusal] = asyncio.get_running_loop().create_future()
        self._intercom.post.read(
            kind, session_id, body, lambda told: None if future.done() else future.set_result(told)
        )
        told = await future
        if isinstance(told, Refusal):
            raise Refused.of(told)
        if "error" in told:
            raise _read_refused(str(told["error"]))
        return told


def is_row_busy(row: Row) -> bool | None:
    """Return whether a session is at work, as it says; None where it does not say."""
    accepts, status = row.get("acceptsAsks"), row.get("status")
    if isinstance(accepts, bool):
        return not accepts
    return None if not isinstance(status, str) or not status else not status.startswith("idle")


def takes_no_ask(target: Descriptor, row: Row | None) -> bool:
    """Return whether a question to this peer would wait behind its work.

    Who is reached natively says so itself: a session that claims to be its twin may say what it likes.
    """
    if target.wire == NATIVE.name:
        return target.is_busy
    return row is not None and row.get("acceptsAsks") is False


def _root(row: Row, shown: str) -> Root:
    status = str(row.get("status") or "")
    cwd = str(row["cwd"])
    name = str(row.get("name") or shown)
    root = row.get("rootSessionId")
    return Root(
        instance=mapping.instance_of(row["id"]),
        session=root if isinstance(root, str) and "parentSessionId" not in row else "",
        alias=name[:64],
        project=os.path.basename(cwd.rstrip("/"))[:256],
        activity=status[:32] or "unknown",
        availability=Availability.AVAILABLE,
        capabilities=ABLE,
        place=Workplace(cwd, "", Scope.MACHINE),
        model=str(row["model"])[:128],
        is_busy=is_row_busy(row) is True,
        wire=mapping.WIRE,
        ref=shown,
        address=row["id"],
    )


def _read_refused(error: str) -> Refused:
    """Return what a read's error means for who reads."""
    codes = {
        "not_found": ("PEER_OFFLINE", "this session is not connected"),
        "unsupported": ("CAPABILITY_DENIED", "this session did not say that others may read this of it"),
        "entry_not_found": ("UNKNOWN_TARGET", "this session has no such entry any more"),
        "invalid_offset": ("INVALID_PARAMS", "offset is no place in that answer where a page begins"),
        "invalid_request": ("INVALID_PARAMS", "the broker does not take this entry or offset"),
        "busy": ("RESOURCE_BUSY", "too many reads wait for this session"),
        "disconnected": ("PEER_OFFLINE", "this session disconnected before it answered"),
        "timeout": ("PEER_OFFLINE", "this session did not answer in time"),
    }
    code, text = codes.get(error, ("PEER_OFFLINE", f"the read failed: {error[:80]}"))
    refused = Refused(code, text, is_retryable=error in ("timeout", "busy"))
    advice = READ_ADVICE.get(error)
    return refused if advice is None else refused.advising(advice)
