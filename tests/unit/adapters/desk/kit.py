"""A root below the desk that is a table of facts, and the shapes that it tells."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from textual.pilot import Pilot
from textual.widgets import Static

from tieline.adapters.desk.app import Desk
from tieline.adapters.desk.lines import Lines
from tieline.adapters.desk.writing import Writer
from tieline.errors import Refused
from tieline.runtime.timeline import PeerName, ReceiptStep, TimelineEntry, TimelinePage, TimelineQuery

OWN = "peer-" + "0" * 32
NOW_MS = 1_780_000_000_000  # 2026-05-28T20:26:40Z
INBOX = ["message.send", "message.receive"]


def peer(alias: str, number: int = 1, **facts: Any) -> dict[str, Any]:
    """Return a peer as a listing shows it."""
    return {
        "peerId": f"peer-{number:032x}",
        "instanceId": f"instance-{number}",
        "alias": alias,
        "project": "shop",
        "kind": "root",
        "activity": "idle",
        "availability": "available",
        "capabilities": INBOX,
        "scope": "workspace",
        "wire": "native",
        "harness": "codex",
        "model": "gpt-5",
        "busy": False,
        "contextPercent": 40,
        "ageMs": 1_000,
        **facts,
    }


def iso(ms: int) -> str:
    """Return wall milliseconds as the shapes write them."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms // 1_000)) + f".{ms % 1_000:03d}Z"


def message(
    message_id: str,
    content: str | None = "hello",
    *,
    sender: str = "peer-" + f"{1:032x}",
    to: str = OWN,
    alias: str = "api",
    state: str = "accepted",
    at_ms: int = NOW_MS,
    **facts: Any,
) -> dict[str, Any]:
    """Return a message as `local.conversations` shapes it."""
    is_received = to == OWN
    shape: dict[str, Any] = {
        "messageId": message_id,
        "from": sender,
        "fromAlias": alias if is_received else "me",
        "to": to,
        "delivery": "steer",
        "ask": False,
        "content": content,
        "isReceived": is_received,
        "isHeld": False,
        "isUnread": is_received and state == "accepted",
        "at": iso(at_ms),
        "chain": facts.get("replyTo") or message_id,
        "wire": "native",
        "receipt": {"messageId": message_id, "from": sender, "to": to, "state": state, "cursor": "1"},
        "said": "The recipient replied." if state == "replied" else "Accepted: it has not been read yet.",
        "steps": [{"state": state, "at": iso(at_ms)}],
        **facts,
    }
    return {name: value for name, value in shape.items() if value is not None}


def entry(text: str, number: int = 1, **facts: Any) -> TimelineEntry:
    """Return a line of the timeline."""
    whole: dict[str, Any] = {
        "at_ms": NOW_MS + number,
        "message_id": f"m-{number}",
        "sender": PeerName("peer-a", "api"),
        "recipient": PeerName("peer-b", "db"),
        "topic": None,
        "text": text,
        "state": "accepted",
        "outcome": None,
        "reply_to": None,
        "correlation": f"m-{number}",
        "thread": None,
        "receipts": (ReceiptStep("pending", NOW_MS), ReceiptStep("accepted", NOW_MS + number)),
        "wire": "native",
        "root": "r",
        "place": f"{number}-x",
    }
    return TimelineEntry(**{**whole, **facts})


class FakePort:
    """The port of a root that is not there."""

    def __init__(self, **facts: Any) -> None:
        self.peers: list[dict[str, Any]] = []
        self.messages: list[dict[str, Any]] = []
        self.resources: list[dict[str, Any]] = []
        self.view: dict[str, Any] = {"waits": [], "cycles": []}
        self.page = TimelinePage(())
        self.queries: list[TimelineQuery] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, Any] = {}
        self.shape: dict[str, Any] = {}
        self.exports: dict[str, str] = {}
        self.recovered: list[tuple[str, str, str]] = []
        self.changed: set[str] = set()
        self.cursor = 0
        self.told: list[Callable[[str, dict[str, Any]], None]] = []
        for name, value in facts.items():
            setattr(self, name, value)

    def who(self) -> dict[str, Any]:
        return {
            "peerId": OWN, "instanceId": "own", "alias": "me", "project": "shop", "scope": "workspace",
        }  # fmt: skip

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        self.calls.append((method, params))
        if method == "list_peers":
            return {"self": {"peerId": OWN, "alias": "me"}, "peers": [dict(one) for one in self.peers]}
        if method == "local.conversations":
            fresh = [dict(one) for one in self.messages[self.cursor :]]
            self.cursor = len(self.messages)
            return {
                "messages": fresh,
                "held": [],
                "cursor": str(self.cursor),
                "remaining": False,
                "gap": False,
            }
        if method == "resource.list":
            return {"resources": self.resources}
        answer = self.answers.get(method, {})
        if isinstance(answer, Exception):
            raise answer
        if method == "local.send" and not answer:
            return {"errors": [], "receipts": [{"state": "accepted", "text": "Accepted: it is on disk."}]}
        return dict(answer)

    def subscribe(self, told: Callable[[str, dict[str, Any]], None]) -> Callable[[], None]:
        self.told.append(told)
        return lambda: self.told.remove(told)

    def changes(self) -> frozenset[str]:
        changed, self.changed = frozenset(self.changed), set()
        return changed

    async def timeline(self, query: TimelineQuery) -> TimelinePage:
        self.queries.append(query)
        return self.page

    async def waits(self) -> dict[str, Any]:
        return self.view

    async def evidence(self, key: str, launch: str) -> list[str]:
        return [f"launch {launch} holds {key}", "together: unknown"]

    async def recover(self, key: str, launch: str, said: str) -> None:
        self.recovered.append((key, launch, said))

    async def export(self, name: str, text: str) -> str:
        self.exports[name] = text
        return "/home/me/.tieline/desk/" + name

    def kept(self) -> dict[str, Any]:
        return self.shape

    def keep(self, shape: dict[str, Any]) -> None:
        self.shape = shape

    def now_ms(self) -> int:
        return NOW_MS

    def clock(self, at_ms: int) -> str:
        return iso(at_ms)[11:19]

    def day_ms(self) -> int:
        return 0

    # ------------------------------------------------------------ for tests

    def arrive(self, *messages: dict[str, Any]) -> None:
        """Let mail come, and tell of it."""
        self.messages += messages
        for one in messages:
            self.tell("peer_update", {"event": {"type": "message", "messageId": one["messageId"]}})

    def tell(self, kind: str, params: dict[str, Any]) -> None:
        for told in list(self.told):
            told(kind, params)

    def sent(self, method: str = "local.send") -> list[dict[str, Any]]:
        return [params for name, params in self.calls if name == method]


@asynccontextmanager
async def desk(
    port: FakePort | None = None, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[tuple[Desk, Pilot[int], FakePort]]:
    """Give a desk that has read all of its parts."""
    port = FakePort() if port is None else port
    app = Desk(port)
    async with app.run_test(size=size) as pilot:
        await settle(app, pilot)
        yield app, pilot, port


async def settle(app: Desk, pilot: Pilot[int]) -> None:
    """Return when nothing is old, read or on its way any more."""
    for _ in itertools.repeat(None, 200):
        await pilot.pause()
        if not app._old and not app._reading and app._pause is None and not app.workers._workers:
            await pilot.pause()
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the desk does not come to rest")


def shown(app: Desk) -> str:
    """Return all of the screen as text."""
    width, height = app.size
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text[:width] for strip in strips[:height])


def text_of(app: Desk, selector: str) -> str:
    """Return what a line around the panes says."""
    return str(app.screen_stack[0].query_one(selector, Static).render()).strip()


def writer(app: Desk) -> Writer:
    """Return the composer."""
    return app.screen_stack[0].query_one(Writer)


def keys_of(app: Desk, part: str) -> list[Any]:
    """Return the keys of a list."""
    return list(app.screen_stack[0].query_one(f"#{part}-list", Lines).keys)


def refusal(code: str) -> Refused:
    """Return what a root may refuse with."""
    return Refused(code, "it was refused")
