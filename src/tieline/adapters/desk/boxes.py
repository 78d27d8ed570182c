"""The boxes over the desk: help, a text to read, and what a person has to type to answer for it.

Rule 1: a box takes the keys while it is open and gives them back; the draft below it stays.
Rule 2: what it shows passed the sanitiser; what is typed in it is compared, never run.

Source: reference/native.md 2.13 "operator recovery", 2.11.
"""

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from tieline.adapters.desk.lines import Lines
from tieline.adapters.desk.words import Piece, Row
from tieline.text import wrapped

__all__ = ["HELP", "Answer", "Reading"]

HELP = """\
1 to 5        Agents, Talk, Resources, Waits, Timeline
up, down      move; Page up, Page down, Home and End, too
Tab           the next part of the screen
:             write; a list opens: type a name, Enter takes it
Enter         in the composer: send.  Ctrl-J: another line
Escape        out of the composer; what you typed stays there
up            in the composer: what you sent before

Agents        Enter writes to it, t shows your talk with it,
              l its last answer (it is not woken), / filters
Talk          r replies, m marks as read, Enter goes to the text,
              a and d accept or deny what is held for your word.
              Looking at a message does not mark it as read.
Resources     g grants, c cancels a request, x answers for a command
              whose end nothing proves: you type its launch id
Waits         f breaks the ring under the cursor, or writes to who can
Timeline      / searches: words, peer:NAME, state:STATE; e exports it

F2            ask a question: who gets it knows that you wait
n             what you were told, whole
?             this page          q, Ctrl-Q    leave the desk
marks         ? asks you   ! held for your word   * unread   … awaited"""


class Box(ModalScreen[str | None]):
    """A box in the middle of the screen."""

    BINDINGS: ClassVar[list[Binding]] = [  # type: ignore[assignment]  # narrower than the screen's
        Binding("escape,q", "close", show=False),
    ]

    def action_close(self) -> None:
        """Close it; nothing was said."""
        self.dismiss(None)


class Reading(Box):
    """A text to read."""

    BINDINGS: ClassVar[list[Binding]] = [
        Binding("escape,q,question_mark", "close", show=False),
    ]

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        """Make its parts."""
        with Vertical():
            yield Static(Text(self._title, "bold", no_wrap=True), markup=False, classes="words")
            yield Lines(id="reading", has_cursor=False)
            yield Static(Text("Escape closes this.", no_wrap=True), markup=False, classes="words")

    def on_mount(self) -> None:
        """Show the text in lines that fit."""
        shown = wrapped(self._text, 70, 2_000)

        def draw(place: int) -> Row:
            return (Piece(shown[place]),)

        lines = self.query_one("#reading", Lines)
        lines.show(range(len(shown)), draw)
        lines.styles.height = min(len(shown), max(3, self.app.size.height - 5))
        lines.styles.max_height = max(3, self.app.size.height - 5)
        lines.focus()

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        """Enter closes it, too."""
        event.stop()
        self.dismiss(None)


class Answer(Box):
    """What a person has to type, exactly, to answer for something."""

    BINDINGS: ClassVar[list[Binding]] = [
        Binding("escape", "close", show=False, priority=True),
    ]

    def __init__(self, title: str, facts: list[str], wanted: str) -> None:
        super().__init__()
        self._title, self._facts, self.wanted = title, facts, wanted

    def compose(self) -> ComposeResult:
        """Make its parts."""
        with Vertical():
            yield Static(Text(self._title, "bold"), markup=False, classes="words")
            lines = [line for fact in self._facts for line in wrapped(fact, 70, 20)]
            yield Static(Text("\n".join(lines[:12])), markup=False, classes="words")
            said = f"Type it to answer for it: {self.wanted}\nEscape changes nothing."
            yield Static(Text(said), markup=False, classes="words", id="wanted")
            yield Input(id="typed")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the answer only where it is exactly the one that is wanted."""
        if event.value.strip() == self.wanted:
            self.dismiss(self.wanted)
        else:
            text = f"That is not it; nothing was changed. Type: {self.wanted}"
            self.query_one("#wanted", Static).update(Text(text))
