"""What was said: messages by conversation, what is unanswered on top, each receipt with its time.

Theory. A conversation is a chain: the first message's id. The desk keeps what it was shown and takes over
each message as it stands now; a look consumes nothing.

Rule 1: a question that came and was not answered is on top; what waits for the person's word is above it.
Rule 2: a body is shown whole and escaped; each of its lines is indented: none poses as a line of ours.
Rule 3: this module asks nobody; it is told messages and draws rows.

Source: reference/native.md 2.8, 2.11 "Inbox screen"; reference/reliability.md 3.6.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tieline.adapters.desk.words import Piece, Row, fit, named, role_of, safe, state_words
from tieline.runtime.glance import epoch_ms
from tieline.text import wrapped

__all__ = ["Talk", "Thread"]

BODY_LINES_MAX = 2_000
BODY_INDENT = "  | "
Clock = Callable[[int], str]
Name = Callable[[str, str], str]


class Thread:
    """One conversation."""

    def __init__(self, chain: str) -> None:
        self.chain = chain
        self.messages: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.last_ms = 0
        self.rank = 9

    @property
    def ordered(self) -> list[dict[str, Any]]:
        """Its messages, oldest first."""
        return list(self.messages.values())

    @property
    def last(self) -> dict[str, Any]:
        """Its newest message."""
        return next(reversed(self.messages.values()))

    @property
    def other(self) -> dict[str, Any]:
        """Who it is with: `id` and `alias`, as the newest message that came says, or as we addressed it."""
        for message in reversed(self.messages.values()):
            if message["isReceived"]:
                return {"id": message["from"], "alias": message.get("fromAlias") or ""}
        return {"id": self.last["to"], "alias": ""}

    def answerable(self) -> dict[str, Any] | None:
        """Return the message that a reply is to: the oldest open question, else the newest that came."""
        received = [one for one in self.messages.values() if one["isReceived"] and not one["isHeld"]]
        open_asks = [one for one in received if is_open_question(one)]
        return open_asks[0] if open_asks else received[-1] if received else None

    def held(self) -> dict[str, Any] | None:
        """Return the first message that waits for the person's word."""
        return next((one for one in self.messages.values() if one["isHeld"]), None)

    def unread(self) -> list[dict[str, Any]]:
        """Return what came and was not read."""
        return [one for one in self.messages.values() if one["isUnread"]]

    def settle(self) -> None:
        """Put it in its place among the others, from what its messages say now."""
        self.messages = dict(sorted(self.messages.items(), key=lambda item: item[1]["atMs"]))
        self.last_ms = self.last["atMs"]
        if self.held() is not None:
            self.rank = 0
        elif any(is_open_question(one) for one in self.messages.values()):
            self.rank = 1
        else:
            self.rank = 2 if self.unread() else 3 if any(map(_is_waiting, self.messages.values())) else 4


def is_open_question(message: dict[str, Any]) -> bool:
    """Return whether a question came and was neither answered nor has expired."""
    state = message["receipt"]["state"]
    return bool(
        message["isReceived"] and message.get("ask") and not message["isHeld"]
        and state in ("accepted", "consumed")
    )  # fmt: skip


def _is_waiting(message: dict[str, Any]) -> bool:
    """Return whether a question of ours has no answer yet."""
    return bool(
        not message["isReceived"]
        and message.get("ask")
        and message["receipt"]["state"] in ("pending", "unknown", "accepted", "consumed")
    )


_MARKS = {0: ("!", "warn"), 1: ("?", "warn"), 2: ("*", "strong"), 3: ("…", "weak"), 4: (" ", "")}
_MEANINGS = {0: "held", 1: "asks you", 2: "unread", 3: "awaited", 4: ""}


class Counts(NamedTuple):
    """What the person has to see to."""

    unread: int
    questions: int
    held: int


class Talk:
    """The conversations of the desk."""

    def __init__(self, own: str) -> None:
        """Begin with none; `own` is the person's peer id."""
        self._own = own
        self.threads: dict[str, Thread] = {}
        self.cursor: str | None = None
        self._of: dict[tuple[str, str, str], str] = {}
        self._keys: list[str] | None = None
        self._counts: Counts | None = None
        self._business: dict[str, str] | None = None

    def told(self, messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Take messages over as they stand now; return those that came and are new."""
        fresh: list[dict[str, Any]] = []
        touched: dict[str, Thread] = {}
        for message in messages:
            key = (str(message["from"]), str(message["messageId"]), str(message["to"]))
            chain = self._of.setdefault(key, str(message["chain"]))
            thread = self.threads.get(chain)
            if thread is None:
                thread = self.threads[chain] = Thread(chain)
            if key not in thread.messages and message["isReceived"]:
                fresh.append(message)
            message["atMs"] = epoch_ms(str(message["at"])) or 0
            thread.messages[key] = message
            touched[chain] = thread
        for thread in touched.values():
            thread.settle()
        if touched:
            self._keys = self._counts = self._business = None
        return fresh

    def keys(self) -> list[str]:
        """Return the conversations in the order that they are shown in."""
        if self._keys is None:
            self._keys = sorted(
                self.threads, key=lambda chain: (self.threads[chain].rank, -self.threads[chain].last_ms)
            )
        return self._keys

    def counts(self) -> Counts:
        """Return what the person has to see to; counted once for each change, as every letter typed asks."""
        if self._counts is not None:
            return self._counts
        unread = questions = held = 0
        for chain in self.keys():
            thread = self.threads[chain]
            if thread.rank > 2:
                break  # behind it nothing is open
            unread += len(thread.unread())
            questions += sum(map(is_open_question, thread.messages.values()))
            held += sum(one["isHeld"] for one in thread.messages.values())
        self._counts = Counts(unread, questions, held)
        return self._counts

    def business(self) -> dict[str, str]:
        """Return, by peer id, what is unfinished with it, in a word."""
        if self._business is not None:
            return self._business
        found: dict[str, str] = {}
        for chain in self.keys():
            thread = self.threads[chain]
            if thread.rank > 3:
                break
            found.setdefault(str(thread.other["id"]), _MEANINGS[thread.rank])
        self._business = found
        return found

    def with_peer(self, peer_id: str) -> str | None:
        """Return the newest conversation with a peer."""
        found = [one for one in self.threads.values() if one.other["id"] == peer_id]
        return max(found, key=lambda one: one.last_ms).chain if found else None

    def row(self, chain: str, width: int, name: Name, clock: Clock) -> Row:
        """Return one conversation as a row of `width` columns."""
        thread = self.threads[chain]
        mark, role = _MARKS[thread.rank]
        last, other = thread.last, thread.other
        when = clock(thread.last_ms)
        said = " ".join(str(last.get("content") or last.get("topic") or "").split())[:400]
        way = "" if last["isReceived"] else "you: "
        count = len(thread.messages)
        rest = max(10, width - 2 - 9 - 15 - 4 - len(when) - 5)
        return (
            Piece(mark + " ", role),
            Piece(fit(_MEANINGS[thread.rank], 8) + " ", role),
            Piece(fit(":" + name(str(other["id"]), str(other["alias"])), 14) + " ", "strong"),
            Piece(fit(count if count > 1 else "", 3) + " ", "weak"),
            Piece(fit(way + said, rest) + " "),
            Piece(when, "weak"),
        )

    def lines(self, chain: str, width: int, name: Name, clock: Clock) -> list[Row]:
        """Return a whole conversation as rows: who, what, and every receipt."""
        thread = self.threads.get(chain)
        if thread is None:
            return []
        found: list[Row] = []
        for message in thread.ordered:
            found += self._message(message, width, name, clock)
            found.append(())
        return found[:-1]

    def _message(self, message: dict[str, Any], width: int, name: Name, clock: Clock) -> list[Row]:
        sender = (
            "you"
            if message["from"] == self._own
            else named(name(message["from"], message.get("fromAlias") or ""), 16)
        )
        target = "you" if message["to"] == self._own else named(name(message["to"], ""), 16)
        what = "question" if message.get("ask") else "answer" if message.get("replyTo") else "message"
        topic = f"  [{safe(message['topic'])}]" if message.get("topic") else ""
        run = f"  run {safe(message['fromRun'])}" if message.get("fromRun") else ""
        project = f"  · {safe(message['fromProject'])}" if message.get("fromProject") else ""
        found: list[Row] = [
            (
                Piece(clock(message["atMs"]) + " ", "weak"),
                Piece(fit(f"{sender} to {target}", min(38, width - 20)), "strong"),
                Piece(fit(f" {what}{topic}{run}{project}", max(4, width - 58)), "weak"),
            )
        ]
        found += [
            (Piece(BODY_INDENT, "weak"), Piece(line)) for line in _body(message, width - len(BODY_INDENT))
        ]
        for part in message.get("attachments") or ():
            length = len(part.get("text") or "")
            text = f"attached: {part.get('name')} ({part.get('mediaType')}), {length} characters"
            found.append((Piece(BODY_INDENT, "weak"), Piece(fit(text, width - 4), "weak")))
        if message["isHeld"]:
            said = "held: it has not arrived; `a` lets it in, `d` sends it away"
            found.append((Piece(fit("  " + said, width), "warn"),))
        else:
            found += _receipts(message, width, clock)
        return found


def _body(message: dict[str, Any], width: int) -> list[str]:
    text = message.get("content")
    if text is None:
        return ["(its text waits for your word)" if message["isHeld"] else "(its text is not here)"]
    lines = wrapped(str(text), max(16, width), BODY_LINES_MAX)
    if len(lines) == BODY_LINES_MAX:
        lines.append(
            f"(more: `tieline status {safe(message['messageId'])}` shows all of its {len(text)} characters)"
        )
    return lines


def _receipts(message: dict[str, Any], width: int, clock: Clock) -> list[Row]:
    """Return every receipt with its time, then what is known now as one sentence."""
    found: list[Row] = []
    for step in message.get("steps") or ():
        state, at_ms = str(step["state"]), epoch_ms(str(step["at"])) or 0
        words = state_words(state, step.get("outcome"))
        found.append(
            (
                Piece("  " + clock(at_ms) + " ", "weak"),
                Piece(fit(state, 9), role_of(state)),
                Piece(fit(" " + words, max(4, width - 20)), "weak"),
            )
        )
    found += [
        (Piece("  "), Piece(line, "weak")) for line in wrapped(str(message["said"]), max(16, width - 2), 4)
    ]
    return found
