"""Sockets between simulated roots: bytes that arrive late, split, together, or not at all.

Theory. A line is two ends; what one end writes waits in a queue of bytes and is delivered in pieces of
seeded length after seeded delays, in order, as a stream socket does. A cut drops what is under way; a
half-open line swallows without a word; a listener that does not accept lets one write into the void.

Rule 1: bytes of one direction stay in order; nothing is invented.
Rule 2: each write and each delivery of whole lines is noted in the history, with who truly is at the
    other end.

Source: reference/reliability.md K8, K13, K14, K15, F9; 2.1.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tests.sim.clock import Clock
from tests.sim.frames import outline
from tests.sim.history import History
from tieline.errors import Refusal

__all__ = ["End", "Host", "Network", "Weather"]

PIECE_BYTES_MAX = 70_000


class Host(Protocol):
    """What sits behind an endpoint."""

    name: str
    pid: int

    def connected(self, end: "End") -> None:
        """A line was accepted."""

    def received(self, end: "End", data: bytes) -> None:
        """Bytes came."""

    def lost(self, end: "End") -> None:
        """The line is closed."""


class Weather:
    """What the network does at present; the plan changes it."""

    def __init__(self) -> None:
        self.delay_ms_max = 5
        self.piece_bytes_max = PIECE_BYTES_MAX
        self.parted: dict[tuple[str, str], int] = {}  # pairs that cannot reach each other, until when
        self.swallowing: dict[tuple[str, str], int] = {}  # pairs whose lines turn half-open, until when
        self.deaf: dict[str, int] = {}  # listeners that do not accept, until when

    def calm(self) -> None:
        """Let everything through again."""
        self.parted.clear()
        self.swallowing.clear()
        self.deaf.clear()
        self.delay_ms_max = 5
        self.piece_bytes_max = PIECE_BYTES_MAX


class End:
    """One end of a line; the switchboard's `Line`."""

    def __init__(self, network: "Network", link: int, owner: Host) -> None:
        self.network, self.link, self.owner = network, link, owner
        self.pid: int | None = None
        self.number: int | None = None
        self.far: End
        self.is_open = True
        self.is_closing = False
        self.is_paused = False
        self.is_silent = False  # half-open: what is written here goes nowhere
        self.is_joined = False  # accepted, or given to who dialled: bytes before that wait
        self._incoming = bytearray()
        self._loose = bytearray()  # of the line that has not ended, for the history
        self._is_due = False

    @property
    def has_waiting(self) -> bool:
        """Whether bytes are under way to this end."""
        return bool(self._incoming)

    def write(self, data: bytes) -> None:
        """Hand over bytes."""
        if not self.is_open or not data:
            return
        frames = [outline(line) for line in data.split(b"\n") if line]
        self.network.note(self.owner.name, "wrote", link=self.link, far=self.far.owner.name, frames=frames)
        if not self.is_silent and self.far.is_open:
            self.far.take(data)

    def close(self) -> None:
        """Close after what was written has arrived."""
        if self.is_open:
            self.is_open = False
            if not self.is_silent:
                self.far.end()

    def pause(self, is_paused: bool) -> None:
        """Stop or go on reading."""
        was_paused, self.is_paused = self.is_paused, is_paused
        if was_paused and not is_paused:
            self._schedule()

    def take(self, data: bytes) -> None:
        """Bytes are on their way to this end."""
        self._incoming += data
        self._schedule()

    def join(self) -> None:
        """This end has somebody who reads it."""
        self.is_joined = True
        self._schedule()

    def end(self) -> None:
        """The far end closed: told after what is under way."""
        self.is_closing = True
        self._schedule()

    def cut(self) -> None:
        """The line broke here: what is under way is lost."""
        if self.is_open:
            self.is_open = False
            self._incoming.clear()
            self.network.clock.after(0, self.owner.name, lambda: self.owner.lost(self))

    def _schedule(self) -> None:
        if not self._is_due and self.is_joined and self.is_open and (self._incoming or self.is_closing):
            self._is_due = True
            self.network.clock.after(self.network.delay_ms(), self.owner.name, self._deliver)

    def _deliver(self) -> None:
        self._is_due = False
        if not self.is_open or self.is_paused:
            return
        if self._incoming:
            size = self.network.piece_bytes(len(self._incoming))
            data = bytes(self._incoming[:size])
            del self._incoming[:size]
            self._note(data)
            self.owner.received(self, data)
            self._schedule()
        elif self.is_closing:
            self.is_open = False
            self.owner.lost(self)

    def _note(self, data: bytes) -> None:
        self._loose += data
        *lines, rest = bytes(self._loose).split(b"\n")
        self._loose = bytearray(rest)
        frames = [outline(line) for line in lines if line]
        if frames or len(rest) > 1_024:
            self.network.note(
                self.owner.name,
                "read",
                link=self.link,
                far=self.far.owner.name,
                frames=frames,
                loose=len(rest),
            )


class Network:
    """All listeners and lines."""

    def __init__(self, clock: Clock, history: History, chance: random.Random) -> None:
        self.clock = clock
        self.weather = Weather()
        self._history = history
        self._chance = chance
        self._hosts: dict[str, Host] = {}
        self._lines: dict[int, tuple[End, End]] = {}
        self._number = 0

    def note(self, root: str, event: str, **data: Any) -> None:
        """Write one entry of the history."""
        self._history.add(self.clock.mono_ms, root, event, **data)

    def delay_ms(self) -> int:
        """Return how long the next piece takes."""
        return self._chance.randint(0, self.weather.delay_ms_max)

    def piece_bytes(self, waiting: int) -> int:
        """Return how much of what waits arrives at once."""
        if self._chance.random() < 0.7:
            return min(waiting, self.weather.piece_bytes_max)
        return self._chance.randint(1, max(1, min(waiting, self.weather.piece_bytes_max)))

    # ------------------------------------------------------------ listeners

    def listen(self, host: Host) -> None:
        """Let others connect to a host."""
        self._hosts[host.name] = host

    def gone(self, host: Host) -> None:
        """A process ended: the kernel closes what it had."""
        self._hosts.pop(host.name, None)
        for link, (one, other) in list(self._lines.items()):
            for mine, theirs in ((one, other), (other, one)):
                if mine.owner is host:
                    mine.is_open = False
                    if not mine.is_silent:
                        theirs.end()
            if not one.is_open and not other.is_open:
                del self._lines[link]

    def dial(self, caller: Host, name: str, done: Callable[[End | None, Refusal | None], None]) -> None:
        """Connect; `done` gets this side's end, or why there is none."""
        self.clock.after(self.delay_ms(), caller.name, lambda: self._connect(caller, name, done))

    def _connect(self, caller: Host, name: str, done: Callable[[End | None, Refusal | None], None]) -> None:
        host = self._hosts.get(name)
        pair = (min(caller.name, name), max(caller.name, name))
        if host is None or self._is_on(self.weather.parted, pair):
            done(None, Refusal("PEER_OFFLINE", "nobody listens", is_retryable=True))
            return
        if self._is_on(self.weather.deaf, name) and self._chance.random() < 0.3:
            done(None, Refusal("RESOURCE_BUSY", "the backlog is full", is_retryable=True))
            return
        self._number += 1
        near, far = End(self, self._number, caller), End(self, self._number, host)
        near.far, far.far = far, near
        near.pid, far.pid = host.pid, caller.pid
        self._lines[self._number] = (near, far)
        self.note("", "line", link=self._number, caller=caller.name, host=name)
        if self._is_on(self.weather.deaf, name):
            near.is_silent = True  # in the backlog: writable, never read
        else:
            self.clock.after(self.delay_ms(), name, lambda: self._accept(host, far))
        done(near, None)
        near.join()

    def _accept(self, host: Host, end: End) -> None:
        if end.is_open:
            host.connected(end)
            end.join()

    def _is_on(self, table: Mapping[Any, int], key: object) -> bool:
        return table.get(key, -1) >= self.clock.mono_ms

    # ------------------------------------------------------------ faults

    def lines_of(self, name: str) -> list[tuple[End, End]]:
        """Return the lines that a host has an end of, oldest first."""
        return [pair for pair in self._lines.values() if name in (pair[0].owner.name, pair[1].owner.name)]

    def cut(self, name: str, other: str = "") -> None:
        """Break every line of a host, or those to one other."""
        for one, two in self.lines_of(name):
            if not other or other in (one.owner.name, two.owner.name):
                one.cut()
                two.cut()

    def swallow(self, name: str, other: str) -> None:
        """Make every line between two hosts half-open."""
        for one, two in self.lines_of(name):
            if other in (one.owner.name, two.owner.name):
                one.is_silent = two.is_silent = True
