"""JSON with comments: every value keeps its place, and what is wrong is said with its line."""

import json

import pytest

from tieline.adapters.harness.jsonc import DEPTH_MAX, find, is_blank, parse, skip
from tieline.errors import UsageError

TEXT = '\ufeff// head\n{"a": [1, -2.5e3, "x\\n", null, true,], /* in */ "b": {"c": {}},}\n// tail'


def test_parse_with_comments_and_commas_finds_every_place() -> None:
    """The place of each value is where its text stands."""
    node = parse(TEXT, "f")
    assert node.value == {"a": [1, -2500.0, "x\n", None, True], "b": {"c": {}}}
    a = find(node, ("a",))
    assert a is not None
    assert TEXT[a.start : a.end].startswith("[1,")
    assert [TEXT[item.node.start : item.node.end] for item in a.items][:2] == ["1", "-2.5e3"]
    assert TEXT[a.items[-1].comma] == ","


def test_parse_of_broken_text_names_the_line() -> None:
    """A person finds what is wrong."""
    for text, line, word in (
        ("{\n1", 2, "name in quotes"),
        ('{"a"\n1', 2, "colon"),
        ('{"a": 1\n"b": 2}', 2, "comma"),
        ("[1\n/* x", 2, "comment"),
        ('{"a":\n', 2, "too early"),
        ('{"a":\nnope}', 2, "value"),
        ('{"a": "\n"}', 1, "text"),
        ("{}\n}", 2, "behind"),
        ("[" * (DEPTH_MAX + 5), 1, "levels"),
    ):
        with pytest.raises(UsageError, match=f"f, line {line}: .*{word}"):
            parse(text, "f")


def test_find_takes_the_last_of_equal_names_and_none_where_nothing_is() -> None:
    """As every reader of JSON does."""
    node = parse('{"a": 1, "a": {"b": 2}}', "f")
    found = find(node, ("a", "b"))
    assert found is not None
    assert found.value == 2
    assert find(node, ("a", "c")) is None
    assert find(node, ("a", "b", "c")) is None


def test_skip_stops_at_what_is_neither_space_nor_comment() -> None:
    """A single slash is no comment."""
    assert skip(" // a\n/* b */ /x", 0, "f") == 14


def test_blank_is_what_holds_no_value() -> None:
    """A person may keep a note in a file that says nothing else."""
    for text in ("", "\ufeff", " \r\n", "// a", "/* a */ // b\n"):
        assert is_blank(text, "f")
    assert not is_blank("// a\n{}", "f")
    with pytest.raises(UsageError, match="no end"):
        is_blank("/* a", "f")


def test_parse_of_plain_json_equals_the_library() -> None:
    """Nothing of JSON itself is read differently."""
    value = {"x": [{"y": "ü\u2028"}, [], {}], "z": -0.0}
    assert parse(json.dumps(value, indent=3), "f").value == value
