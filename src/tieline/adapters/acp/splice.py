"""Add to a line of JSON without writing the rest of it anew.

Rule: outside of what is added every byte stays: the order of members, spaces, how a number is spelled,
members that are there twice (of which the last counts, as for every reader), bytes that are no UTF-8.

Source: docs/harnesses/acp.md; reference/native.md 4.1.
"""

import json
import re
from collections.abc import Iterator
from typing import Final

__all__ = ["append", "put"]

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_VALUE: Final = json.JSONDecoder().raw_decode


def put(data: bytes, path: tuple[str, ...], value: str) -> bytes:
    """Return the line with this JSON as the member at `path`; objects on the way are made where none are.

    Args:
        data: One object, which `json` can read.
        path: The names of members, the outermost first.
        value: JSON in ASCII.
    """
    text = _text(data)
    at = _after_space(text, 0)
    for depth, name in enumerate(path):
        made = value
        for inner in reversed(path[depth + 1 :]):
            made = f"{{{json.dumps(inner)}:{made}}}"
        found = _member(text, at, name)
        if found is None:
            comma = "" if text[_after_space(text, at + 1)] == "}" else ","
            return _bytes(f"{text[: at + 1]}{json.dumps(name)}:{made}{comma}{text[at + 1 :]}")
        start, end = found
        if depth == len(path) - 1 or text[start] != "{":
            return _bytes(text[:start] + made + text[end:])
        at = start
    raise AssertionError("a path names at least one member")


def append(data: bytes, path: tuple[str, ...], value: str) -> bytes:
    """Return the line with this JSON as the last of the list at `path`, which is there."""
    text = _text(data)
    at = end = _after_space(text, 0)
    for name in path:
        found = _member(text, at, name)
        assert found is not None, "the caller has seen it"
        at, end = found
    comma = "" if text[_after_space(text, at + 1)] == "]" else ","
    return _bytes(f"{text[: end - 1]}{comma}{value}{text[end - 1 :]}")


def _member(text: str, at: int, name: str) -> tuple[int, int] | None:
    """Return where the value of a member begins and ends, in the object that begins at `at`."""
    found = None
    for told, start, end in _members(text, at):
        if told == name:
            found = start, end
    return found


def _members(text: str, at: int) -> Iterator[tuple[str, int, int]]:
    at = _after_space(text, at + 1)
    while text[at] != "}":
        name, end = _VALUE(text, at)
        start = _after_space(text, _after_space(text, end) + 1)  # behind the colon
        _, end = _VALUE(text, start)
        yield name, start, end
        at = _after_space(text, end)
        if text[at] == ",":
            at = _after_space(text, at + 1)


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None, "no space is space enough"
    return found.end()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
