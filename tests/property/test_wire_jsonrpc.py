"""Laws of the grammar: what is written is read, and what is read has one meaning.

The second reader here is the standard library's, made strict by hooks; the two share no code.
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.errors import ProtocolError
from tieline.wire import jsonrpc
from tieline.wire.jsonrpc import DEPTH_MAX, INTEGER_MAX, KEYS_MAX, Notification, Request, Response, decode

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-INTEGER_MAX, INTEGER_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
VALUES = st.recursive(
    SCALARS, lambda item: st.lists(item, max_size=4) | st.dictionaries(TEXTS, item, max_size=4)
)
PARAMS = st.dictionaries(TEXTS, VALUES, max_size=4)
IDS = st.integers(-INTEGER_MAX, INTEGER_MAX) | TEXTS.filter(bool)

# Documents that are nearly right: names that recur, escapes, odd numbers, brackets in texts.
LITERALS = [
    *(
        "1",
        "-0",
        "1.5",
        "1e5",
        "1e400",
        "NaN",
        "9007199254740991",
        "9007199254740992",
        "99999999999999999999",
    ),
    *(
        "true",
        "null",
        '"x"',
        '"\\u0078"',
        '"\\u0000"',
        '"\\\\u0000"',
        '"\\ud800"',
        '"\\ud834\\udd1e"',
        '":["',
        '"\\":"',
    ),
    *('"\\\\"', '"é"', "[]", "{}", ""),
]
NAMES = ['"a"', '"\\u0061"', '"b"', '""', '"\\\\"', '"\\""', '"a\\u0000"', '"é"']
SPACES = st.sampled_from(["", "", "", " ", "\t", "\r"])


def _object(items: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    member = st.tuples(SPACES, st.sampled_from(NAMES), SPACES, items).map(
        lambda one: f"{one[0]}{one[1]}{one[2]}:{one[3]}"
    )
    return st.lists(member, max_size=4).map(lambda members: "{" + ",".join(members) + "}")


DOCUMENTS = st.recursive(
    st.sampled_from(LITERALS),
    lambda items: st.lists(items, max_size=3).map(lambda texts: "[" + ",".join(texts) + "]") | _object(items),
    max_leaves=12,
)


class NotStrictError(ValueError):
    """The second reader found what has more than one reading."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) != len(pairs):
        raise NotStrictError
    return dict(pairs)


def _constant(_name: str) -> Any:
    raise NotStrictError


def is_odd(value: object) -> bool:
    """Return whether a scalar is read differently, or not at all, by some reader."""
    if isinstance(value, str):
        return "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value)
    if isinstance(value, float):
        return value in (float("inf"), float("-inf"))
    return isinstance(value, int) and abs(value) > INTEGER_MAX


def strict(line: bytes) -> Any:
    """Return the document as the second reader takes it, or raise ValueError."""
    document = json.loads(line.decode("utf-8"), object_pairs_hook=_pairs, parse_constant=_constant)
    names, depth, waiting = 0, 0, [(document, 1)]
    while waiting:
        value, level = waiting.pop()
        if isinstance(value, dict):
            names, depth = names + len(value), max(depth, level)
            waiting += [(item, level + 1) for item in [*value.keys(), *value.values()]]
        elif isinstance(value, list):
            depth = max(depth, level)
            waiting += [(item, level + 1) for item in value]
        elif is_odd(value):
            raise NotStrictError
    if names > KEYS_MAX or depth > DEPTH_MAX:
        raise NotStrictError
    return document


def same(one: Any, other: Any) -> bool:
    """Return whether two documents are equal with their types, so that 1, 1.0 and true differ."""
    return repr(one) == repr(other) or one == other == 0


def read(line: bytes) -> Any:
    """Return the params that a line holds, or None where it is refused."""
    try:
        frame = decode(line)
    except ProtocolError:
        return None
    assert isinstance(frame, Request)
    return frame.params


@given(IDS, TEXTS.filter(bool), PARAMS)
def test_frame_written_is_read_as_it_was(request_id: str | int, method: str, params: dict[str, Any]) -> None:
    """Every frame that we write is read with the same values, ids with their types."""
    frame = decode(jsonrpc.encode_request(request_id, method, params)[:-1])
    assert frame == Request(request_id, method, params)
    assert isinstance(frame, Request)
    assert type(frame.id) is type(request_id)
    assert decode(jsonrpc.encode_notification(method, params)[:-1]) == Notification(method, params)
    assert decode(jsonrpc.encode_result(request_id, params)[:-1]) == Response(request_id, params)


@given(PARAMS)
def test_frame_in_any_spelling_is_read_alike(params: dict[str, Any]) -> None:
    """Spaces, escapes and order of members change nothing."""
    document = {"method": "m", "params": params, "jsonrpc": "2.0", "id": "a"}
    for line in (
        json.dumps(document).encode(),
        json.dumps(document, ensure_ascii=False).encode(),
        json.dumps(document, separators=(",", ":")).encode(),
        json.dumps(document, indent=1).replace("\n", "\r").encode(),
    ):
        assert decode(line) == Request("a", "m", params)


@pytest.mark.clause("K24", "K25")
@given(_object(DOCUMENTS))
def test_document_nearly_right_is_taken_only_with_its_one_meaning(text: str) -> None:
    """What both strict readers take is the same value; what one refuses the other refuses."""
    line = b'{"jsonrpc":"2.0","id":"a","method":"m","params":' + text.encode() + b"}"
    try:
        expected = strict(line)["params"]
    except ValueError:
        expected = None
    found = read(line)
    assert (found is None) == (expected is None)
    assert found is None or same(found, expected)


@pytest.mark.clause("K25")
@given(PARAMS, st.data())
def test_frame_with_any_byte_changed_is_taken_only_with_its_one_meaning(
    params: dict[str, Any], data: st.DataObject
) -> None:
    """A damaged frame is refused, or means exactly what the second reader says it means."""
    line = bytearray(jsonrpc.encode_request("a", "m", params)[:-1])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(line) - 1))
        line[at] = data.draw(st.integers(0, 255) | st.sampled_from(list(b'"\\{}[]:,0')))
    try:
        frame = decode(bytes(line))
    except ProtocolError:
        return
    document = strict(bytes(line))
    assert same(getattr(frame, "params", None) or {}, document.get("params") or {})


@given(PARAMS)
def test_frame_cut_short_anywhere_is_refused(params: dict[str, Any]) -> None:
    """No prefix of a frame is a frame."""
    line = jsonrpc.encode_request("a", "m", params)[:-1]
    for end in {*range(0, len(line), 7), len(line) - 1}:
        with pytest.raises(ProtocolError):
            decode(line[:end])
