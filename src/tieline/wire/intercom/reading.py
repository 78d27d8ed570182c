"""JSON exactly as lenient as JavaScript's, and written as JavaScript writes it.

Rule 1: what `JSON.parse` takes is taken and means the same: bytes that are no UTF-8 become U+FFFD, the last
    of equal keys wins, a lone surrogate escape stays one, every number is a double, one past the range of
    doubles is infinite.
Rule 2: what `JSON.parse` refuses is refused: NaN, a byte order mark, a control character in a string.
Rule 3: nesting is bounded by `NESTING_MAX`, and by less in what is large, not by the stack of whoever calls.
Rule 4: what `dump` wrote, `JSON.parse` reads as the same value; what is not finite becomes null.

Source: reference/intercom.md 1.1 "Python pitfalls".
"""

import json
import re
from collections.abc import Callable
from itertools import accumulate
from json.encoder import encode_basestring
from typing import Any, Final, NoReturn

from tieline.errors import ProtocolError

__all__ = ["NESTING_MAX", "dump", "parse", "trim"]

NESTING_MAX: Final = 5_000
"""Containers within containers. The first broker fails somewhere below 20,000 and takes 900."""

SHALLOW_NESTING_MAX: Final = 900
"""What the interpreter's own reader takes on any stack."""
DEEP_BYTES_MAX: Final = 32_768
"""Of what is nested deeper: its reader is slow, and meanwhile everybody else waits."""

_SAFE_INTEGER: Final = 2**53
_SAFE_DIGITS: Final = 15
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_TOKEN: Final = re.compile(
    r"""[ \t\n\r]*(?:
        (?P<mark>[][{},:])
      | (?P<string>"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*")
      | (?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
      | (?P<word>true|false|null)
    )""",
    re.VERBOSE,
)
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[{]}"))
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x02\x02\x00\x00")
_WORDS: Final = {"true": True, "false": False, "null": None}
_BLANK: Final = " \t\n\r"
_PLAIN: Final = frozenset({str, int, bool, type(None)})
_PLAIN_OR_DOUBLE: Final = _PLAIN | {float}
# What JavaScript's trim takes away; Python's own strip takes other characters.
_TRIMMED: Final = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)


def trim(text: str) -> str:
    """Return `text` without the blanks at its ends that JavaScript's `trim` takes."""
    return text.strip(_TRIMMED)


def parse(data: bytes) -> Any:
    """Return the value in `data`.

    Raises:
        ProtocolError: `MALFORMED_FRAME`; JavaScript's parser takes no value from these bytes.
    """
    text = data.decode("utf-8", errors="replace")
    # Interpreters differ in how deep theirs goes: the bound is ours wherever it could be passed.
    depth = _depth(data)
    if depth > NESTING_MAX or (depth > SHALLOW_NESTING_MAX and len(data) > DEEP_BYTES_MAX):
        raise _refusal("nested too deep")
    try:
        if depth > SHALLOW_NESTING_MAX:
            return _Nested(text).value()
        return _DECODER.decode(text)
    except RecursionError:
        return _Nested(text).value()
    except ValueError:
        raise _refusal("not JSON") from None


def dump(value: object) -> bytes:
    """Return `value` as compact UTF-8: non-ASCII as it is, lone surrogates as escapes."""
    try:
        text = _ENCODER.encode(value) if _is_without_doubles(value) else _written(value)
    except RecursionError:
        text = _written(value)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def _depth(data: bytes) -> int:
    """Return how deep the containers in `data` are nested; 0 where they are too few to matter."""
    if data.count(b"[") + data.count(b"{") <= SHALLOW_NESTING_MAX:
        return 0
    steps = _STRING.sub(b"", data).translate(_STEPS, _NO_BRACKETS)
    # Each step is one more than its change of depth, so that it fits a byte.
    return max((total - count for count, total in enumerate(accumulate(steps), 1)), default=0)


def _refusal(why: str) -> ProtocolError:
    return ProtocolError("MALFORMED_FRAME", why)


def _no_constant(_: str) -> NoReturn:
    raise ValueError("NaN and Infinity are no JSON")


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _SAFE_DIGITS else _double(digits)


def _double(digits: str) -> int | float:
    number = float(digits)
    # A double that holds a whole number is that number: 1.0 and 1 are one thing to the other side.
    return int(number) if number.is_integer() and abs(number) <= _SAFE_INTEGER else number


_DECODER: Final = json.JSONDecoder(parse_int=_integer, parse_float=_double, parse_constant=_no_constant)
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)


class _Nested:
    """A reader with a stack of its own, for what is nested deeper than the interpreter's allows."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def value(self) -> Any:
        """Return the one value; ProtocolError where there is none, or more."""
        holders: list[tuple[Any, str]] = []  # each open container, and the key its next value goes under
        while True:
            made = self._begun(holders)
            while made is not _OPENED:
                if not holders:
                    if self._text[self._at :].strip(_BLANK):
                        raise _refusal("more than one value")
                    return made
                made = self._placed(holders, made)

    def _begun(self, holders: list[tuple[Any, str]]) -> Any:
        """Return the next scalar or empty container, or `_OPENED` after a container began."""
        kind, part = self._next()
        if kind in {"string", "number", "word"}:
            return _scalar(kind, part)
        if part not in {"[", "{"}:
            raise _refusal("a value is missing")
        if len(holders) >= NESTING_MAX:
            raise _refusal("nested too deep")
        if self._takes("]" if part == "[" else "}"):
            return [] if part == "[" else {}
        holders.append(([], "") if part == "[" else ({}, self._key()))
        return _OPENED

    def _placed(self, holders: list[tuple[Any, str]], made: Any) -> Any:
        """Put a value into the innermost container; return that one where it ended, else `_OPENED`."""
        holder, key = holders.pop()
        is_list = isinstance(holder, list)
        if is_list:
            holder.append(made)
        else:
            holder[key] = made
        _, part = self._next()
        if part == ",":
            holders.append((holder, "" if is_list else self._key()))
            return _OPENED
        if part != ("]" if is_list else "}"):
            raise _refusal("a container has no end")
        return holder

    def _key(self) -> str:
        kind, part = self._next()
        if kind != "string" or not self._takes(":"):
            raise _refusal("a key is missing")
        return str(_scalar(kind, part))

    def _takes(self, mark: str) -> bool:
        found = _TOKEN.match(self._text, self._at)
        if found is None or found["mark"] != mark:
            return False
        self._at = found.end()
        return True

    def _next(self) -> tuple[str, str]:
        found = _TOKEN.match(self._text, self._at)
        if found is None or found.lastgroup is None:
            raise _refusal("not JSON")
        self._at = found.end()
        return found.lastgroup, found[found.lastgroup]


_OPENED: Final = object()


def _scalar(kind: str, token: str) -> Any:
    if kind == "word":
        return _WORDS[token]
    if kind == "number":
        return _integer(token) if token.lstrip("-").isdigit() else _double(token)
    try:
        return _DECODER.decode(token)
    except ValueError:
        raise _refusal("not JSON") from None


def _is_without_doubles(value: object) -> bool:
    if isinstance(value, dict):
        return _are_without_doubles(value.values)
    if isinstance(value, list | tuple):
        return _are_without_doubles(value.__iter__)
    return not isinstance(value, float)


def _are_without_doubles(items: Callable[[], Any]) -> bool:
    kinds = set(map(type, items()))
    if float in kinds:
        return False
    return kinds <= _PLAIN or all(_is_without_doubles(item) for item in items() if type(item) not in _PLAIN)


def _written(value: object) -> str:
    """Return `value` as text, on a stack of its own."""
    parts: list[str] = []
    waiting: list[Any] = [value]  # values to write, and `_Text` between them, the next one last
    while waiting:
        item = waiting.pop()
        if isinstance(item, _Text):
            parts.append(item)
        elif isinstance(item, dict | list | tuple) and _is_flat(item):
            parts.append(_written_flat(item))
        elif isinstance(item, dict):
            waiting.append(_Text("}"))
            for at, (key, inner) in enumerate(reversed(item.items()), 1 - len(item)):
                waiting += (inner, _Text(f"{',' if at else ''}{encode_basestring(str(key))}:"))
            waiting.append(_Text("{"))
        elif isinstance(item, list | tuple):
            waiting.append(_Text("]"))
            for at, inner in enumerate(reversed(item), 1 - len(item)):
                waiting.append(inner)
                if at:
                    waiting.append(_Text(","))
            waiting.append(_Text("["))
        else:
            parts.append(_scalar_text(item))
    return "".join(parts)


def _is_flat(item: dict[str, Any] | list[Any] | tuple[Any, ...]) -> bool:
    return _PLAIN_OR_DOUBLE.issuperset(map(type, item.values() if isinstance(item, dict) else item))


def _written_flat(item: dict[str, Any] | list[Any] | tuple[Any, ...]) -> str:
    if isinstance(item, dict):
        members = (f"{encode_basestring(str(key))}:{_scalar_text(inner)}" for key, inner in item.items())
        return f"{{{','.join(members)}}}"
    return f"[{','.join(map(_scalar_text, item))}]"


def _scalar_text(value: object) -> str:
    if isinstance(value, str):
        return encode_basestring(value)
    if isinstance(value, float):
        return _number(value)
    return _ENCODER.encode(value) if value is None or isinstance(value, bool) else str(value)


class _Text(str):
    """Finished text among values."""

    __slots__ = ()


def _number(value: float) -> str:
    """Return a double as JavaScript prints it: shortest digits, exponents outside 1e-6 to 1e21."""
    if value in {float("inf"), float("-inf")} or value != value:  # noqa: PLR0124 - how a NaN is told
        return "null"
    if value == 0:
        return "0"
    if 1e-4 <= abs(value) < 1e15 and not value.is_integer():
        return repr(value)  # the two agree here
    sign = "-" if value < 0 else ""
    mantissa, _, exponent_text = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    exponent = int(exponent_text or "0") - len(fraction)
    digits = (whole + fraction).lstrip("0")
    stripped = digits.rstrip("0")
    exponent += len(digits) - len(stripped)
    point = len(stripped) + exponent  # where the decimal point stands, counted from the first digit
    if len(stripped) <= point <= 21:
        return sign + stripped + "0" * (point - len(stripped))
    if 0 < point <= 21:
        return f"{sign}{stripped[:point]}.{stripped[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{stripped}"
    shown = stripped if len(stripped) == 1 else f"{stripped[0]}.{stripped[1:]}"
    return f"{sign}{shown}e{'+' if point > 0 else '-'}{abs(point - 1)}"
