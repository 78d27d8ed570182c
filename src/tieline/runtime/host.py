"""What the host of a root said of itself: busy, paused, its runs, its answers; and when to wake it.

Rule 1: one wake at a time for the session, and one for each run: none is told again until the host was busy
or asked for a boundary of it.
Rule 2: a wake needs `auto`, an idle and unpaused host, and mail that is not passive, not muted and
    not at the automatic limit; a steering message may also be told to a busy host.
Rule 3: a run's token is bound to that run, dead at its end, and never leaves this process but to the host.
Rule 4: answers are what the host handed in as finished; a status is never offered as an answer.

Source: reference/native.md 1L, 2.10; reference/reliability.md S15; DESIGN.md 2, 3.
"""

import hmac
from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from tieline.config import Scope
from tieline.runtime.hooked import HookDoor

__all__ = ["Answer", "Answers", "Host"]

ANSWERS_MAX = 32
EXCERPTS_MAX = 1_024
BESIDE_MAX = 256
BESIDE_MS = 60_000
"""A host may show what it took so much later: it queues behind the model's call that runs."""
ANSWER_CHARACTERS_MAX = 1_048_576
PAUSES = frozenset({"permission", "cancelled", "shutdown"})


class Answer(msgspec.Struct, frozen=True):
    """One finished answer of a host's model, `entry` naming it for good."""

    entry: str
    text: str
    at_ms: int


class Answers:
    """The last finished answers of one peer, oldest first, at most `ANSWERS_MAX`."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, Answer] = OrderedDict()

    def add(self, entry: str, text: str, at_ms: int) -> None:
        """Keep a finished answer; the same entry again replaces its text in place."""
        self._entries[entry] = Answer(entry, text[:ANSWER_CHARACTERS_MAX], at_ms)
        while len(self._entries) > ANSWERS_MAX:
            self._entries.popitem(last=False)

    def find(self, entry: str | None) -> Answer | None:
        """Return the named answer, or the last one; None when there is none."""
        if entry is not None:
            return self._entries.get(entry)
        return next(reversed(self._entries.values()), None)

    def __len__(self) -> int:
        return len(self._entries)


class Host:
    """The host's own statements, and the one outstanding wake."""

    def __init__(self, *, is_automatic: bool) -> None:
        self.is_automatic = is_automatic
        self.is_busy = False
        self.pause: str | None = None
        self.model = ""
        self.activity = "idle"
        self.context_percent: int | None = None
        self.is_wake_out = False
        self.runs_woken: set[str] = set()
        self.is_parked = False  # this session ends now, and will be resumed
        self.hooks: HookDoor | None = None  # what serves the commands of its hooks
        self.answers: dict[str | None, Answers] = {}
        self.excerpted: OrderedDict[int, None] = OrderedDict()  # shown once as an excerpt, still unread
        self.beside: OrderedDict[int, int] = OrderedDict()  # given otherwise than by a read, and when
        self.scopes: dict[str, Scope] = {}  # of runs that were given a narrower one than the root's
        self._tokens: dict[str, str] = {}

    def state(self, *, is_busy: bool | None, pause: str | None, has_pause: bool) -> None:
        """Take what the host says of its turn. A new turn clears `cancelled`."""
        if has_pause:
            self.pause = pause
        if is_busy is not None:
            if is_busy:
                self.is_wake_out = False
                self.runs_woken.clear()
                if self.pause == "cancelled":
                    self.pause = None
            self.is_busy = is_busy
            self.activity = "thinking" if is_busy else "idle"

    def may_wake(self, *, is_steering: bool, run: str | None = None) -> bool:
        """Return whether a wake of the session, or of a run, may be told now."""
        is_out = self.is_wake_out if run is None else run in self.runs_woken
        if is_out or self.pause is not None:
            return False
        if self.is_busy:
            return is_steering
        return self.is_automatic

    def note_wake(self, run: str | None, *, is_out: bool) -> None:
        """Remember that a wake was told, or that the host asked for a boundary since."""
        if run is None:
            self.is_wake_out = is_out
        elif is_out:
            self.runs_woken.add(run)
        else:
            self.runs_woken.discard(run)

    def begin(self, run: str, token: str) -> None:
        """Bind a fresh token to a run."""
        self._tokens[run] = token

    def end(self, run: str) -> None:
        """Let a run's token die."""
        self._tokens.pop(run, None)
        self.runs_woken.discard(run)
        self.scopes.pop(run, None)
        self.answers.pop(run, None)

    def run_of(self, token: str) -> str | None:
        """Return the run that `token` proves, or None. Compared in constant time."""
        found = None
        for run, known in self._tokens.items():
            if hmac.compare_digest(known.encode(), token.encode()):
                found = run
        return found

    @property
    def has_runs(self) -> bool:
        """Whether any run is live."""
        return bool(self._tokens)

    def note_excerpts(self, cursors: Iterable[int]) -> None:
        """Remember which records were shown as an excerpt: once is enough."""
        for cursor in cursors:
            self.excerpted[cursor] = None
        while len(self.excerpted) > EXCERPTS_MAX:
            self.excerpted.popitem(last=False)

    def note_beside(self, cursors: Iterable[int], now_ms: int) -> None:
        """Remember which records were given to the session otherwise than by a read of its model."""
        for cursor in cursors:
            self.beside[cursor] = now_ms
        while len(self.beside) > BESIDE_MAX:
            self.beside.popitem(last=False)

    def is_beside(self, cursor: int, now_ms: int) -> bool:
        """Return whether a record was given to the session so within the last `BESIDE_MS`."""
        return cursor in self.beside and now_ms - self.beside[cursor] <= BESIDE_MS

    def add_answer(self, run: str | None, entry: str, text: str, at_ms: int) -> None:
        """Keep a finished answer of the root (None) or of one run."""
        self.answers.setdefault(run, Answers()).add(entry, text, at_ms)
