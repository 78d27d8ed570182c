"""A member or an element put into a text of JSON with comments, and taken out again.

Rule 1: comments, order, indentation, line ends and everything foreign stay as they are.
Rule 2: what was put into something that held other things already is taken out to the byte without any
record; into something empty, up to the space in it.
Rule 3: the text comes and goes as a value; files are not known here.

Source: DESIGN.md 4 "setup"; reference/harnesses.md.
"""

import json
import re
from typing import Any, Final

from tieline.adapters.harness.jsonc import SPACE, Item, Node, find, is_blank, parse
from tieline.errors import UsageError

__all__ = ["is_bare", "put_element", "put_member", "removed"]

_INDENT: Final = re.compile(r"\n([ \t]+)[^ \t\r\n]")


def put_member(text: str, keys: tuple[str, ...], value: Any, path: str) -> str:
    """Return the text with `value` at these keys; what stands between and is missing is made.

    Raises:
        UsageError: the text is not JSON, or something on the way is no object; the line is named.
    """
    if is_blank(text, path):
        # A comment may run to the end of the last line.
        has_open_line = bool(text.strip(SPACE + "\ufeff")) and not text.endswith("\n")
        text += (_line_end(text) if has_open_line else "") + "{}" + _line_end(text)
    node = parse(text, path)
    for depth, key in enumerate(keys):
        if not isinstance(node.value, dict):
            raise UsageError(
                f"{path}, line {_line(text, node)}: {_named_place(keys[:depth])} is not an object"
            )
        below = find(node, (key,))
        if below is None:
            for name in reversed(keys[depth + 1 :]):
                value = {name: value}
            return _inserted(text, node, key, value)
        node = below
    if node.value == value:
        return text
    first = text.rfind("\n", 0, node.start) + 1
    indent = text[first : first + len(text[first:]) - len(text[first:].lstrip(" \t"))]
    is_long = "\n" in text[node.start : node.end]
    shown = _shown(value, indent, text) if is_long else json.dumps(value, ensure_ascii=False)
    return text[: node.start] + shown + text[node.end :]


def put_element(text: str, keys: tuple[str, ...], value: Any, path: str) -> str:
    """Return the text with `value` as the last element of the list at these keys, which is made if missing.

    Raises:
        UsageError: the text is not JSON, or there is no list at that place; the line is named.
    """
    node = None if is_blank(text, path) else find(parse(text, path), keys)
    if node is None:
        return put_member(text, keys, [value], path)
    if not isinstance(node.value, list):
        raise UsageError(f"{path}, line {_line(text, node)}: {'.'.join(keys)} is not a list")
    return text if value in node.value else _inserted(text, node, None, value)


def removed(text: str, place: tuple[str | int, ...], path: str) -> str:
    """Return the text without the member or element at `place`: keys, and numbers in lists.

    Raises:
        UsageError: the text is not JSON.
        KeyError: nothing is there.
    """
    node = parse(text, path)
    for part in place[:-1]:
        node = node.items[_index(node, part)].node
    at = _index(node, place[-1])
    return _without(text, node, at)


def is_bare(text: str, keys: tuple[str, ...], path: str) -> bool:
    """Return whether there is an object or a list at these keys with nothing in it, not even a comment.

    Raises:
        UsageError: the text is not JSON.
    """
    node = None if is_blank(text, path) else find(parse(text, path), keys)
    if node is None or not isinstance(node.value, dict | list):
        return False
    return not text[node.start + 1 : node.end - 1].strip(SPACE)


def _named_place(keys: tuple[str, ...]) -> str:
    return ".".join(keys) or "the whole"


def _index(node: Node, part: str | int) -> int:
    if isinstance(part, int):
        return part
    found = [at for at, item in enumerate(node.items) if item.key == part]
    if not found:
        raise KeyError(part)
    return found[-1]


def _without(text: str, node: Node, at: int) -> str:
    item = node.items[at]
    before = node.items[at - 1] if at else None
    begin = node.start + 1 if before is None else _behind(before)
    start = begin + len(text[begin : item.start].rstrip(SPACE))
    end = item.node.end if item.comma < 0 else item.comma + 1
    head, tail = text[:start], text[end:]
    # A comment that runs to the end of its line would swallow what follows.
    if _ends_in_line_comment(text[begin:start]) and not tail.startswith(("\n", "\r\n")):
        head += _line_end(text)
    if before is not None and item.comma < 0 and at == len(node.items) - 1 and before.comma >= 0:
        head = head[: before.comma] + head[before.comma + 1 :]
    if len(node.items) == 1 and not text[node.start + 1 : start].strip(SPACE):
        closing = end + len(tail) - len(tail.lstrip(SPACE))
        if closing == node.end - 1:
            return text[: node.start + 1] + text[closing:]
    return head + tail


def _behind(item: Item) -> int:
    return item.node.end if item.comma < 0 else item.comma + 1


def _ends_in_line_comment(trivia: str) -> bool:
    """Return whether spaces and comments end inside a comment that the line's end would close."""
    at = 0
    while at < len(trivia):
        if trivia.startswith("/*", at):
            at = trivia.find("*/", at + 2) + 2
        elif trivia.startswith("//", at):
            end = trivia.find("\n", at)
            if end < 0:
                return True
            at = end
        else:
            at += 1
    return False


def _inserted(text: str, node: Node, key: str | None, value: Any) -> str:
    end, closing = _line_end(text), node.end - 1
    outer = _indent_of_line(text, node.start)
    if not node.items:
        inner = text[node.start + 1 : closing]
        at = node.start + 1 + len(inner.rstrip(SPACE))
        indent = outer + _unit(text)
        last = "" if "\n" in text[at:closing] else end + outer
        return text[:at] + end + indent + _named(key, _shown(value, indent, text)) + last + text[at:]
    last_item = node.items[-1]
    behind = _behind(last_item)
    at = behind + len(text[behind:closing].rstrip(SPACE))
    is_long = "\n" in text[node.start + 1 : node.items[0].start] or "\n" in text[behind:closing]
    first = text.rfind("\n", 0, last_item.start) + 1
    is_own_line = not text[first : last_item.start].strip(" \t")
    indent = text[first : last_item.start] if is_own_line else outer + _unit(text)
    shown = _shown(value, indent, text) if is_long else json.dumps(value, ensure_ascii=False)
    member = (end + indent if is_long else " ") + _named(key, shown)
    if last_item.comma >= 0:
        return text[:at] + member + "," + text[at:]
    return text[:behind] + "," + text[behind:at] + member + text[at:]


def _named(key: str | None, shown: str) -> str:
    return shown if key is None else f"{json.dumps(key, ensure_ascii=False)}: {shown}"


def _shown(value: Any, indent: str, text: str) -> str:
    lines = json.dumps(value, ensure_ascii=False, indent=_unit(text)).split("\n")
    return (_line_end(text) + indent).join(lines)


def _unit(text: str) -> str:
    found = _INDENT.findall(text)
    return min(found, key=len) if found else "  "


def _indent_of_line(text: str, at: int) -> str:
    first = text.rfind("\n", 0, at) + 1
    line = text[first:at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _line(text: str, node: Node) -> int:
    return text.count("\n", 0, node.start) + 1
