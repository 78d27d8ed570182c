"""A broker's room in one process, and conversations in it, written as text.

One line is one step; a name before it is an end of a socket, which is opened by its first word:

    A+ {"name": "x"}    A registers in the strict form; the object's members go into its session, but `id` is
                        the id that it asks for (`session-A` by default), and `top` holds members of the frame
    A+n {...}           the same in the form of revision N, with `sessionId`
    A> {...}            A sends this frame
    A>b b"..."          A sends these bytes as one payload; `A>r` without any framing
    A< {...}            the next frame that A was sent is this; "*" is any value, a member "...": 1 any rest
    A!                  the broker closed A, and sent it nothing before that which was not named
    A.                  A hangs up
    + 1500              so many milliseconds pass
    # text              a remark

At the end nobody has been sent anything that was not named, and nobody was closed unnamed.
"""

import ast
import json
from collections.abc import Iterable
from typing import Any

from tieline.engine.brokering.contract import Command, Drop, Lost, Opened, Plan, Put, Tick
from tieline.engine.brokering.hub import Hub
from tieline.model.moment import Moment
from tieline.wire.intercom.framing import fields_of
from tieline.wire.intercom.protocol import BrokerLink
from tieline.wire.intercom.reading import dump
from tieline.wire.intercom.saying import FrameCodec

WALL_MS = 1_700_000_000_000


class End:
    """One end of a socket."""

    def __init__(self, number: int, link: BrokerLink) -> None:
        self.number = number
        self.link = link
        self.is_open = True
        self.heard: list[dict[str, Any]] = []
        self.bytes_heard = b""

    def hear(self) -> None:
        self.bytes_heard += self.link.data_to_send()
        while self.bytes_heard:
            length = int.from_bytes(self.bytes_heard[:4], "big")
            self.heard.append(fields_of(self.bytes_heard[4 : 4 + length]))
            self.bytes_heard = self.bytes_heard[4 + length :]


class Room:
    """A hub, its links and its journal, under a clock of its own."""

    def __init__(self, kept: Iterable[Put] = ()) -> None:
        self.mono_ms = 5_000
        self.codec = FrameCodec()
        self.hub = Hub(self.codec, self.now)
        self.ends: dict[str, End] = {}
        self.journal = {(put.kind, put.key): put for put in kept}
        self.plan = Plan()
        self._numbers = 0
        self._minted = 0
        self.carry_out(self.hub.restore(self.journal.values(), self.now))

    @property
    def now(self) -> Moment:
        return Moment(WALL_MS + self.mono_ms, self.mono_ms)

    def mint(self) -> str:
        self._minted += 1
        return f"00000000-0000-4000-8000-{self._minted:012d}"

    def handle(self, command: Command) -> None:
        self.carry_out(self.hub.handle(command, self.now))

    def carry_out(self, plan: Plan) -> None:
        self.plan = plan
        for row in plan.rows:
            if isinstance(row, Drop):
                self.journal.pop((row.kind, row.key), None)
            else:
                self.journal[row.kind, row.key] = row
        links = {end.number: end for end in self.ends.values() if end.is_open}
        for number, output in plan.outputs:
            if number in links:
                links[number].link.send(output)
                links[number].hear()
        for number in plan.closes:
            if number in links:
                self.close(links[number])

    def open(self, name: str) -> End:
        self._numbers += 1
        end = self.ends[name] = End(self._numbers, BrokerLink(self._numbers, self.mint, self.codec))
        self.handle(Opened(self._numbers, 4_242))
        return end

    def close(self, end: End) -> None:
        if end.is_open:
            end.is_open = False
            self.handle(Lost(end.number))

    def send_raw(self, name: str, data: bytes) -> None:
        end = self.ends.get(name) or self.open(name)
        assert end.is_open, f"{name} is closed"
        for command in end.link.receive_data(data, self.now):
            self.handle(command)
        end.hear()
        if end.link.is_closed:
            self.close(end)

    def send_payload(self, name: str, payload: bytes) -> None:
        self.send_raw(name, len(payload).to_bytes(4, "big") + payload)

    def send(self, name: str, frame: dict[str, Any]) -> None:
        self.send_payload(name, dump(frame))

    def heard(self, name: str) -> list[dict[str, Any]]:
        """Return what an end was sent since the last look."""
        end = self.ends[name]
        heard, end.heard = end.heard, []
        return heard

    def pass_time(self, duration_ms: int) -> None:
        """Let time pass, and tell the hub whenever it asked to be told."""
        until = self.mono_ms + duration_ms
        while self.plan.deadline_ms is not None and self.plan.deadline_ms <= until:
            self.mono_ms = max(self.mono_ms, self.plan.deadline_ms)
            before = self.plan.deadline_ms
            self.handle(Tick())
            assert self.plan.deadline_ms != before, "a deadline that stays due"
        self.mono_ms = until

    def join(self, name: str, /, **session: Any) -> str:
        """Register in the strict form; return the id that was granted."""
        self.say_join(name, session)
        return str(self.ends[name].heard.pop(0)["sessionId"])

    def say_join(self, name: str, session: dict[str, Any]) -> None:
        told = {"cwd": "/w", "model": "m", "name": name} | session
        top = told.pop("top", {})
        wanted = told.pop("id", f"session-{name}")
        self.register(name, {"type": "register", "session": told, "requestedId": wanted, **top})

    def join_recorded(self, name: str, /, **session: Any) -> str:
        """Register in the form of revision N; return the id that was granted."""
        self.say_join_recorded(name, session)
        return str(self.ends[name].heard.pop(0)["sessionId"])

    def say_join_recorded(self, name: str, session: dict[str, Any]) -> None:
        told = {
            "cwd": "/w",
            "model": "m",
            "name": name,
            "pid": 7,
            "startedAt": 1,
            "lastActivity": 2,
        } | session
        top = told.pop("top", {})
        wanted = told.pop("id", f"session-{name}")
        self.register(name, {"type": "register", "session": told, "sessionId": wanted, **top})

    def register(self, name: str, frame: dict[str, Any]) -> None:
        """Send a registration, over a new socket where the former one is closed."""
        if name in self.ends and not self.ends[name].is_open:
            del self.ends[name]
        self.send(name, frame)


def matches(expected: Any, actual: Any) -> bool:
    """Return whether a frame is the expected one; see the head of this file."""
    if expected == "*":
        return True
    if isinstance(expected, dict) and isinstance(actual, dict):
        named = {key: value for key, value in expected.items() if key != "..."}
        if "..." not in expected and named.keys() != actual.keys():
            return False
        return all(key in actual and matches(value, actual[key]) for key, value in named.items())
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(matches, expected, actual))
    return type(expected) is type(actual) and expected == actual


def converse(text: str, room: Room | None = None) -> Room:
    """Hold a conversation; an AssertionError names the line that did not come true."""
    room = room or Room()
    closed: set[str] = set()
    for number, line in enumerate(text.splitlines(), 1):
        step = line.strip()
        if step and not step.startswith("#"):
            word, _, rest = step.partition(" ")
            _take(room, closed, word, rest.strip(), f"line {number}: {step}")
    for name, end in room.ends.items():
        assert not end.heard, f"{name} was sent besides: {end.heard}"
        assert end.is_open or name in closed, f"{name} was closed"
    return room


def _take(room: Room, closed: set[str], word: str, rest: str, place: str) -> None:
    if word == "+":
        room.pass_time(int(rest))
        return
    name = word.rstrip("+><!.nbr") or word
    verb = word[len(name) :]
    if verb in {"+", "+n"}:
        closed.discard(name)
        told = json.loads(rest or "{}")
        room.say_join(name, told) if verb == "+" else room.say_join_recorded(name, told)
    elif verb == ">":
        room.send_payload(name, rest.encode())
    elif verb == ">b":
        room.send_payload(name, ast.literal_eval(rest))
    elif verb == ">r":
        room.send_raw(name, ast.literal_eval(rest))
    elif verb == "<":
        heard = room.ends[name].heard
        assert heard, f"{place}: nothing was sent"
        actual = heard.pop(0)
        assert matches(json.loads(rest), actual), f"{place}: was sent {actual}"
    elif verb == "!":
        end = room.ends[name]
        assert not end.heard, f"{place}: was sent {end.heard}"
        assert not end.is_open, f"{place}: is open"
        closed.add(name)
    elif verb == ".":
        closed.add(name)
        room.close(room.ends[name])
    else:
        raise AssertionError(f"{place}: not a step")
