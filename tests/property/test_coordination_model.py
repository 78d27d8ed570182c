"""Show that no history of claims, deaths, pauses, policies and crashes lets two commands overlap.

A world keeps the truth: which processes really run, since which instant, under which grant. Peers act in
it through the engine as the product does: read under the lock, decide, store, start. What they observe
of each other may be hidden from them, late or missing, and is never false. After every act the truth is
compared with what the documents claim.

Each seeded mutant breaks one link of that chain, and must be caught by the same machine.

Source: reference/reliability.md I31 to I38, I40, 2.5; reference/open-bugs.md O39, O40.
"""

import dataclasses
import os
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tieline.engine import coordination
from tieline.engine.coordination import (
    AutoGrant,
    Begin,
    Cancel,
    Claim,
    Complete,
    Facts,
    Grant,
    Observe,
    Outcome,
    Recover,
    Release,
    SetPolicy,
    SpawnFailed,
    Started,
    admit,
    answer_for_launch,
    drain_launch,
    drop_launch,
    handle_all,
    identify_launch,
    sweep,
)
from tieline.engine.coordination import observing as observing_module
from tieline.engine.coordination.commands import Command
from tieline.errors import Refusal
from tieline.model.identity import Capability, Peer, Principal
from tieline.model.moment import Moment
from tieline.model.process import Liveness, ProcessIdentity
from tieline.model.resource import (
    FINISHED,
    Claimant,
    Document,
    Launch,
    Ledger,
    Mark,
    Probe,
    ResourceKey,
    TicketState,
)

KEYS = (ResourceKey("machine/a"), ResourceKey("machine/b"))
KEYS_OF_A_COMMAND = st.sampled_from([KEYS[:1], KEYS[:1], KEYS[1:], KEYS])
NAMES = ("ada", "bob", "cyd")
CONTROLLERS = ("cyd", "bob")
CRASHES = ("never", "before_commit", "between", "before_start", "before_publish")
IS_LONG = os.environ.get("TIELINE_TEST_PROFILE") == "long"


@dataclasses.dataclass
class Tree:
    """The processes that really run for one launch."""

    launch_id: str
    nonce: str
    fences: dict[ResourceKey, int]
    leader: ProcessIdentity
    supervisor: ProcessIdentity
    has_descendant: bool = True
    is_leader_alive: bool = True
    is_alive: bool = True


@dataclasses.dataclass
class Wanted:
    """What one peer wants to run, and what it remembers of its grant."""

    claim: Claim
    waiter: ProcessIdentity
    keys: tuple[ResourceKey, ...]
    fences: dict[ResourceKey, int] = dataclasses.field(default_factory=dict)


class World:
    """The truth, the disk, and the peers that act on it; every act checks the promises."""

    exec_before_ledger = False
    compares_revisions = True
    keeps_epoch = True
    checks_again = True

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.boot = 1
        self.next_number = 0
        self.documents = {key: Document(key) for key in KEYS}
        self.older: dict[ResourceKey, list[Document]] = {key: [] for key in KEYS}
        self.ledger = Ledger()
        self.living: set[ProcessIdentity] = set()
        self.trees: dict[str, Tree] = {}
        self.commands: dict[str, Wanted] = {}
        self.answered: set[str] = set()  # launches that an operator answered for
        self.granted: dict[tuple[ResourceKey, int], str] = {}
        self.epochs: set[tuple[ResourceKey, int]] = set()
        self.roots = {name: self.spawn() for name in NAMES}

    # ------------------------------------------------------------ what is

    def spawn(self) -> ProcessIdentity:
        self.next_number += 1
        one = ProcessIdentity(f"boot-{self.boot}", 1, self.next_number, self.now_ms, None, "linux")
        self.living.add(one)
        return one

    def moment(self) -> Moment:
        return Moment(10_000_000 + self.now_ms, self.now_ms)

    def principal(self, name: str) -> Principal:
        return Principal(Peer(name), frozenset(one.value for one in Capability), name)

    def claimant(self, name: str, waiter: ProcessIdentity) -> Claimant:
        one = self.principal(name)
        return Claimant(one.peer.id, name, name, self.roots[name], waiter=waiter)

    def probe(self, tree: Tree | None, launch: str) -> Probe:
        """Return what a look at a launch shows to somebody who may look."""
        if tree is None or not tree.is_alive:
            return Probe("gone")
        return Probe("alive")

    def facts(self, *, is_hidden: bool = False) -> Facts:
        def seen(one: ProcessIdentity) -> Liveness:
            if one in self.living:
                return "unknown" if is_hidden else "alive"
            return "unknown" if is_hidden and one.boot_id == f"boot-{self.boot}" else "gone"

        named: set[ProcessIdentity] = set(self.roots.values())
        launch_ids = {one.launch_id for one in self.ledger.launches}
        for document in self.documents.values():
            for ticket in document.tickets:
                named |= {ticket.claimant.owner, ticket.claimant.starter}
                if ticket.reservation is not None and ticket.reservation.supervisor is not None:
                    named.add(ticket.reservation.supervisor)
                if ticket.launch_id is not None:
                    launch_ids.add(ticket.launch_id)
            launch_ids |= {one.launch_id for one in document.blockers}
        named |= {one.supervisor for one in self.ledger.launches if one.supervisor is not None}
        probes = {
            one: Probe("unknown") if is_hidden else self.probe(self.trees.get(one), one) for one in launch_ids
        }
        return Facts(
            boot_id=f"boot-{self.boot}",
            processes={one: seen(one) for one in named},
            peers={
                self.principal(name).peer.id: ("alive" if root in self.living else "gone")
                for name, root in self.roots.items()
            },
            probes=probes,
            launches={one.launch_id: one for one in self.ledger.launches},
        )

    # ------------------------------------------------------------ storing

    def commit(self, before: dict[ResourceKey, Document], after: dict[ResourceKey, Document]) -> bool:
        """Store what changed as the store does; return whether it was."""
        changed = {key: one for key, one in after.items() if one is not before[key]}
        if self.compares_revisions and any(
            one.revision != self.documents[key].revision for key, one in changed.items()
        ):
            return False
        for key, one in changed.items():
            stored = self.documents[key]
            new = msgspec.structs.replace(
                one, revision=stored.revision + 1, epoch=one.epoch if self.keeps_epoch else 0
            )
            self.check_change(stored, new)
            self.older[key] = [*self.older[key][-5:], stored]
            self.documents[key] = new
        return True

    def act(
        self,
        command: Command,
        keys: tuple[ResourceKey, ...] = KEYS,
        *,
        is_hidden: bool = False,
    ) -> Outcome:
        """Decide and store one command under the locks of `keys`."""
        before = {key: self.documents[key] for key in keys}
        after, outcome = handle_all(before, command, self.facts(is_hidden=is_hidden), self.moment())
        if outcome.needs:
            return self.act(command, tuple(sorted({*keys, *outcome.needs})), is_hidden=is_hidden)
        assert self.commit(before, after)
        return outcome

    # ------------------------------------------------------------ the promises

    def check_change(self, before: Document, after: Document) -> None:
        """Compare one stored change with the truth."""
        mark = Mark.of(before)
        assert mark.admits(after), f"I38: numbers of {before.resource} went back"
        for event in after.events:
            if event.sequence > before.event_sequence and event.state == "policy_changed":
                assert (after.resource, event.epoch) not in self.epochs, "I38: one epoch was given twice"
                self.epochs.add((after.resource, event.epoch))
        was = {ticket.request_id: ticket for ticket in before.tickets}
        for ticket in after.tickets:
            earlier = was.get(ticket.request_id)
            state = earlier.state if earlier is not None else None
            if state == ticket.state:
                continue
            assert state not in FINISHED, "I35: a ticket that was over came back"
            right = ticket.reservation
            if ticket.state is TicketState.RESERVED:
                assert right is not None
                owner = self.granted.setdefault((after.resource, right.fence), ticket.request_id)
                assert owner == ticket.request_id, "I38: one fence was given twice"
                self.check_nothing_runs(after.resource, "I31: granted over a running command")
            if ticket.state is TicketState.STARTING:
                assert right is not None
                assert right.epoch == after.epoch, "I33: begun under another policy"
                assert state is TicketState.RESERVED, "I35: begun without a grant"
            if state in (TicketState.STARTING, TicketState.RUNNING) and ticket.state in FINISHED:
                tree = self.trees.get(ticket.launch_id or "")
                assert tree is None or not tree.is_alive, "I34: freed while it runs"

    def check_nothing_runs(self, key: ResourceKey, text: str) -> None:
        assert not [one for one in self.trees.values() if one.is_alive and key in one.fences], text

    def check_now(self) -> None:
        """Compare the whole disk with the truth."""
        for key, document in self.documents.items():
            running = [one for one in self.trees.values() if one.is_alive and key in one.fences]
            assert len(running) <= 1, f"I31: two commands run under {key}"
            holders = [one for one in document.tickets if one.is_holder]
            assert len(holders) <= 1, f"I31: two hold {key}"
            for tree in running:
                holder = document.holder
                assert holder is not None, f"I34: {key} is free while a command runs"
                assert holder.launch_id == tree.launch_id, f"I40: {key} is held by another"
                assert holder.reservation is not None
                assert holder.reservation.fence == tree.fences[key], "I40: another fence than it runs under"
                assert self.ledger.launch(tree.launch_id) is not None, "I32: it runs and has no record"

    # ------------------------------------------------------------ a command's way

    def claim(self, name: str, keys: tuple[ResourceKey, ...]) -> None:
        number = len(self.commands) + 1
        waiter = self.spawn()
        claim = Claim(
            self.principal(name),
            self.claimant(name, waiter),
            f"l{number}",
            f"d{number}",
            "sh",
            "sh",
            f"q{number}",
        )
        if self.act(claim, keys).refusal is None:
            self.commands[claim.launch_id] = Wanted(claim, waiter, keys)

    def look(self, command: Wanted) -> None:
        """Remember the grants that are there now: the waiter may sleep before it uses them."""
        found = {
            key: ticket.reservation.fence
            for key in command.keys
            if (ticket := self.documents[key].launched(command.claim.launch_id)) is not None
            and ticket.state is TicketState.RESERVED
            and ticket.reservation is not None
        }
        if len(found) == len(command.keys):
            command.fences = found

    def start(self, command: Wanted, crash: str) -> None:
        """Begin, admit, start and publish; or end at one of the instants in between."""
        if not command.fences or command.claim.launch_id in self.trees or command.waiter not in self.living:
            return
        launch_id = command.claim.launch_id
        supervisor = self.spawn()
        begin = Begin(
            command.claim.caller, launch_id, f"n{launch_id}", command.claim.digest, command.fences, supervisor
        )
        tree = Tree(launch_id, f"n{launch_id}", command.fences, self.spawn(), supervisor)
        if self.exec_before_ledger:
            self.trees[launch_id] = tree
        before = {key: self.documents[key] for key in command.keys}
        after, outcome = handle_all(before, begin, self.facts(), self.moment())
        ledger: Ledger | Refusal = self.ledger
        if outcome.refusal is None:
            ledger = admit(self.ledger, self.launch(command, supervisor), after)
        is_refused = outcome.refusal is not None or isinstance(ledger, Refusal)
        if crash == "before_commit" or (is_refused and self.checks_again):
            self.die(command, supervisor, tree, is_started=self.exec_before_ledger and not is_refused)
            return
        if not is_refused:
            assert not isinstance(ledger, Refusal)
            assert self.commit(before, after)
            if crash == "between":
                self.die(command, supervisor, tree, is_started=self.exec_before_ledger)
                return
            self.ledger = ledger
        if crash == "before_start":
            self.die(command, supervisor, tree, is_started=self.exec_before_ledger)
            return
        for key in command.keys:
            self.check_nothing_runs_but(key, launch_id)
        self.trees[launch_id] = tree
        if crash == "before_publish":
            self.living.discard(supervisor)
            self.living.discard(command.waiter)
            return
        self.act(Started(launch_id, tree.nonce, command.fences, (tree.leader,), "supervised"), command.keys)
        published = identify_launch(self.ledger, launch_id, tree.nonce, (tree.leader,), "supervised")
        if not isinstance(published, Refusal):
            self.ledger = published

    def check_nothing_runs_but(self, key: ResourceKey, launch_id: str) -> None:
        others = [
            one
            for one in self.trees.values()
            if one.is_alive and key in one.fences and one.launch_id != launch_id
        ]
        assert not others, "I31: started beside a running command"

    def launch(self, command: Wanted, supervisor: ProcessIdentity) -> Launch:
        return Launch(
            launch_id=command.claim.launch_id,
            nonce=f"n{command.claim.launch_id}",
            digest=command.claim.digest,
            executable="sh",
            directory_digest="w",
            claimant=command.claim.claimant,
            created_ms=self.now_ms,
            boot_id=f"boot-{self.boot}",
            resources=tuple(sorted(command.fences.items())),
            supervisor=supervisor,
        )

    def die(self, command: Wanted, supervisor: ProcessIdentity, tree: Tree, *, is_started: bool) -> None:
        """End the front end and its supervisor; a command that was started lives on."""
        self.living -= {supervisor, command.waiter}
        if not is_started:
            self.living.discard(tree.leader)
            self.trees.pop(command.claim.launch_id, None)

    def end(self, tree: Tree) -> None:
        tree.is_alive = tree.is_leader_alive = tree.has_descendant = False
        self.living.discard(tree.leader)

    def complete(self, tree: Tree) -> None:
        """The supervisor tells the end that it saw."""
        if tree.supervisor not in self.living:
            return
        proof = self.probe(tree, tree.launch_id)
        outcome = self.act(
            Complete(tree.launch_id, tree.nonce, tree.fences, proof), tuple(sorted(tree.fences))
        )
        if outcome.refusal is None:
            drained = drain_launch(self.ledger, tree.launch_id, tree.nonce, proof)
            assert not isinstance(drained, Refusal)
            self.ledger = drained

    def observe(self, *, is_hidden: bool) -> None:
        self.act(Observe(), is_hidden=is_hidden)
        held = frozenset(
            ticket.launch_id
            for document in self.documents.values()
            if (ticket := document.holder) is not None and ticket.launch_id is not None
        )
        self.ledger = sweep(self.ledger, self.facts(is_hidden=is_hidden), self.moment(), held)

    def recover(self, launch_id: str) -> None:
        """An operator who has looked, and saw rightly that nothing runs."""
        tree = self.trees.get(launch_id)
        outcome = self.act(Recover(self.principal("ada"), launch_id, "looked at every process"))
        if tree is not None and tree.is_alive:
            assert outcome.refusal is not None, "I34: recovered while it runs"
        if outcome.refusal is None:
            self.ledger = answer_for_launch(self.ledger, launch_id)

    def reboot(self) -> None:
        self.boot += 1
        self.living.clear()
        for tree in self.trees.values():
            self.end(tree)
        self.roots = {name: self.spawn() for name in NAMES}


class Coordination(RuleBasedStateMachine):
    """Every operation and every fault, in any order."""

    world_type: type[World] = World

    def __init__(self) -> None:
        super().__init__()
        self.world = self.world_type()

    def pick(self, number: int) -> Wanted | None:
        """Return one of the newest commands; 3 is the newest of all when there are four."""
        recent = list(self.world.commands.values())[-4:]
        return recent[min(number, len(recent) - 1)] if recent else None

    def tree(self, number: int) -> Tree | None:
        living = [one for one in self.world.trees.values() if one.is_alive]
        recent = living or list(self.world.trees.values())[-3:]
        return recent[number % len(recent)] if recent else None

    @rule(name=st.sampled_from(NAMES), keys=KEYS_OF_A_COMMAND)
    def claim(self, name: str, keys: tuple[ResourceKey, ...]) -> None:
        self.world.claim(name, keys)

    @rule(name=st.sampled_from(NAMES), is_hidden=st.booleans())
    def auto_grant(self, name: str, is_hidden: bool) -> None:
        self.world.act(AutoGrant(self.world.principal(name)), is_hidden=is_hidden)
        for command in self.world.commands.values():
            self.world.look(command)

    @rule(number=st.integers(0, 3), name=st.sampled_from(CONTROLLERS))
    def grant(self, number: int, name: str) -> None:
        command = self.pick(number)
        if command is not None:
            key = command.keys[0]
            ticket = self.world.documents[key].launched(command.claim.launch_id)
            if ticket is not None:
                self.world.act(Grant(self.world.principal(name), ticket.request_id))
                self.world.look(command)

    @rule(number=st.integers(0, 3))
    def grant_on_an_old_reading(self, number: int) -> None:
        """Two decide on the same reading; the later one must not be stored."""
        world = self.world
        key = KEYS[number % 2]
        before = {key: world.documents[key]}
        early, outcome = handle_all(before, AutoGrant(world.principal("ada")), world.facts(), world.moment())
        if outcome.needs:
            return
        world.act(AutoGrant(world.principal("bob")))
        for command in world.commands.values():
            world.look(command)
            world.start(command, "never")
        world.commit(before, early)

    @rule(number=st.integers(0, 3), crash=st.sampled_from(CRASHES))
    def start(self, number: int, crash: str) -> None:
        command = self.pick(number)
        if command is not None:
            self.world.start(command, crash)

    @rule(number=st.integers(0, 3))
    def run_to_the_end(self, number: int) -> None:
        command = self.pick(number)
        if command is not None:
            self.world.start(command, "never")
            tree = self.world.trees.get(command.claim.launch_id)
            if tree is not None and number % 2:
                self.world.end(tree)
                self.world.complete(tree)

    @rule(name=st.sampled_from(NAMES), keys=KEYS_OF_A_COMMAND, crash=st.sampled_from(CRASHES))
    def whole_way(self, name: str, keys: tuple[ResourceKey, ...], crash: str) -> None:
        """Claim, wait for the queue, start: the usual course, so that long histories get far."""
        self.world.claim(name, keys)
        for granting in NAMES:
            self.auto_grant(granting, is_hidden=False)
        for command in list(self.world.commands.values())[-4:]:
            self.world.start(command, crash)

    @rule(name=st.sampled_from(NAMES), ms=st.sampled_from([600, 30_000]))
    def sleep_before_the_start(self, name: str, ms: int) -> None:
        """One is granted and sleeps; others go on; it wakes up and starts."""
        self.world.claim("ada", KEYS[:1])
        self.auto_grant("ada", is_hidden=False)
        sleeper = self.pick(3)
        self.world.now_ms += ms
        self.world.claim(name, KEYS[:1])
        self.auto_grant(name, is_hidden=False)
        for command in list(self.world.commands.values())[-1:]:
            self.world.start(command, "never")
        if sleeper is not None:
            self.world.start(sleeper, "never")

    @rule(number=st.integers(0, 3), is_release=st.booleans())
    def withdraw(self, number: int, is_release: bool) -> None:
        command = self.pick(number)
        for key in command.keys if command is not None else ():
            assert command is not None
            ticket = self.world.documents[key].launched(command.claim.launch_id)
            if ticket is not None:
                kind: Callable[[Principal, str], Command] = Release if is_release else Cancel
                self.world.act(kind(command.claim.caller, ticket.request_id), (key,))

    @rule(number=st.integers(0, 3))
    def spawn_failed(self, number: int) -> None:
        command = self.pick(number)
        if command is None or not command.fences or command.claim.launch_id in self.world.trees:
            return
        launch_id = command.claim.launch_id
        told = SpawnFailed(launch_id, f"n{launch_id}", command.fences)
        if self.world.act(told, command.keys).refusal is None:
            dropped = drop_launch(self.world.ledger, launch_id, f"n{launch_id}")
            if not isinstance(dropped, Refusal):
                self.world.ledger = dropped

    @rule(number=st.integers(0, 2))
    def leader_dies_first(self, number: int) -> None:
        tree = self.tree(number)
        if tree is not None and tree.is_alive:
            tree.is_leader_alive = False
            self.world.living.discard(tree.leader)

    @rule(number=st.integers(0, 2))
    def tree_ends(self, number: int) -> None:
        tree = self.tree(number)
        if tree is not None:
            self.world.end(tree)

    @rule(number=st.integers(0, 2))
    def supervisor_tells(self, number: int) -> None:
        tree = self.tree(number)
        if tree is not None:
            self.world.complete(tree)

    @rule(number=st.integers(0, 2))
    def supervisor_dies(self, number: int) -> None:
        tree = self.tree(number)
        if tree is not None:
            self.world.living.discard(tree.supervisor)

    @rule(number=st.integers(0, 3))
    def waiter_dies(self, number: int) -> None:
        command = self.pick(number)
        if command is not None:
            self.world.living.discard(command.waiter)

    @rule(name=st.sampled_from(NAMES))
    def root_dies(self, name: str) -> None:
        self.world.living.discard(self.world.roots[name])
        self.world.roots[name] = self.world.spawn()

    @rule(ms=st.sampled_from([100, 600, 30_000, 3_600_000]))
    def time_passes(self, ms: int) -> None:
        self.world.now_ms += ms

    @rule(is_hidden=st.booleans())
    def observe(self, is_hidden: bool) -> None:
        self.world.observe(is_hidden=is_hidden)

    @rule(is_hidden=st.booleans())
    def observe_over_the_quarantine(self, is_hidden: bool) -> None:
        for _ in range(2):
            self.world.observe(is_hidden=is_hidden)
            self.world.now_ms += 600

    @rule(
        key=st.sampled_from(KEYS),
        name=st.sampled_from(CONTROLLERS),
        members=st.sets(st.sampled_from(NAMES)),
        is_open=st.booleans(),
    )
    def set_policy(self, key: ResourceKey, name: str, members: set[str], is_open: bool) -> None:
        who = self.world.principal(name)
        ids = tuple(self.world.principal(one).peer.id for one in sorted(members))
        controller = None if is_open else who.peer.id
        self.world.act(SetPolicy(who, key, controller, ids, is_takeover=True), (key,))

    @rule(number=st.integers(0, 3))
    def operator_recovers(self, number: int) -> None:
        command = self.pick(number)
        if command is not None:
            self.world.recover(command.claim.launch_id)

    @rule()
    def reboot(self) -> None:
        self.world.reboot()

    @rule(key=st.sampled_from(KEYS), number=st.integers(0, 5))
    def older_copy_is_noticed(self, key: ResourceKey, number: int) -> None:
        copies = self.world.older[key]
        if copies:
            mark = Mark.of(self.world.documents[key])
            assert not mark.admits(copies[number % len(copies)]), "I38: an older copy was taken for new"

    @invariant()
    def truth_and_documents_agree(self) -> None:
        self.world.check_now()


def drive(world_type: type[World], *, example_count: int, step_count: int) -> None:
    """Run the machine; raises AssertionError at the first promise that is broken."""
    run_state_machine_as_test(
        type("Machine", (Coordination,), {"world_type": world_type}),
        settings=settings(
            max_examples=example_count,
            stateful_step_count=step_count,
            phases=(Phase.generate,),
            report_multiple_bugs=False,
            derandomize=not IS_LONG,
        ),
    )


@pytest.mark.clause(
    "I31", "I32", "I33", "I34", "I35", "I36", "I37", "I38", "I40", "native-187", "native-188", "native-189",
    "native-192", "native-197", "native-198",
)  # fmt: skip
@pytest.mark.timeout(600)
def test_no_history_lets_two_commands_overlap() -> None:
    """Whatever dies, sleeps, reboots or is replaced, one command at a time runs under a resource."""
    drive(World, example_count=2_000 if IS_LONG else 100, step_count=60)


class UnknownIsGone(World):
    """What was not heard of for a while is taken for dead."""


class PidOnly(World):
    """A command lives as long as its first process has its number."""

    def probe(self, tree: Tree | None, launch: str) -> Probe:
        return Probe("alive") if tree is not None and tree.leader in self.living else Probe("gone")


class NoSecondCheck(World):
    """A grant that was once seen is used without asking again."""

    checks_again = False


class ExecBeforeLedger(World):
    """The command is started first and recorded after."""

    exec_before_ledger = True


class EpochForgotten(World):
    """The epoch is not stored."""

    keeps_epoch = False


class DecidedBeforeTheLock(World):
    """What was decided on an older reading is stored over a newer one."""

    compares_revisions = False


def unknown_is_gone(probe: Probe | None, boot_id: str, boot_id_now: str, *, has_evidence: bool) -> bool:
    """Judge by silence: what does not say that it lives is dead."""
    return probe is not None and probe.state != "alive"


@pytest.mark.clause("mutant-15", "mutant-16", "mutant-17", "mutant-18", "mutant-19", "mutant-29")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "mutant", [UnknownIsGone, PidOnly, NoSecondCheck, ExecBeforeLedger, EpochForgotten, DecidedBeforeTheLock]
)
def test_mutant_is_convicted(mutant: type[World], monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that finds nothing in the product finds each of the defects that were put in."""
    if mutant is UnknownIsGone:
        monkeypatch.setattr(observing_module, "is_proven_gone", unknown_is_gone)
    with pytest.raises(AssertionError, match=r"I3[1-8]|I40"):
        drive(mutant, example_count=600, step_count=60)
    assert coordination.handle_all is handle_all
