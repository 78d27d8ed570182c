"""A shell's text -> the commands in it: words, leading assignments, what is fed to them.

Theory. One pass with a stack of frames: a subshell, a substitution and a `${...}` each push one, their
closing sign pops it. Nothing is expanded: what a shell would put in is `EXPANSION` in the word, so that a
word that is not known never equals a pattern. The commands inside a substitution are commands of their own.

Rule 1: any text gives a `Script`; what could not be read leaves `fault`, and what was read before it counts,
    because a shell runs a text line by line.
Rule 2: time grows with the length of the text; tokens, frames and commands are bounded besides.
Rule 3: this module knows no command by name, only the shell's own reserved words.

Source: the shell command language of POSIX, 2.2 to 2.10, and the bash manual, "Shell Grammar";
reference/native.md 3.5 "wrappers".
"""

import re
from typing import NamedTuple

__all__ = ["COMMANDS_MAX", "EXPANSION", "FRAMES_MAX", "TOKENS_MAX", "Script", "Segment", "split"]

EXPANSION = "\0"  # no argument can contain it
TOKENS_MAX = 2_048  # with the next, keeps a hostile text of 8 KB at a few milliseconds
COMMANDS_MAX = 192
FRAMES_MAX = 64

_PLAIN = re.compile(r"[^ \t\r\n\\'\"`$;&|()<>#][^ \t\r\n\\'\"`$;&|()<>]*")
_BLANKS = re.compile(r"[ \t\r]+")
_SEPARATOR = re.compile(r"(?:[;|]|&(?!>))+")
_REDIRECT = re.compile(r"<<<|<<-|<<|<&|<>|<|&>>|&>|>>|>&|>\||>")
_ESCAPES = re.compile(r"(?:\\[^\n])+", re.DOTALL)
_PARAMETER = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])")
_ANSI_QUOTED = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
_IN_QUOTES = re.compile(r"[^\"\\$`]+")
_IN_DISCARD = re.compile(r"[^'\"\\`$(){}]+")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[^\]]*\])?\+?=")
_EMPTY_PARENTHESES = re.compile(r"\([ \t]*\)")

_PASSED_OVER = frozenset(
    {"if", "then", "else", "elif", "fi", "do", "done", "while", "until", "!", "{", "}", "esac", "coproc"}
)
_HEADERS = frozenset({"for", "select", "case", "function"})


class Segment(NamedTuple):
    """One simple command.

    `words` are unquoted and hold `EXPANSION` where the shell would put something in; `assignments` stood
    before them; `inputs` are its here-documents; `frame` is the frame that it ran in.
    """

    words: tuple[str, ...]
    assignments: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    frame: int = 0


class Script(NamedTuple):
    """A text that was read.

    `parents` gives each frame's parent, the first its own; `fault` says what could not be read, empty when
    all was; `token_count` is what it cost.
    """

    segments: list[Segment]
    parents: list[int]
    fault: str
    token_count: int


def split(text: str, tokens_max: int = TOKENS_MAX) -> Script:
    """Return the commands of `text`, those of a substitution before the command that holds it.

    Args:
        text: What a shell would be given.
        tokens_max: Steps allowed, 0 to `TOKENS_MAX`.
    """
    scanner = _Scanner(text, tokens_max)
    scanner.run()
    return Script(scanner.segments(), scanner.parents, scanner.fault, scanner.token_count)


class _Frame:
    """A place that ends at `closer`; commands are collected in it unless it is a `discard`."""

    __slots__ = (
        "assignments", "bodies", "case_depth", "closer", "in_quotes", "in_test", "inputs", "is_discard",
        "is_header", "is_plain_start", "is_quoted", "number", "pieces", "redirect", "was_in_quotes", "words",
    )  # fmt: skip

    def __init__(self, number: int, closer: str, *, is_discard: bool, was_in_quotes: bool) -> None:
        self.number = number
        self.closer = closer
        self.is_discard = is_discard
        self.was_in_quotes = was_in_quotes
        self.in_quotes = False
        self.case_depth = 0
        self.bodies: list[tuple[str, bool, bool, list[str]]] = []
        self.pieces: list[str] | None = None
        self.is_plain_start = False
        self.is_quoted = False
        self.redirect = ""
        self.clear()

    def clear(self) -> None:
        """Begin a new command."""
        self.words: list[str] = []
        self.assignments: list[str] = []
        self.inputs: list[str] = []
        self.is_header = False
        self.in_test = False

    def put(self, piece: str, *, is_quoted: bool = True) -> None:
        """Add to the word that is being read."""
        if self.pieces is None:
            self.pieces = [piece]
            self.is_plain_start = not is_quoted
            self.is_quoted = is_quoted
        else:
            self.pieces.append(piece)
            self.is_quoted = self.is_quoted or is_quoted


class _Scanner:
    """Reads a text once, from left to right."""

    def __init__(self, text: str, tokens_max: int) -> None:
        self.text = text
        self.tokens_max = tokens_max
        self.at = 0
        self.token_count = 0
        self.fault = ""
        self.is_body = False
        self.found: list[tuple[list[str], list[str], list[str], int]] = []
        self.parents = [0]
        self.frames = [_Frame(0, "", is_discard=False, was_in_quotes=False)]
        self.by_sign = {
            "\n": self._newline,
            "\\": self._escape,
            "'": self._single_quote,
            '"': self._double_quote,
            "`": self._backtick,
            "$": self._dollar,
            "#": self._hash,
            "(": self._open,
            ")": self._close,
            "<": self._redirect,
            ">": self._redirect,
        }

    def segments(self) -> list[Segment]:
        """Return what was found; made last, because a here-document follows its command."""
        return [
            Segment(tuple(words), tuple(assignments), tuple(inputs), number)
            for words, assignments, inputs, number in self.found
        ]

    def run(self) -> None:
        """Read to the end, or to what ends the reading."""
        while self.at < len(self.text):
            self.token_count += 1
            if self.token_count > self.tokens_max or len(self.found) >= COMMANDS_MAX:
                self._fail("it is too long to be read whole")
                break
            frame = self.frames[-1]
            if frame.in_quotes:
                self._quoted(frame)
            elif frame.is_discard:
                self._discarded(frame)
            else:
                self._command(frame)
        if len(self.frames) > 1 or (self.frames[-1].in_quotes and not self.is_body):
            self._fail("a quote or a bracket is not closed")
        while self.frames:
            self._end_segment(self.frames[-1])
            if self.frames[-1].bodies:
                self._fail("a here-document has no end")
            self.frames.pop()

    def _fail(self, why: str) -> None:
        self.fault = self.fault or why

    # One step in each kind of place

    def _command(self, frame: _Frame) -> None:
        """Read one token of a command."""
        if (plain := _PLAIN.match(self.text, self.at)) is not None:
            frame.put(plain.group(), is_quoted=False)
            self.at = plain.end()
            following = _BLANKS.match(self.text, self.at)
            if following is not None:
                self._end_word(frame)
                self.at = following.end()
            return
        handle = self.by_sign.get(self.text[self.at])
        if handle is not None:
            handle(frame)
        elif (blanks := _BLANKS.match(self.text, self.at)) is not None:
            self._end_word(frame)
            self.at = blanks.end()
        else:
            self._separator(frame)

    def _separator(self, frame: _Frame) -> None:
        """End the command at `;`, `&`, `|` and their doubles; inside `[[ ]]` they are plain."""
        if (separator := _SEPARATOR.match(self.text, self.at)) is None:
            self._redirect(frame)
            return
        self._end_word(frame)
        is_pattern = frame.case_depth and (frame.is_header or separator.group().startswith(";;"))
        if not frame.in_test:
            self._end_segment(frame)
            # The words before the `)` of a `case` are patterns, also after a `|`.
            frame.is_header = bool(is_pattern)
        self.at = separator.end()

    def _quoted(self, frame: _Frame) -> None:
        """Read one token between double quotes."""
        text, at = self.text, self.at
        plain = _IN_QUOTES.match(text, at)
        if plain is not None:
            frame.put(plain.group())
            self.at = plain.end()
        elif text[at] == '"':
            frame.in_quotes = self.is_body and len(self.frames) == 1
            self.at += 1
        elif text[at] == "\\":
            following = text[at + 1 : at + 2]
            if following != "\n":
                frame.put(following if following and following in '$`"\\' else "\\" + following)
            self.at += 2
        elif text[at] == "`":
            self._backtick(frame)
        else:
            self._dollar(frame)

    def _discarded(self, frame: _Frame) -> None:
        """Read one token of a place whose words are no command: `${...}`, an array, arithmetic."""
        text, at = self.text, self.at
        plain = _IN_DISCARD.match(text, at)
        if plain is not None:
            self.at = plain.end()
        elif text[at] == frame.closer:
            self._pop()
            self.at += 1
        elif text[at] == "'" and not frame.was_in_quotes:
            self._single_quote(frame)
        elif text[at] == "(" and frame.closer == ")":
            self.at += 1
            self._push(")", is_discard=True)
        elif text[at] in '"\\`$':
            self.by_sign[text[at]](frame)
        else:
            self.at += 1

    # Signs

    def _newline(self, frame: _Frame) -> None:
        self._end_word(frame)
        is_pattern = frame.is_header and frame.case_depth > 0
        self._end_segment(frame)
        frame.is_header = is_pattern
        self.at += 1
        for ending, is_indented, is_expanded, inputs in frame.bodies:
            self._body(ending, inputs, is_indented=is_indented, is_expanded=is_expanded)
        frame.bodies = []

    def _body(self, ending: str, inputs: list[str], *, is_indented: bool, is_expanded: bool) -> None:
        """Pass over one here-document, and keep it for its command."""
        text, start, end = self.text, self.at, len(self.text)
        while self.at < end:
            line_at = self.at
            stop = text.find("\n", line_at)
            stop = end if stop < 0 else stop
            line = text[line_at:stop].rstrip("\r")
            self.at = stop + 1
            if (line.lstrip("\t") if is_indented else line) == ending:
                inputs.append(text[start:line_at])
                if is_expanded:
                    self._expand(text[start:line_at])
                return
        inputs.append(text[start:])
        self._fail("a here-document has no end")

    def _expand(self, body: str) -> None:
        """Take the commands that the shell runs to put a here-document together."""
        inner = _Scanner(body, max(0, self.tokens_max - self.token_count))
        inner.frames[0].in_quotes = inner.frames[0].is_discard = inner.is_body = True
        inner.run()
        self.token_count += inner.token_count
        self._fail(inner.fault)
        first = len(self.parents)
        self.parents += [self.frames[-1].number, *(first + number for number in inner.parents[1:])]
        self.found += [(*parts, first + number) for *parts, number in inner.found]  # type: ignore[misc]

    def _escape(self, frame: _Frame) -> None:
        escapes = _ESCAPES.match(self.text, self.at)
        if escapes is not None:
            frame.put(escapes.group()[1::2])
            self.at = escapes.end()
        else:
            self.at += 2  # a line that goes on, or nothing after the sign: a shell drops both

    def _single_quote(self, frame: _Frame) -> None:
        stop = self.text.find("'", self.at + 1)
        if stop < 0:
            self._fail("a quote or a bracket is not closed")
            stop = len(self.text)
        frame.put(self.text[self.at + 1 : stop])
        self.at = stop + 1

    def _double_quote(self, frame: _Frame) -> None:
        frame.put("")
        frame.in_quotes = True
        self.at += 1

    def _backtick(self, frame: _Frame) -> None:
        self.at += 1
        if frame.closer == "`":
            if frame.in_quotes:
                self._fail("a quote or a bracket is not closed")
            self._pop()
        else:
            frame.put(EXPANSION)
            self._push("`", is_discard=False)

    def _dollar(self, frame: _Frame) -> None:
        """Read an expansion; a dollar that starts none is plain."""
        text, at = self.text, self.at
        following = text[at + 1 : at + 2]
        if following == "(":
            frame.put(EXPANSION)
            is_arithmetic = text[at + 2 : at + 3] == "("
            self.at += 3 if is_arithmetic else 2
            self._push(")", is_discard=is_arithmetic)
            if is_arithmetic:
                self._push(")", is_discard=True)
        elif following == "{":
            frame.put(EXPANSION)
            self.at += 2
            self._push("}", is_discard=True)
        elif (parameter := _PARAMETER.match(text, at)) is not None:
            frame.put(EXPANSION)
            self.at = parameter.end()
        elif following == "'" and not frame.in_quotes:
            self._ansi_quote(frame)
        else:
            # Before a double quote it asks for a translation and says nothing itself.
            if following != '"' or frame.in_quotes:
                frame.put("$")
            self.at += 1

    def _ansi_quote(self, frame: _Frame) -> None:
        quoted = _ANSI_QUOTED.match(self.text, self.at)
        if quoted is None:
            self._fail("a quote or a bracket is not closed")
            self.at = len(self.text)
            return
        # Its escapes can spell any name: what holds one is not known.
        frame.put(EXPANSION if "\\" in quoted.group(1) else quoted.group(1))
        self.at = quoted.end()

    def _hash(self, frame: _Frame) -> None:
        if frame.pieces is not None:
            frame.put("#")
            self.at += 1
            return
        stop = self.text.find("\n", self.at)
        self.at = len(self.text) if stop < 0 else stop

    def _open(self, frame: _Frame) -> None:
        """Read `(`: a subshell, a function's name, an array, or arithmetic."""
        text = self.text
        has_words = frame.pieces is not None or bool(frame.words)
        if frame.in_test:
            self._end_word(frame)
            self.at += 1
        elif frame.case_depth and frame.is_header and frame.words[:1] in ([], ["case"]):
            self.at += 1
        elif has_words and (empty := _EMPTY_PARENTHESES.match(text, self.at)) is not None:
            frame.pieces = None
            frame.clear()
            self.at = empty.end()
        elif frame.pieces is not None or frame.is_header:
            frame.put(EXPANSION)
            self.at += 1
            self._push(")", is_discard=True)
        elif text.startswith("((", self.at) and not has_words:
            self.at += 2
            self._push(")", is_discard=True)
            self._push(")", is_discard=True)
        else:
            if has_words:
                self._fail("a bracket stands where none may")
            self.at += 1
            self._push(")", is_discard=False)

    def _close(self, frame: _Frame) -> None:
        """Read `)`: the end of a subshell, or of a pattern of `case`."""
        self.at += 1
        self._end_word(frame)
        if frame.in_test:
            return
        if frame.case_depth:
            frame.clear()
        elif frame.closer == ")":
            self._end_segment(frame)
            self._pop()
        else:
            self._fail("a bracket stands where none may")
            self._end_segment(frame)

    def _redirect(self, frame: _Frame) -> None:
        """Read `<`, `>` and what they begin; the word after them is no argument."""
        text, at = self.text, self.at
        if text.startswith(("<(", ">("), at):
            frame.put(EXPANSION)
            self.at += 2
            self._push(")", is_discard=False)
            return
        if frame.pieces is not None and not frame.is_quoted and "".join(frame.pieces).isdigit():
            frame.pieces = None
        self._end_word(frame)
        sign = _REDIRECT.match(text, at)
        assert sign is not None
        if not frame.in_test:
            frame.redirect = sign.group()
        self.at = sign.end()

    # Words, commands, frames

    def _end_word(self, frame: _Frame) -> None:
        """Take the word that was read: as a file, a reserved word, an assignment, or an argument."""
        pieces = frame.pieces
        if pieces is None:
            return
        word = "".join(pieces)
        frame.pieces = None
        if frame.redirect:
            self._redirected(frame, word)
            return
        if frame.words or not frame.is_plain_start:
            frame.words.append(word)
            if word == "]]":
                frame.in_test = False
            if frame.is_header and word == "{":
                frame.clear()
            return
        if frame.is_quoted or not self._is_reserved(frame, word):
            if _ASSIGNMENT.match(pieces[0]) is not None:
                frame.assignments.append(word)
            else:
                frame.words.append(word)
                frame.in_test = word == "[["

    @staticmethod
    def _is_reserved(frame: _Frame, word: str) -> bool:
        """Return whether the first word of a command is the shell's own, and note what it begins."""
        if word in _HEADERS:
            frame.is_header = True
            frame.words.append(word)
            frame.case_depth += word == "case"
            return True
        if word == "esac" and frame.case_depth:
            frame.case_depth -= 1
            frame.is_header = False
        return word in _PASSED_OVER

    @staticmethod
    def _redirected(frame: _Frame, word: str) -> None:
        if frame.redirect in {"<<", "<<-"}:
            frame.bodies.append((word, frame.redirect == "<<-", not frame.is_quoted, frame.inputs))
        elif frame.redirect == "<<<":
            frame.inputs.append(word)
        frame.redirect = ""

    def _end_segment(self, frame: _Frame) -> None:
        self._end_word(frame)
        frame.redirect = ""
        if (frame.words or frame.assignments) and not frame.is_header and not frame.is_discard:
            self.found.append((frame.words, frame.assignments, frame.inputs, frame.number))
        frame.clear()

    def _push(self, closer: str, *, is_discard: bool) -> None:
        if len(self.frames) >= FRAMES_MAX:
            self._fail("it is nested too deeply")
            self.at = len(self.text)
            return
        parent = self.frames[-1]
        self.parents.append(parent.number)
        was_in_quotes = parent.in_quotes or (parent.is_discard and parent.was_in_quotes)
        self.frames.append(
            _Frame(len(self.parents) - 1, closer, is_discard=is_discard, was_in_quotes=was_in_quotes)
        )

    def _pop(self) -> None:
        frame = self.frames.pop()
        if not frame.is_discard:
            self._end_segment(frame)
        if frame.bodies:
            self._fail("a here-document has no end")
