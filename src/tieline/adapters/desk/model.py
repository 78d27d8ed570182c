"""All that the desk knows, and how it is brought up to date; it draws nothing.

Theory. What is told from below only marks a part as old and notes a line for the person. Each part is then
read anew, one reading at a time and at most so often, so that a thousand arrivals are a few readings.

Rule 1: a callback from below marks and returns; the screen's owner reads and draws.
Rule 2: a person is told of a thing once, in one line.
Rule 3: a part that cannot be read keeps what it had, and says why.

Source: reference/native.md 1N (126), 2.10 "Notifications"; DESIGN.md 4.
"""

from collections.abc import Callable
from typing import Any

from tieline.adapters.desk.agents import Agents
from tieline.adapters.desk.past import query_of
from tieline.adapters.desk.port import Port
from tieline.adapters.desk.talk import Talk
from tieline.adapters.desk.words import named, safe, state_words
from tieline.errors import TielineError
from tieline.runtime.timeline import TimelinePage
from tieline.text import printable

__all__ = ["PARTS", "Model"]

PARTS = ("agents", "talk", "resources", "waits", "timeline")
PAGES_MAX = 1_000
TOLD_MAX = 10_000
NOTES_MAX = 100
_QUIET = frozenset({"pending", "accepted", "unknown"})


class Model:
    """The parts of a desk."""

    def __init__(self, port: Port, old: Callable[[str], None]) -> None:
        """Read through `port`; call `old` with a part's name when it has to be read anew."""
        self.port, self._old = port, old
        self.who = port.who()
        self.agents = Agents()
        self.talk = Talk(str(self.who["peerId"]))
        self.resources: list[dict[str, Any]] = []
        self.waits: dict[str, Any] = {}
        self.page = TimelinePage(())
        self.searched = ""
        self.note = ""
        self.notes: list[str] = []
        self._told: dict[tuple[str, ...], None] = {}
        self._rings: frozenset[tuple[str, ...]] = frozenset()
        self._is_first = True

    # ------------------------------------------------------------ being told

    def told(self, kind: str, params: dict[str, Any]) -> None:
        """Mark what an event from below is about; nothing is drawn here."""
        event = params.get("event") or {}
        if kind == "resource_update":
            self._old("resources")
            key = ("resource", str(event.get("resource")), str(event.get("sequence")))
            self._say_once(key, _resource(event))
        elif event.get("type") == "wait_cycle":
            self._old("waits")
        elif kind == "peer_update":
            self._old("talk")
            if event.get("type") == "receipt":
                self._receipt(event)

    def _receipt(self, event: dict[str, Any]) -> None:
        state = str(event.get("state"))
        if event.get("from") != self.who["peerId"] or state in _QUIET:
            return
        outcome = (event.get("receipt") or {}).get("outcome")
        name = self.agents.alias(str(event.get("to")))
        said = f"Your message to {named(name)}: {state_words(state, outcome)}"
        self._say_once(("receipt", str(event.get("messageId")), state), said)

    def _say_once(self, key: tuple[str, ...], text: str) -> None:
        if key in self._told:
            return
        self._told[key] = None
        while len(self._told) > TOLD_MAX:
            del self._told[next(iter(self._told))]
        self.say(text)

    def say(self, text: str) -> None:
        """Show the person one line; it takes the place of the one before."""
        self.note = safe(" ".join(text.split()))
        self.notes = [*self.notes, self.note][-NOTES_MAX:]
        self._old("note")

    def fail(self, error: TielineError) -> None:
        """Show the person what was refused, and what to do next."""
        self.say(f"{error.code}: {error}. Next: {error.action}.")

    # ------------------------------------------------------------ reading

    async def read(self, part: str) -> bool:
        """Read one part anew; return whether there is something to draw.

        Raises:
            TielineError: it could not be read; what was known stays.
        """
        match part:
            case "agents":
                return await self._agents()
            case "talk":
                return await self._talk()
            case "resources":
                found = (await self.port.call("resource.list"))["resources"]
                is_new, self.resources = bool(found != self.resources), found
                return is_new or bool(found)
            case "waits":
                return await self._waits()
            case _:
                query, wrong = query_of(self.searched, self.port.day_ms())
                if wrong:
                    self.say(wrong)
                self.page = await self.port.timeline(query)
                return True

    async def _agents(self) -> bool:
        peers: list[dict[str, Any]] = []
        page: dict[str, Any] = {}
        cursor: str | None = None
        for _ in range(PAGES_MAX):
            page = await self.port.call("list_peers", scope="all", cursor=cursor)
            peers += page["peers"]
            cursor = page.get("cursor")
            if cursor is None:
                break
        self.agents.faults_count = int(page.get("presenceFaults") or 0)
        before = set(self.agents.peers)
        is_new = self.agents.told(page["self"], peers)
        business = self.talk.business()
        for peer_id in sorted(before - set(self.agents.peers)):
            if peer_id in business:
                name = named(self.agents.alias(peer_id))
                self._say_once(("gone", peer_id), f"{name} has ended; {_left(business[peer_id])} stays here")
        return is_new or bool(peers)

    async def _talk(self) -> bool:
        is_first, self._is_first = self._is_first, False
        is_new = False
        for _ in range(PAGES_MAX):
            page = await self.port.call("local.conversations", after=self.talk.cursor)
            self.talk.cursor = page["cursor"]
            fresh = self.talk.told(page["messages"])
            is_new = is_new or bool(page["messages"])
            for message in () if is_first else fresh:
                key = ("message", str(message["from"]), str(message["messageId"]))
                self._say_once(key, self._arrival(message))
            if not page["remaining"]:
                return is_new
        return is_new

    def _arrival(self, message: dict[str, Any]) -> str:
        what = "Held for your word: from" if message["isHeld"] else "Message from"
        if message.get("ask") and not message["isHeld"]:
            what = "Question from"
        elif message.get("replyTo") and not message["isHeld"]:
            what = "Answer from"
        alias = message.get("fromAlias") or self.agents.alias(str(message["from"]))
        project = f" · {message['fromProject']}" if message.get("fromProject") else ""
        return f"{what} {named(alias)}{printable(project, 24)} · 2 shows it"

    async def _waits(self) -> bool:
        found = await self.port.waits()
        is_new, self.waits = found != self.waits, found
        rings = frozenset(
            tuple(str(peer["peerId"]) for peer in ring["peers"]) for ring in found.get("cycles") or ()
        )
        for ring in found.get("cycles") or ():
            if tuple(str(peer["peerId"]) for peer in ring["peers"]) not in self._rings:
                self.say(f"RING of waits: {ring['text']} · 4 shows how to break it")
        for gone in self._rings - rings:
            names = ", ".join(":" + self.agents.alias(peer) for peer in gone)
            self.say(f"The ring of {names} is broken")
        self._rings = rings
        return is_new or bool(found.get("waits"))


def _resource(event: dict[str, Any]) -> str:
    return f"{event.get('resource')}: {event.get('state')} {event.get('note') or ''}"


def _left(business: str) -> str:
    return {"asks you": "its unanswered question", "held": "its held message"}.get(business, "its mail")
