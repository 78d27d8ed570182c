"""What must hold in every history of a place; it reads the history, and calls nothing of the product.

Rule 1: frames are judged against what each socket itself registered, replayed in the order they were heard.
Rule 2: a check that never had anything to check counts nothing: `counts` says how often each did.

Source: reference/reliability.md I30, I39, I41, I42, I44; reference/intercom.md 3, 4.2, 5.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from tests.sim.history import Entry

__all__ = ["INVARIANTS", "Verdict", "check"]

INVARIANTS = ("I4", "I30", "I39", "I41", "I42", "I44", "mail")
NOT_FOUND = "Session not found"


class Verdict(NamedTuple):
    """What was broken, and how often each was looked at."""

    violations: list[tuple[str, str]]
    counts: Counter[str]


class _Placed(NamedTuple):
    root: str
    is_child: bool


class _Session:
    """One registration, as its socket made it."""

    def __init__(self, frame: dict[str, Any], link: int, gen: int) -> None:
        told = frame["session"]
        root, parent = told.get("rootSessionId"), told.get("parentSessionId")
        self.place = _Placed(root if root is not None else f"own {gen}/{link}", parent is not None)
        self.told_root = root
        self.incarnation, self.guard = told.get("incarnation"), told.get("applicationGuard")
        self.wanted = frame.get("requestedId")
        self.is_guarded = frame.get("guardedDelivery") == 1 and self.incarnation is not None
        self.id = ""

    def sees(self, other: _Placed) -> bool:
        """Return whether this one may know of another."""
        return (not self.place.is_child and not other.is_child) or self.place.root == other.root


class _Check:
    """One pass over one history."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.verdict = Verdict([], Counter())
        self.granted: dict[tuple[int, int], str] = {}
        self.places: dict[str, list[_Placed]] = {}
        self.answers: dict[tuple[int, int, str], dict[str, Any]] = {}
        self.live: dict[tuple[int, int], _Session] = {}
        self.all: dict[tuple[int, int], _Session] = {}
        self.parked: dict[str, _Placed] = {}
        self.owed: dict[str, str] = {}
        self.guarded: dict[str, dict[str, Any]] = {}

    def run(self) -> Verdict:
        """Judge everything."""
        self._learn()
        self._claims()
        self._replay()
        self._members()
        self._crossing()
        self._mail()
        return self.verdict

    def wrong(self, name: str, text: str) -> None:
        """Note a violation."""
        self.verdict.violations.append((name, text))

    def _of(self, *events: str) -> Iterable[Entry]:
        return (entry for entry in self.entries if entry.event in events)

    def _learn(self) -> None:
        """Learn which id each socket got, told or not, and what each send was told."""
        for entry in self._of("ordered"):
            for link, session_id in entry.data["granted"]:
                self.granted[entry.data["gen"], link] = session_id
        for entry in self._of("said"):
            data, frame = entry.data, entry.data["frame"]
            key = data["gen"], data["link"]
            if frame["type"] == "registered" and frame["sessionId"] != self.granted[key]:
                self.wrong("I44", f"{key} was told another id than its own: {frame}")
            elif frame["type"] in ("delivered", "delivery_queued", "delivery_failed"):
                self.answers[(*key, frame["messageId"])] = frame

    # ------------------------------------------------------------ I39

    def _claims(self) -> None:
        """One generation takes registrations at a time, and a number is never used again."""
        holder, last = 0, 0
        for entry in self.entries:
            if entry.event == "claimed":
                if holder or entry.data["gen"] <= last:
                    self.wrong("I39", f"generation {entry.data['gen']} beside {holder}")
                holder = last = entry.data["gen"]
            elif entry.event == "freed":
                holder = 0
            elif entry.event == "said":
                self.verdict.counts["I39"] += 1
                if entry.data["gen"] != holder:
                    self.wrong("I39", f"generation {entry.data['gen']} spoke while {holder} held the place")
            elif entry.event == "ordered" and entry.data["late"]:
                self.verdict.counts["I39"] += 1
                if entry.data["told"] or entry.data["rows"]:
                    self.wrong("I39", f"a late frame of {entry.root} {entry.data['link']} had an effect")

    def _members(self) -> None:
        """A connection that was given up settles and offers nothing; an attempt ends once, where it began."""
        gone: set[tuple[str, int]] = set()
        settled: set[tuple[str, int]] = set()
        for entry in self._of("gave_up", "offered", "settled"):
            connection = entry.data["connection"]
            if entry.event == "gave_up":
                gone.add((entry.root, connection))
                continue
            self.verdict.counts["I39"] += 1
            if (entry.root, connection) in gone:
                self.wrong("I39", f"{entry.root} heeded {connection} after it was given up: {entry.data}")
            if entry.event == "settled":
                self.verdict.counts["I4"] += 1
                key = entry.root, entry.data["attempt"]
                if key in settled:
                    self.wrong("I4", f"{entry.root} settled attempt {key[1]} twice")
                settled.add(key)

    # ------------------------------------------------------------ the broker, replayed

    def _replay(self) -> None:
        for entry in self._of("heard", "lost", "died", "ordered", "said"):
            gen = entry.data.get("gen")
            if gen is None:
                continue
            key = gen, entry.data.get("link", 0)
            if entry.event == "died":
                self.live = {one: session for one, session in self.live.items() if one[0] != gen}
            elif entry.event == "lost":
                self.live.pop(key, None)
            elif entry.event == "ordered":
                self._closes(entry)
            elif entry.event == "said":
                self._said(entry, key)
            elif not entry.data["late"]:
                self._heard(entry.data["frame"], key)

    def _closes(self, entry: Entry) -> None:
        """Nobody is closed for what another one did."""
        for link in entry.data["closes"]:
            key = entry.data["gen"], link
            if link != entry.data["link"] and key in self.live:
                self.wrong("I44", f"{entry.root} closed {link}, which had its session")

    def _heard(self, frame: dict[str, Any], key: tuple[int, int]) -> None:
        session = self.live.get(key)
        match frame["type"]:
            case "register":
                self._registers(frame, key)
            case "presence" if session is not None and "applicationGuard" in frame:
                session.guard = frame["applicationGuard"]
            case "unregister" if session is not None:
                del self.live[key]
                if frame.get("parked") and session.place.is_child:
                    self.parked[session.id] = session.place
            case "send" if session is not None:
                answer = self.answers.get((*key, frame["message"]["id"]))
                if answer is not None:
                    self._sends(session, frame, answer, key[0])

    def _registers(self, frame: dict[str, Any], key: tuple[int, int]) -> None:
        session = _Session(frame, key[1], key[0])
        session.id = self.granted.get(key, "")
        holder = [one for one in self.live.values() if session.id and one.id == session.id]
        self.verdict.counts["I44"] += any(one.id == session.wanted for one in self.live.values())
        if holder:
            self.wrong("I44", f"{key} was granted {session.id}, which lives")
        kept = self.parked.get(session.id)
        if kept == session.place:
            del self.parked[session.id]
        elif kept is not None and session.id in self.owed.values():
            self.wrong("I44", f"{session.id} was granted to a stranger while mail waits for it")
        self.live[key] = self.all[key] = session
        if session.id:
            self.places.setdefault(session.id, []).append(session.place)

    def _sends(self, sender: _Session, frame: dict[str, Any], answer: dict[str, Any], gen: int) -> None:
        to, message = frame["to"], frame["message"]
        targets = [one for key, one in self.live.items() if key[0] == gen and one.id == to]
        seen = [one for one in targets if sender.sees(one.place)]
        is_failed = answer["type"] == "delivery_failed"
        away = self.parked.get(to)
        if "guard" in message:
            self._guarded(sender, message, seen, is_failed=is_failed)
        elif not seen and (away is None or not sender.sees(away)) and to.startswith("pi-"):
            self.verdict.counts["I42"] += 1
            if answer != {"type": "delivery_failed", "messageId": message["id"], "reason": NOT_FOUND}:
                self.wrong("I42", f"{to} is not for {sender.id}, which was told {answer}")
        elif seen and is_failed:
            self.wrong("I42", f"{sender.id} sees {to} and was refused: {answer}")
        elif away is not None and not seen and not is_failed:
            self.owed[message["id"]] = to

    def _guarded(
        self, sender: _Session, message: dict[str, Any], seen: list[_Session], *, is_failed: bool
    ) -> None:
        """Routed if, and only if, the whole guard holds of the one main of its root."""
        guard = message["guard"]
        self.guarded[message["id"]] = guard
        self.verdict.counts["I41"] += 1
        mains = [
            one
            for one in self.live.values()
            if one.told_root == guard["rootSessionId"] and not one.place.is_child and sender.sees(one.place)
        ]
        is_whole = len(mains) == 1 and any(
            one.is_guarded
            and not one.place.is_child
            and (one.id, one.told_root, one.incarnation, one.guard)
            == (guard["peerId"], guard["rootSessionId"], guard["incarnation"], guard["applicationGuard"])
            for one in seen
        )
        self.verdict.counts["I41 whole"] += is_whole
        if is_whole == is_failed:
            said = "refused" if is_failed else "routed"
            self.wrong("I41", f"{message['id']} was {said} by the broker: {guard}")

    def _said(self, entry: Entry, key: tuple[int, int]) -> None:
        """Nobody is told of whom it may not know; the group that is shown is the one that was registered."""
        reader = self.live.get(key) or self.all.get(key)
        if reader is None:
            return
        frame = entry.data["frame"]
        rows = [*frame.get("sessions", ()), *([frame["from"]] if "from" in frame else [])]
        named = [row["id"] for row in rows]
        if frame["type"] in ("session_left", "wake_request"):
            named.append(frame["sessionId"])
        for session_id in named:
            self.verdict.counts["I42"] += 1
            places = self.places.get(session_id, [])
            if not any(reader.sees(place) for place in places):
                self.wrong("I42", f"{entry.data['who']} was told of {session_id} by {frame['type']}")
        for row in rows:
            if "rootSessionId" in row:
                self.verdict.counts["I44"] += 1
                told = _Placed(row["rootSessionId"], "parentSessionId" in row)
                if told not in self.places.get(row["id"], []):
                    self.wrong("I44", f"{row['id']} is shown as of {told}, which it did not register")

    # ------------------------------------------------------------ recipients

    def _mail(self) -> None:
        """What waits arrives; a guarded message is offered if, and only if, its guard holds there too."""
        came: dict[str, set[str]] = {}
        offered = {(entry.root, entry.data["message"]) for entry in self._of("offered")}
        given_up: set[tuple[str, int]] = set()
        for entry in self._of("heard", "gave_up"):
            if "gen" in entry.data:
                continue
            connection = entry.root, entry.data["connection"]
            if entry.event == "gave_up":
                given_up.add(connection)
                continue
            frame = entry.data["frame"]
            if frame["type"] != "message" or connection in given_up:
                continue
            message = frame["message"]
            came.setdefault(message["id"], set()).add(entry.root)
            if message["id"] in self.guarded:
                self._arrives(
                    entry, self.guarded[message["id"]], is_offered=(entry.root, message["id"]) in offered
                )
        for message_id, child in self.owed.items():
            self.verdict.counts["mail"] += 1
            if message_id not in came:
                self.wrong("mail", f"{message_id} was taken for {child}, which never got it")

    def _arrives(self, entry: Entry, guard: dict[str, Any], *, is_offered: bool) -> None:
        self.verdict.counts["I41"] += 1
        own = entry.data
        is_whole = (own["group"], own["peer"], own["incarnation"], own["guard"]) == (
            guard["rootSessionId"],
            guard["peerId"],
            guard["incarnation"],
            guard["applicationGuard"],
        )
        self.verdict.counts["I41 changed"] += not is_whole
        if is_whole != is_offered:
            self.wrong("I41", f"{entry.root} {'took' if is_offered else 'left'} a guarded message: {guard}")

    def _crossing(self) -> None:
        """Of two questions that crossed, not both are taken while both models wait."""
        asks: dict[str, str] = {}
        for entry in self._of("asks"):
            asks[entry.data["message"]] = entry.root
        taken: list[tuple[str, str, list[str]]] = []
        for entry in self._of("took"):
            message = entry.data["message"]
            if message not in asks:
                continue
            for by, other, waits in taken:
                if by != asks[message] or asks[other] != entry.root:
                    continue
                self.verdict.counts["I30"] += 1
                if other in entry.data["waits"] and message in waits:
                    self.wrong("I30", f"{entry.root} and {by} wait for each other: {message}, {other}")
            taken.append((entry.root, message, entry.data["waits"]))
        for entry in self._of("turned_away"):
            self.verdict.counts["I30"] += entry.data["code"] == "RESOURCE_BUSY"


def check(entries: list[Entry]) -> Verdict:
    """Return what is broken in a history."""
    return _Check(entries).run()
