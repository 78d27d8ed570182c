"""The strict grammar: one document has one meaning, or is refused with a type."""

import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tieline.errors import ProtocolError
from tieline.wire import jsonrpc
from tieline.wire.jsonrpc import (
    DEPTH_MAX,
    INTEGER_MAX,
    KEYS_MAX,
    ErrorObject,
    Notification,
    Request,
    Response,
    decode,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
)

HEAD = b'{"jsonrpc":"2.0","id":"a","method":"m","params":'


def with_params(params: bytes) -> bytes:
    """Return a request line with these params."""
    return HEAD + params + b"}"


def code_of(line: bytes) -> str:
    """Return the code that a line is refused with."""
    with pytest.raises(ProtocolError) as error:
        decode(line)
    return error.value.code


@pytest.mark.clause("native-59")
@pytest.mark.parametrize(
    ("line", "frame"),
    [
        (b'{"jsonrpc":"2.0","id":"a","method":"m","params":{"x":1}}', Request("a", "m", {"x": 1})),
        (b'{"jsonrpc":"2.0","id":-7,"method":"m"}', Request(-7, "m", {})),
        (b'{"jsonrpc":"2.0","method":"m","params":{}}', Notification("m", {})),
        (b'{"jsonrpc":"2.0","id":"a","result":{"x":null}}', Response("a", {"x": None})),
        (b'{"jsonrpc":"2.0","id":0,"result":null}', Response(0, None)),
        (
            b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}',
            Response(None, None, ErrorObject(-32700, "no")),
        ),
        (
            b'{"jsonrpc":"2.0","id":"a","error":{"code":-32000,"message":"no","data":{"code":"QUEUE_FULL"}}}',
            Response("a", None, ErrorObject(-32000, "no", {"code": "QUEUE_FULL"})),
        ),
    ],
)
def test_line_with_one_frame_is_that_frame(line: bytes, frame: object) -> None:
    """A call, an answer and an error come out as what they are, also with spaces and other orders."""
    assert decode(line) == frame
    assert decode(json.dumps(json.loads(line), indent=1).encode().replace(b"\n", b"\r")) == frame
    assert decode(json.dumps(dict(reversed(json.loads(line).items()))).encode()) == frame


@pytest.mark.clause("native-64")
@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b'[{"jsonrpc":"2.0","id":1,"method":"m"}]',
        b"null",
        b"1",
        b'"x"',
        b"{}",
        b'{"id":1,"method":"m"}',
        b'{"jsonrpc":"1.0","id":1,"method":"m"}',
        b'{"jsonrpc":2.0,"id":1,"method":"m"}',
        b'{"jsonrpc":"2.0"}',
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":null,"method":"m"}',
        b'{"jsonrpc":"2.0","id":true,"method":"m"}',
        b'{"jsonrpc":"2.0","id":1.0,"method":"m"}',
        b'{"jsonrpc":"2.0","id":"","method":"m"}',
        b'{"jsonrpc":"2.0","id":[1],"method":"m"}',
        b'{"jsonrpc":"2.0","id":{},"method":"m"}',
        b'{"jsonrpc":"2.0","id":"' + b"x" * 257 + b'","method":"m"}',
        b'{"jsonrpc":"2.0","id":1,"method":""}',
        b'{"jsonrpc":"2.0","id":1,"method":7}',
        b'{"jsonrpc":"2.0","id":1,"method":"' + b"m" * 129 + b'"}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":[]}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":null}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":"x"}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","result":{}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","from":"x"}',
        b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"x"}}',
        b'{"jsonrpc":"2.0","id":null,"result":{}}',
        b'{"jsonrpc":"2.0","id":1.5,"result":{}}',
        b'{"jsonrpc":"2.0","result":{}}',
        b'{"jsonrpc":"2.0","error":{"code":1,"message":"x"}}',
        b'{"jsonrpc":"2.0","id":true,"error":{"code":1,"message":"x"}}',
        b'{"jsonrpc":"2.0","id":1,"result":{},"params":{}}',
        b'{"jsonrpc":"2.0","id":1,"error":null}',
        b'{"jsonrpc":"2.0","id":1,"error":"x"}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":true,"message":"x"}}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":1.0,"message":"x"}}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":1}}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x","more":1}}',
        b'{"JSONRPC":"2.0","id":1,"method":"m"}',
    ],
)
def test_document_of_another_shape_is_refused(line: bytes) -> None:
    """Strict JSON that is no JSON-RPC 2.0 frame is INVALID_RPC, a batch among it."""
    assert code_of(line) == "INVALID_RPC"


@pytest.mark.clause("native-59", "K25")
@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b'{"jsonrpc":"2.0","id":"a","method":"m"',
        b'{"jsonrpc":"2.0","id":"a","method":"m"} x',
        b'{"jsonrpc":"2.0","id":"a","method":"m"}\x00',
        b"\xef\xbb\xbf" + with_params(b"{}"),
        with_params(b"{}").decode().encode("utf-16"),
        with_params(b"{}").decode().encode("utf-16-le"),
        with_params(b"{}").decode().encode("utf-32"),
        with_params(b'{"x":"\xff"}'),
        with_params(b'{"x":"\xc0\x80"}'),
        with_params(b'{"x":"\xed\xa0\x80"}'),
        with_params(b'{"x":"\xf4\x90\x80\x80"}'),
        with_params(b'{"x":"\xe2\x82"}'),
        with_params(b'{"x":"\\ud800"}'),
        with_params(b'{"x":"\\udc00 and a tail"}'),
        with_params(b'{"x":"\\ud800 and a tail"}'),
        with_params(b'{"x":"\\ud800\\u0041"}'),
        with_params(b'{"x":"\\udc00\\ud800"}'),
        with_params(b'{"\\ud800":1}'),
        with_params(b'{"x":"\\u0000"}'),
        with_params(b'{"x":["a\\u0000"]}'),
        with_params(b'{"a\\u0000":1}'),
        with_params(b'{ "x" : "\\u0000" }'),
        with_params(b'{"x":"\x00"}'),
        with_params(b'{"x":"\t"}'),
        with_params(b'{"x":NaN}'),
        with_params(b'{"x":Infinity}'),
        with_params(b'{"x":-Infinity}'),
        with_params(b'{"x":1e999}'),
        with_params(b'{"x":-1e999}'),
        with_params(b'{"x":' + b"9" * 70_000 + b".5}"),
        with_params(b'{"x":' + b"9" * 4_301 + b"}"),
        with_params(b'{"x":9007199254740992}'),
        with_params(b'{"x":-9007199254740992}'),
        with_params(b'{"x":[[18446744073709551616]]}'),
        with_params(b'{"x":01}'),
        with_params(b'{"x":+1}'),
        with_params(b'{"x":.5}'),
        with_params(b'{"x":1.}'),
        with_params(b'{"x":0x1}'),
        with_params(b'{"x":1,}'),
        with_params(b"{x:1}"),
        with_params(b"{'x':1}"),
        with_params(b'{"x":1}/**/'),
        with_params(b'{"x":undefined}'),
        with_params(b'{"x":True}'),
        b'{"jsonrpc":"2.0","id":9007199254740992,"method":"m"}',
    ],
)
def test_bytes_with_two_readings_are_refused(line: bytes) -> None:
    """What readers of JSON take differently, or not at all, is PARSE_ERROR here."""
    assert code_of(line) == "PARSE_ERROR"


@pytest.mark.clause("K25")
@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":"a","id":"b","method":"m"}',
        b'{"jsonrpc":"2.0","id":"a","method":"m","method":"n"}',
        b'{"jsonrpc":"2.0","jsonrpc":"2.0","id":"a","method":"m"}',
        b'{"jsonrpc":"2.0","id":"a","method":"m","params":{},"params":{"x":1}}',
        with_params(b'{"x":1,"x":1}'),
        with_params(b'{"x":1,"y":2,"x":3}'),
        with_params(b'{ "x": 1, "x": 2 }'),
        with_params(b'{"x":1,"\\u0078":2}'),
        with_params(b'{"\\"":1,"\\u0022":2}'),
        with_params(b'{"a\\\\":":","a\\\\":2}'),
        with_params(b'{"":1,"":2}'),
        with_params(b'{"x":{"x":1},"x":2}'),
        with_params(b'{"x":[{"y":1,"y":2}]}'),
        with_params(b'{"x":{"y":":\\":","y":2}}'),
    ],
)
def test_member_name_twice_in_one_object_is_refused(line: bytes) -> None:
    """A repeated name is found at any depth, also where the second is spelled with escapes."""
    assert code_of(line) == "PARSE_ERROR"


@pytest.mark.parametrize(
    ("params", "value"),
    [
        (b'{"x":{"x":{"x":1}}}', {"x": {"x": {"x": 1}}}),
        (b'{"x":[{"y":1},{"y":1}]}', {"x": [{"y": 1}, {"y": 1}]}),
        (b'{"a":"\\"b\\":","b":2}', {"a": '"b":', "b": 2}),
        (b'{"a\\\\":"\\\\","b":"\\\\\\":"}', {"a\\": "\\", "b": '\\":'}),
        (b'{"A":1,"a":2}', {"A": 1, "a": 2}),
        ('{"é":1,"e\u0301":2}'.encode(), {"é": 1, "e\u0301": 2}),
        (b'{"x":"\\ud834\\udd1e"}', {"x": "𝄞"}),
        (b'{"x":"\\\\u0000"}', {"x": "\\u0000"}),
        (b'{"x":"\\u001b[31m\\u007f\\u2028"}', {"x": "\x1b[31m\x7f\u2028"}),
        (b'{"x":9007199254740991,"y":-9007199254740991}', {"x": INTEGER_MAX, "y": -INTEGER_MAX}),
        (b'{"x":"12345678901234567890"}', {"x": "12345678901234567890"}),
        (b'{"x":-0,"y":-0.0,"z":1e5,"w":0.5}', {"x": 0, "y": 0.0, "z": 100_000.0, "w": 0.5}),
    ],
)
def test_document_that_only_looks_wrong_is_taken(params: bytes, value: dict[str, Any]) -> None:
    """Colons, brackets, digits and escapes inside texts refuse nothing, and texts come out exactly."""
    assert decode(with_params(params)) == Request("a", "m", value)
    assert decode(with_params(params.replace(b",", b" , "))) == Request("a", "m", value)


@pytest.mark.clause("K24", "mutant-24")
def test_text_of_every_plane_comes_out_exactly() -> None:
    """No character is replaced, composed or dropped."""
    text = "".join(
        chr(point) for point in [*range(1, 0x3000), 0xD7FF, 0xE000, 0xFEFF, 0xFFFD, 0xFFFF, 0x1D11E, 0x10FFFF]
    )
    for line in (
        encode_notification("m", {"x": text}),
        json.dumps({"jsonrpc": "2.0", "method": "m", "params": {"x": text}}).encode(),
    ):
        assert decode(line) == Notification("m", {"x": text})


@pytest.mark.clause("K25", "I49")
def test_depth_of_exactly_the_bound_is_taken_and_one_more_refused() -> None:
    """Depth is that of the document, the frame itself the first level; brackets in texts do not count."""
    inner = DEPTH_MAX - 2
    assert isinstance(decode(with_params(b'{"x":' + b"[" * inner + b"]" * inner + b"}")), Request)
    assert code_of(with_params(b'{"x":' + b"[" * (inner + 1) + b"]" * (inner + 1) + b"}")) == "PARSE_ERROR"
    nested = b'{"x":' * inner + b"{}" + b"}" * inner
    assert isinstance(decode(with_params(nested)), Request)
    assert code_of(with_params(b'{"x":' + nested + b"}")) == "PARSE_ERROR"
    wide = b'{"x":[' + b",".join([b'[{"y":[]}]'] * 500) + b"]}"
    assert isinstance(decode(with_params(wide)), Request)
    text = json.dumps({"x": '[{"' * 2_000 + "\\"}).encode()
    assert isinstance(decode(with_params(text)), Request)


@pytest.mark.clause("K25", "I49")
@pytest.mark.parametrize(
    "bomb",
    [
        b"[" * 100_000,
        b"]" * 100_000,
        b'{"x":' * 20_000,
        b"[]" * 50_000,
        b"[" * 50_000 + b"]" * 50_000,
        b'"["' * 30_000,
    ],
    ids=["open", "close", "objects", "pairs", "nest", "texts"],
)
def test_bracket_bomb_at_once_is_refused(bomb: bytes) -> None:
    """A line of brackets is refused in time that grows with its bytes alone, and without recursion."""
    started = time.perf_counter()
    assert code_of(bomb) == "PARSE_ERROR"
    assert code_of(with_params(bomb)) == "PARSE_ERROR"
    # A few milliseconds; the bound leaves room for a busy machine.
    assert time.perf_counter() - started < 0.5


@pytest.mark.clause("K25")
def test_names_up_to_the_bound_are_taken_and_one_more_refused() -> None:
    """All objects of a line together have at most so many names."""
    few = {str(at): at for at in range(KEYS_MAX - 4)}
    assert decode(encode_request("a", "m", few)) == Request("a", "m", few)
    assert decode(with_params(json.dumps(few).encode())) == Request("a", "m", few)
    assert code_of(encode_request("a", "m", {**few, "more": 1})) == "PARSE_ERROR"
    assert code_of(with_params(b'{"x":[' + b",".join([b'{"":0}'] * KEYS_MAX) + b"]}")) == "PARSE_ERROR"
    # Colons in a text are no names.
    assert isinstance(decode(encode_request("a", "m", {"x": ":" * 20_000})), Request)


def test_refused_bytes_in_error_text_are_not_repeated() -> None:
    """The text of a refusal is ours: nothing that the far end wrote is in it."""
    for line in (b'{"jsonrpc":"2.0","secret":1}', b'{"secret"', with_params(b'{"secret":1,"secret":2}')):
        with pytest.raises(ProtocolError) as error:
            decode(line)
        assert "secret" not in str(error.value)


@pytest.mark.parametrize("request_id", ["a", "7", 7, -INTEGER_MAX, "é" * 256])
def test_id_of_request_is_echoed_with_its_type(request_id: str | int) -> None:
    """An answer bears the id that came, a text as a text and a number as a number."""
    request = decode(encode_request(request_id, "m", {}))
    assert isinstance(request, Request)
    answer = decode(encode_result(request.id, {}))
    assert isinstance(answer, Response)
    assert (answer.id, type(answer.id)) == (request_id, type(request_id))


@pytest.mark.clause("native-3.6.15")
@pytest.mark.parametrize(
    ("code", "number"),
    [
        ("PARSE_ERROR", -32700),
        ("INVALID_RPC", -32600),
        ("METHOD_NOT_FOUND", -32601),
        ("INVALID_PARAMS", -32602),
        ("QUEUE_FULL", -32000),
        ("AUTHENTICATION_FAILED", -32000),
    ],
)
def test_error_with_typed_code_has_its_number(code: str, number: int) -> None:
    """JSON-RPC's own errors have JSON-RPC's numbers, all others one; the typed code is in the data."""
    line = encode_error("a", code, "no", {"held": 32, "code": "ANOTHER"})
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "jsonrpc": "2.0",
        "id": "a",
        "error": {"code": number, "message": "no", "data": {"held": 32, "code": code}},
    }
    frame = decode(line)
    assert isinstance(frame, Response)
    assert frame.error is not None
    assert frame.error.typed_code == code


@pytest.mark.parametrize("data", [None, [], "QUEUE_FULL", {}, {"code": 7}])
def test_error_without_typed_code_has_none(data: object) -> None:
    """An error of a program that knows no typed codes has the empty one."""
    assert ErrorObject(-32603, "no", data).typed_code == ""


def test_params_as_struct_are_written_as_its_fields() -> None:
    """A typed value and a dict of the same fields give the same line."""

    class Params(msgspec.Struct, rename="camel"):
        message_id: str

    assert encode_request("a", "m", Params("x")) == encode_request("a", "m", {"messageId": "x"})
    assert encode_error(None, "PARSE_ERROR", "no").startswith(b'{"jsonrpc":"2.0","id":null,')


def test_line_in_common_form_costs_little_more_than_reading_it() -> None:
    """Strictness costs at most a few times what a lenient reader takes for the same line."""
    line = encode_request(
        "rpc-1", "peer.send", {"version": 1, "to": "peer-" + "0" * 32, "content": "word " * 190}
    )[:-1]

    def seconds(read: Any) -> float:
        started = time.process_time()
        for _ in range(2_000):
            read(line)
        return time.process_time() - started

    best = [min(seconds(read) for _ in range(7)) for read in (decode, json.loads)]
    assert best[0] < 8 * best[1]


def test_module_by_its_words_knows_no_method() -> None:
    """The shared grammar names no method of any wire."""
    assert "peer." not in Path(jsonrpc.__file__).read_text(encoding="utf-8")
