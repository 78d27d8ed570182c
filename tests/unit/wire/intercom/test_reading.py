"""JSON exactly as lenient as JavaScript's."""

import json
import math
import time
from typing import Any

import pytest

from tieline.errors import ProtocolError
from tieline.wire.intercom.reading import DEEP_BYTES_MAX, NESTING_MAX, SHALLOW_NESTING_MAX, dump, parse, trim


@pytest.mark.clause("intercom-12")
@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b' \t\r\n{"a":1} ', {"a": 1}),
        (b'{"a":1,"a":2}', {"a": 2}),
        (rb'"\ud800"', "\ud800"),
        (rb'"\ud83d\ude00"', "😀"),
        (b'"\xff\xed\xa0\x80"', "\ufffd\ufffd\ufffd\ufffd"),
        ('"\u2028\u202e\ufeff"'.encode(), "\u2028\u202e\ufeff"),
        (b"1.0", 1),
        (b"-0", 0),
        (b"1e3", 1000),
        (b"9007199254740993", 9007199254740992),
        (b"12345678901234567890", 12345678901234567000.0),
        (b"0.1", 0.1),
        (b"1e400", math.inf),
        (b"-1e400", -math.inf),
        (b"9" * 400, math.inf),
        (b"[true,false,null]", [True, False, None]),
    ],
)
def test_what_javascript_takes_is_taken_and_means_the_same(data: bytes, value: object) -> None:
    """Each of these is the value that JSON.parse gives."""
    found = parse(data)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.clause("intercom-8", "intercom-9")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"01",
        b"+1",
        b"1.",
        b".5",
        b"'a'",
        b"{a:1}",
        b"[1,]",
        b"{} {}",
        b'"\x01"',
        b'"a\nb"',
        b"\xef\xbb\xbf{}",
        b"\xc2\xa0{}",
        b"tru",
        b'"\\x"',
        b'"\\ud8"',
        b"[1",
        b'{"a"}',
        b'{"a":}',
        b"[" * (NESTING_MAX + 1) + b"]" * (NESTING_MAX + 1),
        b"[" * 20000 + b"]" * 20000,
    ],
)
def test_what_javascript_refuses_is_a_typed_error(data: bytes) -> None:
    """Each of these costs the socket."""
    with pytest.raises(ProtocolError):
        parse(data)


@pytest.mark.parametrize("before", ["[", '{"a":'])
def test_nesting_to_the_bound_is_read(before: str) -> None:
    """The bound itself is taken, whatever the interpreter's own reader could do."""
    after = "]" if before == "[" else "}"
    assert parse((before * NESTING_MAX + "1" + after * NESTING_MAX).encode()) is not None
    with pytest.raises(ProtocolError):
        parse((before * (NESTING_MAX + 1) + "1" + after * (NESTING_MAX + 1)).encode())


@pytest.mark.parametrize("before", ["[", '{"a":'])
def test_large_value_is_nested_less_deep(before: str) -> None:
    """Where reading it deep would keep everybody waiting, it is refused; brackets in text are no depth."""
    after = "]" if before == "[" else "}"
    for count, size, is_read in (
        (SHALLOW_NESTING_MAX, DEEP_BYTES_MAX, True),
        (SHALLOW_NESTING_MAX + 1, DEEP_BYTES_MAX - 20_000, True),
        (SHALLOW_NESTING_MAX + 1, DEEP_BYTES_MAX, False),
    ):
        text = before * count + '"' + '[{\\"' * (size // 4) + '"' + after * count
        if is_read:
            assert parse(text.encode()) is not None
        else:
            with pytest.raises(ProtocolError):
                parse(text.encode())


@pytest.mark.parametrize(
    "data",
    [
        b"[" + b",".join([b"{}"] * 340_000) + b"]",
        b"[" + b",".join([b'"["'] * 250_000) + b"]",
        b"[1e-7," + b",".join([b"1"] * 500_000) + b"]",
        b"[" + b",".join([b"1.5"] * 260_000) + b"]",
    ],
    ids=["containers", "brackets in text", "one double", "doubles"],
)
def test_largest_frame_keeps_nobody_waiting_whatever_it_holds(data: bytes) -> None:
    """To read and write it takes no longer than a small multiple of what plain numbers take."""

    def seconds(given: bytes) -> float:
        began = time.process_time()
        assert dump(parse(given)) == given
        return time.process_time() - began

    plain = min(seconds(b"[" + b",".join([b"123456"] * 149_000) + b"]") for _ in range(3))
    assert min(seconds(data) for _ in range(2)) < 40 * plain


def test_many_containers_side_by_side_are_no_nesting() -> None:
    """A list of more objects than the bound is read as ever."""
    assert parse(b"[" + b",".join([b"{}"] * 6_000) + b"]") == [{}] * 6_000


DEEP = 1_100


@pytest.mark.parametrize(
    ("before", "inside", "after"),
    [
        ("[", "", "]"),
        ('{"k":', '"v\\n"', "}"),
        ('[1.5,{"a":', "{}", ',"b":[]},"x",true]'),
        ('{"b":[null,', "-12", '],"c":"\\ud800"}'),
    ],
)
def test_value_deeper_than_the_interpreters_stack_is_read_and_written(
    before: str, inside: str, after: str
) -> None:
    """Nesting to the bound is the caller's business, not that of the stack."""
    text = before * DEEP + inside + after * DEEP
    assert dump(parse(text.encode())).decode() == text


@pytest.mark.parametrize(
    "inside",
    ["[1,]", "[,1]", '{"a" 1}', "{1:2}", '{"a":1,}', "1 2", "}", "\x01", '"\\x"', "NaN", "]", "[}"],
)
def test_deep_value_with_a_fault_is_a_typed_error(inside: str) -> None:
    """The reader with its own stack refuses what the other one does."""
    with pytest.raises(ProtocolError):
        parse(("[" * DEEP + inside + "]" * DEEP).encode())
    with pytest.raises(ProtocolError):
        parse(("[" * DEEP + "1" + "]" * DEEP + inside).encode() + b"x")
    with pytest.raises(ProtocolError):
        parse(b"[" * DEEP)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.5, "1.5"),
        (-0.0, "0"),
        (1e21, "1e+21"),
        (1e20, "100000000000000000000"),
        (123456789012345680000.0, "123456789012345680000"),
        (1e-6, "0.000001"),
        (1.25e-7, "1.25e-7"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (-12.75, "-12.75"),
        (1000000000000000.1, "1000000000000000.1"),
        (math.inf, "null"),
        (-math.inf, "null"),
        (math.nan, "null"),
    ],
)
def test_double_is_written_as_javascript_prints_it(value: float, text: str) -> None:
    """Shortest digits, exponents where JavaScript has them, null for what is no number there."""
    assert dump(value) == text.encode()
    assert dump({"a": [value, {}]}) == b'{"a":[' + text.encode() + b",{}]}"


@pytest.mark.clause("intercom-12")
def test_text_is_compact_with_everything_but_lone_surrogates_as_it_is() -> None:
    """No blanks, non-ASCII unescaped, a lone surrogate as its escape."""
    value: Any = {"ä": ["😀\u2028", "\ud800x", True, None, (1, 2.5)]}
    assert dump(value) == '{"ä":["😀\u2028","\\ud800x",true,null,[1,2.5]]}'.encode()
    assert json.loads(dump(value))["ä"][1] == "\ud800x"


def test_trim_takes_what_javascript_takes() -> None:
    """A byte order mark is a blank there, a next-line character is none."""
    assert trim("\ufeff\u00a0 a\u2003\v\f\n") == "a"
    assert trim("\x85a\x1c") == "\x85a\x1c"
