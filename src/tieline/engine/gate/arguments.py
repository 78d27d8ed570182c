"""One program's arguments: options and their values, its first words, the folder and the scripts they name.

Rule 1: an option that stands in no table is taken for a flag; `words_of` says where the first word rests on
    that.
Rule 2: what only the shell could tell is the empty folder.

Source: the manual pages of the programs; reference/native.md 2.14, 3.5 "wrappers".
"""

from typing import NamedTuple

from tieline.engine.gate.splitting import EXPANSION
from tieline.engine.gate.tables import BUILTIN_SUBCOMMANDS, COMMON_FLAGS, SCRIPT_TOOLS, Tool, Wrapper

__all__ = [
    "ARGUMENTS_MAX",
    "RUN_WORDS",
    "Found",
    "compose",
    "moved",
    "option_at",
    "options_of",
    "positions",
    "scripts_of",
    "targets_of",
    "words_of",
]

ARGUMENTS_MAX = 512  # what follows is not looked at
WORDS_MAX = 16
PATH_CHARACTERS_MAX = 1_024
RUN_WORDS = frozenset({"run", "run-script", "rum", "urn"})
_NX_TARGETS = frozenset({"-t", "--target", "--targets"})
_NPM_SHORT = {
    "t": "test",
    "tst": "test",
    "test": "test",
    "start": "start",
    "stop": "stop",
    "restart": "restart",
    "it": "test",
    "cit": "test",
    "install-test": "test",
    "install-ci-test": "test",
}


class Found(NamedTuple):
    """What the options of a wrapper said."""

    at: int
    directory: str
    module: str = ""
    text: str = ""
    is_stopped: bool = False


def option_at(argv: tuple[str, ...], at: int, valued: frozenset[str]) -> tuple[str, str, int]:
    """Return an option's name, its value, and where what follows begins."""
    word = argv[at]
    following = argv[at + 1] if at + 1 < len(argv) else ""
    if word in valued:
        return word, following, at + 2
    if word.startswith("--"):
        name, _, value = word.partition("=")
        return name, value, at + 1
    for number, letter in enumerate(word[1:16], 2):
        if "-" + letter in valued:
            rest = word[number:]
            return "-" + letter, rest.removeprefix("=") or following, at + 1 if rest else at + 2
    return word, "", at + 1


def options_of(argv: tuple[str, ...], start: int, wrapper: Wrapper, directory: str) -> Found:
    """Return what a wrapper's options say and where they end."""
    at = start
    while at < len(argv):
        word = argv[at]
        if word == "--":
            return Found(at + 1, directory)
        if len(word) < 2 or word[0] != "-":
            break
        name, value, at = option_at(argv, at, wrapper.valued)
        if name in wrapper.stops or any(
            "-" + letter in wrapper.stops for letter in name[1:4] if name[1] != "-"
        ):
            return Found(at, directory, is_stopped=True)
        if name in wrapper.modules:
            return Found(at, directory, module=value)
        if name in wrapper.texts:
            return Found(at, directory, text=value)
        if name in wrapper.folders:
            directory = moved(directory, (value,))
    return Found(at, directory)


def positions(argv: tuple[str, ...], tool: Tool, count: int) -> list[int]:
    """Return where the first `count` arguments stand that are neither options nor their values."""
    found: list[int] = []
    at = 1
    while at < min(len(argv), ARGUMENTS_MAX) and len(found) < count:
        if argv[at][:1] == "-" and len(argv[at]) > 1:
            at = option_at(argv, at, tool.valued)[2]
        else:
            found.append(at)
            at += 1
    return found


def words_of(argv: tuple[str, ...], tool: Tool, directory: str) -> tuple[tuple[str, ...], str, bool]:
    """Return a program's first words, the folder that its options name, and whether the first is sure."""
    words: list[str] = []
    at, is_first_sure = 1, True
    while at < min(len(argv), ARGUMENTS_MAX) and len(words) < WORDS_MAX:
        word = argv[at]
        if word[:1] == "-" and len(word) > 1:
            name, value, at = option_at(argv, at, tool.valued)
            if name in tool.folders:
                directory = moved(directory, (value,))
            if not words:
                is_first_sure = (
                    word in tool.flags or word in COMMON_FLAGS or name in tool.valued or "=" in word
                )
        else:
            words.append(word)
            at += 1
    return tuple(words), directory, is_first_sure


def compose(name: str, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words without what only chooses: a toolchain, a workspace."""
    if name == "cargo" and words and words[0].startswith("+"):
        return words[1:]
    if name == "yarn" and words[:1] == ("workspace",):
        return words[2:]
    if name == "yarn" and words[:1] == ("workspaces",):
        return words[2:]
    return words


def scripts_of(name: str, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the scripts or targets that a package manager or task runner would run."""
    if not words:
        return ()
    first = words[0]
    if name in BUILTIN_SUBCOMMANDS:
        if first in RUN_WORDS:
            return words[1:2]
        if name == "npm":
            return (_NPM_SHORT[first],) if first in _NPM_SHORT else ()
        return () if first in BUILTIN_SUBCOMMANDS[name] else (_NPM_SHORT.get(first, first),)
    if name == "nx":
        return _of_nx(words)
    own = SCRIPT_TOOLS.get(name)
    if own is None:
        return ()
    if name == "turbo" and first not in {own, "watch"}:
        return words  # `run` may be left out
    if name in {"gradle", "gradlew"}:
        return tuple(word.rsplit(":", 1)[-1] for word in words)
    if not own:
        return words[:1] if name == "npx" else words
    return words[1:] if first == own or name == "turbo" else ()


def targets_of(name: str, argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the targets that options name; only nx has such."""
    if name != "nx":
        return ()
    found: list[str] = []
    at = 1
    while at < min(len(argv), ARGUMENTS_MAX):
        if argv[at][:1] != "-":
            at += 1
            continue
        option, value, at = option_at(argv, at, _NX_TARGETS)
        if option in _NX_TARGETS:
            found += value.split(",")
    return tuple(found)


def _of_nx(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the targets among the words: `test web`, `run web:test:ci`, `run-many -t build test`."""
    if words[0] == "run":
        return tuple(word.split(":")[1] for word in words[1:2] if ":" in word)
    return words[1:] if words[0] in {"run-many", "affected"} else words[:1]


def moved(directory: str, words: tuple[str, ...]) -> str:
    """Return the folder after a change to the first of `words`, empty when only the shell could tell."""
    target = next((word for word in words if word[:1] != "-" or word == "-"), "")
    if not target or EXPANSION in target or target[0] in "~-":
        return ""
    if target[0] != "/" and not directory:
        return ""
    # The folder so far is in its shortest form: only what is new is gone through.
    parts = directory.split("/")[1:] if target[0] != "/" and directory != "/" else []
    for part in target.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in {"", "."}:
            parts.append(part)
    path = "/" + "/".join(parts)
    return path if len(path) <= PATH_CHARACTERS_MAX else ""
