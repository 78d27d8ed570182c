"""Which resources a command needs before it may start.

Theory. A rule names a resource and what a command must be to need it. Every program that a command would
start is held against every rule; a command needs all resources that any of them needs, as one bundle.

Rule 1: no is a value, and any input gets a verdict: nothing here raises on a command.
Rule 2: patterns are plain words, or the beginning of one before a `*`. No expression can take long.
Rule 3: the repository of another folder is not guessed: `Verdict.directories` names the folders, and the
    caller asks again with their facts. Until then a command is taken to work in its own repository.
Rule 4: a command needs nothing because of an option only where that is surely no option's value.
Rule 5: this module starts nothing, reads no file, and knows neither holder nor queue.

Source: reference/native.md 2.13 "Keys", 2.14, 3.5.
"""

import functools
import hashlib
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from tieline.config import Rule
from tieline.engine.gate.options import is_taken_back, sure_of
from tieline.engine.gate.profiles import Class, is_build
from tieline.engine.gate.reading import Subject, executable_name, read
from tieline.engine.gate.splitting import EXPANSION, split

__all__ = [
    "GateCommand",
    "RepositoryFacts",
    "Verdict",
    "complete_key",
    "quoted",
    "repository_token",
    "requirements",
    "suggestion",
]

REASONS_MAX = 4
DIRECTORIES_MAX = 16  # each costs the caller a look at the disk
NAME_CHARACTERS_MAX = 40
_UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]")
_PUT_TOGETHER = f"{EXPANSION}*?[{{"  # a word with one of these is whatever the shell makes of it
_BARE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")


class GateCommand(NamedTuple):
    """A command as a host is about to start it: `argv`, or the `text` that a shell would be given.

    `directory` is the absolute path where it would run, in its shortest form.
    """

    argv: tuple[str, ...] | None
    text: str
    directory: str


class RepositoryFacts(NamedTuple):
    """What the caller saw on disk.

    `repository_id` is the token of the repository of the command's folder, None outside of any; `workspace`
    the root of its checkout, or the folder itself. `elsewhere` gives the same for other folders, by absolute
    path; what it says of their own `elsewhere` is not looked at.
    """

    repository_id: str | None
    workspace: str
    elsewhere: Mapping[str, "RepositoryFacts"] = MappingProxyType({})


class Verdict(NamedTuple):
    """What a command needs.

    `keys` are sorted and without repeats; `classes` the profiles that gate it; `reason` one sentence for a
    person, free of the command's arguments; `is_parsed` says that nothing was left unread; `executable` is
    the base name of the first program, empty when it cannot be told; `directories` are folders whose
    repository would change the keys and is not among the facts, at most `DIRECTORIES_MAX`.
    """

    keys: tuple[str, ...]
    classes: Class
    reason: str
    is_parsed: bool
    executable: str
    directories: tuple[str, ...]


def requirements(command: GateCommand, rules: tuple[Rule, ...], facts: RepositoryFacts) -> Verdict:
    """Return the resources that a command needs, and under which profiles it is gated.

    Args:
        command: What is about to start.
        rules: Rules of a person, with those of the rule sets that were switched on.
        facts: The repositories that the command may concern.
    """
    reading = read(command.argv, command.text, command.directory)
    own = {"", command.directory, facts.workspace}
    index = _indexed(rules)
    needs: dict[str, tuple[str, Rule]] = {}
    unknown: set[str] = set()
    is_any_built = False
    for subject in reading.subjects:
        is_built = is_build(subject)
        is_any_built = is_any_built or is_built
        if subject.is_covered_whole:
            continue
        fitting = index.fitting(subject, is_built=is_built)
        if not fitting:
            continue
        place = facts if subject.directory in own else facts.elsewhere.get(subject.directory)
        held = {
            complete_key(written, facts if directory in own else facts.elsewhere.get(directory, facts))
            for written, directory in subject.covered
        }
        for rule in fitting:
            key = complete_key(rule.resource, place or facts)
            if key in held:
                continue
            needs.setdefault(key, (subject.executable, rule))
            if place is None and rule.resource.startswith("repository/"):
                unknown.add(subject.directory)
    first = reading.subjects[0].executable if reading.subjects else ""
    classes = Class.STRICT if reading.subjects else Class.NONE
    return Verdict(
        tuple(sorted(needs)),
        classes | Class.BUILD if is_any_built else classes,
        _reason(needs, reading.fault),
        not reading.fault,
        _shown(first) if first else "",
        tuple(sorted(unknown)[:DIRECTORIES_MAX]),
    )


def complete_key(resource: str, facts: RepositoryFacts) -> str:
    """Return the full key of a resource; `repository/NAME` gets the token of the repository.

    Args:
        resource: A key that `config.is_resource_key` admits.
        facts: The repository that a short form means.
    """
    parts = resource.split("/")
    if parts[0] == "repository" and len(parts) == 2:
        return f"repository/{repository_token(facts)}/{parts[1]}"
    return resource


def repository_token(facts: RepositoryFacts) -> str:
    """Return the token of a repository; outside of any, one made from the folder that is shared."""
    if facts.repository_id is not None:
        return facts.repository_id
    digest = hashlib.sha256(facts.workspace.encode("utf-8", "surrogateescape")).hexdigest()
    return f"workspace-{digest[:32]}"


def suggestion(command: GateCommand, keys: tuple[str, ...], shell: str = "bash") -> str:
    """Return the line that runs a command under the resources it needs.

    Args:
        command: What was about to start.
        keys: `Verdict.keys`.
        shell: Program that understands `command.text`.

    Returns:
        Text for a POSIX shell. The folder of the shell that reads it does not change with it.
    """
    run = " ".join(["tieline", "run", *(f"--resource {quoted(key)}" for key in keys), "--"])
    if command.argv is not None:
        return " ".join([run, *map(quoted, command.argv)])
    if _is_one_plain_command(command.text):
        return f"{run} {command.text.strip()}"
    return f"{run} {shell} -c {quoted(command.text)}"


def quoted(word: str) -> str:
    """Return a word so that a POSIX shell reads it as that one word."""
    if _BARE.fullmatch(word):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"


def _is_one_plain_command(text: str) -> bool:
    """Return whether a text is one program with plain words, so that no shell is needed to run it."""
    words = text.split(" ")
    if not all(map(_BARE.fullmatch, filter(None, words))):
        return False
    segments = split(text).segments
    return len(segments) == 1 and segments[0].words == tuple(filter(None, words))


class _Matcher:
    """One rule, made ready: what a long command asks of it a thousand times costs little."""

    __slots__ = ("arguments", "rule", "scripts", "subcommands", "without")

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.subcommands = _Patterns(rule.subcommands)
        self.scripts = _Patterns(rule.scripts)
        self.arguments = _Patterns(rule.arguments)
        self.without = _Exceptions(rule.without)

    def fits(self, subject: Subject, *, is_built: bool) -> bool:
        """Return whether a program is all that the rule names; the executable was looked up."""
        rule = self.rule
        if rule.profile == "build" and not is_built:
            return False
        if rule.subcommands and not self._is_subcommand(subject):
            return False
        if rule.scripts and not self.scripts.are_in(subject.scripts):
            return False
        if rule.arguments and not self.arguments.are_in(subject.arguments + subject.assignments):
            return False
        return not (rule.without and self.without.hold(subject))

    def _is_subcommand(self, subject: Subject) -> bool:
        """Return whether the first words are the rule's, or may be: what only the shell knows may be any."""
        if subject.words and any(sign in subject.words[0] for sign in _PUT_TOGETHER):
            return True
        return self.subcommands.begin(subject.words) or self.subcommands.begin(subject.other_words)


class _Patterns:
    """The patterns of one field, by their form."""

    __slots__ = ("beginnings", "plain", "sequences")

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self.plain = frozenset(one for one in patterns if " " not in one and not one.endswith("*"))
        self.beginnings = tuple(one[:-1] for one in patterns if " " not in one and one.endswith("*"))
        self.sequences: dict[str, list[list[str]]] = {}
        for one in patterns:
            if " " in one:
                self.sequences.setdefault(one.split(" ")[0], []).append(one.split(" "))

    def begin(self, words: tuple[str, ...]) -> bool:
        """Return whether the first words are those of a pattern."""
        if not words:
            return False
        if words[0] in self.plain or words[0].startswith(self.beginnings):
            return True
        return any(_is_sequence(words, 0, wanted) for wanted in self.sequences.get(words[0], ()))

    def are_in(self, words: tuple[str, ...]) -> bool:
        """Return whether the words of a pattern stand next to each other anywhere."""
        if not self.plain.isdisjoint(words):
            return True
        if self.beginnings and any(word.startswith(self.beginnings) for word in words):
            return True
        return any(
            _is_sequence(words, at, wanted)
            for at, word in enumerate(words if self.sequences else ())
            for wanted in self.sequences.get(word, ())
        )


class _Exceptions:
    """What a rule does not hold for. Each must be surely said: a value, an operand or a file is not."""

    __slots__ = ("assigned", "beginnings", "leading", "plain", "sequences")

    def __init__(self, patterns: tuple[str, ...]) -> None:
        options = [one for one in patterns if one[:1] == "-"]
        self.plain = frozenset(one for one in options if " " not in one and one[-1] != "*")
        self.beginnings = tuple(one[:-1] for one in options if " " not in one and one[-1] == "*")
        self.sequences = [one.split(" ") for one in options if " " in one]
        self.assigned = _Patterns(tuple(one for one in patterns if one[:1] != "-" and "=" in one))
        leading = tuple(one for one in patterns if one[:1] != "-" and "=" not in one)
        self.leading = _Patterns(leading) if leading else None

    def hold(self, subject: Subject) -> bool:
        """Return whether the program is surely asked for one of these."""
        sure = sure_of(subject.executable, subject.arguments)
        places = sorted(sure.places)
        own = tuple(subject.arguments[at] for at in places)
        said = self.plain.intersection(own)
        if any(not is_taken_back(one, subject.arguments) for one in sorted(said)):
            return True
        if self.beginnings and any(word.startswith(self.beginnings) for word in own):
            return True
        if any(_is_sequence(subject.arguments, at, wanted) for wanted in self.sequences for at in places):
            return True
        if self.assigned.are_in(subject.assignments + own):
            return True
        return self.leading is not None and self._are_all(sure.words, is_list=subject.is_list)

    def _are_all(self, words: tuple[str, ...], *, is_list: bool) -> bool:
        """Return whether the first words are one of these; of a list of targets, each."""
        assert self.leading is not None
        if is_list:
            return bool(words) and all(self.leading.begin((word,)) for word in words)
        return self.leading.begin(words)


def _is_sequence(words: tuple[str, ...], at: int, wanted: list[str]) -> bool:
    """Return whether the words from `at` are those wanted; the last may be a beginning."""
    if words[at : at + len(wanted) - 1] != tuple(wanted[:-1]) or len(words) < at + len(wanted):
        return False
    last, word = wanted[-1], words[at + len(wanted) - 1]
    return word.startswith(last[:-1]) if last.endswith("*") else word == last


class _Index:
    """Rules by the programs that they name, so that a long command costs little."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.by_name: dict[str, list[_Matcher]] = {}
        self.scripted: list[_Matcher] = []
        self.general: list[_Matcher] = []
        for rule in rules:
            matcher = _Matcher(rule)
            if rule.executables:
                for name in sorted({executable_name(one) for one in rule.executables}):
                    self.by_name.setdefault(name, []).append(matcher)
            elif rule.scripts:
                self.scripted.append(matcher)
            else:
                self.general.append(matcher)

    def fitting(self, subject: Subject, *, is_built: bool) -> list[Rule]:
        """Return the rules that fit a program."""
        named = self.by_name.get(subject.executable, ())
        scripted = self.scripted if subject.scripts else ()
        return [
            one.rule for one in (*named, *scripted, *self.general) if one.fits(subject, is_built=is_built)
        ]


@functools.lru_cache(maxsize=8)
def _indexed(rules: tuple[Rule, ...]) -> _Index:
    """Return the rules made ready; a root asks with the same ones at every command."""
    return _Index(rules)


def _reason(needs: dict[str, tuple[str, Rule]], fault: str) -> str:
    """Return one sentence that says what needs what, or why nothing is needed."""
    said = [
        f"{_shown(name) if name else 'what could not be read'} needs {rule.resource}"
        + (f" (rule {rule.name})" if rule.name else "")
        for name, rule in needs.values()
    ]
    if len(said) > REASONS_MAX:
        said[REASONS_MAX:] = [f"{len(said) - REASONS_MAX} more"]
    unread = f"the command could not be read whole: {fault}" if fault else ""
    return "; ".join(filter(None, [*said, unread])) or "no rule names this command"


def _shown(name: str) -> str:
    """Return a program's name as a person may be shown it: plain characters, short."""
    return _UNSAFE.sub("?", name)[:NAME_CHARACTERS_MAX]
