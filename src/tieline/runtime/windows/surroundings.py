"""Who is around on the pi-peers wire: records as identities, directory entries and targets.

Theory. A record names a conversation, an address and a process. The conversation is who it is: it outlives
the process, so mail to it finds it again. The address is where it can be reached now. So an identity is
made of the conversation, and looked up anew for every message.

Rule 1: of two live windows that show one conversation, the one started last bears its plain identity; the
    others are told apart by their address. An address that no record names is an identity of its own.
Rule 2: a window that is also a native root is shown once, as that root.
Rule 3: what a record says is a claim; a key, a socket and the kernel decide what may be written to.
Rule 4: whoever cannot be proven to live is listed as offline unless its socket is there; never as gone.
Rule 5: an address that the last look did not show is looked for anew before it counts as nobody's: who has
    just come would else be a stranger now and somebody known a moment later. How often is bounded.

Source: reference/pi-peers-and-harness-doors.md rules 11, 13, 17, 23, 45 to 48, U1, U2, U8, U23, U24.
"""

import os
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from tieline.config import Scope
from tieline.engine.directory import Place, Root
from tieline.errors import Refusal, Refused
from tieline.machine.admission import Bucket, refilled
from tieline.model.identity import Availability, Capability, foreign_instance
from tieline.model.moment import Moment
from tieline.model.process import Life
from tieline.shell.endpoint import verify_window
from tieline.shell.peers import Target
from tieline.store.registry import Listed, Registry, Window
from tieline.wire.peers.frames import plain_address
from tieline.wire.peers.mapping import WIRE

__all__ = ["CAPABILITIES", "PROTOCOL", "Surroundings", "address_instance", "identities", "is_window_name"]

PROTOCOL: Final = 1
IDLE_FEATURE: Final = "notify_idle"
NAME_CHARACTERS_MAX: Final = 64
ADDRESSES_MAX: Final = 4_096
"""Addresses without a record that are remembered, so that their mail can be answered."""
LOOKS_BURST: Final = 32
LOOKS_PER_SECOND: Final = 8.0
"""Looks for addresses that are not known; whoever makes up addresses gets no more of them."""
CAPABILITIES: Final = (Capability.RECEIVE.value, Capability.SEND.value)


def is_window_name(text: str) -> bool:
    """Return whether a host may call its window so: what stands in refs, wrappers and paths is left out."""
    return 0 < len(text) <= NAME_CHARACTERS_MAX and text.isprintable() and not set('[]<>&"\\/') & set(text)


def address_instance(address: str) -> str:
    """Return the identity of an address that no record names."""
    return foreign_instance(WIRE, "", address)


def identities(listed: Sequence[Listed]) -> dict[str, Listed]:
    """Return each window under its identity."""
    found: dict[str, Listed] = {}
    plain: dict[str, Listed] = {}
    for one in listed:
        if one.window.session and one.life is not Life.DEAD:
            rival = plain.get(one.window.session)
            if rival is None or _age(rival) < _age(one):
                plain[one.window.session] = one
    for one in listed:
        window = one.window
        if not window.session:
            found[address_instance(window.socket_path)] = one
        elif plain.get(window.session) is one:
            found[foreign_instance(WIRE, window.session)] = one
        else:
            found[foreign_instance(WIRE, window.session, window.socket_path)] = one
    return found


def _age(listed: Listed) -> tuple[int, int]:
    return listed.window.started_ms, listed.window.pid


class Surroundings:
    """The other windows, as one root sees them."""

    def __init__(
        self,
        registry: Registry,
        *,
        project: str,
        parent: tuple[str, str] | None,
        now: Callable[[], Moment],
    ) -> None:
        """Look through `registry`; `parent` is the address and the child token of who started us."""
        self._registry, self._project, self._parent, self._now = registry, project, parent, now
        self._addresses: dict[str, str] = {}
        self._looks: Bucket | None = None

    def known(self, *, is_fresh: bool = False) -> dict[str, Listed]:
        """Return the other windows that are not proven dead, by identity."""
        listed = self._registry.scan(self._now().mono_ms, fresh=is_fresh)
        return identities([one for one in listed if one.life is not Life.DEAD])

    def instance_at(self, address: str) -> tuple[str, Window | None]:
        """Return whose address that is; where no record says so, the address is its own identity."""
        plain = plain_address(address)
        found = self._at(plain)
        if found is not None:
            return found[0], found[1].window
        instance = address_instance(plain)
        self._addresses[instance] = plain
        while len(self._addresses) > ADDRESSES_MAX:
            del self._addresses[next(iter(self._addresses))]
        return instance, None

    def _at(self, address: str) -> tuple[str, Listed] | None:
        """Return the window at an address; one that came since the last look is found, too."""
        for is_fresh in (False, True):
            if is_fresh and (not address or not self._may_look()):
                break
            for instance, listed in self.known(is_fresh=is_fresh).items():
                if listed.window.socket_path == address:
                    return instance, listed
        return None

    def _may_look(self) -> bool:
        looks = refilled(self._looks, self._now().mono_ms, LOOKS_PER_SECOND, LOOKS_BURST)
        if looks.level < 1_000:
            return False
        self._looks = Bucket(looks.level - 1_000, looks.at_ms)
        return True

    def speaks(self, instance: str, address: str, pid: int | None) -> bool:
        """Return whether process `pid`, as the kernel names it, may speak for a window.

        Where no address is stated, it must be proven to be that window's process. Where one is, it is no
        other window's: a claim that the kernel contradicts is none.
        """
        here = [(name, one) for name, one in self.known().items() if one.life is Life.ALIVE]
        named = next(((name, one) for name, one in here if one.window.pid == pid), None)
        if address:
            return named is None or named[1].window.socket_path == address
        return named is not None and named[0] == instance

    def target(self, instance: str) -> Target | Refusal:
        """Return a window to write to, its record read anew."""
        listed = self.known().get(instance)
        if listed is not None:  # the list may be half a second old: the one file is read again
            read = self._registry.read_record(listed.window.pid)
            is_same = read is not None and read.window.session == listed.window.session
            listed = read if is_same else None
        if listed is None:
            listed = self.known(is_fresh=True).get(instance)
        if listed is None:
            address = self._addresses.get(instance)
            if address is not None:
                return self.target_at(address)
            return Refusal("PEER_OFFLINE", "this window is not in the registry", is_retryable=True)
        return self._checked(instance, listed)

    def target_at(self, address: str) -> Target | Refusal:
        """Return the window that listens at an address."""
        plain = plain_address(address)
        if self._parent is not None and self._is_parent(plain):
            return Target(self.instance_at(plain)[0], plain, self._parent[1], 0)
        found = self._at(plain)
        if found is not None:
            return self._checked(*found)
        return Refusal("PEER_OFFLINE", "no record names this address", is_retryable=True)

    def _is_parent(self, address: str) -> bool:
        return self._parent is not None and address == self._parent[0]

    def _token(self, window: Window) -> str | None:
        """Return what opens a window: what it gave us itself, else what its key file holds."""
        if self._parent is not None and self._is_parent(window.socket_path):
            return self._parent[1]
        return self._registry.peer_token(window)

    def _checked(self, instance: str, listed: Listed) -> Target | Refusal:
        window = listed.window
        if window.protocol > PROTOCOL:
            text = f"protocol_version: this window speaks {window.protocol}, we speak {PROTOCOL}"
            return Refusal("UNSUPPORTED_PROTOCOL", text)
        try:
            token = self._token(window)
        except Refused as error:
            return Refusal(error.code, str(error), is_retryable=True)
        if token is None:
            text = listed.fault or "this window's key file is missing: nobody can write to it"
            return Refusal("PEER_OFFLINE", text, is_retryable=True)
        # A number of another domain means nothing here, and the kernel tells ours only.
        pid = window.pid if listed.life is Life.ALIVE else 0
        return Target(instance, window.socket_path, token, pid, IDLE_FEATURE in window.features)

    # ------------------------------------------------------------ the directory

    def roots(self, native: Sequence[Root], pids: dict[str, int]) -> list[Root]:
        """Return native roots and windows as one list, each end once.

        Args:
            native: As presence shows them.
            pids: Process of each native instance.
        """
        joined = {root.instance: root for root in native}
        found: list[Root] = []
        for instance, listed in self.known().items():
            twin = _twin(listed, native, pids)
            if twin is None:
                found.append(self._root(instance, listed))
            else:
                window = listed.window
                joined[twin.instance] = msgspec.structs.replace(
                    twin, ref=window.ref, address=window.socket_path, former_names=window.former_names
                )
        if self._parent is not None and self._at(self._parent[0]) is None:
            found.append(self._unlisted_parent(self._parent[0]))
        return [*joined.values(), *found]

    def _unlisted_parent(self, address: str) -> Root:
        """Return who started us where no record of this directory names it: its address and token suffice."""
        instance, _ = self.instance_at(address)
        try:
            verify_window(address)
            availability = Availability.AVAILABLE
        except Refused:
            availability = Availability.OFFLINE
        return Root(
            instance=instance,
            session="",
            alias="parent",
            project=os.path.basename(self._project),
            activity="",
            availability=availability,
            capabilities=CAPABILITIES,
            place=Place(self._project, "", Scope.MACHINE),
            wire=WIRE,
            address=address,
        )

    def _root(self, instance: str, listed: Listed) -> Root:
        window = listed.window
        project = os.path.realpath(window.project) if window.project else ""
        name = window.name or f"{os.path.basename(window.cwd) or 'window'}-{window.pid}"
        return Root(
            instance=instance,
            session=window.session,
            alias=name[:NAME_CHARACTERS_MAX],
            project=os.path.basename(project),
            activity=window.status[:32],
            availability=_availability(listed, has_token=self._is_parent(window.socket_path)),
            capabilities=CAPABILITIES,
            place=Place(project, "", Scope.MACHINE),
            harness="pi",
            is_busy=window.is_busy,
            context_percent=window.context_percent,
            wire=WIRE,
            ref=window.ref,
            address=window.socket_path,
            former_names=window.former_names,
            is_other_project=project != self._project,
        )


def _twin(listed: Listed, native: Sequence[Root], pids: dict[str, int]) -> Root | None:
    """Return the native root that shows this window: the same process, and the same session where several."""
    if listed.life is not Life.ALIVE:
        return None
    same = [root for root in native if pids.get(root.instance) == listed.window.pid]
    if len(same) > 1:
        same = [root for root in same if root.session == listed.window.session]
    return same[0] if len(same) == 1 else None


def _availability(listed: Listed, *, has_token: bool) -> Availability:
    if listed.window.protocol > PROTOCOL:
        return Availability.UNSUPPORTED
    if not has_token and (not listed.has_key or listed.fault is not None):
        return Availability.OFFLINE
    if listed.life is not Life.ALIVE:
        try:
            verify_window(listed.window.socket_path)
        except Refused:
            return Availability.OFFLINE
    return Availability.AVAILABLE
