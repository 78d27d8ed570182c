"""A broker's sessions: what their sockets say goes to the hub, and what it orders is kept, then said.

Theory. The hub decides in the order in which the bytes came. A plan with rows waits until they are on stable
storage. Rows that come in meanwhile go with the next sync, all at once. Most plans have none, and wait for
nothing but what waits to be said to the same sessions: nobody else pays for a sync.

Rule 1: of a plan, rows are durable before any output is written, outputs keep their order, closes come last.
    What is said to one session keeps the order in which it was decided.
Rule 2: where there is no room for rows that somebody waits for, the hub takes its plan back and refuses;
    until that is known those whom it is for are not heard, and the others only in what cannot rest on it;
    who waited longest is heard first then. Of several such plans in one sync each is tried alone. Rows that
    nobody waits for, most often of what is let go of, go with the next ones.
    When it is in doubt what was kept, nothing of that plan or of a later one is said: this broker ends, and
    its sessions ask the next one, which knows.
Rule 3: this module knows no frame and no rule of routing.
Rule 4: a session is heard for as long as it takes its answers, and `HEARING_SECONDS` at a time: what it asks
    for is not made before it can be written, and the others have their turns between.
Rule 5: mail is put into words when its far end takes it: all that may wait for one session would not fit
    between two of its reads. What is said after it stays behind it.

Source: reference/intercom.md 6.3; specification of the intercom, "Persistence and lifecycle";
DESIGN.md 2; reference/reliability.md K14.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol

from tieline.engine.brokering.contract import (
    Command,
    Delivery,
    Drop,
    Kept,
    Lost,
    Opened,
    Output,
    Plan,
    Put,
    Tick,
    Unkept,
)
from tieline.engine.brokering.hub import Hub
from tieline.errors import Refused
from tieline.model.moment import Moment
from tieline.shell.hub import CLOSE_SECONDS_MAX, UNREAD_BYTES_MAX, HubLine
from tieline.wire.intercom.protocol import BrokerLink
from tieline.wire.intercom.saying import FrameCodec

__all__ = ["IDLE_MS", "Keeping", "Sessions"]

IDLE_MS = 5_000
"""How long a broker without sessions and without mail waits for the next session."""
ROWS_PER_COMMIT_MAX = 4_096
HEARING_SECONDS = 0.005
PLANS_MAX = 1_024
"""So many plans may wait for stable storage; then nobody is heard until it is reached."""
CLOSE_POLL_SECONDS = 0.01


class Keeping(Protocol):
    """Where rows are kept: `store.mail.MailJournal`."""

    def commit(self, rows: list[Put | Drop]) -> None:
        """Keep and drop these, synced."""


class _Far:
    """One session's end: what it said and was not heard yet, and what is to be said behind its mail."""

    __slots__ = ("_behind", "_behind_bytes", "is_hearing", "is_lost", "line", "link", "unheard")

    def __init__(self, link: BrokerLink, line: HubLine) -> None:
        self.link, self.line = link, line
        self.unheard: deque[Command] = deque()
        self.is_hearing = False  # whether its next turn is arranged
        self.is_lost = False
        self._behind: deque[Output | bytes] = deque()
        self._behind_bytes = 0

    def say(self, output: Output) -> None:
        """Say this, now or behind what waits; `flush` or `go_on` writes it."""
        if self.is_lost or self.line.is_closing:
            return
        if isinstance(output, Delivery) and output.is_mail:
            self.flush()
            self._behind.append(output)
            self.go_on()
            return
        self.link.send(output)
        if self._behind:
            data = self.link.data_to_send()
            self._behind.append(data)
            self._behind_bytes += len(data)
            if self._behind_bytes > UNREAD_BYTES_MAX:
                self.line.abort()

    def go_on(self) -> None:
        """Write what waits, for as long as the far end takes it."""
        while self._behind and not self.line.is_paused:
            self.flush()
            one = self._behind.popleft()
            if isinstance(one, bytes):
                self._behind_bytes -= len(one)
                self.line.write(one)
            else:
                self.link.send(one)
                self.flush()

    def flush(self) -> None:
        """Write what was said."""
        data = self.link.data_to_send()
        if data:
            self.line.write(data)

    @property
    def is_unread(self) -> bool:
        """Whether something that was said is still here."""
        return bool(self._behind) or self.line.unread_bytes > 0


class Sessions:
    """The links of one broker, and its hub.

    Attributes:
        is_over: Set when the broker is to end: idle for `IDLE_MS`, or `failure`.
        failure: Why rows could not be kept; None while all is well.
    """

    def __init__(
        self,
        hub: Hub,
        codec: FrameCodec,
        keeping: Keeping,
        mint: Callable[[], str],
        clock: Callable[[], Moment],
    ) -> None:
        self._hub, self._codec, self._keeping = hub, codec, keeping
        self._mint, self._clock = mint, clock
        self._loop = asyncio.get_running_loop()
        self._links: dict[int, _Far] = {}
        self._link_count = 0
        self._plans: deque[Plan] = deque()
        self._writer = ThreadPoolExecutor(1, "mail")
        self._writing: asyncio.Future[None] | None = None
        self._owed: dict[
            tuple[str, str], Put | Drop
        ] = {}  # what a full disk did not take, newest of each key
        self._behind: Counter[int] = Counter()  # how many of the plans each link is in
        self._undecided: Counter[int] = Counter()  # the same of those that are perhaps taken back
        self._unheard: dict[int, None] = {}  # links that wait for the disk, the first one longest
        self._is_narrow = False  # whether the next sync is to take one refusable plan at most
        self._kept_count = 0  # so many of the first plans are kept, and not said yet
        self._is_saying = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_arming = False
        self._deadline_ms: int | None = None
        self._idle_since_ms: int | None = None
        self.is_over = asyncio.Event()
        self.failure: BaseException | None = None

    def begin(self, plan: Plan) -> None:
        """Carry out what the hub orders first, before anybody connects."""
        self._take(plan)

    # ------------------------------------------------------------ what the lines say

    def accepted(self, line: HubLine) -> int:
        """A far end of this user connected; return the number of its link."""
        self._link_count += 1
        number = self._link_count
        self._links[number] = _Far(BrokerLink(number, self._mint, self._codec), line)
        self._ask(Opened(number, line.process_id))
        return number

    def received(self, number: int, data: bytes) -> None:
        """Bytes came in."""
        far = self._links.get(number)
        if far is not None:
            far.unheard.extend(far.link.receive_data(data, self._clock()))
            far.flush()
            self._hear(number)

    def readable(self, number: int) -> None:
        """The far end took what waited for it."""
        far = self._links.get(number)
        if far is not None:
            far.go_on()
            self._hear(number)

    def lost(self, number: int) -> None:
        """The socket is closed, by whoever; what was read from it before still counts."""
        far = self._links.get(number)
        if far is not None:
            far.is_lost = True
            self._hear(number)

    def _hear(self, number: int) -> None:
        """Hear what a session said, a turn long; then read it again, or close it where it broke the rules."""
        far = self._links.get(number)
        if far is None or far.is_hearing:
            return
        until = self._loop.time() + HEARING_SECONDS
        while far.unheard and self._may_hear(number, far):
            self._ask(far.unheard.popleft())
            if self._loop.time() >= until:
                far.is_hearing = True
                self._loop.call_soon(self._hear_again, number, far)
                break
        if self._links.get(number) is not far:
            return
        far.line.hold(is_held=bool(far.unheard))
        if far.unheard or far.is_hearing:
            return
        if far.is_lost:
            del self._links[number]
            self._ask(Lost(number))
        elif far.link.is_closed:
            self._hang_up(number)

    def _hear_again(self, number: int, far: _Far) -> None:
        far.is_hearing = False
        self._hear(number)

    def _may_hear(self, number: int, far: _Far) -> bool:
        # Who is gone or broke the rules gets no answer that could pile up for long.
        if not far.is_lost and not far.link.is_closed and far.line.is_paused:
            return False
        is_free = not self._undecided[number] and self._hub.may_be_heard(far.unheard[0])
        if is_free and len(self._plans) < PLANS_MAX:
            return True
        self._unheard[number] = None
        return False

    # ------------------------------------------------------------ what the hub orders

    def _ask(self, command: Command) -> None:
        if self.failure is None:
            self._take(self._hub.handle(command, self._clock()))

    def _take(self, plan: Plan) -> None:
        self._deadline_ms, self._idle_since_ms = plan.deadline_ms, plan.idle_since_ms
        links = _links_of(plan)
        if self._is_saying or plan.rows or any(self._behind[number] for number in links):
            self._plans.append(plan)
            self._count(plan, 1)
        else:
            self._is_saying = True
            try:
                self._say(plan)
            finally:
                self._is_saying = False
        self._carry_out()
        self._arm()

    def _count(self, plan: Plan, change: int) -> None:
        """Take note that a plan waits, or waits no longer."""
        for counts in (self._behind, self._undecided) if plan.refusable else (self._behind,):
            for number in _links_of(plan):
                counts[number] += change
                if not counts[number]:
                    del counts[number]

    def _carry_out(self) -> None:
        """Say what may be said; start to keep what comes next, unless that goes on already."""
        if self._is_saying:
            return  # who says a plan goes on with what its closes brought
        self._is_saying = True
        try:
            while self._plans and self._writing is None and self.failure is None:
                if self._kept_count:
                    self._kept_count -= 1
                elif self._plans[0].rows:
                    self._keep()
                    return
                plan = self._plans.popleft()
                self._count(plan, -1)
                self._say(plan)
        finally:
            self._is_saying = False

    def _keep(self) -> None:
        """Put the rows of the next plans on stable storage, in one sync."""
        plans: list[Plan] = []
        row_count = 0
        for plan in self._plans:
            if plans and row_count + len(plan.rows) > ROWS_PER_COMMIT_MAX:
                break
            row_count += len(plan.rows)
            plans.append(plan)
            if plan.refusable and self._is_narrow:
                break
        rows = [*self._owed.values(), *(row for plan in plans for row in plan.rows)]
        self._writing = self._loop.run_in_executor(self._writer, self._keeping.commit, rows)
        self._writing.add_done_callback(partial(self._kept, plans))

    def _kept(self, plans: list[Plan], done: "asyncio.Future[None]") -> None:
        self._writing = None
        self.failure = done.exception()
        numbers = [plan.refusable for plan in plans if plan.refusable]
        if isinstance(self.failure, Refused) and self.failure.code == "QUEUE_FULL":
            self.failure = None
            if len(numbers) > 1:
                self._is_narrow = True
                self._keep()
                return
            self._owe(plans)
        elif self.failure is None:
            self._owed = {}
        if self.failure is not None:
            self.is_over.set()
            return
        self._is_narrow = False
        self._kept_count = len(plans)
        if numbers:
            self._ask(Kept(numbers[-1]))
        self._carry_out()
        self._arm()
        waiting, self._unheard = self._unheard, {}
        for number in waiting:
            self._hear(number)

    def _owe(self, plans: list[Plan]) -> None:
        """Let the rows of these plans go with the next ones; those of a refusable one are refused."""
        for place, plan in enumerate(plans):
            if plan.refusable:
                self._count(plan, -1)
                answer = self._plans[place] = self._hub.handle(Unkept(plan.refusable), self._clock())
                self._count(answer, 1)
                continue
            for row in plan.rows:
                self._owed.pop((row.kind, row.key), None)
                self._owed[row.kind, row.key] = row

    def _say(self, plan: Plan) -> None:
        spoken: dict[int, _Far] = {}
        for number, output in plan.outputs:
            far = self._links.get(number)
            if far is not None:
                far.say(output)
                spoken[number] = far
        for far in spoken.values():
            far.flush()
        for number in plan.closes:
            self._hang_up(number)

    def _hang_up(self, number: int) -> None:
        """Close a link; the hub is told at once, so that nothing more is routed to it."""
        found = self._links.pop(number, None)
        if found is not None:
            found.flush()
            found.line.close()
            self._ask(Lost(number))

    # ------------------------------------------------------------ time

    def _arm(self) -> None:
        """Set the one timer anew, once per turn of the loop."""
        if not self._is_arming:
            self._is_arming = True
            self._loop.call_soon(self._set_timer)

    def _set_timer(self) -> None:
        self._is_arming = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        dues = [] if self._deadline_ms is None else [self._deadline_ms]
        if self._idle_since_ms is not None:
            dues.append(self._idle_since_ms + IDLE_MS)
        if dues and not self.is_over.is_set():
            delay_ms = max(1, min(dues) - self._clock().mono_ms)
            self._timer = self._loop.call_later(delay_ms / 1000, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now_ms = self._clock().mono_ms
        if self._idle_since_ms is not None and now_ms >= self._idle_since_ms + IDLE_MS:
            self.is_over.set()
        elif self._deadline_ms is not None and now_ms >= self._deadline_ms:
            unread = frozenset(number for number, far in self._links.items() if far.is_unread)
            self._ask(Tick(unread))
        else:
            self._arm()

    # ------------------------------------------------------------ the end

    async def close(self) -> None:
        """Keep what was decided, say it, then close every link; where rows could not be kept, say nothing."""
        if self._timer is not None:
            self._timer.cancel()
        while self._writing is not None:
            await asyncio.wait([self._writing])
            await asyncio.sleep(0)  # its callback says what was kept, and may start the next
        links, self._links = self._links, {}
        for far in links.values():
            if self.failure is None:
                far.flush()
                far.line.close()
            else:
                far.line.abort()
        until = self._loop.time() + CLOSE_SECONDS_MAX
        while any(far.line.is_open for far in links.values()) and self._loop.time() < until:  # noqa: ASYNC110 - only here
            await asyncio.sleep(CLOSE_POLL_SECONDS)
        self._writer.shutdown()


def _links_of(plan: Plan) -> set[int]:
    """Return whom a plan says something to, or closes."""
    return {*(number for number, _ in plan.outputs), *plan.closes}
