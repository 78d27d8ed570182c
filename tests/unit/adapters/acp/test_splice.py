"""What is added to a line, and that nothing else of it changes."""

import json

import pytest

from tieline.adapters.acp.splice import append, put


@pytest.mark.parametrize(
    ("given", "path", "made"),
    [
        (b"{}", "a", b'{"a":1}'),
        (b'{"b":2}', "a", b'{"a":1,"b":2}'),
        (b'{"a":0}', "a", b'{"a":1}'),
        (b'{"a":0,"a":7}', "a", b'{"a":0,"a":1}'),
        (b' { "b" : 1e400 }\r\n', "a b", b' {"a":{"b":1}, "b" : 1e400 }\r\n'),
        (b'{"a":{"c":"}"}}', "a b", b'{"a":{"b":1,"c":"}"}}'),
        (b'{"a":null}', "a b c", b'{"a":{"b":{"c":1}}}'),
        (b'{"x":"\xff\\"","a":{ }}', "a b", b'{"x":"\xff\\"","a":{"b":1 }}'),
        (b'{"\\u0061":0}', "a", b'{"\\u0061":1}'),
    ],
)
def test_member_is_put_where_it_belongs_and_the_rest_stays(given: bytes, path: str, made: bytes) -> None:
    """Of two of one name the last counts; what is no object on the way gives way to one."""
    assert put(given, tuple(path.split()), "1") == made


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (b'{"a":{"l":[]}}', b'{"a":{"l":[1]}}'),
        (b'{"a":{"l":[ ]}}', b'{"a":{"l":[ 1]}}'),
        (b'{"a":{"l":["]",{}]}}\n', b'{"a":{"l":["]",{},1]}}\n'),
        (b'{"a":{"l":0,"l":[2 ]}}', b'{"a":{"l":0,"l":[2 ,1]}}'),
    ],
)
def test_value_is_appended_to_the_list(given: bytes, made: bytes) -> None:
    """Behind what is there."""
    assert append(given, ("a", "l"), "1") == made
    json.loads(made)
