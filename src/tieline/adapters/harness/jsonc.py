"""JSON with comments and trailing commas, read so that every value keeps its place in the text.

Rule 1: what is read is what the harnesses read: JSON, `//` and `/* */`, a comma before a closing bracket.
Rule 2: what is wrong is said with its line; nothing is guessed.
Rule 3: it reads and changes nothing.

Source: RFC 8259; the files named in reference/harnesses.md.
"""

import json
import re
from typing import Any, Final, NamedTuple, NoReturn

from tieline.errors import UsageError

__all__ = ["SPACE", "Item", "Node", "find", "is_blank", "parse", "skip"]

SPACE: Final = " \t\r\n"
DEPTH_MAX: Final = 200
_DECODER: Final = json.JSONDecoder()
_PLAIN: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")


class Node(NamedTuple):
    """One value: `text[start:end]`; `items` of an object or an array, in order."""

    start: int
    end: int
    value: Any
    items: "tuple[Item, ...]" = ()


class Item(NamedTuple):
    """A member or an element, from its key on; `comma` is the place of the comma behind it, or -1."""

    start: int
    key: str
    node: Node
    comma: int


def parse(text: str, path: str) -> Node:
    """Return the one value of a file; `path` is for the sentence about what is wrong.

    Raises:
        UsageError: it is not JSON with comments; the line is named.
    """
    at = skip(text, 1 if text.startswith("\ufeff") else 0, path)
    node = _value(text, at, path, 0)
    rest = skip(text, node.end, path)
    if rest != len(text):
        _fail(text, rest, path, "something stands behind the value")
    return node


def is_blank(text: str, path: str) -> bool:
    """Return whether a text holds no value: nothing, or spaces and comments alone.

    Raises:
        UsageError: a comment has no end; the line is named.
    """
    return skip(text, 1 if text.startswith("\ufeff") else 0, path) == len(text)


def find(node: Node, keys: tuple[str, ...]) -> Node | None:
    """Return the value below `node` at these keys, or None; of equal keys the last one counts."""
    for key in keys:
        if not isinstance(node.value, dict):
            return None
        found = [item.node for item in node.items if item.key == key]
        if not found:
            return None
        node = found[-1]
    return node


def skip(text: str, at: int, path: str) -> int:
    """Return where the first sign stands from `at` on that is neither space nor comment."""
    while at < len(text):
        if text[at] in SPACE:
            at += 1
        elif text.startswith("//", at):
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif text.startswith("/*", at):
            end = text.find("*/", at + 2)
            if end < 0:
                _fail(text, at, path, "this comment has no end")
            at = end + 2
        else:
            break
    return at


def _value(text: str, at: int, path: str, depth: int) -> Node:
    if depth > DEPTH_MAX:
        _fail(text, at, path, f"more than {DEPTH_MAX} levels deep")
    sign = text[at : at + 1]
    if sign in ("{", "["):
        return _container(text, at, path, depth)
    if sign == '"':
        value, end = _string(text, at, path)
        return Node(at, end, value)
    found = _PLAIN.match(text, at)
    if found is None:
        _fail(text, at, path, "a value is missing here" if sign else "the file ends too early")
    return Node(at, found.end(), json.loads(found.group()))


def _string(text: str, at: int, path: str) -> tuple[str, int]:
    try:
        value, end = _DECODER.raw_decode(text, at)
        return str(value), end
    except ValueError:
        _fail(text, at, path, "this text has no end, or a wrong sign in it")


def _container(text: str, start: int, path: str, depth: int) -> Node:
    is_object = text[start] == "{"
    closing = "}" if is_object else "]"
    items: list[Item] = []
    at = skip(text, start + 1, path)
    while text[at : at + 1] != closing:
        if items and items[-1].comma < 0:
            _fail(text, at, path, f"a comma or {closing} is missing here")
        begun, key = at, ""
        if is_object:
            if text[at : at + 1] != '"':
                _fail(text, at, path, "a name in quotes is missing here")
            key, at = _string(text, at, path)
            at = skip(text, at, path)
            if text[at : at + 1] != ":":
                _fail(text, at, path, "a colon is missing here")
            at = skip(text, at + 1, path)
        node = _value(text, at, path, depth + 1)
        at = skip(text, node.end, path)
        comma = -1
        if text[at : at + 1] == ",":
            comma, at = at, skip(text, at + 1, path)
        items.append(Item(begun, key, node, comma))
    held = {item.key: item.node.value for item in items} if is_object else [one.node.value for one in items]
    return Node(start, at + 1, held, tuple(items))


def _fail(text: str, at: int, path: str, what: str) -> NoReturn:
    raise UsageError(f"{path}, line {text.count(chr(10), 0, at) + 1}: {what}")
