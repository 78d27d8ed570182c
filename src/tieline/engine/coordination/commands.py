"""What may be asked of a resource, what was observed meanwhile, and what comes back.

Rule 1: a command carries who asks, as the caller's root proved it, and every id and nonce.
Rule 2: facts are what the shell saw this turn; what it did not look at is `unknown`.
Rule 3: an outcome with `needs` decided nothing: ask again with those documents as well.

Source: reference/native.md 2.13, 2.14, 3.5; reference/reliability.md I33 to I36.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from tieline.errors import Refusal
from tieline.model.identity import Principal
from tieline.model.process import Liveness, ProcessIdentity
from tieline.model.resource import (
    Claimant,
    Launch,
    Ownership,
    Probe,
    Profile,
    ResourceEvent,
    ResourceKey,
    Snapshot,
    Ticket,
)

__all__ = [
    "BUNDLE_KEYS_MAX",
    "BUNDLE_WAIT_MS_MAX",
    "EVENTS_MAX",
    "FINISHED_KEPT_MAX",
    "FINISHED_KEPT_MS",
    "LAUNCHES_MAX",
    "PARTICIPANTS_MAX",
    "QUARANTINE_MS",
    "QUEUED_MAX",
    "REASON_CHARACTERS_MAX",
    "RESERVATION_MS",
    "TICKETS_MAX",
    "AutoGrant",
    "Begin",
    "Cancel",
    "Claim",
    "Command",
    "Complete",
    "EndClaimant",
    "Facts",
    "Grant",
    "Observe",
    "Outcome",
    "Recover",
    "Release",
    "Request",
    "SetPolicy",
    "SpawnFailed",
    "Started",
    "Status",
    "Unenrol",
]

RESERVATION_MS: Final = 30_000
"""An unused right lapses after this: its owner may have lost interest. Source: native.md 2.13."""
BUNDLE_WAIT_MS_MAX: Final = 300_000
"""A right whose bundle does not become whole lapses after this, the longest wait for a grant."""
QUARANTINE_MS: Final = 500
"""A tree must be seen gone over this long: sockets, index locks and build databases settle."""
REASON_CHARACTERS_MAX: Final = 1_024
PARTICIPANTS_MAX: Final = 256
QUEUED_MAX: Final = 256
TICKETS_MAX: Final = 4_096
EVENTS_MAX: Final = 512
"""Events kept of one resource; a reader from before them is told of the gap. The specification allows
1,024: each of them would be read and written again with every turn."""
LAUNCHES_MAX: Final = 4_096
FINISHED_KEPT_MS: Final = 86_400_000
FINISHED_KEPT_MAX: Final = 128
"""Finished tickets answer a late question. The specification allows more, for the same reason."""
BUNDLE_KEYS_MAX: Final = 16
"""Resources of one command: more is a defect of a rule."""


class Facts(msgspec.Struct, frozen=True):
    """What the shell observed this turn.

    Attributes:
        boot_id: The present boot, empty when it cannot be read.
        processes: Whether the processes live that the documents and the ledger name.
        peers: By peer id: alive when that exact peer answered, gone when its end is proven.
        probes: By launch id: what a look at its tree has shown.
        launches: The ledger by launch id as it was read under the same lock as the documents, or None:
            from an older reading a command that was just admitted would seem to have ended.
        ancestors: Launch ids whose trees are proven to hold the caller.
    """

    boot_id: str = ""
    processes: Mapping[ProcessIdentity, Liveness] = msgspec.field(default_factory=dict)
    peers: Mapping[str, Liveness] = msgspec.field(default_factory=dict)
    probes: Mapping[str, Probe] = msgspec.field(default_factory=dict)
    launches: Mapping[str, Launch] | None = None
    ancestors: frozenset[str] = frozenset()

    def process(self, identity: ProcessIdentity | None) -> Liveness:
        """Return what is known of one process; nothing is known of None."""
        return "unknown" if identity is None else self.processes.get(identity, "unknown")

    def liveness(self, claimant: Claimant) -> Liveness:
        """Return whether a claimant can still use a grant.

        It is gone when its peer, its root or the process that waits for it is proven gone.
        """
        told = self.peers.get(claimant.peer_id)
        seen = (self.process(claimant.owner), self.process(claimant.waiter))
        if told == "gone" or "gone" in seen:
            return "gone"
        return told or self.process(claimant.starter)


class Status(msgspec.Struct, frozen=True):
    """Show the resource; nothing changes but what time and proof change."""

    caller: Principal
    resource: ResourceKey


class Request(msgspec.Struct, frozen=True):
    """Queue for the resource, not yet for a certain command; the same id gives the same ticket."""

    caller: Principal
    claimant: Claimant
    resource: ResourceKey
    request_id: str
    reason: str


class Claim(msgspec.Struct, frozen=True):
    """Get the tickets of one command, one for each document given, all or none.

    Attributes:
        request_id: For the tickets that must be made; several of them get `.1`, `.2` and so on.
        ticket_id: An existing ticket to use; None takes the caller's single unassigned one, or none.
        inherits_from: The innermost launch in whose tree the caller runs: what that, or one around it,
            holds is not claimed again.
    """

    caller: Principal
    claimant: Claimant
    launch_id: str
    digest: str
    executable: str
    reason: str
    request_id: str
    ticket_id: str | None = None
    inherits_from: str | None = None


class Grant(msgspec.Struct, frozen=True):
    """Give a waiting ticket the right, as the controller."""

    caller: Principal
    request_id: str
    epoch: int | None = None


class AutoGrant(msgspec.Struct, frozen=True):
    """Give the oldest eligible ticket the right: on open resources, and where the caller controls.

    Attributes:
        only: Of what the caller controls, the resources that it grants in order; None for all of them.
    """

    caller: Principal
    only: frozenset[ResourceKey] | None = None


class Release(msgspec.Struct, frozen=True):
    """Give an unused right back."""

    caller: Principal
    request_id: str


class Cancel(msgspec.Struct, frozen=True):
    """Withdraw an unused ticket."""

    caller: Principal
    request_id: str


class EndClaimant(msgspec.Struct, frozen=True):
    """A peer of the caller's root has ended: its unused tickets go, its running commands stay."""

    caller: Principal
    peer_id: str


class SetPolicy(msgspec.Struct, frozen=True):
    """Install a policy, or with `controller` None make the resource open again.

    Attributes:
        epoch: The epoch that the caller saw, or None.
        is_takeover: The local user confirmed to replace a controller that is not proven gone.
        participants: None keeps those of the present policy, so that a new controller keeps the queue.
        controller_owner: The process of the controller's root.
    """

    caller: Principal
    resource: ResourceKey
    controller: str | None
    participants: tuple[str, ...] | None = ()
    profile: Profile | None = "strict"
    controller_alias: str = ""
    controller_owner: ProcessIdentity | None = None
    epoch: int | None = None
    is_takeover: bool = False


class Unenrol(msgspec.Struct, frozen=True):
    """Take peers out of the enrolment, so that their commands are no longer gated here."""

    caller: Principal
    resource: ResourceKey
    peer_ids: tuple[str, ...]


class Begin(msgspec.Struct, frozen=True):
    """Use the right: the last check before the ledger and the start.

    Attributes:
        fences: The grants to use, one for each resource of the command.
    """

    caller: Principal
    launch_id: str
    nonce: str
    digest: str
    fences: Mapping[ResourceKey, int]
    supervisor: ProcessIdentity | None = None


class Started(msgspec.Struct, frozen=True):
    """What was started, from whoever holds the launch's nonce."""

    launch_id: str
    nonce: str
    fences: Mapping[ResourceKey, int]
    processes: tuple[ProcessIdentity, ...]
    ownership: Ownership


class SpawnFailed(msgspec.Struct, frozen=True):
    """It is proven that nothing was started, from whoever holds the launch's nonce."""

    launch_id: str
    nonce: str
    fences: Mapping[ResourceKey, int]


class Complete(msgspec.Struct, frozen=True):
    """The launch's tree has ended, from whoever holds its nonce."""

    launch_id: str
    nonce: str
    fences: Mapping[ResourceKey, int]
    proof: Probe


class Observe(msgspec.Struct, frozen=True):
    """Let time and proof have their effect; every other command does so first as well."""


class Recover(msgspec.Struct, frozen=True):
    """An operator answers for the end of a launch that nothing proves.

    Attributes:
        launch_id: As the operator typed it.
        evidence: Why it is safe, in the operator's words, 1 to 1,024 characters.
    """

    caller: Principal
    launch_id: str
    evidence: str


Command = (
    Status
    | Request
    | Claim
    | Grant
    | AutoGrant
    | Release
    | Cancel
    | EndClaimant
    | SetPolicy
    | Unenrol
    | Begin
    | Started
    | SpawnFailed
    | Complete
    | Observe
    | Recover
)


class Outcome(NamedTuple):
    """What came of a command.

    Attributes:
        refusal: The no, where there is one; then only time and proof had an effect.
        tickets: Those that the command made or changed, in the order of their resources.
        snapshot: For `Status`.
        events: What happened, to be handed to each audience after the commit.
        deadline_mono_ms: When time alone will change something next.
        needs: Documents without which nothing could be decided.
        inherited: Resources that an ancestor of the command holds for it.
    """

    refusal: Refusal | None = None
    tickets: tuple[Ticket, ...] = ()
    snapshot: Snapshot | None = None
    events: tuple[ResourceEvent, ...] = ()
    deadline_mono_ms: int | None = None
    needs: tuple[ResourceKey, ...] = ()
    inherited: tuple[ResourceKey, ...] = ()
