"""`tieline run`: claim, wait visibly, check again, enter the ledger, run under a supervisor.

Rule 1: nothing starts without a right that was checked after the last wait; a timeout authorises nothing.
Rule 2: the ledger's record, with its supervisor, is durable before the program runs.
Rule 3: who waits is told for whom, at which place, and since when; the command's own output is untouched.
Rule 4: what a launch around this process holds is used along only where this process is proven to run in
its tree: a mark in the environment is a claim, and anybody can copy it.

Source: reference/native.md 2.14, 3.5; DESIGN.md 2, 4; reference/reliability.md I31 to I35, K30.
"""

import hashlib
import json
import os
import secrets
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from tieline.engine import coordination
from tieline.engine.coordination import Begin, Cancel, Claim, Status
from tieline.errors import Refusal, Refused
from tieline.model.identity import Capability, Principal
from tieline.model.resource import (
    FINISHED,
    Claimant,
    Document,
    Launch,
    Ledger,
    ResourceKey,
    Snapshot,
    Ticket,
    TicketState,
    key_digest,
)
from tieline.runtime.resources import shapes
from tieline.runtime.resources.coordinator import Coordinator, evidence_of, now
from tieline.runtime.resources.crossing import crossed
from tieline.runtime.resources.holders import Doubt, has_no_controller, is_seen_held
from tieline.runtime.resources.watching import FilesWatch, Glance
from tieline.shell.supervisor.front import LaunchEnd, Supervisor
from tieline.shell.tree import MARKS_VARIABLE, LaunchSpec, is_inside

__all__ = ["Order", "Run", "Standing", "command_digest", "lost"]

_T = TypeVar("_T")
PROGRAM = "tieline.runtime.resources.launching"
REPEAT_S = 30.0
"""Between two words about the same standing."""
EXECUTABLE_CHARACTERS_MAX = 64
PUBLICATION_S = 2.0
"""So long a host may take from the start of its command to the word about it."""
PUBLICATION_LOOK_S = 0.05


class Standing(NamedTuple):
    """Where one who waits stands.

    `place` counts from 1 and is 0 where it is not known; `is_new` says that this is another standing than the
    one told before, and not only a later word of the same. `unproven` is the launch that holds the resource
    where nothing proves that it lives or has ended, else empty.
    """

    snapshot: Snapshot
    place: int
    waited_ms: int
    is_new: bool
    unproven: str = ""


class Order(msgspec.Struct, frozen=True):
    """One command to run while it holds resources.

    Attributes:
        keys: What it needs; none, and no policy that asks for more: it runs at once. Its record in the ledger
            lets a later policy find it.
        command: Program and arguments.
        timeout_ms: How long to wait for the grant.
        classes: What the gate found of it.
        required: Resources that rules ask of it; all must be among `keys`.
        ticket_id: An existing ticket to use.
    """

    keys: tuple[ResourceKey, ...]
    command: tuple[str, ...]
    timeout_ms: int
    reason: str = ""
    on_orphan: str = "keep"
    classes: tuple[str, ...] = ()
    required: tuple[ResourceKey, ...] = ()
    ticket_id: str | None = None
    is_terminal_wanted: bool = True


def command_digest(command: Sequence[str], directory: str) -> str:
    """Return sha256 over the canonical form of program, arguments and working directory."""
    text = json.dumps(
        {"file": command[0], "args": list(command[1:]), "cwd": directory}, separators=(",", ":")
    )
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


class Run:
    """One launch, from its claim to its end."""

    def __init__(
        self,
        coordinator: Coordinator,
        coordination_directory: str,
        principal: Principal,
        claimant: Claimant,
        order: Order,
    ) -> None:
        self._coordinator, self._directory = coordinator, coordination_directory
        self._claimant, self._order = claimant, order
        # Who waits looks, and grants nothing: a controller's own command waits for its grant as well.
        self._principal = msgspec.structs.replace(
            principal, capabilities=principal.capabilities - {Capability.CONTROL.value}
        )
        self._peers = frozenset({claimant.peer_id, claimant.enrollment_peer_id or claimant.peer_id})
        self._keys = order.keys
        self._cwd = os.getcwd()
        self._digest = command_digest(order.command, self._cwd)
        self._launch_id = str(uuid.uuid4())
        self._nonce = secrets.token_hex(16)
        self._executable = os.path.basename(order.command[0])[:EXECUTABLE_CHARACTERS_MAX]
        self._tickets: dict[ResourceKey, str] = {}
        self._inherited: frozenset[ResourceKey] = frozenset()
        self._around: frozenset[str] = frozenset()
        self._unproven: dict[str, Launch] = {}
        self._since_s = self._told_s = 0.0
        self._told: tuple[object, ...] = ()
        self._without: list[bool] = []
        self._doubt = Doubt(coordinator)

    # ------------------------------------------------------------ the whole

    def run(
        self, tell: Callable[[Standing], None], warn: Callable[[str], None] = lambda _text: None
    ) -> LaunchEnd:
        """Wait for the grant, run the command, and return how it ended.

        Args:
            tell: Called with what stands in the way, when that changes while this waits, and otherwise once
                in `REPEAT_S`.
            warn: Called with a sentence when a launch that the environment names is not believed to be
                around this process, and holds what it waits for.

        Raises:
            Refused: RESOURCE_WAIT_TIMEOUT, STALE_POLICY, RESOURCE_BUSY and the engine's other codes;
                nothing was started.
            RecoveryRequired: a record cannot be believed; nothing was started.
        """
        with Supervisor.start(PROGRAM) as supervisor:
            self._keys = tuple(sorted({*self._order.keys, *self._gated()}))
            if self._keys:
                self._claim()
            try:
                fences = self._wait(tell, warn) if self._keys else {}
                spec = self._spec(fences)
                self._begin(fences, supervisor, spec)
            except BaseException:
                self._withdraw()
                raise
            return supervisor.run(spec)

    def _gated(self) -> tuple[ResourceKey, ...]:
        """Return what present policies ask of this command, because its peer is enrolled."""
        return self._coordinator.gated_by(self._peers, frozenset(self._order.classes))

    def _spec(self, fences: dict[ResourceKey, int]) -> LaunchSpec:
        keys = tuple(sorted(fences))
        return LaunchSpec(
            launch_id=self._launch_id,
            nonce=self._nonce,
            command=self._order.command,
            resources=keys,
            fences=tuple(fences[key] for key in keys),
            on_orphan="stop" if self._order.on_orphan == "stop" else "keep",
            terminal="auto" if self._order.is_terminal_wanted else "never",
            context=self._directory,
        )

    # ------------------------------------------------------------ claiming and waiting

    def _patiently(self, decide: Callable[[], _T]) -> _T:
        """Decide; a lock that a crowd holds is waited for as long as the grant would be."""
        until = time.monotonic() + self._order.timeout_ms / 1000
        while True:
            try:
                return decide()
            except Refused as refused:
                is_crowded = refused.code == "RESOURCE_BUSY" and refused.is_retryable
                if not is_crowded or time.monotonic() >= until:
                    raise

    def _claim(self) -> None:
        ancestors = self._ancestors()
        self._around = frozenset(ancestors)
        claim = partial(
            self._coordinator.decide,
            self._keys,
            Claim(
                caller=self._principal,
                claimant=self._claimant,
                launch_id=self._launch_id,
                digest=self._digest,
                executable=self._executable,
                reason=self._order.reason or f"run {self._executable}",
                request_id=str(uuid.uuid4()),
                ticket_id=self._order.ticket_id,
                inherits_from=ancestors[-1] if ancestors else None,
            ),
            ancestors=frozenset(ancestors),
        )
        outcome = self._patiently(claim)
        self._inherited = frozenset(outcome.inherited)
        for ticket in outcome.tickets:
            self._note(ticket)

    def _ancestors(self) -> list[str]:
        """Return the launches whose trees are proven to hold this process, the outermost first."""
        marks = os.environ.get(MARKS_VARIABLE, "").split()
        if not marks:
            return []
        by_nonce = {launch.nonce: launch for launch in self._published(frozenset(marks))}
        proven: list[str] = []
        for launch in (by_nonce[mark] for mark in marks if mark in by_nonce):
            evidence = evidence_of(launch)
            if evidence is not None and is_inside(evidence, os.getpid()):
                proven.append(launch.launch_id)
            else:
                self._unproven[launch.launch_id] = launch
        return proven

    def _published(self, nonces: frozenset[str]) -> tuple[Launch, ...]:
        """Return the ledger's launches of these nonces; a host may still be about to publish its process."""
        until = time.monotonic() + PUBLICATION_S
        while True:
            found = tuple(
                one for one in self._coordinator.store.read_ledger().launches if one.nonce in nonces
            )
            if all(evidence_of(one) is not None for one in found) or time.monotonic() >= until:
                return found
            time.sleep(PUBLICATION_LOOK_S)

    def _warn(self, documents: list[Document], warn: Callable[[str], None]) -> None:
        """Say once of each launch that is not believed to be around us that it holds what we want."""
        for document in documents:
            held_by = document.holder.launch_id if document.holder is not None else None
            launch = self._unproven.pop(held_by, None) if held_by is not None else None
            if launch is not None:
                warn(_disbelief(launch, document.resource))

    def _note(self, ticket: Ticket) -> None:
        for key in self._keys:
            document = self._coordinator.store.read(key)
            if document.ticket(ticket.request_id) is not None:
                self._tickets[key] = ticket.request_id

    def _wait(
        self, tell: Callable[[Standing], None], warn: Callable[[str], None] = lambda _text: None
    ) -> dict[ResourceKey, int]:
        """Return the fence of every right, once all are there."""
        deadline = time.monotonic() + self._order.timeout_ms / 1000
        self._since_s = time.monotonic()
        needed = [key for key in self._keys if key not in self._inherited]
        with FilesWatch(self._coordinator.store.path) as watch:
            while True:
                due_mono_ms = self._patiently(
                    lambda: self._coordinator.observe(needed, self._principal)
                ).deadline_mono_ms
                documents = [self._coordinator.store.read(key) for key in needed]
                fences = self._fences(documents)
                if fences is not None:
                    return fences
                # Taken before it is told: an end in between is seen by the sleep, and told next.
                self._without = [has_no_controller(document) for document in documents]
                self._show(documents, tell)
                self._warn(documents, warn)
                refused = crossed(self._coordinator, self._launch_id, self._around, documents)
                if refused is not None:
                    raise refused
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self._too_late(documents)
                if due_mono_ms is not None:
                    left = min(left, max(0.0, (due_mono_ms - now().mono_ms) / 1000) + 0.01)
                self._sleep(watch, documents, min(left, REPEAT_S))

    def _too_late(self, documents: list[Document]) -> Refused:
        """Return why the grant did not come: nobody is left to give it, or it was not this one's turn."""
        names = ", ".join(document.resource for document in documents)
        text = f"{names} was not granted in {self._order.timeout_ms / 1000:g} s; nothing was started"
        for document in documents:
            if has_no_controller(document):
                said = f"the controller of {document.resource} has ended; {text}"
                seen = self._coordinator.decide(
                    [document.resource], Status(self._principal, document.resource)
                ).snapshot
                refused = Refused("CONTROLLER_UNAVAILABLE", said)
                return refused if seen is None else refused.advising(shapes.next_action(seen, {}))
        return Refused("RESOURCE_WAIT_TIMEOUT", text)

    def _sleep(self, watch: FilesWatch, documents: list[Document], left: float) -> None:
        """Sleep until something becomes of these resources, or it is time to look again.

        What becomes of others is no news: it neither wakes this nor costs a transaction.
        """
        until = time.monotonic() + left
        glance = Glance(self._coordinator.store.path)
        own = [f"{key_digest(document.resource)}.json" for document in documents]
        watch.follow(own)
        before = glance.stamps(own)
        if any(self._coordinator.store.read(one.resource).revision != one.revision for one in documents):
            return
        look_at = time.monotonic() + self._doubt.pause_s(documents)
        while True:
            watch.wait(max(0.0, min(look_at, until) - time.monotonic()))
            at_s = time.monotonic()
            if glance.stamps(own) != before or at_s >= until:
                return
            if at_s < look_at:
                continue
            if self._without != [has_no_controller(document) for document in documents]:
                return
            if not all(is_seen_held(document) for document in documents):
                told = self._doubt.unproven
                if self._doubt.look(documents) == "gone" or self._doubt.unproven != told:
                    return
            look_at = at_s + self._doubt.pause_s(documents)

    def _fences(self, documents: list[Document]) -> dict[ResourceKey, int] | None:
        """Return the fences when every right is there, None while one is missing."""
        fences: dict[ResourceKey, int] = {}
        for document in documents:
            ticket = document.launched(self._launch_id)
            if ticket is None or ticket.state in FINISHED:
                raise Refused.of(lost(ticket))
            if ticket.state is not TicketState.RESERVED or ticket.reservation is None:
                return None
            if ticket.reservation.expires_mono_ms is None:
                return None
            fences[document.resource] = ticket.reservation.fence
        return fences

    def _show(self, documents: list[Document], tell: Callable[[Standing], None]) -> None:
        """Tell what stands in the way when it is not what was told last, or that was long ago."""
        for document in documents:
            ticket = document.launched(self._launch_id)
            if ticket is None or ticket.state is not TicketState.QUEUED:
                continue
            holder = document.holder
            place = document.queue.index(ticket) + 1
            # Not the holder's state: that it starts and runs changes nothing for who waits.
            standing = (document.resource, holder.request_id if holder else None, place,
                        bool(document.blockers), document.epoch, has_no_controller(document),
                        self._doubt.unproven)  # fmt: skip
            at_s = time.monotonic()
            is_new = standing != self._told
            if is_new or at_s - self._told_s >= REPEAT_S:
                self._told, self._told_s = standing, at_s
                status = Status(self._principal, document.resource)
                decide = partial(self._coordinator.decide, [document.resource], status)
                seen = self._patiently(decide).snapshot
                if seen is not None:
                    waited_ms = round((at_s - self._since_s) * 1_000)
                    tell(Standing(seen, place, waited_ms, is_new, self._doubt.unproven))
            return

    # ------------------------------------------------------------ starting

    def _begin(self, fences: dict[ResourceKey, int], supervisor: Supervisor, spec: LaunchSpec) -> None:
        """Use the rights and enter the ledger in one transaction."""
        identity = supervisor.evidence(spec).supervisor
        launch = Launch(
            launch_id=self._launch_id,
            nonce=self._nonce,
            digest=command_digest(self._order.command, self._cwd),
            executable=self._executable,
            directory_digest=hashlib.sha256(os.fsencode(self._cwd)).hexdigest(),
            claimant=self._claimant,
            created_ms=now().wall_ms,
            boot_id=self._coordinator.boot_id,
            classes=self._order.classes,
            resources=tuple(sorted(fences.items())),
            supervisor=identity,
        )

        def change(ledger: Ledger, documents: Mapping[ResourceKey, Document]) -> Ledger | Refusal:
            # Under the namespace's lock no policy comes in between: what is asked now is all that is asked.
            asked = {*self._order.required, *self._gated()}
            required = [key for key in sorted(asked) if key not in self._inherited]
            return coordination.admit(ledger, launch, documents, required)

        begin = Begin(self._principal, self._launch_id, self._nonce, self._digest, fences, identity)
        self._patiently(partial(self._coordinator.decide, fences, begin, change=change))

    def _withdraw(self) -> None:
        """Give up what was not used; what began is the supervisor's."""
        for key, request_id in self._tickets.items():
            try:
                self._coordinator.decide([key], Cancel(self._principal, request_id))
            except Refused:
                continue  # it is in use, or over already: proof decides about it


def _disbelief(launch: Launch, resource: ResourceKey) -> str:
    """Return why a launch that the environment names is waited for, and what helps."""
    return (
        f"{MARKS_VARIABLE} names the launch {launch.launch_id} ({launch.executable}), which holds {resource},"
        " but this command is not proven to run in that launch's tree: the mark was not believed, and this"
        " waits like any other. If that launch waits for this command, neither goes on: end this one, and"
        " start it from a process of that launch, or without the resource"
    )


def lost(ticket: Ticket | None) -> Refusal:
    """Return why a ticket that was waited for can no longer be used."""
    if ticket is not None and ticket.state is TicketState.STALE:
        return Refusal("STALE_POLICY", "another policy came before the command was started")
    if ticket is not None and ticket.state is TicketState.ENDED:
        return Refusal("TARGET_ENDED", "the claimant's root has ended")
    if ticket is not None and ticket.state is TicketState.CANCELLED:
        return Refusal("RESERVATION_EXPIRED", "the ticket was cancelled")
    return Refusal("RESERVATION_EXPIRED", "the right was not used in time")
