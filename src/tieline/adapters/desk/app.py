"""The desk: panes over what the model knows, the composer below them, and what each key does.

Theory. Everything from below arrives as "this part is old". A part is read at most every `PAUSE_S`, in a
worker of its own, and drawn when it was read. The composer is touched by its person only.

Rule 1: the screen draws; nothing below it writes to the terminal.
Rule 2: nothing that arrives moves the focus, the cursor or the draft.
Rule 3: what is sent is read by the one parser and judged against who is there now.

Source: reference/native.md 1N, 2.11; reference/reliability.md 3.6.
"""

import asyncio
import contextvars
from collections.abc import Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.filter import LineFilter, NoColor
from textual.widget import Widget
from textual.widgets import ContentSwitcher, Input, Static

from tieline.adapters.desk import past
from tieline.adapters.desk.acts import Acts
from tieline.adapters.desk.agents import Agents
from tieline.adapters.desk.boxes import HELP, Reading
from tieline.adapters.desk.guard import Guard
from tieline.adapters.desk.holdings import rows_of
from tieline.adapters.desk.lines import Lines
from tieline.adapters.desk.memory import Memory
from tieline.adapters.desk.model import PARTS, Model
from tieline.adapters.desk.port import Port
from tieline.adapters.desk.style import SHEET
from tieline.adapters.desk.waiting import drawn
from tieline.adapters.desk.words import Piece, Row, fit, safe
from tieline.adapters.desk.writing import Writer
from tieline.errors import TielineError

__all__ = ["Desk"]

COLUMNS_MIN, ROWS_MIN = 60, 16
PAUSE_S = 0.1
LOOK_S = 1.0
KEEP_S = 1.0
TITLES = {
    "agents": "Agents",
    "talk": "Talk",
    "resources": "Resources",
    "waits": "Waits",
    "timeline": "Timeline",
}
KEYS = {
    "agents": "Enter write  t talk  l last answer  / filter",
    "talk": "r reply  m mark read  a accept  d deny  Enter text",
    "resources": "g grant  c cancel  x recover",
    "waits": "f break the ring",
    "timeline": "/ search  e export  Enter text",
    "writing": "Enter send  : pick  F2 question  Ctrl-J line  Escape back, the draft stays",
}
OFTEN = {"agents": 2, "resources": 3, "waits": 2, "timeline": 5}
"""Looks between two readings of a part that is seen, though nothing told of a change."""
SELDOM = {"agents": 2, "waits": 4}


class Desk(Acts):
    """A person's screen among the agents."""

    CSS = SHEET
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[Binding]] = [  # type: ignore[assignment]  # narrower than the app's
        *(Binding(str(number), f"pane('{name}')", show=False) for number, name in enumerate(PARTS, 1)),
        Binding("question_mark", "help", show=False),
        Binding("colon", "write", show=False),
        Binding("slash", "search", show=False),
        Binding("f2", "question", show=False, priority=True),
        Binding("tab", "next", show=False),
        Binding("r", "reply", show=False),
        Binding("m", "mark", show=False),
        Binding("a", "consent(True)", show=False),
        Binding("d", "consent(False)", show=False),
        Binding("t", "talk", show=False),
        Binding("l", "last", show=False),
        Binding("g", "grant", show=False),
        Binding("c", "cancel", show=False),
        Binding("x", "recover", show=False),
        Binding("f", "free", show=False),
        Binding("e", "export", show=False),
        Binding("n", "notes", show=False),
        Binding("escape", "calm", show=False),
        Binding("q,ctrl+q,ctrl+c", "quit", show=False),
    ]

    def __init__(self, port: Port) -> None:
        """Show the desk of the root behind `port`."""
        super().__init__()
        self.port = port
        self.model = Model(port, self._is_old)
        self.memory = Memory()
        self.is_question = False
        self.pane = "agents"
        self._old: set[str] = set()
        self._reading: set[str] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._own_context: contextvars.Context | None = None  # of the screen, while it is there
        self._looks = 0
        self._kept: dict[str, Any] = {}
        self._is_small = False
        self._left_by_size: Widget | None = None  # what had the keys before the terminal got too small
        self._guard = Guard()
        self.writer = Writer(id="writer")
        self._unsubscribe = port.subscribe(self.model.told)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return the filters of every line: the package's, and our last look."""
        plain = [NoColor()] if self.no_color else []  # the package's own filter leaves greys
        return [*super().get_line_filters(), *plain, self._guard]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Take no key but the leaving one while nothing of the desk can be seen."""
        if self._is_small and action != "quit":
            return False
        return super().check_action(action, parameters)

    def copy_to_clipboard(self, text: str) -> None:
        """Keep here what was copied; the terminal's own sequence for it would carry foreign text."""
        self._clipboard = text

    @property
    def failure(self) -> Exception | None:
        """The defect that ended the desk, or None; whoever runs it tells a person of it."""
        return self._exception

    def _fatal_error(self) -> None:
        """End the screen: the package's own report would show a person values of ours and of others."""
        self._close_messages_no_wait()

    def compose(self) -> ComposeResult:
        """Make the parts of the screen."""
        yield Static(id="head", markup=False)
        yield Static(id="tabs", markup=False)
        with ContentSwitcher(id="panes", initial="agents"):
            with Vertical(id="agents"):
                yield Lines(id="agents-head", has_cursor=False)
                yield Lines(id="agents-list")
                yield Input(id="agents-filter", placeholder="type to filter; Escape shows all")
            with Vertical(id="talk"):
                yield Lines(id="talk-list")
                yield Lines(id="talk-view", has_cursor=False)
            with Vertical(id="resources"):
                yield Lines(id="resources-list")
            with Vertical(id="waits"):
                yield Lines(id="waits-list")
            with Vertical(id="timeline"):
                yield Input(id="timeline-search", placeholder="words, peer:NAME, state:STATE; Enter searches")
                yield Lines(id="timeline-list")
                yield Lines(id="timeline-view", has_cursor=False)
        yield Lines(id="picker")
        yield Static(id="note", markup=False)
        yield Static(id="target", markup=False)
        yield self.writer
        yield Static(id="keys", markup=False)
        yield Static(id="small", markup=False)

    def on_mount(self) -> None:
        """Take over what was kept, read every part, and look again each second."""
        head = self.base.query_one("#agents-head", Lines)
        head.styles.height, head.can_focus = 1, False
        self.base.query_one("#picker", Lines).can_focus = False
        self.writer.load(self.memory.load(self.port.kept()))
        self._kept = self.memory.shape(self.draft)
        self._own_context = contextvars.copy_context()
        for part in PARTS:
            self._is_old(part)
        self.base.set_focus(self.lines("agents"))
        self.set_interval(LOOK_S, self._look)
        self.set_interval(KEEP_S, self._keep)
        self._frame()

    def on_unmount(self) -> None:
        """Keep the draft, and be told of nothing any more."""
        self._unsubscribe()
        self._own_context = None
        if self._pause is not None:
            self._pause.cancel()
        self._keep()

    def lines(self, part: str) -> Lines:
        """Return the list of a pane."""
        return self.base.query_one(f"#{part}-list", Lines)

    def _keep(self) -> None:
        shape = self.memory.shape(self.draft)
        if shape != self._kept:
            self._kept = shape
            self.port.keep(shape)

    # ------------------------------------------------------------ what is old

    def _is_old(self, part: str) -> None:
        """Read a part soon; a thousand calls are one reading. May be called from anywhere in this loop."""
        self._old.add(part)
        if self._pause is None and self._own_context is not None:
            # Whoever calls from below knows nothing of the screen: what follows runs as the screen's own.
            loop = asyncio.get_running_loop()
            self._pause = loop.call_later(PAUSE_S, self._read_old, context=self._own_context)

    def _read_old(self) -> None:
        self._pause = None
        old, self._old = self._old, set()
        if "note" in old:
            self._frame()
        for part in old - {"note"}:
            if part in self._reading:
                self._is_old(part)  # once more, when the present reading has ended
                continue
            self._reading.add(part)
            self.run_worker(self._read(part), group=part, exit_on_error=False)

    async def _read(self, part: str) -> None:
        try:
            is_new = await self.model.read(part)
        except TielineError as error:
            self.model.fail(error)
            return
        finally:
            self._reading.discard(part)
        if is_new:
            self.draw(part)

    def _look(self) -> None:
        """Look at what nobody tells: files that changed, and what is judged by time."""
        self._looks += 1
        for part in self.port.changes():
            self._is_old(part)
        for part, every in (OFTEN | SELDOM).items():
            often = OFTEN.get(part, 0) if part == self.pane else SELDOM.get(part, 0)
            if often and self._looks % often == 0 and every:
                self._is_old(part)

    # ------------------------------------------------------------ drawing

    def draw(self, part: str) -> None:
        """Draw one part from what the model knows."""
        if not self.is_mounted_yet:
            return
        getattr(self, f"_draw_{part}")()
        self._frame()

    @property
    def is_mounted_yet(self) -> bool:
        """Whether there is a screen to draw on."""
        return bool(self._running and self.screen_stack and self.base.query("#small"))

    def _draw_agents(self) -> None:
        agents, business = self.model.agents, self.model.talk.business()
        columns = self._columns
        self.base.query_one("#agents-head", Lines).show(["head"], lambda _key: Agents.heading(columns()))
        keys = agents.keys(frozenset(business))
        if not keys:
            said = "nobody fits" if agents.filter else "nobody else is here yet; `tieline setup` adds agents"
            self.lines("agents").show([""], lambda _key: (Piece(said, "weak"),))
            return
        self.lines("agents").show(keys, lambda peer: agents.row(peer, columns(), business.get(peer, "")))

    def _draw_talk(self) -> None:
        talk, name, clock = self.model.talk, self.model.agents.alias, self.port.clock
        self.lines("talk").show(talk.keys(), lambda chain: talk.row(chain, self._columns(), name, clock))
        self._draw_message()
        self._draw_agents()

    def _draw_message(self) -> None:
        chain = self.lines("talk").key
        name, clock = self.model.agents.alias, self.port.clock
        rows = [] if chain is None else self.model.talk.lines(chain, self._columns() - 1, name, clock)
        if not rows:
            rows = [(Piece("nothing was said yet; `:` writes to somebody", "weak"),)]
        self.base.query_one("#talk-view", Lines).show(range(len(rows)), lambda place: rows[place])

    def _draw_resources(self) -> None:
        self._rows("resources", rows_of(self.model.resources, self._columns(), self.port.now_ms()))

    def _draw_waits(self) -> None:
        self._rows("waits", drawn(self.model.waits, self.model.agents.alias, self.port.now_ms()))

    def _rows(self, part: str, rows: list[tuple[Any, Row]]) -> None:
        found = dict(rows)
        self.lines(part).show(list(found), lambda key: found.get(key, ()))

    def _draw_timeline(self) -> None:
        page, clock = self.model.page, self.port.clock
        entries = {entry.place or str(place): entry for place, entry in enumerate(page.entries)}
        self.lines("timeline").show(
            list(reversed(entries)), lambda key: past.row(entries[key], self._columns(), clock)
        )
        self._draw_entry()

    def _draw_entry(self) -> None:
        rows = past.detail(self.entry(), self._columns() - 1, self.port.clock, self.model.page)
        self.base.query_one("#timeline-view", Lines).show(range(len(rows)), lambda place: rows[place])

    def entry(self) -> Any:
        """Return the line of the timeline under the cursor, or None."""
        key = self.lines("timeline").key
        found = (
            entry for place, entry in enumerate(self.model.page.entries) if (entry.place or str(place)) == key
        )
        return next(found, None)

    def _columns(self) -> int:
        return max(20, self.size.width - 1)

    def _frame(self) -> None:
        """Draw the lines around the panes."""
        if not self.is_mounted_yet:
            return
        who, counts = self.model.who, self.model.talk.counts()
        columns = self.size.width
        words = (
            f"{counts.held} held" if counts.held else "",
            f"{counts.questions} {'question' if counts.questions == 1 else 'questions'}"
            if counts.questions
            else "",
            f"{counts.unread} unread" if counts.unread else "",
        )
        state = ", ".join(word for word in words if word) or "nothing waits for you"
        place = f"{safe(who.get('project') or '')}, {safe(who['scope'])}"
        name = f" Tieline desk  you are :{safe(who['alias'])}  {place}"
        left = max(10, columns - len(state) - 2)
        self._line("#head", fit(name, left) + " " + state)
        rings = len(self.model.waits.get("cycles") or ())
        marks = {
            "talk": f" ({counts.unread})" if counts.unread else "",
            "waits": f" ({rings} RING{'S' if rings > 1 else ''})" if rings else "",
        }
        tabs = Text(no_wrap=True, overflow="crop")
        for number, part in enumerate(PARTS, 1):
            text = f" {number} {TITLES[part]}{marks.get(part, '')} "
            tabs.append(text, "reverse" if part == self.pane else "")
            tabs.append(" ")
        self.base.query_one("#tabs", Static).update(tabs)
        self._line("#note", fit(self.model.note, columns))
        self._line("#target", fit(self._target(), columns))
        self.base.query_one("#target").set_class(bool(self._target()), "open")
        is_writing = isinstance(self.focused, Writer)
        keys = KEYS["writing" if is_writing else self.pane]
        more = "" if is_writing else "  : write  ? help  q leave"
        self._line("#keys", fit(" " + keys + more, columns))

    def _line(self, selector: str, text: str) -> None:
        self.base.query_one(selector, Static).update(Text(text, no_wrap=True, overflow="crop"))

    def _target(self) -> str:
        draft = self.draft
        parts = [] if draft.to is None else [f" to :{safe(draft.to.alias)}"]
        if draft.reply_to is not None:
            parts.append(f"answers {safe(draft.reply_to)[:36]}")
        if self.is_question:
            parts.append("QUESTION: you wait for an answer")
        return (
            ", ".join(parts) + ("  (Escape twice: to nobody)" if draft.to is not None else "")
            if parts
            else ""
        )

    # ------------------------------------------------------------ the frame's own keys

    def on_resize(self, event: events.Resize) -> None:
        """Draw for the new size; one that is too small gets a sentence."""
        is_small = event.size.width < COLUMNS_MIN or event.size.height < ROWS_MIN
        if is_small and not self._is_small:
            self._left_by_size = self.base.focused
        self._is_small = is_small
        for screen in self.screen_stack:
            screen.set_class(is_small, "small")
        if not is_small and self._left_by_size is not None:
            self.call_after_refresh(self.base.set_focus, self._left_by_size)
            self._left_by_size = None
        said = (
            f"This terminal has {event.size.width} columns and {event.size.height} rows; "
            f"the desk needs {COLUMNS_MIN} and {ROWS_MIN}. Your draft is kept."
        )
        self.base.query_one("#small", Static).update(Text(said))
        self.call_after_refresh(self._draw_all)

    def _draw_all(self) -> None:
        for part in PARTS:
            self.draw(part)

    def action_pane(self, name: str) -> None:
        """Show a pane, and give it the keys."""
        if self.screen is not self.screen_stack[0]:
            return
        self.pane = name
        self.base.query_one("#panes", ContentSwitcher).current = name
        self.base.set_focus(self.lines(name))
        self._is_old(name)
        self._frame()

    def action_next(self) -> None:
        """Give the keys to the next part."""
        self.screen.focus_next()
        self._frame()

    def action_help(self) -> None:
        """List the keys."""
        self.push_screen(Reading("The keys of the desk", HELP))

    def action_notes(self) -> None:
        """Show what the person was told, whole, the newest first."""
        told = "\n\n".join(reversed(self.model.notes)) or "nothing yet"
        self.push_screen(Reading("What you were told", told))

    def action_calm(self) -> None:
        """Take the note away; in a part of a pane, go back to its list."""
        focused = None if self.focused is None else self.focused.id
        if focused == "agents-filter":
            self.close_filter()
        elif focused in ("talk-view", "timeline-view", "timeline-search"):
            self.base.set_focus(self.lines(self.pane))
        elif self.draft.to is not None or self.is_question:
            self.forget_target()
        self.model.note = ""
        self._frame()

    def on_descendant_focus(self) -> None:
        """Say the keys of what has them now."""
        self._frame()

    def on_lines_moved(self, event: Lines.Moved) -> None:
        """Show what the cursor is on."""
        if event.lines.id == "talk-list":
            self._draw_message()
            self.base.query_one("#talk-view", Lines).scroll_home(animate=False)
        elif event.lines.id == "timeline-list":
            self._draw_entry()
