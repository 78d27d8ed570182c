"""Whatever a person's file looks like: what is put in is there, the rest stays, and it comes out again."""

import tomllib
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tieline.adapters.harness.base import Document, Entry, Mark, is_our_group, is_our_server
from tieline.adapters.harness.change import put_in, taken_out, value_of
from tieline.adapters.harness.edit_json import put_element, put_member, removed
from tieline.adapters.harness.jsonc import is_blank, parse

pytestmark = pytest.mark.timeout(600)  # the long profile draws many texts

SERVER = {"command": "/x/tieline", "args": ["mcp"]}
GROUP = {"hooks": [{"type": "mcp_tool", "server": "tieline", "tool": "tieline_host", "input": {}}]}
KEYS = st.sampled_from(["a", "b", "mcpServers", "hooks", "Stop", "ü", 'q"t', ""])
SPACES = st.sampled_from(["", " ", "\n", "\n  ", "\t", "\r\n\t", " // c\n", "/* x\n */", "\n// {\n  "])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@st.composite
def json_text(draw: st.DrawFn, depth: int = 0, *, is_object: bool = False) -> str:
    """Return JSON with comments, in any layout."""
    if not is_object and (depth > 2 or draw(st.booleans())):
        return draw(
            st.sampled_from(["1", "-2.5e1", "true", "null", '"x // y"', '"\\u00e9"', "{}", "[]", "[ ]"])
        )
    pad = lambda: draw(SPACES)  # noqa: E731 - drawn anew at each place
    opening, closing = "{}" if is_object or draw(st.booleans()) else "[]"
    count = draw(st.integers(0, 3))
    names = draw(st.lists(KEYS, min_size=count, max_size=count, unique=True))
    parts = []
    for name in names:
        named = f'"{name}"'.replace('q"t', 'q\\"t') + pad() + ":" + pad() if opening == "{" else ""
        parts.append(pad() + named + draw(json_text(depth + 1)) + pad())
    tail = "," + pad() if parts and draw(st.booleans()) else ""
    return opening + ",".join(parts) + tail + ("" if parts else pad()) + closing


def document(value: Any) -> Document:
    """Return a file that our entries can be put into: what is in the way is left out."""
    entries = []
    if isinstance(value.get("mcpServers", {}), dict):
        entries.append(Entry(("mcpServers", "tieline"), SERVER))
    hooks = value.get("hooks", {})
    if isinstance(hooks, dict) and isinstance(hooks.get("Stop", []), list):
        entries.append(Entry(("hooks", "Stop"), GROUP, is_element=True))
    marks = (Mark(("mcpServers", "tieline"), is_our_server), Mark(("hooks", "*", "*"), is_our_group))
    return Document("/f", "json", tuple(entries), marks)


HEADS = st.sampled_from(["", "\ufeff", "\ufeff// b\r\n"])


@given(HEADS, SPACES, st.one_of(json_text(is_object=True), st.just("")), SPACES)
def test_json_set_up_and_taken_out_is_the_same_text(mark: str, head: str, text: str, tail: str) -> None:
    """To the byte, with every comment; and what was set up says the rest as before."""
    text = mark + head + text + tail
    before = {} if is_blank(text, "f") else parse(text, "f").value
    file = document(before)
    change = put_in(file, text, None, ())
    assert change.now is not None
    now = value_of(file, change.now)
    assert {key: one for key, one in now.items() if key not in ("mcpServers", "hooks")} == {
        key: one for key, one in before.items() if key not in ("mcpServers", "hooks")
    }
    assert not put_in(file, change.now, change.record, ()).is_needed
    assert taken_out(file, change.now, change.record).now == text
    for comment in ("// c", "/* x", "// {"):
        assert change.now.count(comment) == text.count(comment)


@given(json_text(is_object=True), TEXTS)
def test_json_taken_out_after_a_foreign_change_keeps_everything_else(text: str, word: str) -> None:
    """Somebody adds a member meanwhile; ours goes, theirs and all comments stay."""
    before = parse(text, "f").value
    file = document(before)
    change = put_in(file, text, None, ())
    changed = put_member(change.now or "", ("theirs", word), [word], "f")
    now = taken_out(file, changed, change.record).now or ""
    assert parse(now, "f").value == {**before, "theirs": {word: [word]}}
    for comment in ("// c", "/* x", "// {"):
        assert now.count(comment) == text.count(comment)


@given(json_text(is_object=True), KEYS, TEXTS)
def test_json_member_put_and_removed_without_a_record_says_the_same(text: str, key: str, word: str) -> None:
    """The text differs at most in the space of what was empty."""
    before = parse(text, "f").value
    if key in before:
        return
    put = put_member(text, (key,), word, "f")
    assert parse(put, "f").value == {**before, key: word}
    back = removed(put, (key,), "f")
    assert parse(back, "f").value == before
    if before:
        assert back == text
    listed = put_element(text, (key,), word, "f")
    assert parse(listed, "f").value == {**before, key: [word]}


TABLES = st.sampled_from(
    [
        "",
        "a = 1 # one\n",
        "a = 1",
        "[features]\nx = true # mine\n",
        "[mcp_servers.other]\ncommand = 'y'\n",
        "mcp_servers.other.command = 'y'\n",
        "mcp_servers = { other = { command = 'y' } }\n",
        "[[profiles]]\nname = \"é\"\n\n[[profiles]]\nname = '''\nx'''\n",
        "[mcp_servers]\n# nothing\n",
        "[a]\r\nb = [\r\n  1, # c\r\n]\r\n",
    ]
)


@given(
    st.sampled_from(["", "\ufeff"]),
    st.lists(TABLES, max_size=3, unique=True),
    st.sampled_from(["", "\n", "# tail", "# tail\n"]),
)
def test_toml_set_up_and_taken_out_is_the_same_text(mark: str, parts: list[str], tail: str) -> None:
    """To the byte, in every form; where somebody added a table meanwhile, theirs stays."""
    text = mark + "".join(part if part.endswith("\n") or not part else part + "\n" for part in parts) + tail
    try:
        before = tomllib.loads(text.removeprefix(mark))
    except tomllib.TOMLDecodeError:
        return
    file = Document(
        "/f",
        "toml",
        (Entry(("mcp_servers", "tieline"), SERVER), Entry(("hooks", "state", "k:0"), {"trusted_hash": "h"})),
        (Mark(("mcp_servers", "tieline"), is_our_server),),
    )
    change = put_in(file, text, None, ())
    assert not put_in(file, change.now, change.record, ()).is_needed
    now = tomllib.loads((change.now or "").removeprefix(mark))
    assert now["mcp_servers"]["tieline"] == SERVER
    assert {key: one for key, one in now.items() if key not in ("mcp_servers", "hooks")} == {
        key: one for key, one in before.items() if key != "mcp_servers"
    }
    assert taken_out(file, change.now, change.record).now == text
    changed = (change.now or "") + "\n[theirs]\nz = 1 # z\n"
    rest = tomllib.loads((taken_out(file, changed, change.record).now or "").removeprefix(mark))
    assert rest.pop("theirs") == {"z": 1}
    assert {key: one for key, one in rest.items() if one != {}} == {
        key: one for key, one in before.items() if one != {}
    }
    alone = Document("/f", "toml", file.entries[:1], file.marks)
    if text in ("", mark) or (text.endswith("\n") and "mcp_servers" not in before):
        put = put_in(alone, text, None, ()).now
        assert taken_out(alone, put, None).now == text, "without a record"
