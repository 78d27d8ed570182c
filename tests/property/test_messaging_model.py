"""Show that custody keeps its invariants over a network and disks that do what they may.

A few roots write to each other. Frames are lost, doubled, reordered, delayed; a root stores any
prefix of what it decided and falls back to that; answers are given only for what is stored, as the
shell does it. What every row must be is checked when it is stored, what every engine must show after
each step, and that all of it comes to an end after the faults have stopped.
"""

from collections import defaultdict
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.unit.engine.messaging.kit import FREE, WALL_MS, draft, envelope
from tieline.config import RECEIPT_RESERVE_BYTES, Limits
from tieline.engine.contract import (
    Act,
    Answer,
    AskDirectory,
    Asked,
    AskedStatus,
    AskStatus,
    BeginRun,
    Box,
    Command,
    ContextRow,
    DirectoryTold,
    EndRun,
    Expose,
    MessageRow,
    MoveRow,
    Offer,
    Outcome,
    Page,
    Plan,
    PushReceipt,
    ReceiptTold,
    Recorded,
    Row,
    RunRow,
    Settle,
    Submit,
    Taken,
    Tick,
    Transmit,
    Untaken,
    UserPrompt,
)
from tieline.engine.messaging import Messaging
from tieline.errors import Refusal
from tieline.machine.outbox import MOVES, NOT_DELIVERED, OUTCOME_ONLY, REENTRY
from tieline.model.identity import Peer
from tieline.model.message import Envelope, Key
from tieline.model.moment import Moment
from tieline.model.receipt import THEIRS, Receipt, State

LIMITS = Limits(
    inbox_messages=4,
    storage_bytes=65_536,
    rate_per_second=5,
    rate_burst=8,
    automatic_replies=3,
    agent_sends_max=6,
    published_runs=2,
    expiry_ms=60_000,
    max_expiry_ms=120_000,
)
INBOX_MOVES = {
    (State.ACCEPTED, State.ACCEPTED),
    (State.ACCEPTED, State.CONSUMED),
    (State.ACCEPTED, State.REPLIED),
    (State.ACCEPTED, State.EXPIRED),
    (State.CONSUMED, State.REPLIED),
}
RANKS = {State.ACCEPTED: 1, State.CONSUMED: 2, State.REPLIED: 3, State.EXPIRED: 3}
NAMES = ("a", "b", "c", "d")
ANSWER_MS = 2_000
HEALING_STEPS_MAX = 4_000


class Waiting(msgspec.Struct):
    """One decided command that is not stored yet."""

    plan: Plan
    is_sent: bool = False


class Frame(msgspec.Struct, frozen=True):
    """Something on its way: a request of `origin`, or the answer to one of its attempts."""

    origin: str
    target: str
    attempt: int
    body: Any
    is_answer: bool = False


class Disk:
    """The stored rows of one root, checked as they come."""

    def __init__(self, own: str) -> None:
        self.own = own
        self.rows: list[Row] = []
        self.messages: dict[int, MessageRow] = {}
        self.last: dict[int, MoveRow] = {}
        self.keys: dict[tuple[Box, Key], int] = {}
        self.contexts: set[int] = set()
        self.live: set[str] = set()
        self.cursor = 0
        self.ever_rejected: set[Key] = set()

    def state(self, box: Box, key: Key) -> State | None:
        cursor = self.keys.get((box, key))
        if cursor is None:
            return None
        moved = self.last.get(cursor)
        if moved is not None:
            return moved.state
        return State.PENDING if box is Box.OUT else State.ACCEPTED

    def store(self, row: Row) -> None:
        """Check one row against all before it, then keep it."""
        if isinstance(row, MessageRow | MoveRow | ContextRow):
            assert row.cursor > self.cursor, "I11: a cursor was used twice or out of order"
            self.cursor = row.cursor
        if isinstance(row, MessageRow):
            self._message(row)
        elif isinstance(row, MoveRow):
            self._move(row)
        elif isinstance(row, ContextRow):
            assert row.message not in self.contexts, "I9: a message is in the context twice"
            self.contexts.add(row.message)
        elif isinstance(row, RunRow):
            (self.live.add if row.is_live else self.live.discard)(row.run)
        self.rows.append(row)

    def _message(self, row: MessageRow) -> None:
        key = (row.box, row.envelope.key)
        assert key not in self.keys, "I21: two records of one message"
        if row.box is Box.IN:
            peer = row.envelope.recipient
            assert peer.instance == self.own, "I6: mail of another instance"
            assert peer.run is None or peer.run in self.live, "I28: mail for a run that is not live"
            if row.envelope.reply_to is not None:
                asked = self.keys.get((Box.OUT, Key(self.own, row.envelope.reply_to, row.envelope.sender.id)))
                assert asked is not None, "I26: a reply to nothing"
                question = self.messages[asked].envelope
                assert question.sender == peer, "I26: a reply to another of our peers"
                assert question.chain == row.envelope.correlation_id, "I26: a reply of another conversation"
        self.keys[key] = row.cursor
        self.messages[row.cursor] = row

    def _move(self, row: MoveRow) -> None:
        message = self.messages[row.message]
        before = self.state(message.box, message.envelope.key)
        assert before is not None
        pair = (before, row.state)
        if message.box is Box.OUT:
            assert pair in MOVES | OUTCOME_ONLY | REENTRY, f"I15: {pair}"
            if row.state is State.REJECTED:
                self.ever_rejected.add(message.envelope.key)
        else:
            assert pair in INBOX_MOVES, f"I15: {pair}"
            if row.state is State.CONSUMED:
                assert row.message in self.contexts, "I16: consumed without a context record"
        earlier = self.last.get(row.message)
        if earlier is not None and pair not in REENTRY:
            for name in ("accepted_ms", "consumed_ms", "replied_ms"):
                stated = getattr(earlier, name)
                assert stated is None or stated == getattr(row, name), "I15: a time changed"
        self.last[row.message] = row


class Node:
    """One root: its engine, what waits for its disk, and its disk."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.root = Peer(name)
        self.engine = Messaging(name, LIMITS, idle_behavior="auto")
        self.disk = Disk(name)
        self.waiting: list[Waiting] = []
        self.tokens: list[str] = []
        self.is_away = False

    @property
    def owners(self) -> list[Peer]:
        runs = [row.run for row in self.decided if isinstance(row, RunRow) and row.is_live]
        return [self.root, *(Peer(self.name, run) for run in runs)]

    @property
    def decided(self) -> list[Row]:
        return [*self.disk.rows, *(row for one in self.waiting for row in one.plan.rows)]


class World(RuleBasedStateMachine):
    """Roots, and the frames between them."""

    @initialize(count=st.integers(2, 4))
    def begin(self, count: int) -> None:
        self.now = Moment(WALL_MS, 1_000_000)
        self.nodes = {name: Node(name) for name in NAMES[:count]}
        self.frames: list[Frame] = []
        self.attempts: dict[tuple[str, int], tuple[int, bool]] = {}  # sent at; asks for a directory
        self.asked: dict[int, tuple[str, int]] = {}
        self.offered: dict[int, Envelope] = {}
        self.asked_count = 0
        self.tokens = 0

    # ------------------------------------------------------------ the shell of one root

    def node(self, number: int) -> Node:
        return self.nodes[NAMES[number % len(self.nodes)]]

    def do(self, node: Node, command: Command) -> Plan:
        plan = node.engine.handle(command, self.now)
        one = Waiting(plan)
        if not plan.is_urgent and not any(other.plan.is_urgent for other in node.waiting):
            self.carry(node, one)
        if plan.rows or not one.is_sent:
            node.waiting.append(one)
        return plan

    def commit(self, node: Node, count: int) -> None:
        done, node.waiting = node.waiting[:count], node.waiting[count:]
        for one in done:
            for row in one.plan.rows:
                node.disk.store(row)
                self.check_told(node, row)
        for one in done:
            self.carry(node, one)
        if not any(other.plan.is_urgent for other in node.waiting):
            for other in node.waiting:
                self.carry(node, other)

    def carry(self, node: Node, one: Waiting) -> None:
        if one.is_sent:
            return
        one.is_sent = True
        for send in one.plan.sends:
            if isinstance(send, Answer):
                origin, attempt = self.asked[send.asked.request]  # type: ignore[index]
                self.check_answer(node, send)
                self.frames.append(Frame(origin, node.name, attempt, send.body, is_answer=True))
                continue
            if isinstance(send, Transmit):
                stored = node.disk.keys.get((Box.OUT, send.envelope.key))
                assert stored is not None, "I3: transmitted before the intent was stored"
            self.attempts[node.name, send.attempt] = (self.now.mono_ms, isinstance(send, AskDirectory))
            assert send.instance != node.name
            self.frames.append(Frame(node.name, send.instance, send.attempt, send))

    # ------------------------------------------------------------ the network

    def deliver(self, frame: Frame) -> None:
        if frame.is_answer:
            known = self.attempts.pop((frame.origin, frame.attempt), None)
            if known is not None:
                self.end(frame, known[1])
            return
        target = self.nodes.get(frame.target)
        if target is None or target.is_away:
            self.fail(frame.origin, frame.attempt, Outcome.UNREACHED)
            return
        send = frame.body
        if isinstance(send, AskDirectory):
            runs = frozenset(row.run for row in target.engine.live_runs())
            self.frames.append(Frame(frame.origin, frame.target, frame.attempt, runs, is_answer=True))
            return
        asked = self.ask(frame.origin, frame.attempt)
        if isinstance(send, Transmit):
            self.offer(target, Offer(asked, frame.origin, FREE, send.envelope))
        elif isinstance(send, AskStatus):
            self.do(
                target,
                AskedStatus(asked, frame.origin, send.message_id, send.recipient, send.sender_run),
            )
        else:
            assert isinstance(send, PushReceipt)
            self.do(target, ReceiptTold(asked, frame.origin, send.receipt))

    def ask(self, origin: str, attempt: int) -> Asked:
        self.asked_count += 1
        self.asked[self.asked_count] = (origin, attempt)
        return Asked(1, self.asked_count)

    def offer(self, target: Node, command: Offer) -> None:
        assert isinstance(command.asked.request, int)
        self.offered[command.asked.request] = command.envelope
        self.do(target, command)

    def end(self, frame: Frame, is_directory: bool) -> None:
        node = self.nodes[frame.origin]
        if is_directory:
            self.do(node, DirectoryTold(frame.attempt, frame.body))
        elif isinstance(frame.body, Refusal):
            self.do(node, Settle(frame.attempt, Outcome.REFUSED, refusal=frame.body))
        else:
            receipt = None if isinstance(frame.body, Recorded) else frame.body
            self.do(node, Settle(frame.attempt, Outcome.ANSWERED, receipt=receipt))

    def fail(self, name: str, attempt: int, outcome: Outcome) -> None:
        known = self.attempts.pop((name, attempt), None)
        if known is None:
            return
        if known[1]:
            self.do(self.nodes[name], DirectoryTold(attempt, None))
        else:
            self.do(self.nodes[name], Settle(attempt, outcome))

    # ------------------------------------------------------------ what may happen

    @rule(
        number=st.integers(0, 3),
        other=st.integers(0, 3),
        name=st.integers(0, 5),
        act=st.sampled_from(Act),
        is_reply=st.booleans(),
        variant=st.integers(0, 4),
        sender=st.integers(0, 2),
    )
    def submit(
        self, number: int, other: int, name: int, act: Act, is_reply: bool, variant: int, sender: int
    ) -> None:
        node, target = self.node(number), self.node(other)
        owner = node.owners[sender % len(node.owners)]
        recipient = target.owners[variant % len(target.owners)]
        reply_to = None
        if is_reply:
            mail = node.engine.held(owner, unread_only=False, count_max=9)
            if mail:
                picked = mail[name % len(mail)].envelope
                recipient, reply_to = picked.sender, picked.message_id
        one = draft(
            f"{'r' if reply_to else 'm'}{name}",
            owner,
            recipient,
            act=act,
            reply_to=reply_to,
            content="other" if variant == 4 else f"text of {name}",
            expiry_ms=5_000 if variant == 3 else None,
        )
        self.do(node, Submit(one))

    @rule(number=st.integers(0, 3), name=st.integers(0, 5), length=st.integers(1, 4))
    def write(self, number: int, name: int, length: int) -> None:
        """A root writes several messages to the next one: the plainest thing there is."""
        for place in range(length):
            node, target = self.node(number), self.node(number + 1)
            self.do(node, Submit(draft(f"w{name}-{place}", node.root, target.root, expiry_ms=30_000)))

    @rule(number=st.integers(0, 3), length=st.integers(1, 4))
    def answer(self, number: int, length: int) -> None:
        """A root answers its oldest mail by itself, which its peer may answer by itself."""
        node = self.node(number)
        for held in node.engine.held(node.root, unread_only=False, count_max=length):
            one = held.envelope
            reply = draft(
                f"auto-{one.message_id}"[-60:],
                node.root,
                one.sender,
                act=Act.AUTOMATIC,
                reply_to=one.message_id,
            )
            self.do(node, Submit(reply))

    @rule(
        number=st.integers(0, 3),
        other=st.integers(0, 3),
        names=st.lists(st.integers(0, 5), min_size=1, max_size=4),
        depth=st.integers(0, 4),
    )
    def forge(self, number: int, other: int, names: list[int], depth: int) -> None:
        """An authenticated peer that follows no rule of ours hands something over."""
        node, target = self.node(number), self.node(other)
        if node is target:
            return
        for name in names:
            one = envelope(
                f"f{name}",
                node.root,
                target.owners[depth % len(target.owners)],
                content=f"forged {depth % 2}",
                automatic_depth=depth,
                correlation_id=None if depth == 4 else f"m{name % 2}",
                reply_to=f"m{name}" if depth == 2 else None,
            )
            self.offer(target, Offer(self.ask(node.name, -1), node.name, FREE, one))

    @rule(
        number=st.integers(0, 3),
        other=st.integers(0, 3),
        name=st.integers(0, 5),
        state=st.sampled_from(State),
    )
    def lie(self, number: int, other: int, name: int, state: State) -> None:
        """A peer states a receipt of a message that was not sent to it."""
        liar, victim = self.node(number), self.node(other)
        for sent in victim.engine.outbox(victim.root):
            if sent.envelope.recipient.instance != liar.name:
                told = msgspec.structs.replace(sent.receipt, state=state, cursor=10_000)
                before = victim.engine.latest_cursor
                self.do(victim, ReceiptTold(self.ask(liar.name, -1), liar.name, told))
                assert victim.engine.latest_cursor == before, "I17: a stranger moved a message"
                return

    @rule(place=st.integers(0, 99), count=st.integers(1, 6))
    def travel(self, place: int, count: int) -> None:
        """Frames arrive, in any order."""
        for _ in range(count):
            if self.frames:
                self.deliver(self.frames.pop(place % len(self.frames)))

    @rule(place=st.integers(0, 99))
    def lose(self, place: int) -> None:
        if self.frames:
            self.frames.pop(place % len(self.frames))

    @rule(place=st.integers(0, 99))
    def double(self, place: int) -> None:
        if self.frames:
            self.frames.append(self.frames[place % len(self.frames)])

    @rule(number=st.integers(0, 3), count=st.integers(1, 9))
    def store(self, number: int, count: int) -> None:
        self.commit(self.node(number), count)

    @rule(number=st.integers(0, 3), count=st.integers(0, 3))
    def fall_back(self, number: int, count: int) -> None:
        """A group fails after some of it was stored: what is stored is all there is."""
        node = self.node(number)
        for one in node.waiting[:count]:
            for row in one.plan.rows:
                node.disk.store(row)
                self.check_told(node, row)
        node.waiting.clear()
        node.engine.restore(node.disk.rows, self.now)

    @rule(duration_ms=st.sampled_from([1, 300, 2_000, 10_000, 61_000, 121_000]))
    def wait(self, duration_ms: int) -> None:
        self.now = Moment(self.now.wall_ms + duration_ms, self.now.mono_ms + duration_ms)
        for (name, attempt), (sent_ms, _) in list(self.attempts.items()):
            if self.now.mono_ms - sent_ms >= ANSWER_MS:
                self.fail(name, attempt, Outcome.LOST)
        for node in self.nodes.values():
            due_ms = node.engine.deadline_ms
            if due_ms is not None and due_ms <= self.now.mono_ms:
                self.do(node, Tick())

    @rule(number=st.integers(0, 3), owner=st.integers(0, 2), count=st.integers(1, 3))
    def read(self, number: int, owner: int, count: int) -> None:
        """A reader whose evidence comes later, or never."""
        node = self.node(number)
        self.tokens += 1
        token = f"t{self.tokens}"
        peer = node.owners[owner % len(node.owners)]
        answer = self.do(node, Expose(peer, token, "read", count, 9_999)).answer
        if answer:
            node.tokens.append(token)

    @rule(number=st.integers(0, 3), owner=st.integers(0, 2), count=st.integers(1, 3))
    def consume(self, number: int, owner: int, count: int) -> None:
        """A reader with evidence at once."""
        self.read(number, owner, count)
        node = self.node(number)
        if node.tokens:
            self.do(node, Taken(node.tokens[-1]))

    @rule(rounds=st.integers(1, 4))
    def work(self, rounds: int) -> None:
        """A quiet moment: what was decided is stored, and what is on its way arrives in order."""
        for _ in range(rounds):
            for node in self.nodes.values():
                self.commit(node, len(node.waiting))
            for _ in range(len(self.frames)):
                self.deliver(self.frames.pop(0))

    @rule(number=st.integers(0, 3), place=st.integers(0, 9), is_taken=st.booleans())
    def evidence(self, number: int, place: int, is_taken: bool) -> None:
        node = self.node(number)
        if node.tokens:
            token = node.tokens[place % len(node.tokens)]
            self.do(node, Taken(token) if is_taken else Untaken(token))

    @rule(number=st.integers(0, 3), name=st.integers(0, 3), is_begin=st.booleans())
    def run(self, number: int, name: int, is_begin: bool) -> None:
        node = self.node(number)
        self.do(node, BeginRun(f"run{name}", "r", FREE.capabilities) if is_begin else EndRun(f"run{name}"))

    @rule(number=st.integers(0, 3))
    def prompt(self, number: int) -> None:
        node = self.node(number)
        self.do(node, UserPrompt(node.root))

    @rule(number=st.integers(0, 3), is_away=st.booleans())
    def leave(self, number: int, is_away: bool) -> None:
        self.node(number).is_away = is_away

    # ------------------------------------------------------------ what must hold

    def check_answer(self, node: Node, answer: Answer) -> None:
        """What a peer is told of a message is stored here, with at least that rank."""
        if isinstance(answer.body, Receipt):
            receipt = answer.body
            origin = self.asked[answer.asked.request][0]  # type: ignore[index]
            stored = node.disk.state(Box.IN, Key(origin, receipt.message_id, receipt.recipient))
            assert stored is not None, "I2: accepted before it was stored"
            assert RANKS[stored] >= RANKS[receipt.state], "I18: told more than is stored"
            given = self.offered.get(answer.asked.request)  # type: ignore[call-overload]
            if given is not None:
                row = node.disk.messages[node.disk.keys[Box.IN, given.key]]
                assert row.envelope.content == given.content, "I22: another message was taken for this one"

    def check_told(self, node: Node, row: Row) -> None:
        """What a sender stores of a message was stored before by its recipient."""
        if not isinstance(row, MoveRow):
            return
        message = node.disk.messages[row.message]
        if message.box is Box.IN or row.state not in THEIRS or row.state is State.REJECTED:
            return
        target = self.nodes[message.envelope.recipient.instance]
        stored = target.disk.state(Box.IN, message.envelope.key)
        if row.outcome == NOT_DELIVERED:
            assert stored is None, "I18: told undelivered, and it was delivered"
            return
        assert stored is not None, "I18: a receipt of a message that was never stored"
        assert RANKS[stored] >= RANKS[row.state], "I18: a receipt that its recipient never stored"
        if row.state is State.EXPIRED:
            assert stored is State.EXPIRED

    @invariant()
    def nothing_is_lost_or_changed(self) -> None:
        """Every stored record is there, the same, in its place (I1, I5, I6, I21)."""
        for node in getattr(self, "nodes", {}).values():
            for (box, key), cursor in node.disk.keys.items():
                row = node.disk.messages[cursor]
                if box is Box.OUT:
                    found = [
                        one
                        for one in node.engine.sent(key.message_id, row.envelope.sender)
                        if one.envelope.recipient == row.envelope.recipient
                    ]
                    assert [one.cursor for one in found] == [cursor], "I1"
                    continue
                held = [
                    one
                    for one in node.engine.held(
                        row.envelope.recipient, message_id=key.message_id, unread_only=False, count_max=99
                    )
                    if one.envelope.sender == row.envelope.sender
                ]
                assert [one.cursor for one in held] == [cursor], "I1, I11"
                if held[0].has_content:
                    assert held[0].envelope == row.envelope, "I5"
                stored = node.disk.state(box, key)
                assert stored is not None
                assert RANKS[held[0].state] >= RANKS[stored], "I15"

    @invariant()
    def bounds_hold(self) -> None:
        """Inboxes and the store with its reserves stay within their limits (I7, I8, I29)."""
        for node in getattr(self, "nodes", {}).values():
            engine = node.engine
            assert engine.storage_bytes + engine.worst_case_bytes <= LIMITS.storage_bytes, "I8"
            runs = {row.run for row in node.decided if isinstance(row, RunRow)}
            open_count = sum(
                engine.inbox_counts(one).unread + len(engine.outbox(one, unresolved_only=True))
                for one in (node.root, *(Peer(node.name, run) for run in sorted(runs)))
            )
            assert engine.worst_case_bytes == RECEIPT_RESERVE_BYTES * open_count, "I8"
            chains: dict[str, set[Key]] = defaultdict(set)
            for owner in node.owners:
                assert engine.inbox_counts(owner).unread <= LIMITS.inbox_messages, "I7"
                for held in engine.held(owner, unread_only=False, count_max=999):
                    if held.envelope.automatic_depth:
                        chains[held.envelope.chain].add(held.envelope.key)
            assert all(len(keys) <= LIMITS.automatic_replies for keys in chains.values()), "I29"

    @invariant()
    def history_is_exact(self) -> None:
        """A page holds exactly the events after its cursor, as the rows say (I12)."""
        for node in getattr(self, "nodes", {}).values():
            messages = {row.cursor: row for row in node.decided if isinstance(row, MessageRow)}
            expected: dict[str, list[int]] = defaultdict(list)
            for row in node.decided:
                if isinstance(row, MessageRow) or (isinstance(row, MoveRow) and not row.note):
                    message = messages[row.cursor if isinstance(row, MessageRow) else row.message]
                    one = message.envelope
                    owner = one.sender if message.box is Box.OUT else one.recipient
                    expected[owner.id].append(row.cursor)
            for owner in node.owners:
                cursors = expected[owner.id]
                for after in (0, *cursors[len(cursors) // 2 :][:1]):
                    page = node.engine.page(owner, after, 9_999)
                    assert isinstance(page, Page)
                    assert [event.cursor for event in page.events] == [one for one in cursors if one > after]

    @invariant()
    def routes_are_in_order(self) -> None:
        """What a recipient accepted of one route is in the order of the intents (I10)."""
        for node in getattr(self, "nodes", {}).values():
            routes: dict[tuple[Peer, Peer], list[int]] = defaultdict(list)
            for (box, key), _cursor in sorted(node.disk.keys.items(), key=lambda item: item[1]):
                sender = self.nodes.get(key.sender_instance)
                if box is Box.OUT or sender is None or key in sender.disk.ever_rejected:
                    continue
                intent = sender.disk.keys.get((Box.OUT, key))
                if intent is not None:
                    one = sender.disk.messages[intent].envelope
                    routes[one.sender, one.recipient].append(intent)
            for intents in routes.values():
                assert intents == sorted(intents), "I10"

    def teardown(self) -> None:
        """The faults stop; everything comes to an end (I13, I51), and both ends agree (I18)."""
        if not hasattr(self, "nodes"):
            return
        for node in self.nodes.values():
            node.is_away = False
        for _ in range(HEALING_STEPS_MAX):
            for node in self.nodes.values():
                self.commit(node, len(node.waiting))
            if self.frames:
                self.deliver(self.frames.pop(0))
            elif not self.is_settled():
                self.wait(1_000)
            else:
                break
        self.nothing_is_lost_or_changed()
        self.routes_are_in_order()
        for node in self.nodes.values():
            for row in node.disk.messages.values():
                state = node.disk.state(row.box, row.envelope.key)
                if row.box is Box.IN:
                    assert state is not State.ACCEPTED or node.disk.last[row.cursor].outcome, "I13"
                    continue
                assert state not in (State.PENDING, State.UNKNOWN), "I51"
                target = self.nodes[row.envelope.recipient.instance]
                theirs = target.disk.state(Box.IN, row.envelope.key)
                if state is not State.REJECTED:
                    assert theirs == (None if self.is_undelivered(node, row) else state), "I18"

    def is_settled(self) -> bool:
        for node in self.nodes.values():
            if node.waiting or any(name == node.name for name, _ in self.attempts):
                return False
            if node.engine.worst_case_bytes:
                return False
            due_ms = node.engine.deadline_ms
            if due_ms is not None and due_ms <= self.now.mono_ms + 60_000:
                return False
        return True

    @staticmethod
    def is_undelivered(node: Node, row: MessageRow) -> bool:
        return node.disk.last[row.cursor].outcome == NOT_DELIVERED


@pytest.mark.clause(
    "I1", "I3", "I4", "I5", "I6", "I7", "I10", "I11", "I12", "I13", "I15", "I16", "I17", "I18", "I19"
)
@pytest.mark.clause("I21", "I22", "I24", "I25", "I26", "I28", "I29", "I51", "K27", "mutant-1", "mutant-9")
def test_custody_over_a_faulty_network_and_failing_groups_keeps_its_invariants() -> None:
    """Whatever is lost, doubled, late or rolled back: nothing is lost, told falsely, or stuck."""
    profile = settings.default
    is_long = profile is not None and profile.max_examples > 100
    # On every change a failure is shown as it was found: making it small takes minutes.
    phases = tuple(Phase) if is_long else (Phase.explicit, Phase.generate)
    examples = profile.max_examples if profile is not None and is_long else 120
    run_state_machine_as_test(
        World, settings=settings(max_examples=examples, stateful_step_count=40, phases=phases)
    )
