"""An editor, an agent and the proxy between them: every byte, and never two prompts, whatever comes when."""

import asyncio
import json
import os
import random
from collections.abc import Awaitable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.adapters.fake_root import FakeReply, FakeRoot
from tieline.adapters.acp import frames
from tieline.adapters.acp.proxy import Proxy
from tieline.adapters.acp.session import Session
from tieline.adapters.acp.splice import append, put
from tieline.adapters.acp.streams import lines
from tieline.runtime.host import Host

# --- bytes ------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
METHODS = (
    "session/prompt",
    "session/cancel",
    "session/close",
    "session/update",
    "initialize",
    "$/cancel_request",
    "x",
)
FRAMES = st.fixed_dictionaries(
    {},
    optional={
        "id": JSON,
        "method": st.sampled_from(METHODS) | JSON,
        "params": st.fixed_dictionaries({}, optional={"sessionId": JSON, "requestId": JSON, "update": JSON})
        | JSON,
        "result": JSON,
        "error": JSON,
    },
)
LINES = (
    st.binary(max_size=40) | FRAMES.map(lambda frame: json.dumps(frame).encode()) | st.just(b"x" * 200_000)
)
ENDS = st.sampled_from((b"\n", b"\r\n", b"\n\n", b" \n", b""))
TEXTS = st.lists(st.tuples(LINES, ENDS), max_size=8).map(lambda told: b"".join(a + b for a, b in told))


class Pieces:
    """Gives a text in pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = [one for one in pieces if one]

    async def read(self, _bytes_max: int, /) -> bytes:
        return self.pieces.pop(0) if self.pieces else b""


@given(st.binary(max_size=60) | TEXTS.map(lambda text: text[:400]), st.data())
def test_lines_are_the_stream_however_it_was_cut(text: bytes, data: st.DataObject) -> None:
    """Together they are what came; each but the last has one end, at its end."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    ways = [[text], [text[at : at + 1] for at in range(len(text))]]
    ways.append([text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)])

    async def read(pieces: list[bytes]) -> list[bytes]:
        return [one async for one in lines(Pieces(pieces))]

    for way in ways:
        found = asyncio.run(read(way))
        assert found == text.splitlines(keepends=True) if b"\r" not in text else b"".join(found) == text
        assert all(one.index(b"\n") == len(one) - 1 for one in found[:-1])


async def through(text: bytes) -> bytes:
    """Return what a client reads whose agent says what it hears."""
    inner, outer = os.pipe(), os.pipe()

    def write() -> None:
        with open(inner[1], "wb") as client:
            client.write(text)

    def read() -> bytes:
        with open(outer[0], "rb") as client:
            return client.read()

    async def proxy() -> None:
        assert await Proxy(inner[0], outer[1], ["cat"], "", "", FakeRoot().open).run() == 0
        os.close(outer[1])

    async with asyncio.TaskGroup() as group:
        group.create_task(proxy())
        group.create_task(asyncio.to_thread(write))
        found = group.create_task(asyncio.to_thread(read))
    os.close(inner[0])
    return found.result()


@settings(max_examples=25)
@given(TEXTS)
def test_what_makes_no_session_passes_to_the_byte_in_both_directions(text: bytes) -> None:
    """Whatever it is: no JSON, no text, no end, a method of the protocol with anything in it."""
    assert asyncio.run(through(text)) == text


@given(JSON, st.lists(st.text(max_size=3), min_size=1, max_size=3), JSON, st.sampled_from((None, 1)))
def test_member_that_is_put_is_read_and_nothing_else_changes(
    document: Any, path: list[str], value: Any, indent: int | None
) -> None:
    """For every reader of JSON."""
    whole = document if isinstance(document, dict) else {"d": document}
    at = expected = json.loads(json.dumps(whole))
    for name in path[:-1]:
        if not isinstance(at.get(name), dict):
            at[name] = {}
        at = at[name]
    at[path[-1]] = value
    for escaped in (True, False):
        data = json.dumps(whole, indent=indent, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
        if escaped or "\\ud" not in json.dumps(whole):
            assert json.loads(put(data, tuple(path), json.dumps(value))) == expected
    given_list = json.dumps({"l": [document]}, indent=indent).encode()
    assert json.loads(append(given_list, ("l",), json.dumps(value))) == {"l": [document, value]}


# --- prompts ----------------------------------------------------------------------------------

STEPS = (
    "prompt",
    "cancel",
    "withdraw",
    "mail",
    "queued",
    "update",
    "end",
    "end",
    "refuse",
    "again",
    "rest",
    "pass",
    "pass",
)


class Keeper:
    """A root in no hurry, with the mail of one session."""

    def __init__(self, world: "World", *, is_automatic: bool) -> None:
        self.host = Host(is_automatic=is_automatic)
        self.mail: list[str] = []
        self.tokens: dict[str, str] = {}
        self.read: list[str] = []
        self.world, self.root = world, FakeRoot()
        names = ("state", "user_prompt", "boundary", "taken", "refused", "answer")
        self.root.operations.answers = {f"host.{name}": getattr(self, name) for name in names}

    async def state(self, params: dict[str, Any]) -> FakeReply:
        paused = params.get("paused")
        has_pause = paused is not None or params.get("resumed", False)
        self.host.state(is_busy=params.get("busy"), pause=paused, has_pause=has_pause)
        return await self.nothing(params)

    async def nothing(self, _params: object) -> FakeReply:
        await self.world.tarry()
        return FakeReply({})

    user_prompt = answer = nothing

    async def boundary(self, _params: object) -> FakeReply:
        self.host.is_wake_out = False
        await self.world.tarry()
        text = self.mail.pop(0) if self.mail else ""
        token = f"token of {text}" if text else None
        if token is not None:
            self.tokens[token] = text
        await self.world.tarry()
        return FakeReply({"text": text, "token": token})

    async def taken(self, params: dict[str, Any]) -> FakeReply:
        await self.world.tarry()
        self.read.append(self.tokens.pop(params["token"]))
        return FakeReply({})

    async def refused(self, params: dict[str, Any]) -> FakeReply:
        await self.world.tarry()
        self.mail.insert(0, self.tokens.pop(params["token"]))
        return FakeReply({})

    def arrive(self, text: str, *, is_steering: bool) -> None:
        self.mail.append(text)
        if self.host.may_wake(is_steering=is_steering):
            self.host.is_wake_out = True
            for callback in list(self.root.operations.callbacks):
                callback("wake", {})


class World:
    """One session between a client, an agent that a second prompt would cancel, and its root."""

    def __init__(self, seed: int, *, is_automatic: bool) -> None:
        self.chance, self.is_automatic = random.Random(seed), is_automatic
        self.flight: list[Any] = []  # ids of the prompts that the agent works on
        self.asked: list[int] = []
        self.given: list[int] = []
        self.answered: list[Any] = []
        self.may_rest = False  # the agent refused mail, or was cancelled: nothing is tried again by itself
        self.count = 0
        self.works: set[asyncio.Task[None]] = set()
        self.session = self.made()

    def made(self) -> Session:
        self.keeper = Keeper(self, is_automatic=self.is_automatic)
        session = Session(self.keeper.root, self.to_agent, self.to_client, self.start)
        session.id = "s"
        return session

    def start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self.works.add(task)
        task.add_done_callback(self.works.discard)

    async def tarry(self) -> None:
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(0)

    # The agent and the client.

    async def to_agent(self, data: bytes) -> None:
        for line in data.splitlines():
            frame = json.loads(line)
            if frame["method"] != "session/prompt":
                continue
            is_ours = frames.is_ours(frame["id"])
            assert not any(map(frames.is_ours, self.flight)), "a prompt came while ours was in flight"
            assert not (is_ours and self.flight), "ours came while another was in flight"
            self.flight.append(frame["id"])
            if not is_ours:
                self.given.append(frame["id"])
        await self.tarry()

    async def to_client(self, data: bytes) -> None:
        self.answered.append(json.loads(data)["id"])
        await self.tarry()

    def ends(self, answer: dict[str, Any]) -> None:
        """The agent ends the oldest of its prompts."""
        if not self.flight:
            return
        frame = {"id": self.flight.pop(0), **answer}
        if frames.is_ours(frame["id"]):
            self.may_rest |= "error" in answer
            if self.session.owns(frame["id"]):
                self.start(self.session.answered(frame))
            return
        self.answered.append(frame["id"])
        if self.session.has(frame["id"]):
            self.start(self.session.answered(frame))

    async def step(self, name: str) -> None:
        if name == "prompt":
            self.count += 1
            self.asked.append(self.count)
            self.may_rest = False
            line = {"id": self.count, "method": "session/prompt", "params": {"sessionId": "s"}}
            await self.session.prompted(self.count, json.dumps(line).encode() + b"\n")
        elif name == "cancel":
            self.may_rest = True
            await self.session.cancel(b'{"method":"session/cancel"}\n')
        elif name == "withdraw" and self.asked:
            await self.session.withdraw(self.asked[-1])
        elif name in ("mail", "queued"):
            self.count += 1
            self.keeper.arrive(f"mail {self.count}", is_steering=name == "mail")
        elif name == "update":
            self.session.updated({"sessionUpdate": "tool_call"})
        elif name == "end":
            self.ends({"result": {"stopReason": "end_turn"}})
        elif name == "refuse":
            self.ends({"error": {"code": -1}})
        elif name == "again":
            again = self.made()
            again.id = ""
            self.session.adopt(again)
            assert self.session.root is self.keeper.root
            self.start(again.close())
        elif name == "rest":
            await self.rest()
        else:
            await asyncio.sleep(0)

    async def rest(self) -> None:
        while self.works:
            await asyncio.gather(*self.works)

    async def end(self) -> None:
        """Let the agent end all it works on."""
        await self.rest()
        while self.flight:
            self.ends({"result": {"stopReason": "end_turn"}})
            await self.rest()


@pytest.mark.parametrize("is_automatic", [True, False])
@given(st.lists(st.sampled_from(STEPS), max_size=30), st.integers(0, 1_000_000))
def test_agent_has_one_prompt_every_prompt_has_one_answer_and_no_mail_is_left_lying(
    is_automatic: bool, steps: list[str], seed: int
) -> None:
    """In every order of prompts, cancels, mail, ends and refusals, with a root that takes its time."""

    async def live() -> World:
        world = World(seed, is_automatic=is_automatic)
        for name in steps:
            await world.step(name)
        await world.end()
        return world

    world = asyncio.run(live())
    assert sorted(world.answered) == world.asked, "each prompt has one answer"
    assert world.given == sorted(world.given), "prompts keep their order"
    keeper = world.keeper
    assert not keeper.host.is_busy, "the root knows that the agent is idle"
    assert not world.session.is_busy
    assert len(keeper.read) == len(set(keeper.read)), "mail counts as read once"
    assert not keeper.tokens, "what was shown is taken or refused"
    if is_automatic and not world.may_rest:
        assert not keeper.mail, "the agent is idle, and mail waits"
