"""A command as it was handed over -> every program in it that would be started, as far as can be read.

Theory. A command is a nest: a shell's text, a program that starts another, a package manager that starts a
script. Each layer is a `Subject`, because a rule may name any of them. What cannot be read is a subject too,
an opaque one, so that a strict rule still sees it.

Rule 1: matching by name is a help against accidents, not a proof: a program can start what it likes.
Rule 2: texts in texts and programs that start programs are bounded; beyond the bound all is opaque.
Rule 3: what `tieline run` starts is covered by the resources that it names, all of them under `--gate`.
Rule 4: this module knows no rule and no resource.

Source: reference/native.md 2.14, 3.5 "wrappers".
"""

import re
from typing import NamedTuple

from tieline.engine.gate.arguments import (
    ARGUMENTS_MAX,
    RUN_WORDS,
    compose,
    moved,
    option_at,
    options_of,
    positions,
    scripts_of,
    targets_of,
    words_of,
)
from tieline.engine.gate.splitting import EXPANSION, TOKENS_MAX, Segment, split
from tieline.engine.gate.tables import (
    BUILTIN_SUBCOMMANDS,
    NICKNAMES,
    PLAIN_TOOL,
    RUNNERS,
    SCRIPT_TOOLS,
    SHELLS,
    TOOLS,
    WRAPPERS,
    Wrapper,
)

__all__ = [
    "ARGUMENTS_MAX",
    "LAYERS_MAX",
    "SUBJECTS_MAX",
    "TEXTS_MAX",
    "Reading",
    "Subject",
    "executable_name",
    "read",
]

LAYERS_MAX = 16  # programs that start programs, in one command
TEXTS_MAX = 8  # a shell's text inside a shell's text
SUBJECTS_MAX = 192
EXPORTS_MAX = 64  # the last ones of a text
EVERYTHING = frozenset({"*"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_ENDINGS = re.compile(r"\.(?:exe|cmd|bat|js|mjs|cjs)$")
_NUMBERED_PYTHON = re.compile(r"python[0-9.]+$")
_EXPORTERS = frozenset({"export", "declare", "typeset"})
_FIND_ACTIONS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_OPTIONS_OF_RUN = frozenset({
    "--resource", "--timeout", "--reason", "--ticket", "--on-orphan", "--instance", "--run"
})  # fmt: skip
_ENVIRONMENT_FOLDERS = {"GIT_DIR": "git", "GIT_WORK_TREE": "git"}


class Subject(NamedTuple):
    """One program that would be started.

    `executable` is its base name, empty when it cannot be told; `words` are its first arguments that are
    neither options nor their values; `scripts` the scripts or targets among them; `directory` is where it
    works, empty when only the shell could tell; `covered` are the resources, as they were written, that
    a `tieline run` around it holds, each with the directory it was named in. `other_words` are the words if
    the first one is the value of an option that is not known; `is_list` says that each word is a target.
    """

    executable: str
    arguments: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    assignments: tuple[str, ...] = ()
    directory: str = ""
    covered: frozenset[tuple[str, str]] = frozenset()
    is_covered_whole: bool = False
    other_words: tuple[str, ...] = ()
    is_list: bool = False


class Reading(NamedTuple):
    """What a command would start; `fault` says what could not be read, empty when all was."""

    subjects: list[Subject]
    fault: str


def read(argv: tuple[str, ...] | None, text: str, directory: str) -> Reading:
    """Return every program that a command would start.

    Args:
        argv: The command as separate arguments, or None when `text` is what a shell would be given.
        text: A shell's text; not looked at when there are arguments.
        directory: Absolute path where it would run.
    """
    walk = _Walk()
    place = _Place(moved("", (directory,)), (), frozenset(), is_covered_whole=False, depth=0)
    if argv is None:
        walk.read_text(text, place)
    else:
        walk.read_command(argv, (), place)
    return Reading(walk.subjects, walk.fault)


def executable_name(path: str) -> str:
    """Return the name by which rules know a program: no folder, no version, no ending of another system."""
    name = _ENDINGS.sub("", path.rsplit("/", 1)[-1])
    if "@" in name[1:]:
        name = name[0] + name[1:].partition("@")[0]
    if _NUMBERED_PYTHON.match(name):
        return "python"
    return NICKNAMES.get(name, name)


class _Place(NamedTuple):
    """Where a command stands: its folder and environment, what covers it, how deep in texts it is."""

    directory: str
    assignments: tuple[str, ...]
    covered: frozenset[tuple[str, str]]
    is_covered_whole: bool
    depth: int


class _Walk:
    """Goes through one command and gathers its subjects."""

    def __init__(self) -> None:
        self.subjects: list[Subject] = []
        self.fault = ""
        self.tokens_left = TOKENS_MAX
        self.aliases: dict[str, str] = {}

    def opaque(self, why: str, place: _Place) -> None:
        """Note a part that cannot be read."""
        self.fault = self.fault or why
        if not self.subjects or self.subjects[-1].executable:
            self.subjects.append(
                Subject("", (), (), (), (), place.directory, place.covered, place.is_covered_whole)
            )

    def read_text(self, text: str, place: _Place) -> None:
        """Read a shell's text."""
        if place.depth >= TEXTS_MAX:
            self.opaque("it is nested too deeply", place)
            return
        if place.depth and EXPANSION in text:
            self.opaque("what it runs is put together by the shell", place)
        place = place._replace(depth=place.depth + 1)
        script = split(text, max(0, self.tokens_left))
        self.tokens_left -= script.token_count
        directories = {0: place.directory}
        exports: dict[int, tuple[str, ...]] = {0: ()}
        seen: set[tuple[Segment, str, tuple[str, ...]]] = set()
        for segment in script.segments:
            frame = segment.frame
            while frame not in directories:
                frame = script.parents[frame]
            directory = directories.setdefault(segment.frame, directories[frame])
            exported = exports.setdefault(segment.frame, exports[frame])
            if segment.words and segment.words[0] in _EXPORTERS:
                exports[segment.frame] = (exported + _exported_by(segment.words))[-EXPORTS_MAX:]
            if segment.words and segment.words[0] in {"cd", "pushd"}:
                directories[segment.frame] = moved(directory, segment.words[1:])
            if segment.words and segment.words[0] == "alias":
                self.aliases |= dict(word.split("=", 1) for word in segment.words[1:] if "=" in word)
            if segment.words and (segment, directory, exported) not in seen:
                seen.add((segment, directory, exported))
                assignments = place.assignments + exported + segment.assignments
                there = place
                if directory != place.directory or exported or segment.assignments:
                    there = place._replace(directory=directory, assignments=assignments)
                named = self.aliases.get(segment.words[0])
                if named is not None and len(segment.words) + len(named) <= ARGUMENTS_MAX:
                    self.read_text(_with_rest(named, segment.words[1:]), there)
                self.read_command(segment.words, segment.inputs, there)
        if script.fault:
            self.opaque(script.fault, place)

    def read_command(self, argv: tuple[str, ...], inputs: tuple[str, ...], place: _Place) -> None:
        """Read one command, layer by layer, down to the program that starts no other."""
        for _layer in range(LAYERS_MAX):
            if not argv:
                return
            if len(self.subjects) >= SUBJECTS_MAX:
                self.opaque("it is too long to be read whole", place)
                return
            name = executable_name(argv[0])
            if not name or _is_put_together(name, is_text=place.depth > 0):
                self.opaque("what it runs is put together by the shell", place)
                return
            if name.startswith("git-"):
                name, argv = "git", ("git", name[4:], *argv[1:])
            if name == "tieline":
                inner = self._tieline(argv, place)
            else:
                place = self._subject(name, argv, place)
                inner = self._inner(name, argv, inputs, place)
            if inner is None:
                return
            argv, place = inner
        self.opaque("it is nested too deeply", place)

    def _subject(self, name: str, argv: tuple[str, ...], place: _Place) -> _Place:
        """Note the program of this layer; return the place as its options move it."""
        tool = TOOLS.get(name, PLAIN_TOOL)
        words, directory, is_first_sure = words_of(argv, tool, place.directory)
        for assignment in place.assignments:
            variable, _, value = assignment.partition("=")
            if _ENVIRONMENT_FOLDERS.get(variable) == name:
                directory = moved(place.directory, (value,))
        if name == "git":
            words, argv = self._alias_of_git(words, argv, place)
        words = compose(name, words)
        scripts = scripts_of(name, words) + targets_of(name, argv)
        if not is_first_sure:
            scripts += scripts_of(name, words[1:])
        self.subjects.append(
            Subject(
                name,
                argv[1 : 1 + ARGUMENTS_MAX],
                words,
                scripts,
                place.assignments,
                directory,
                place.covered,
                place.is_covered_whole,
                () if is_first_sure else compose(name, words[1:]),
                SCRIPT_TOOLS.get(name) == "" and name != "npx",
            )
        )
        return place if directory == place.directory else place._replace(directory=directory)

    def _alias_of_git(
        self, words: tuple[str, ...], argv: tuple[str, ...], place: _Place
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return words and arguments with the alias that this command defines; one of `!` is read as text."""
        given = [one.partition("=") for one in argv[1:] if one.startswith("alias.")]
        meant = next((value for key, _, value in given if words and key == f"alias.{words[0]}"), None)
        if meant is None:
            return words, argv
        if meant.startswith("!"):
            self.read_text(_with_rest(meant[1:], words[1:]), place)
            return words, argv
        put_in = tuple(meant.split())
        return put_in + words[1:], (*argv[:1], *put_in, *argv[argv.index(words[0]) + 1 :])

    def _inner(
        self, name: str, argv: tuple[str, ...], inputs: tuple[str, ...], place: _Place
    ) -> tuple[tuple[str, ...], _Place] | None:
        """Return the command that this one starts, after reading any text that it runs."""
        if name in SHELLS:
            return self._shell(argv, inputs, place)
        if name == "find":
            self._find(argv, place)
            return None
        if name in {".", "source"}:
            return argv[1:], place
        wrapper = WRAPPERS.get(name)
        if wrapper is not None:
            return self._wrapped(argv, 1, wrapper, place)
        runner = RUNNERS.get(name)
        if runner is not None:
            return self._run(name, argv, runner, place)
        return None

    def _run(
        self, name: str, argv: tuple[str, ...], runner: dict[str, Wrapper], place: _Place
    ) -> tuple[tuple[str, ...], _Place] | None:
        """Return what follows a runner's own word; a package manager also starts a program by its name."""
        places = positions(argv, TOOLS.get(name, PLAIN_TOOL), 2)
        if not places:
            return None
        first = argv[places[0]]
        both = f"{first} {argv[places[1]]}" if len(places) > 1 else ""
        if both in runner:
            return self._wrapped(argv, places[1] + 1, runner[both], place)
        if first in runner:
            return self._wrapped(argv, places[0] + 1, runner[first], place)
        builtin = BUILTIN_SUBCOMMANDS.get(name)
        if builtin is not None and name != "npm" and first not in builtin and first not in RUN_WORDS:
            return argv[places[0] :], place
        return None

    def _wrapped(
        self, argv: tuple[str, ...], start: int, wrapper: Wrapper, place: _Place
    ) -> tuple[tuple[str, ...], _Place] | None:
        """Return the command after a wrapper's options and operands."""
        found = options_of(argv, start, wrapper, place.directory)
        if wrapper.own_word and argv[found.at : found.at + 1] == (wrapper.own_word,):
            found = options_of(argv, found.at + 1, wrapper, found.directory)
        if found.is_stopped:
            return None
        if found.directory != place.directory:
            place = place._replace(directory=found.directory)
        at = found.at
        if not found.text and not found.module and wrapper.operand_count:
            at += wrapper.operand_count
            if at < len(argv) and argv[at].split("=")[0] in wrapper.texts:
                found = options_of(argv, at, wrapper, place.directory)
                at = found.at
        if found.text:
            self.read_text(
                _with_rest(found.text, argv[at:]) if argv[0].endswith("env") else found.text, place
            )
            return None
        if found.module:
            return (found.module, *argv[at:]), place
        if wrapper.takes_assignments:
            first = at
            while at < len(argv) and _ASSIGNMENT.match(argv[at]):
                at += 1
            place = place._replace(assignments=place.assignments + argv[first:at])
        if wrapper.joins_words:
            words = argv[at : at + 1] if argv[0] == "trap" else argv[at:]
            if argv[0].endswith("parallel") and ":::" in words:
                words = words[: words.index(":::")]
            self.read_text(" ".join(words), place)
            return None
        return argv[at:], place

    def _shell(
        self, argv: tuple[str, ...], inputs: tuple[str, ...], place: _Place
    ) -> tuple[tuple[str, ...], _Place] | None:
        """Read a shell's text, or return the script file that it would run."""
        at, has_text = 1, False
        while at < len(argv) and argv[at][:1] in {"-", "+"} and argv[at] != "-":
            option = argv[at]
            at += 1
            if option == "--":
                break
            if option == "--command":
                has_text = True
            elif option[:2] == "--":
                at += option in {"--rcfile", "--init-file"}
            else:
                has_text = has_text or (option[0] == "-" and "c" in option)
                at += option[-1] in "oO"
        if has_text:
            if at < len(argv):
                self.read_text(argv[at], place)
            return None
        if at < len(argv) and argv[at] != "-":
            return argv[at:], place
        for text in inputs:
            self.read_text(text, place)
        return None

    def _find(self, argv: tuple[str, ...], place: _Place) -> None:
        """Read each command that `find` would start."""
        at = 1
        while at < len(argv):
            at += 1
            if argv[at - 1] in _FIND_ACTIONS:
                # What is inside a started command is that command's: overlapping parts would multiply.
                stop = next((end for end in range(at, len(argv)) if argv[end] in {";", "+"}), len(argv))
                if place.depth >= TEXTS_MAX:
                    self.opaque("it is nested too deeply", place)
                else:
                    self.read_command(argv[at:stop], (), place._replace(depth=place.depth + 1))
                at = stop

    @staticmethod
    def _tieline(argv: tuple[str, ...], place: _Place) -> tuple[tuple[str, ...], _Place] | None:
        """Return what `tieline run` starts, covered by what it names; its other commands start nothing."""
        if argv[1:2] != ("run",) or "--" not in argv:
            return None
        stop = argv.index("--")
        named, is_whole, at = set(place.covered), place.is_covered_whole, 2
        while at < stop:
            # The value of an option is none itself: a reason that reads --gate covers nothing.
            option, value, at = option_at(argv, at, _OPTIONS_OF_RUN)
            if option == "--resource":
                named.add((value, place.directory))
            is_whole = is_whole or option == "--gate"
        return argv[stop + 1 :], place._replace(covered=frozenset(named), is_covered_whole=is_whole)


def _exported_by(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return what a command of the shell puts with its value into the environment of those that follow."""
    is_exported = words[0] == "export" or any(word[:1] == "-" and "x" in word for word in words[1:])
    return tuple(word for word in words[1:] if _ASSIGNMENT.match(word)) if is_exported else ()


def _is_put_together(name: str, *, is_text: bool) -> bool:
    """Return whether a shell makes a program's name: of an expansion, of braces, or by looking for files."""
    if EXPANSION in name:
        return True
    return is_text and name not in {"[", "[["} and any(sign in name for sign in "*?[{")


def _with_rest(text: str, words: tuple[str, ...]) -> str:
    """Return a shell's text with more arguments, each quoted; what only the shell knows stays unknown."""
    quoted = ("'" + word.replace("'", "'\"'\"'") + "'" for word in words[:ARGUMENTS_MAX])
    return " ".join((text, *quoted))
