"""Whatever order mail, evidence, hooks, reads and a kill come in: one exposure in flight, none for nothing.

The ladder, what a hook of a harness means, and the engine run as they are, on a clock of the test. Around
them stands a session that shows what it was pushed in time, late or never, whose pipes lose answers, and
whose root dies at any moment. What it was handed and what counts as read is compared with docs/delivery.md.

Source: DESIGN.md 3 "Exposure and consumption"; docs/delivery.md.
"""

import asyncio
import random
import selectors
from collections import Counter
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from tests.unit.engine.messaging.kit import FREE, WALL_MS, Bench, envelope
from tieline.adapters.mcp.hooks import EVIDENCE_MS, HookCall, HookOperations, Hooks
from tieline.config import Limits
from tieline.engine.contract import (
    Asked,
    Command,
    Expose,
    MessageRow,
    MoveRow,
    Offer,
    Row,
    Taken,
    Tick,
    Untaken,
    UserPrompt,
)
from tieline.model.identity import Peer
from tieline.model.message import Delivery
from tieline.model.moment import Moment
from tieline.model.receipt import State
from tieline.runtime.host import Host
from tieline.runtime.inspect import rendered
from tieline.runtime.ladder import Ladder
from tieline.runtime.operations import Operations
from tieline.text import parse_context

pytestmark = pytest.mark.timeout(300)

SCHEDULES = 200
STEPS = 60
EVIDENCE_S = 10.0
HOUR_S = EVIDENCE_MS / 1_000
DAY_MS = 86_400_000
LIMITS = Limits(expiry_ms=DAY_MS, max_expiry_ms=DAY_MS, inbox_messages=STEPS, rate_burst=STEPS)
ME, SENDER = Peer("a"), Peer("b")


class Patience(selectors.SelectSelector):
    """It waits for nothing: instead the test's clock goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Let the time pass that would be waited."""
        assert timeout is not None, "everything waits for something that never comes"
        self.now += max(0.0, timeout)
        return super().select(0)


class Clock(asyncio.SelectorEventLoop):
    """A loop whose seconds pass at once."""

    def __init__(self) -> None:
        self.patience = Patience()
        super().__init__(self.patience)

    def time(self) -> float:
        """Return the test's own seconds."""
        return self.patience.now


class Root:
    """What the ladder and the hooks need of a root: the real engine, with commits that take their time."""

    windows = intercom = None

    def __init__(self, stage: "Stage", engine: Any) -> None:
        self.stage, self.engine, self.instance = stage, engine, ME.instance
        self.settings = SimpleNamespace(limits=LIMITS)
        self.host = Host(is_automatic=stage.is_automatic)
        self.log = SimpleNamespace(note=lambda *_, **__: None, failure=lambda *_: None)
        self.tasks = SimpleNamespace(start=self.start)
        self.desk = self.waits = SimpleNamespace(settle=lambda *_, **__: None)
        self.operations = Operations(self)  # type: ignore[arg-type]
        self.ladder = Ladder(self, EVIDENCE_S)  # type: ignore[arg-type]
        self.hooks = Hooks()
        self.background: list[asyncio.Task[Any]] = []
        self.commits: list[tuple[tuple[Row, ...], asyncio.Future[Any], Any]] = []
        self.free_at = 0.0
        self.is_dead = False

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        self.background.append(asyncio.ensure_future(work))

    def now(self) -> Moment:
        ms = int(asyncio.get_running_loop().time() * 1_000)
        return Moment(WALL_MS + ms, ms)

    def new_token(self) -> str:
        return f"{self.stage.chance.getrandbits(128):032x}"

    def rendered(self, messages: Any, bytes_max: int, count_max: int) -> Any:
        return rendered(messages, self.new_token, bytes_max, count_max)

    async def state_changed(self, _session: str | None) -> None:
        """Nobody is told of it here."""

    def ask(self, command: Command) -> "asyncio.Future[Any]":
        """Return the answer of a command once its rows are stored, in order, as the driver does."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        plan = self.engine.handle(command, self.now())
        self.stage.prompts += isinstance(command, UserPrompt)
        self.commits.append((plan.rows, future, plan.answer))
        self.free_at = max(self.free_at, loop.time()) + self.stage.chance.choice((0.0, 0.001, 0.02))
        loop.call_at(self.free_at, self._commit)
        return future

    def _commit(self) -> None:
        rows, future, answer = self.commits.pop(0)
        if self.is_dead:
            return
        self.stage.store(rows)
        if not future.done():
            future.set_result(answer)
        if any(isinstance(row, MessageRow) for row in rows):
            self.ladder.look()

    async def ask_count(self, command: Command) -> int:
        return int(await self.ask(command) or 0)

    async def kill(self) -> None:
        self.is_dead = True
        for task in self.background:
            task.cancel()
        await asyncio.gather(*self.background, return_exceptions=True)


class Exposure(NamedTuple):
    """One time that the session was handed mail: by which way, which, when, by which life of the root."""

    way: str
    messages: tuple[str, ...]
    at: float
    life: int


class Stage:
    """A session of a harness, its root, and what both did."""

    name = "session"

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.is_automatic = bool(self.chance.randrange(4))
        self.rows: list[Row] = []
        self.names: dict[int, str] = {}  # of the stored messages, by cursor
        self.prepared: Counter[str] = Counter()
        self.consumed: Counter[str] = Counter()
        self.context: set[str] = set()  # what the model has read
        self.evidenced: set[str] = set()
        self.exposures: list[Exposure] = []
        self.closed: set[Exposure] = set()  # refused, or lost
        self.pushes: list[tuple[str, Exposure]] = []  # that the session holds and has not shown
        self.carried: Exposure | None = None
        self.broken = ""
        self.life = self.count = self.hours = self.prompts = 0
        self.root = Root(self, Bench(ME.instance, limits=LIMITS).engine)

    # ------------------------------------------------------------ what must hold

    def require(self, is_so: bool, promise: str) -> None:
        """Keep the first promise that was broken: in a task of the root nobody would hear of it."""
        if not is_so and not self.broken:
            self.broken = promise

    def store(self, rows: tuple[Row, ...]) -> None:
        """Take what the root stored: nothing is read twice, or before the model has it."""
        self.rows.extend(rows)
        for row in rows:
            if isinstance(row, MessageRow):
                self.names[row.cursor] = row.envelope.message_id
            elif isinstance(row, MoveRow) and row.note == "prepared":
                self.prepared[self.names[row.message]] += 1
            elif isinstance(row, MoveRow) and row.state is State.CONSUMED:
                name = self.names[row.message]
                self.consumed[name] += 1
                self.require(self.consumed[name] == 1, f"{name} is consumed twice")
                self.require(name in self.context, f"{name} is consumed and was not shown")

    def is_open(self, exposure: Exposure) -> bool:
        """Return whether an exposure is in flight: at least so long, and longer where the host is at work."""
        now = asyncio.get_running_loop().time()
        life_s = EVIDENCE_S if exposure.way == "push" else HOUR_S
        return exposure.life == self.life and exposure not in self.closed and now < exposure.at + life_s

    def handed(self, way: str, shown: list[tuple[str, bool]]) -> Exposure:
        """Note what the session was handed; it must not have it already, nor be given it elsewhere."""
        now = asyncio.get_running_loop().time()
        made = Exposure(way, tuple(name for name, _ in shown), now, self.life)
        for name, is_marked in shown:
            before = [one for one in self.exposures if name in one.messages]
            self.require(name not in self.evidenced, f"{name} is shown by {way}, and there was evidence")
            is_again = self.prepared[name] > 1  # a root that died may have been about to show it
            self.require(is_marked == is_again, f"{name}: wrong word on whether it was shown before")
            self.require(is_marked or not before, f"{name}: not a word of that it was shown before")
            for one in before:
                self.require(not self.is_open(one), f"{name} is in flight by {one.way}, and shown by {way}")
                is_repeated = way == one.way == "push" and one.life == self.life and one not in self.closed
                self.require(not is_repeated, f"{name} is pushed twice")
        self.exposures.append(made)
        return made

    def shown_in(self, text: str) -> list[tuple[str, bool]]:
        """Return the messages of a text, each under its own id, and whether it says that it comes again."""
        found = parse_context(text)
        for one in found:
            self.require(one["content"] == f"text of {one['messageId']}", "a text has another's id")
        return [(one["messageId"], bool(one.get("reExposed"))) for one in found]

    # ------------------------------------------------------------ the door into the session

    async def push(self, text: str, *, is_busy: bool) -> bool:
        """Take a push, or refuse it."""
        self.require(is_busy or self.is_automatic, "an idle session is woken under notify")
        is_alone = not any(
            self.is_open(one) and not set(one.messages) <= self.evidenced
            for one in self.exposures
            if one.way == "push"
        )
        self.require(is_alone, "two pushes are in flight")
        made = self.handed("push", self.shown_in(text))
        if not self.chance.randrange(6):
            self.closed.add(made)
            return False
        self.pushes.append((text, made))
        return True

    def is_busy(self) -> bool | None:
        """Return nothing: the harness does not show it."""
        return None

    # ------------------------------------------------------------ what happens

    async def arrive(self) -> None:
        """Let a message come."""
        self.count += 1
        delivery = self.chance.choice((Delivery.STEER, Delivery.QUEUE, Delivery.QUEUE, Delivery.PASSIVE))
        one = envelope(f"m{self.count}", SENDER, ME, delivery=delivery)
        await self.root.ask(Offer(Asked(1, self.count), SENDER.instance, FREE, one))

    async def hook(self, event: str, *, is_lost: bool = False, **payload: str) -> None:
        """Let the harness call a hook, and take its answer or lose it."""
        owed, self.carried = self.carried, None
        root = self.root
        operations = HookOperations(root.hooks, HookCall.of(event, None, payload), root.operations)
        told = await operations.call(root.operations.root_actor, "tieline_host", None)
        if owed is not None:
            self.evidenced.update(owed.messages)
        if told.taken is None:
            return
        text = told.result["hookSpecificOutput"]["additionalContext"]
        made = self.handed("hook", self.shown_in(text))
        await asyncio.sleep(self.chance.choice((0.0, 0.01)))
        if is_lost:
            await operations.unflushed(told.taken)
            self.closed.add(made)
        else:
            self.context.update(made.messages)
            await operations.flushed(told.taken)
            self.carried = made

    async def show_push(self) -> None:
        """Show the model a push that the session holds: in time, or late."""
        if not self.pushes:
            return
        text, made = self.pushes.pop(self.chance.randrange(len(self.pushes)))
        self.context.update(made.messages)
        count = self.prompts
        await self.hook("UserPromptSubmit", is_lost=self.is_unlucky(), prompt=f"As the host shows it: {text}")
        if made.life == self.life:
            self.require(self.prompts == count, "a prompt that a push made is taken for a person's")
            self.evidenced.update(made.messages)

    async def lose_push(self) -> None:
        """Let the session forget a push."""
        if self.pushes:
            self.pushes.pop(self.chance.randrange(len(self.pushes)))

    async def prompt(self) -> None:
        """Let a person speak."""
        await self.hook("UserPromptSubmit", is_lost=self.is_unlucky(), prompt="go on")

    async def tool(self) -> None:
        """Let a session at work end a step."""
        if self.root.host.is_busy:
            await self.hook("PostToolUse", is_lost=self.is_unlucky(), tool="x")

    async def stop(self) -> None:
        """Let a turn end, unless mail makes it go on."""
        if self.root.host.is_busy:
            await self.hook("Stop", is_lost=self.is_unlucky(), answer="done")

    async def look(self) -> None:
        """Let the model read its inbox."""
        root, token = self.root, self.root.new_token()
        held = await root.ask(Expose(owner=ME, token=token, rung="read", count_max=4, bytes_max=9_000))
        if not held:
            return
        made = self.handed("read", [(one.envelope.message_id, one.exposure_count > 1) for one in held])
        await asyncio.sleep(self.chance.choice((0.0, 0.5)))
        if self.is_unlucky():
            await root.ask(Untaken(token))
            self.closed.add(made)
        else:
            self.context.update(made.messages)
            await root.ask(Taken(token))
            self.evidenced.update(made.messages)

    async def answer(self) -> None:
        """Let the model answer something that it has read."""
        if self.context:
            actor, name = self.root.operations.root_actor, self.chance.choice(sorted(self.context))
            await self.root.operations.call(actor, "host.answered", {"messageId": name})

    async def both(self) -> None:
        """Let a hook come while the model reads."""
        await asyncio.gather(self.look(), self.tool())

    async def wait(self) -> None:
        """Let time pass."""
        seconds = self.chance.choice((0.03, 0.5, 3.0, 11.0, 11.0, 150.0, HOUR_S + 1))
        self.hours += seconds > HOUR_S
        await asyncio.sleep(seconds if self.hours < 4 else 1.0)

    async def kill(self) -> None:
        """Let the root die, and open its store again; the session goes on."""
        if self.chance.randrange(2):  # while it does something
            task = asyncio.ensure_future(self.chance.choice((self.look, self.tool, self.prompt))())
            await asyncio.sleep(self.chance.choice((0.0, 0.005)))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        is_busy = self.root.host.is_busy
        await self.root.kill()
        self.life += 1
        self.carried = None
        self.evidenced.intersection_update(self.consumed)  # what another way had in flight is not stored
        bench = Bench(ME.instance, limits=LIMITS)
        bench.wall_ms, bench.mono_ms = self.root.now().wall_ms, self.root.now().mono_ms
        self.root = Root(self, bench.restored(self.rows))
        self.root.host.is_busy = is_busy
        self.root.ladder.climb(self)

    def is_unlucky(self) -> bool:
        """Return whether the pipe loses an answer."""
        return not self.chance.randrange(5)

    # ------------------------------------------------------------ one schedule

    async def play(self) -> None:
        """Let a schedule happen, and the end that shows whether something was lost."""
        self.root.ladder.climb(self)
        ways: list[Callable[[], Coroutine[Any, Any, None]]] = [
            *(self.arrive, self.arrive, self.wait, self.wait, self.show_push, self.show_push, self.lose_push),
            *(self.prompt, self.tool, self.tool, self.stop, self.stop, self.look, self.answer, self.both),
        ]
        for _ in range(STEPS):
            await self.chance.choice(ways)() if self.chance.randrange(50) else await self.kill()
            await self.root.ask(Tick())
            await asyncio.sleep(self.chance.choice((0.0, 0.03)))
            assert not self.broken, self.broken
        for _ in range(4):  # what nobody showed evidence of comes again, at the latest with the prompt
            await asyncio.sleep(HOUR_S + 1)
            await self.root.ask(Tick())
            for _ in range(3):
                await self.hook("UserPromptSubmit", prompt="what is new?")
        await self.hook("Stop", answer="done")
        self.require(set(self.consumed) == set(self.names.values()), "a message was lost")
        assert not self.broken, self.broken
        await self.root.kill()


@pytest.mark.clause("I9", "I16")
def test_ladder_shows_a_message_again_only_without_evidence_and_loses_none() -> None:
    """In two hundred orders of what may happen: under the same id, marked, and read at most once."""
    counted: Counter[str] = Counter()
    for seed in range(SCHEDULES):
        loop, stage = Clock(), Stage(seed)
        try:
            loop.run_until_complete(stage.play())
        except AssertionError as broken:
            raise AssertionError(f"schedule {seed}: {broken}") from broken
        finally:
            loop.close()
        shown = Counter(name for one in stage.exposures for name in one.messages)
        counted.update(one.way for one in stage.exposures)
        counted.update(again=sum(count > 1 for count in shown.values()), kill=stage.life)
    assert all(counted[way] > SCHEDULES for way in ("push", "hook", "read", "again", "kill")), counted
