"""One process's door to shared resources: look, then decide under the locks, store, and wait for others.

Theory. Facts are gathered before a lock is taken: what is proven gone stays gone, and what was alive an
instant ago only delays. Under the locks the engine decides on what is stored then; nobody waits there.
A waiter is woken by a change of the directory and looks once a second beside it, because watches can die
silently; while the holder's supervisor is not seen alive it looks more often, for the proof of the end.

Rule 1: every change takes the namespace's lock along, so the ledger that a decision rests on is the
    stored one.
Rule 2: nothing is released here but by the engine, on proof.
Rule 3: what a launch that left the ledger may have left of a control group is removed, when it is empty.
Rule 4: a wait costs no model turn, and next to no processor time.

Source: reference/native.md 2.13, 2.14, 3.5; reference/reliability.md I31 to I36.
"""

import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

from tieline.engine import coordination
from tieline.engine.coordination import Claim, Command, Facts, Outcome, Request
from tieline.errors import RecoveryRequired, Refusal, Refused, TielineError
from tieline.model.identity import Principal
from tieline.model.moment import Moment
from tieline.model.process import Liveness, ProcessIdentity
from tieline.model.resource import Claimant, Document, Launch, Ledger, Probe, ResourceKey
from tieline.runtime.resources.shapes import advice, enrolment_advice
from tieline.shell.process import probe, self_identity
from tieline.shell.supervisor.control_group import remove_left_group
from tieline.shell.tree import LaunchEvidence, probe_launch
from tieline.store.resources import ResourceStore

__all__ = ["Coordinator", "evidence_of", "now"]

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

Change = Callable[[Ledger, Mapping[ResourceKey, Document]], Ledger | Refusal]


def now() -> Moment:
    """Return the clocks of this machine; the monotonic one counts suspended time where it can."""
    return Moment(time.time_ns() // 1_000_000, time.clock_gettime_ns(_CLOCK) // 1_000_000)


def evidence_of(launch: Launch) -> LaunchEvidence | None:
    """Return what the ledger knows of a launch's tree, None when nothing of it was ever recorded.

    A host that starts commands itself has no supervisor: the command leads its own session and group, and
    stands at the supervisor's place.
    """
    command = launch.processes[0] if launch.processes else None
    first = launch.supervisor or command
    if first is None:
        return None
    return LaunchEvidence(
        launch.launch_id,
        launch.nonce,
        first,
        launch.ownership,
        command,
        cgroup=launch.cgroup,
        members=launch.processes[1:],
        limit_mark=launch.limit_mark,
    )


class Coordinator:
    """The resources of one coordination directory, as one local process sees and changes them.

    Every call blocks for some synced writes, and at most two seconds for a lock.
    """

    def __init__(self, coordination_directory: str) -> None:
        self.store = ResourceStore(coordination_directory)
        self.boot_id = self_identity().boot_id

    def close(self) -> None:
        """Let go of the directory."""
        self.store.close()

    # ------------------------------------------------------------ deciding

    def decide(
        self,
        keys: Iterable[ResourceKey],
        command: Command,
        *,
        peers: Mapping[str, Liveness] | None = None,
        ancestors: frozenset[str] = frozenset(),
        change: Change | None = None,
    ) -> Outcome:
        """Carry one command out and return what came of it, durable.

        Args:
            keys: The resources that it is about.
            command: What is asked.
            peers: What is known of peers by their ids.
            ancestors: Launch ids whose trees hold the caller.
            change: What the command does to the ledger; its refusal undoes the whole.

        Raises:
            Refused: the engine's or the store's no; nothing of the command was stored.
            RecoveryRequired: a record is lost, damaged or older than it was.
        """
        wanted = set(keys)
        facts = Facts(boot_id=self.boot_id, peers=dict(peers or {}), ancestors=ancestors)
        while True:
            seen = self._look(wanted, facts)
            with self.store.transaction(wanted, ledger=True) as held:
                assert held.ledger is not None, "the ledger was asked for"
                by_id = {launch.launch_id: launch for launch in held.ledger.launches}
                seen = msgspec.structs.replace(seen, launches=by_id)
                documents, outcome = coordination.handle_all(held.documents, command, seen, now())
                if outcome.needs:
                    wanted |= set(outcome.needs)
                    continue
                ledger = held.ledger
                if change is not None and outcome.refusal is None:
                    changed = change(ledger, documents)
                    if isinstance(changed, Refusal):
                        raise _no(changed, wanted)
                    ledger = changed
                ledger = coordination.sweep(ledger, seen, now(), _held(ledger, documents))
                held.commit(documents, ledger)
            _remove_groups(by_id.values(), ledger)
            if outcome.refusal is not None:
                raise _left_out(outcome.refusal, command, documents) or _no(outcome.refusal, wanted)
            return outcome

    def _look(self, keys: Iterable[ResourceKey], facts: Facts) -> Facts:
        """Return the facts about everything that these documents and the ledger name."""
        documents = [self.store.read(key) for key in keys]
        ledger = self.store.read_ledger()
        identities: set[ProcessIdentity] = set()
        wanted: set[str] = set()
        for document in documents:
            for ticket in document.tickets:
                if ticket.finished_ms is not None:
                    continue
                identities.update(_named(ticket.claimant))
                right = ticket.reservation
                if right is not None:
                    identities.update(one for one in (right.supervisor, *right.processes) if one is not None)
                    if ticket.launch_id is not None:
                        wanted.add(ticket.launch_id)
            if document.policy is not None and document.policy.controller_owner is not None:
                identities.add(document.policy.controller_owner)
            wanted.update(blocker.launch_id for blocker in document.blockers)
            identities.update(one.supervisor for one in document.blockers if one.supervisor is not None)
        launches = {launch.launch_id: launch for launch in ledger.launches}
        for launch in launches.values():
            if launch.supervisor is not None:
                identities.add(launch.supervisor)
        processes = {identity: probe(identity) for identity in identities}
        probes = {
            launch_id: self.probe(launch)
            for launch_id, launch in launches.items()
            if launch_id in wanted or not _is_alive(launch, processes)
        }
        return msgspec.structs.replace(facts, processes=processes, probes=probes)

    def probe(self, launch: Launch) -> Probe:
        """Return what one look at a launch's tree shows."""
        evidence = evidence_of(launch)
        if evidence is None:
            return Probe("unknown", evidence=("no process of it was ever recorded",))
        found = probe_launch(evidence)
        return Probe(found.state, evidence=found.lines)

    # ------------------------------------------------------------ looking

    def observe(
        self,
        keys: Iterable[ResourceKey],
        caller: Principal,
        peers: Mapping[str, Liveness] | None = None,
        only: frozenset[ResourceKey] | None = None,
    ) -> Outcome:
        """Let time and proof have their effect, and give what is free to whom it is due.

        A caller that controls a resource grants it by this, where `only` does not leave it out: who only
        looks gives up its control first.
        """
        return self.decide(keys, coordination.AutoGrant(caller, only), peers=peers)

    def gated_by(self, peer_ids: frozenset[str], classes: frozenset[str]) -> tuple[ResourceKey, ...]:
        """Return the resources that present policies ask of a command of these peers, sorted."""
        return tuple(key for key in self.known_keys() if self._is_gated(key, peer_ids, classes))

    def _is_gated(self, key: ResourceKey, peer_ids: frozenset[str], classes: frozenset[str]) -> bool:
        """Return whether the policy asks it; where the record is damaged, what is remembered of the policy.

        Raises:
            RecoveryRequired: nothing remembers whether there is one.
        """
        try:
            document = self.store.read(key)
        except RecoveryRequired:
            damage = self.store.damage(key)
            if damage is None:
                return self._is_gated(key, peer_ids, classes)
            if not damage.is_policy_known and not (damage.is_mark_known and damage.mark.epoch == 0):
                raise
            document = Document(resource=key, policy=damage.policy, enrolment=damage.enrolment)
        return coordination.is_gated(document, peer_ids, classes)

    def readable(self, keys: Iterable[ResourceKey]) -> list[Document]:
        """Return those of these resources whose record can be believed.

        Raises:
            Refused, RecoveryRequired: as `known_keys`.
        """
        found: list[Document] = []
        for key in keys:
            try:
                found.append(self.store.read(key))
            except RecoveryRequired:
                if self.store.damage(key) is None:
                    found.append(self.store.read(key))
        return found

    def known_keys(self) -> tuple[ResourceKey, ...]:
        """Return every resource that was ever used here.

        Raises:
            Refused: the directory is not safe, or not ours.
            RecoveryRequired: the index is lost, damaged or older than it was.
        """
        return self.store.keys()


def _no(refusal: Refusal, keys: Iterable[ResourceKey]) -> TielineError:
    """Return the error of a no, with what helps at a resource."""
    return Refused.of(refusal).advising(advice(refusal.code, min(keys, default=ResourceKey("KEY"))))


def _left_out(
    refusal: Refusal, command: Command, documents: Mapping[ResourceKey, Document]
) -> TielineError | None:
    """Return the no to a claimant whom a policy leaves out, with the commands that help; None for another."""
    if refusal.code != "SCOPE_DENIED" or not isinstance(command, Claim | Request):
        return None
    left_out = [one for one in documents.values() if not coordination.is_enrolled(one, command.claimant)]
    if not left_out or left_out[0].policy is None:
        return None
    policy, key = left_out[0].policy, left_out[0].resource
    owner, claimant = policy.controller_owner, command.claimant
    said = enrolment_advice(
        key,
        policy.controller_alias,
        claimant.alias,
        is_gated=not {claimant.peer_id, claimant.enrollment_peer_id}.isdisjoint(left_out[0].enrolment),
        is_led=owner is None or probe(owner) != "gone",
    )
    return Refused.of(refusal).advising(said)


def _remove_groups(before: Iterable[Launch], ledger: Ledger) -> None:
    """Remove the control groups of the launches that have left the ledger: no supervisor may be there to."""
    left = {launch.launch_id for launch in ledger.launches}
    for launch in before:
        if launch.launch_id not in left and launch.supervisor is not None:
            remove_left_group(launch.nonce, launch.cgroup)


def _named(claimant: Claimant) -> tuple[ProcessIdentity, ...]:
    return (claimant.owner,) if claimant.waiter is None else (claimant.owner, claimant.waiter)


def _is_alive(launch: Launch, processes: Mapping[ProcessIdentity, Liveness]) -> bool:
    return launch.supervisor is not None and processes.get(launch.supervisor) == "alive"


def _held(ledger: Ledger, documents: Mapping[ResourceKey, Document]) -> frozenset[str]:
    """Return the launches that a document still names, or may name: those leave after their document."""
    return frozenset(
        launch.launch_id
        for launch in ledger.launches
        if any(
            key not in documents
            or ((holder := documents[key].holder) is not None and holder.launch_id == launch.launch_id)
            for key, _ in launch.resources
        )
    )
