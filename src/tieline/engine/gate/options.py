"""Which arguments of a program are surely options or words of its own, and not the value of an option.

Theory. `git commit -m --dry-run` is a commit whose message is `--dry-run`. Whether a word is a value is known
only where the option before it is known: as a flag, which takes none, or as one that takes a value.
After any other option the next word may be either, so nothing may rest on it.

Rule 1: a place is sure only when every reading of the words before it leaves it an argument of its own.
Rule 2: after `--`, and after the words with which a program hands over to another, nothing is sure: those
    are operands, or another program's arguments.
Rule 3: what is sure decides that a command needs nothing; that it needs something is decided without this.

Source: POSIX, "Utility Argument Syntax"; the manual pages of the programs.
"""

from itertools import pairwise
from typing import NamedTuple

from tieline.engine.gate.arguments import RUN_WORDS
from tieline.engine.gate.splitting import EXPANSION
from tieline.engine.gate.tables import (
    BUILTIN_SUBCOMMANDS,
    COMMON_FLAGS,
    HAND_OVERS,
    PLAIN_TOOL,
    RUNNERS,
    SHELLS,
    TOOLS,
    WRAPPERS,
    Tool,
)

__all__ = ["Sure", "is_taken_back", "sure_of"]

_NEGATIVE = frozenset({"false", "no", "off", "0", "null"})
_FLAG, _VALUED, _UNSURE = "flag", "valued", "unsure"


class Sure(NamedTuple):
    """What is sure of a program's arguments: the `places` of options and words, and the first `words`.

    A word that may be an option's value stands among the words as one that equals no pattern.
    """

    places: frozenset[int]
    words: tuple[str, ...]


def sure_of(name: str, arguments: tuple[str, ...]) -> Sure:
    """Return what is sure of the arguments of the program `name`, as rules know it."""
    tool = TOOLS.get(name, PLAIN_TOOL)
    ends = _ends_of(name)
    places: set[int] = set()
    words: list[str] = []
    has_value = may_be_value = False
    for at, word in enumerate(arguments):
        if has_value:
            has_value = False
            continue
        if word == "--":
            if name not in BUILTIN_SUBCOMMANDS or may_be_value or not _runs_script(name, words):
                break
            continue
        if not may_be_value:
            places.add(at)
        is_option = word[:1] == "-" and len(word) > 1
        if not is_option:
            words.append(EXPANSION if may_be_value else word)
            may_be_value = False
            if any(_begins(words, end) for end in ends):
                break
            continue
        kind = _kind(word, tool)
        has_value = kind is _VALUED and not may_be_value
        may_be_value = kind is _UNSURE or (kind is _VALUED and may_be_value)
    return Sure(frozenset(places), tuple(words))


def is_taken_back(pattern: str, arguments: tuple[str, ...]) -> bool:
    """Return whether other arguments say the opposite of an option: `--no-x`, `--x=false`, `--x false`."""
    if pattern[:2] != "--" or pattern.endswith("*"):
        return False
    opposite, beginning = f"--no-{pattern[2:]}", f"{pattern}="
    if any(word == opposite or word.startswith(beginning) for word in arguments):
        return True
    following = pairwise(arguments)
    return any(word == pattern and after.lower() in _NEGATIVE for word, after in following)


def _kind(word: str, tool: Tool) -> str:
    """Return what an option does with the word after it, as far as it is known."""
    if word[:2] == "--":
        if "=" in word or word in tool.flags or word in COMMON_FLAGS:
            return _FLAG
        return _VALUED if word in tool.valued else _UNSURE
    if word in tool.valued:
        return _VALUED
    if word in tool.flags:
        return _FLAG
    for number, letter in enumerate(word[1:], 2):
        option = "-" + letter
        if option in tool.valued:
            return _VALUED if number == len(word) else _FLAG
        if option not in tool.flags:
            is_number = number > 2 and word[number - 1 :].isdigit()
            return _FLAG if is_number else _UNSURE
    return _FLAG


def _ends_of(name: str) -> tuple[tuple[str, ...], ...]:
    """Return the words after which the arguments are another program's; `*` is any word."""
    if name in WRAPPERS or name in SHELLS:
        return (("*",),)
    runner = tuple(tuple(words.split(" ")) for words in RUNNERS.get(name, ()))
    return runner + HAND_OVERS.get(name, ())


def _begins(words: list[str], end: tuple[str, ...]) -> bool:
    return len(words) == len(end) and all(
        wanted in ("*", word) or word == EXPANSION for word, wanted in zip(words, end, strict=True)
    )


def _runs_script(name: str, words: list[str]) -> bool:
    """Return whether a package manager hands what follows `--` to a script."""
    return bool(words) and (words[0] in RUN_WORDS or words[0] not in BUILTIN_SUBCOMMANDS[name])
