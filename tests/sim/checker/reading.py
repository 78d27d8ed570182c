"""A history, read once: what each root's store durably held and when, and who said what to whom.

Rule 1: the order of the history's entries is the order of cause; every fact keeps its place in it.
Rule 2: nothing here judges.

Source: reference/reliability.md 2.1, 2.4.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tests.sim.history import Entry

__all__ = ["Answered", "Fact", "Group", "Reading", "Told", "Words"]

Data = dict[str, Any]
Key = tuple[str, str, str]  # sender instance, message id, recipient peer id
NOT_YET = 1 << 60


class Group:
    """Rows that were to be stored together; `stored_at` is a place in the history, or NOT_YET."""

    __slots__ = ("admits", "asked_at", "at_ms", "outcome", "reserve", "rows", "stored_at")

    def __init__(self, place: int, entry: Entry) -> None:
        self.asked_at = place
        self.at_ms = entry.at_ms
        self.rows: list[Data] = entry.data["rows"]
        self.admits: bool = entry.data["admits"]
        self.reserve: int = entry.data["reserve"]
        self.stored_at = NOT_YET
        self.outcome = ""


class Fact(NamedTuple):
    """One durable row: the places where it was decided and stored, its monotonic moment, its content."""

    asked_at: int
    stored_at: int
    at_ms: int
    row: Data


class Words(NamedTuple):
    """One frame at one root's port: the root, the line, who truly is at the other end."""

    place: int
    at_ms: int
    root: str
    link: int
    far: str
    frame: Data


class Answered(NamedTuple):
    """A request that a root read, and the answer that it wrote, if it did."""

    asked: Words
    answer: Words | None


class Told(NamedTuple):
    """A request that a root wrote, and the answer that it read, if it did."""

    asked: Words
    answer: Words | None


class Reading:
    """The indexes over one history."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self.starts: dict[str, Data] = {}
        self.honest: dict[str, None] = {}
        self.crashed: dict[str, int] = {}
        self.groups: dict[str, dict[int, Group]] = {}
        self.durable: dict[str, list[Fact]] = {}
        self.messages: dict[str, dict[int, Fact]] = {}
        self.moves: dict[str, dict[int, list[Fact]]] = {}
        self.contexts: dict[str, dict[int, list[Fact]]] = {}
        self.received: dict[str, dict[Key, list[Fact]]] = {}
        self.sent: dict[str, dict[Key, list[Fact]]] = {}
        self.pruned: dict[str, dict[int, Fact]] = {}
        self.wrote: list[Words] = []
        self.read: list[Words] = []
        self.offers: list[Answered] = []  # requests read by honest roots
        self.asked: list[Told] = []  # requests written by honest roots
        self.stores: dict[str, Data] = {}
        self.by_event: dict[str, list[tuple[int, Entry]]] = {}
        self.healed_at = NOT_YET
        self.end_ms = entries[-1].at_ms if entries else 0
        for place, entry in enumerate(entries):
            self._take(place, entry)
        self._pair()

    # ------------------------------------------------------------ reading

    def _take(self, place: int, entry: Entry) -> None:
        root, data = entry.root, entry.data
        match entry.event:
            case "wrote" | "read":
                words = self.wrote if entry.event == "wrote" else self.read
                for frame in data["frames"]:
                    words.append(Words(place, entry.at_ms, root, data["link"], data["far"], frame))
                if entry.event == "read":
                    self.by_event.setdefault("read", []).append((place, entry))
            case "commit":
                self.groups.setdefault(root, {})[data["group"]] = Group(place, entry)
            case "stored":
                self._store(place, entry)
            case "told":
                self.groups[root][data["group"]].outcome = data["outcome"]
            case "start":
                self.starts[root] = data
                if data["honest"]:
                    self.honest[root] = None
            case "crash":
                self.crashed[root] = place
            case "heal":
                self.healed_at = place
            case "store":
                self.stores[root] = data
            case _:
                self.by_event.setdefault(entry.event, []).append((place, entry))

    def _store(self, place: int, entry: Entry) -> None:
        root = entry.root
        group = self.groups[root][entry.data["group"]]
        group.stored_at = place
        facts = self.durable.setdefault(root, [])
        for row in group.rows:
            fact = Fact(group.asked_at, place, entry.at_ms, row)
            facts.append(fact)
            match row["row"]:
                case "message":
                    self.messages.setdefault(root, {}).setdefault(row["cursor"], fact)
                    boxes = self.received if row["box"] == "in" else self.sent
                    boxes.setdefault(root, {}).setdefault(key_of(row), []).append(fact)
                case "move":
                    self.moves.setdefault(root, {}).setdefault(row["of"], []).append(fact)
                case "context":
                    self.contexts.setdefault(root, {}).setdefault(row["of"], []).append(fact)
                case "prune":
                    for cursor in row["messages"]:
                        self.pruned.setdefault(root, {})[cursor] = fact
                case _:
                    pass  # runs and muted peers: read from `durable` where they matter

    def _pair(self) -> None:
        """Match requests with answers, on each side of a line by itself."""
        open_read: dict[tuple[str, int, str], Words] = {}
        open_wrote: dict[tuple[str, int, str], Words] = {}
        both = sorted(
            [*((w.place, 1, w) for w in self.wrote), *((w.place, 0, w) for w in self.read)], key=_order
        )
        for _, is_written, words in both:
            if words.root not in self.honest:
                continue
            name = (words.root, words.link, repr(words.frame.get("id")))
            if words.frame["kind"] == "request":
                (open_wrote if is_written else open_read)[name] = words
            elif words.frame["kind"] in ("result", "error"):
                if is_written and name in open_read:
                    self.offers.append(Answered(open_read.pop(name), words))
                elif not is_written and name in open_wrote:
                    self.asked.append(Told(open_wrote.pop(name), words))
        self.offers += [Answered(words, None) for words in open_read.values()]
        self.asked += [Told(words, None) for words in open_wrote.values()]

    # ------------------------------------------------------------ questions

    def all_of(self, event: str) -> list[tuple[int, Entry]]:
        """Return the entries of one kind, with their places."""
        return self.by_event.get(event, [])

    def facts(self, root: str, kind: str) -> Iterator[Fact]:
        """Yield a root's durable rows of one kind, in order."""
        for fact in self.durable.get(root, ()):
            if fact.row["row"] == kind:
                yield fact

    def receiver(self, row: Data) -> str:
        """Return the instance that an outbox row is for, when it is an honest one, or ""."""
        instance: str = row["recipient_instance"]
        return instance if instance in self.honest else ""

    def states(self, root: str, cursor: int) -> list[Fact]:
        """Return the moves of one record, oldest first."""
        return self.moves.get(root, {}).get(cursor, [])

    def last_state(self, root: str, cursor: int) -> tuple[str, str | None]:
        """Return a record's final durable state and outcome."""
        moves = self.states(root, cursor)
        if moves:
            return moves[-1].row["state"], moves[-1].row["outcome"]
        box = self.messages[root][cursor].row["box"]
        return ("accepted" if box == "in" else "pending"), None

    def is_alive(self, root: str) -> bool:
        """Return whether a root lived at the end."""
        return bool(self.stores.get(root, {}).get("alive"))


def _order(item: tuple[int, int, Words]) -> tuple[int, int]:
    return item[0], item[1]


def key_of(row: Data) -> Key:
    """Return the duplicate identity of a message row."""
    return row["sender_instance"], row["message"], row["recipient"]
