"""What is put into JSON stands where it should, and comes out again to the byte."""

import json

import pytest

from tieline.adapters.harness.edit_json import is_bare, put_element, put_member, removed
from tieline.adapters.harness.jsonc import parse
from tieline.errors import UsageError

SERVER = {"command": "t", "args": ["mcp"]}


def test_put_member_keeps_comments_order_and_line_ends() -> None:
    """The comment behind the last member stays with it."""
    text = '{\r\n\t// mine\r\n\t"a": 1 // one\r\n}\r\n'
    now = put_member(text, ("m",), 2, "f")
    assert now == '{\r\n\t// mine\r\n\t"a": 1, // one\r\n\t"m": 2\r\n}\r\n'
    assert removed(now, ("m",), "f") == text


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}',
        '{"a": 1, }',
        '{\n  "a": 1,\n}\n',
        '{\n    "a": {\n        "b": [1]\n    }\n    /* end */\n}',
        '{"a": 1 /* x */ }',
        '{ // c\n"a": 1}',
        '{\n\t"a": 1 // one\n\t// two\n}',
    ],
)
def test_removed_after_put_member_gives_the_bytes_back(text: str) -> None:
    """Where something stood already, no record is needed."""
    now = put_member(text, ("mcp", "tieline"), SERVER, "f")
    assert parse(now, "f").value == {**parse(text, "f").value, "mcp": {"tieline": SERVER}}
    assert removed(now, ("mcp",), "f") == text


def test_put_member_into_an_empty_file_makes_plain_json() -> None:
    """A file without anything gets an object."""
    for text in ("", " \n", "{}", "{\n}\n"):
        now = put_member(text, ("a", "b"), SERVER, "f")
        assert json.loads(now) == {"a": {"b": SERVER}}
        assert removed(removed(now, ("a", "b"), "f"), ("a",), "f").split() in (["{}"], ["{", "}"])


def test_put_member_replaces_in_place_and_leaves_an_equal_one() -> None:
    """The order does not change."""
    text = '{\n  "a": {"x": 1},\n  "b": {\n    "y": 2\n  }\n}'
    assert put_member(text, ("a",), {"x": 1}, "f") == text
    assert put_member(text, ("a",), {"x": 2}, "f") == text.replace("1", "2")
    assert put_member(text, ("b",), {"y": 3}, "f") == text.replace('"y": 2', '"y": 3')


def test_put_element_appends_once() -> None:
    """What stands in the list already is not put there again."""
    text = '{"allow": ["a"]}'
    now = put_element(text, ("allow",), "b", "f")
    assert now == '{"allow": ["a", "b"]}'
    assert put_element(now, ("allow",), "b", "f") == now
    assert removed(now, ("allow", 1), "f") == text
    assert removed('["a", "b", "c"]', (0,), "f") == '[ "b", "c"]'
    assert json.loads(put_element("", ("x", "y"), 1, "f")) == {"x": {"y": [1]}}


def test_bare_is_an_empty_container_without_a_note() -> None:
    """What holds a comment, a value or is none stays."""
    text = '{"a": { }, "b": [/* x */], "c": [1], "d": 1}'
    assert [is_bare(text, (key,), "f") for key in "abcde"] == [True, False, False, False, False]
    assert not is_bare("// x", ("a",), "f")


def test_put_into_what_is_something_else_names_the_line() -> None:
    """Nothing of another is replaced."""
    with pytest.raises(UsageError, match="line 2: a is not an object"):
        put_member('{"a":\n1}', ("a", "b"), 1, "f")
    with pytest.raises(UsageError, match="line 1: a is not a list"):
        put_element('{"a": {}}', ("a",), 1, "f")
    with pytest.raises(UsageError, match="line 1: the whole is not an object"):
        put_member("[]", ("a", "b"), 1, "f")


def test_removed_behind_a_line_comment_swallows_nothing() -> None:
    """What followed on the line is no comment afterwards."""
    assert parse(removed('{ // c\n"k": 1}', ("k",), "f"), "f").value == {}
    assert parse(removed('{"a": 1, // c\n"k": 2}', ("k",), "f"), "f").value == {"a": 1}
    with pytest.raises(KeyError):
        removed("{}", ("k",), "f")
