"""What only one may use at a time: keys, policies, tickets, reservations, launches, and their record.

Rule 1: a document is one resource as its file keeps it; nothing in it changes but by making another.
Rule 2: an epoch numbers a policy, a fence a grant, a ticket number a claim, a sequence an event: all
grow, none is ever used twice.
Rule 3: a shared record shows no command: its digest, the base name of its program and its classes do.
Rule 4: times for people are wall milliseconds; what lapses is measured in monotonic milliseconds of
the boot that is named beside it.

Source: reference/native.md 2.13, 2.14, 3.5, 5; specification, "Storage and recovery".
"""

import hashlib
from enum import StrEnum
from typing import Annotated, Final, Literal, NewType

import msgspec

from tieline.errors import Refusal
from tieline.model.process import Liveness, ProcessIdentity

__all__ = [
    "ACTIVE",
    "FINISHED",
    "VERSION",
    "Blocker",
    "Claimant",
    "Document",
    "HolderView",
    "Launch",
    "LaunchState",
    "Ledger",
    "Mark",
    "Ownership",
    "Policy",
    "Probe",
    "Profile",
    "QueueEntry",
    "Reservation",
    "ResourceEvent",
    "ResourceKey",
    "Snapshot",
    "Ticket",
    "TicketState",
    "complete_key",
    "key_digest",
    "resource_key",
]

VERSION: Final = 1
"""Of a document, the ledger and the index; an older program refuses a newer one."""
NAME_CHARACTERS_MAX = 64
REPOSITORY_CHARACTERS_MAX = 128
KEY_CHARACTERS_MAX = 256
_ALNUM = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_NAME = _ALNUM | frozenset("_.-")
_REPOSITORY = _ALNUM | frozenset("_-")

ResourceKey = NewType("ResourceKey", str)
"""`machine/<name>` or `repository/<id>/<name>`, checked by `resource_key`."""

Count = Annotated[int, msgspec.Meta(ge=0)]
"""A number of a record: whole and not negative."""
Ownership = Literal["cgroup", "supervised", "group"]
"""How strong the proof of a tree's end is, strongest first. Source: reference/native.md 5."""
Profile = Literal["build", "strict"]
"""Which commands a policy asks for: known builds, or every gated one. Source: reference/native.md 2.14."""


def resource_key(text: str) -> ResourceKey | Refusal:
    """Return `text` as a key, or INVALID_PARAMS with what is allowed.

    Source: reference/native.md 2.13 "Keys".
    """
    parts = text.split("/")
    is_machine = len(parts) == 2 and parts[0] == "machine"
    is_repository = len(parts) == 3 and parts[0] == "repository" and _is_repository_id(parts[1])
    if len(text) > KEY_CHARACTERS_MAX or not (is_machine or is_repository) or not _is_name(parts[-1]):
        return Refusal(
            "INVALID_PARAMS",
            "a resource is machine/NAME or repository/ID/NAME; a NAME starts with a letter or digit and goes"
            " on with letters, digits, `_`, `.` and `-`, 64 at most",
        )
    return ResourceKey(text)


def complete_key(text: str, repository_id: str) -> ResourceKey | Refusal:
    """Return the key that a person's `repository/<name>` stands for here; other forms as they are.

    Args:
        text: What was typed.
        repository_id: Opaque token of the repository that the caller works in, empty outside one.
    """
    parts = text.split("/")
    if len(parts) != 2 or parts[0] != "repository":
        return resource_key(text)
    if not repository_id:
        return Refusal("INVALID_PARAMS", f"{text} needs a repository: run it inside one, or name its id")
    return resource_key(f"repository/{repository_id}/{parts[1]}")


def key_digest(key: ResourceKey) -> str:
    """Return the 64 hex digits that name the key's file."""
    return hashlib.sha256(key.encode()).hexdigest()


def _is_name(text: str) -> bool:
    return 0 < len(text) <= NAME_CHARACTERS_MAX and text[0] in _ALNUM and _NAME.issuperset(text)


def _is_repository_id(text: str) -> bool:
    return 0 < len(text) <= REPOSITORY_CHARACTERS_MAX and _REPOSITORY.issuperset(text)


class _Record(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """What files keep: the specification's field names, and no others."""


class TicketState(StrEnum):
    """Where one claim stands. Source: reference/native.md 2.13."""

    QUEUED = "queued"
    RESERVED = "reserved"
    STARTING = "starting"
    RUNNING = "running"
    COMPLETED = "completed"
    RELEASED = "released"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    STALE = "stale"
    ENDED = "ended"


ACTIVE: Final = frozenset({TicketState.RESERVED, TicketState.STARTING, TicketState.RUNNING})
"""The states of a holder, of which a resource has one at most."""
FINISHED: Final = frozenset(set(TicketState) - ACTIVE - {TicketState.QUEUED})
"""The states that nothing leaves."""


class Claimant(_Record, frozen=True):
    """Who claims, as the caller's root proved it.

    Attributes:
        owner: The process of its root.
        waiter: The process that waits for the grant and will start the command, where there is one.
        enrollment_peer_id: The peer through which it is enrolled: a child's root.
    """

    peer_id: str
    instance_id: str
    alias: str
    owner: ProcessIdentity
    run_id: str | None = None
    enrollment_peer_id: str | None = None
    waiter: ProcessIdentity | None = None

    @property
    def starter(self) -> ProcessIdentity:
        """The process without which a granted command is never started."""
        return self.waiter or self.owner


class Policy(_Record, frozen=True):
    """Who may claim and who grants; `participants` and `controller` are peer ids.

    `controller_owner` is the process of the controller's root, by which its end can be proven.
    """

    controller: str
    participants: tuple[str, ...]
    profile: Profile
    controller_alias: str = ""
    controller_owner: ProcessIdentity | None = None


class Reservation(_Record, frozen=True):
    """A ticket's right, from its grant to its proven end.

    Attributes:
        fence: The number of the grant.
        epoch: The policy under which it was granted.
        boot_id: The boot in which its monotonic times count.
        granted_ms: Wall time of the grant.
        expires_mono_ms: When it lapses unused; None while its bundle is not whole.
        nonce: Of the launch that used it; empty until then.
        supervisor: The process that owns the launch's tree.
        processes: Evidence of what was started; empty until it was published.
        gone_since_mono_ms: Since when every look has proven its tree gone.
    """

    reservation_id: str
    fence: Count
    epoch: Count
    boot_id: str
    granted_ms: Count
    granted_mono_ms: Count
    expires_mono_ms: Count | None = None
    nonce: str = ""
    supervisor: ProcessIdentity | None = None
    processes: tuple[ProcessIdentity, ...] = ()
    ownership: Ownership | None = None
    gone_since_mono_ms: Count | None = None


class Ticket(_Record, frozen=True):
    """One claim on one resource.

    Attributes:
        number: Its place among all claims on this resource.
        launch_id: The command that it is bound to; None while nobody bound it.
        digest: Of that command.
        executable: Base name of its program.
        bundle: Every resource that the command needs, sorted; empty when it is this one alone.
    """

    request_id: str
    number: Count
    claimant: Claimant
    reason: str
    requested_ms: Count
    state: TicketState = TicketState.QUEUED
    launch_id: str | None = None
    digest: str | None = None
    executable: str = ""
    bundle: tuple[ResourceKey, ...] = ()
    reservation: Reservation | None = None
    finished_ms: Count | None = None

    @property
    def is_holder(self) -> bool:
        """Whether it holds the resource."""
        return self.state in ACTIVE


class Blocker(_Record, frozen=True):
    """A command admitted before the present policy, whose end is not proven."""

    launch_id: str
    peer_id: str
    alias: str
    executable: str
    boot_id: str
    adopted_ms: Count
    has_evidence: bool = False
    supervisor: ProcessIdentity | None = None
    gone_since_mono_ms: Count | None = None


class ResourceEvent(_Record, frozen=True):
    """One change of a resource, for those in `audience` (peer ids).

    Attributes:
        sequence: Grows by one per event of this resource.
        state: A ticket's new state, or `policy_changed`, `previous_commands_completed`, `recovered`.
        note: For `recovered`: who, and on what evidence.
    """

    resource: ResourceKey
    sequence: Count
    epoch: Count
    state: str
    at_ms: Count
    audience: tuple[str, ...] = ()
    request_id: str | None = None
    principal: str | None = None
    controller: str | None = None
    fence: Count | None = None
    note: str = ""


class Document(_Record, frozen=True):
    """One resource, as its file keeps it.

    Attributes:
        revision: Grows by one with each stored change; 0 when it was never stored.
        epoch: Of the policy; 0 while nobody ever configured it.
        fence: The highest number that a grant was given.
        policy: None while it is open: first come, first served.
        enrolment: Peer ids whose commands are gated; only an explicit act takes one out.
        events_dropped: The highest sequence that is no longer kept.
    """

    resource: ResourceKey
    revision: Count = 0
    epoch: Count = 0
    fence: Count = 0
    ticket_number: Count = 0
    event_sequence: Count = 0
    events_dropped: Count = 0
    capacity: Literal[1] = 1
    policy: Policy | None = None
    enrolment: tuple[str, ...] = ()
    tickets: tuple[Ticket, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    events: tuple[ResourceEvent, ...] = ()

    @property
    def holder(self) -> Ticket | None:
        """The one ticket that holds it."""
        return next((ticket for ticket in self.tickets if ticket.is_holder), None)

    @property
    def queue(self) -> tuple[Ticket, ...]:
        """The waiting tickets, oldest first."""
        return tuple(ticket for ticket in self.tickets if ticket.state is TicketState.QUEUED)

    def ticket(self, request_id: str) -> Ticket | None:
        """Return the ticket of this request, or None."""
        return next((ticket for ticket in self.tickets if ticket.request_id == request_id), None)

    def launched(self, launch_id: str) -> Ticket | None:
        """Return the newest ticket bound to this launch, or None."""
        return next((ticket for ticket in reversed(self.tickets) if ticket.launch_id == launch_id), None)


class Mark(_Record, frozen=True):
    """The highest numbers that a resource was ever stored with, kept beside its document."""

    revision: Count = 0
    epoch: Count = 0
    fence: Count = 0
    ticket_number: Count = 0
    event_sequence: Count = 0

    @classmethod
    def of(cls, document: Document) -> "Mark":
        """Return the numbers of `document`."""
        return cls(
            document.revision,
            document.epoch,
            document.fence,
            document.ticket_number,
            document.event_sequence,
        )

    def admits(self, document: Document) -> bool:
        """Return whether `document` is not older than what was stored already."""
        other = Mark.of(document)
        return all(getattr(self, name) <= getattr(other, name) for name in self.__struct_fields__)


class LaunchState(StrEnum):
    """Where one command of the ledger stands."""

    ADMITTED = "admitted"
    IDENTIFIED = "identified"
    BLOCKER = "blocker"
    DRAINED = "drained"


class Launch(_Record, frozen=True):
    """One command in the ledger, from before it runs until its end is proven.

    Attributes:
        nonce: Marks the processes of this launch and no others.
        digest: sha256 of the canonical form of program, arguments and directory.
        classes: What kind of command it is, judged at admission; `build` or nothing.
        executable: Base name of the program.
        directory_digest: Of the working directory.
        boot_id: The boot in which it was admitted.
        resources: The resources that it holds, with the fence of each.
        supervisor: The process that owns its tree.
        processes: Evidence of what was started; empty until it was published.
        cgroup: Directory of its control group, empty where it has none.
        limit_mark: The number that its processes bear among their limits, 0 for none.
        gone_since_mono_ms: Since when every look has proven its tree gone.
    """

    launch_id: str
    nonce: str
    digest: str
    executable: str
    directory_digest: str
    claimant: Claimant
    created_ms: Count
    boot_id: str
    state: LaunchState = LaunchState.ADMITTED
    classes: tuple[str, ...] = ()
    resources: tuple[tuple[ResourceKey, Count], ...] = ()
    supervisor: ProcessIdentity | None = None
    processes: tuple[ProcessIdentity, ...] = ()
    ownership: Ownership = "group"
    cgroup: str = ""
    limit_mark: Count = 0
    gone_since_mono_ms: Count | None = None


class Ledger(_Record, frozen=True):
    """Every command that was admitted and whose end is not proven."""

    revision: Count = 0
    launches: tuple[Launch, ...] = ()

    def launch(self, launch_id: str) -> Launch | None:
        """Return the launch of this id, or None."""
        return next((launch for launch in self.launches if launch.launch_id == launch_id), None)


class Probe(_Record, frozen=True):
    """What one look at a launch's tree has shown.

    Attributes:
        since_mono_ms: For `gone`: since when the observer has seen it so, when it looked before.
        evidence: What was seen, a sentence each, for a person.
    """

    state: Liveness
    since_mono_ms: Count | None = None
    evidence: tuple[str, ...] = ()


class HolderView(_Record, frozen=True):
    """Who holds a resource, without the command.

    Attributes:
        since_ms: Wall time of the grant.
        expires_in_ms: For an unused reservation whose clock runs.
        reference: Names this grant and no other; compare it to learn whether one still holds.
    """

    request_id: str
    peer_id: str
    alias: str
    state: TicketState
    fence: Count
    since_ms: Count
    reference: str
    launch_id: str | None = None
    executable: str = ""
    ownership: Ownership | None = None
    expires_in_ms: Count | None = None


class QueueEntry(_Record, frozen=True):
    """One who waits; `wait_ms` is for how long already."""

    request_id: str
    peer_id: str
    alias: str
    reason: str
    wait_ms: Count


class Snapshot(_Record, frozen=True, omit_defaults=False):
    """A resource as one viewer may see it.

    Attributes:
        state: The holder's state, `running` while blockers remain, `available`, or `unconfigured`; for
            a viewer who is not enrolled only `free` or `busy`, and every other field stays empty.
        request_id: The viewer's own oldest live ticket.
        controller_life: What is known of the controller; `gone` is proven.
        may_claim: Whether the viewer may claim: not, when a policy left it out that still gates it.
        viewer_alias: The viewer's own name.
    """

    resource: ResourceKey
    state: str
    is_configured: bool
    is_enrolled: bool
    epoch: int | None = None
    fence: int | None = None
    controller: str | None = None
    controller_alias: str = ""
    profile: Profile | None = None
    request_id: str | None = None
    holder: HolderView | None = None
    queue: tuple[QueueEntry, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    controller_life: Liveness | None = None
    may_claim: bool = True
    viewer_alias: str = ""
