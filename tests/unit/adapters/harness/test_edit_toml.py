"""What is put into TOML is put as asked, and nothing else changes."""

import sys
import tomllib

import pytest

from tieline.adapters.harness.edit_toml import parse, put_element, put_table, removed
from tieline.errors import UsageError

KEYS = ("mcp_servers", "tieline")
TABLE = {"command": "t", "args": ["mcp"], "env": {"A b": "x"}, "on": True}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only\n",
        "a = 1",
        '[mcp_servers.x]\ncommand = "y" # mine\r\n',
        'mcp_servers = { x = { command = "y" } } # mine\n',
        'mcp_servers.x.command = "y"\n\n[z]\na = 1\n',
        '[mcp_servers]\n[mcp_servers.tieline]\ncommand = "old" # mine\n[z]\n',
    ],
)
def test_put_table_in_any_form_adds_that_table_alone(text: str) -> None:
    """Whatever form a person chose, the rest says what it said."""
    now = put_table(text, KEYS, TABLE, "f")
    wanted = tomllib.loads(text)
    wanted.setdefault("mcp_servers", {})["tieline"] = TABLE
    assert tomllib.loads(now) == wanted
    assert ("# mine" in now) == ("# mine" in text) or "old" in text
    assert put_table(now, KEYS, TABLE, "f") == now
    assert "tieline" not in tomllib.loads(removed(now, KEYS, "f")).get("mcp_servers", {})


def test_put_table_at_the_end_keeps_every_byte_before_it() -> None:
    """Also where the last line had no end."""
    assert put_table("a = 1", ("x y", "z"), {"k": "\x7f"}, "f") == 'a = 1\n\n["x y".z]\nk = "\\u007f"\n'


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only\n",
        "a = 1\n\n",
        '[mcp_servers.x]\r\ncommand = "y" # mine\r\n',
        "[mcp_servers]\n# nothing\n",
    ],
)
def test_removed_table_goes_with_the_lines_that_came_with_it(text: str, mark: str) -> None:
    """To the byte, with what stands below it; a comment behind it and the mark of an editor stay."""
    now = put_table(mark + text, KEYS, TABLE, "f")
    assert now.startswith(mark + text)
    assert removed(now, KEYS, "f") == mark + text
    more = now + '[mcp_servers.tieline.tools."a b"]\nx = """\n[z]\n"""\n\n# of z\n[z]\n'
    assert removed(more, KEYS, "f") == mark + text + "\n# of z\n[z]\n"


def test_put_element_makes_or_extends_a_list() -> None:
    """A list of a person's keeps what is in it."""
    assert tomllib.loads(put_element("", ("f", "names"), "a", "f")) == {"f": {"names": ["a"]}}
    text = '[f]\nother = 1 # mine\nnames = ["b"]\n'
    now = put_element(text, ("f", "names"), "a", "f")
    assert tomllib.loads(now)["f"]["names"] == ["b", "a"]
    assert "# mine" in now
    assert put_element(now, ("f", "names"), "a", "f") == now
    assert tomllib.loads(put_element("[f]\nother = 1\n", ("f", "names"), "a", "f"))["f"]["names"] == ["a"]
    with pytest.raises(UsageError, match="is not a list"):
        put_element("[f]\nnames = 1\n", ("f", "names"), "a", "f")


def test_parse_of_broken_text_names_the_line() -> None:
    """A person finds what is wrong."""
    with pytest.raises(UsageError, match=r"f: .*line 2"):
        parse("a = 1\nb = \n", "f")
    with pytest.raises(UsageError, match="is not a table"):
        put_table("mcp_servers = 1\n", KEYS, TABLE, "f")


def test_put_table_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most files need no more than the standard library."""
    monkeypatch.setitem(sys.modules, "tomlkit", None)
    assert put_table("", KEYS, TABLE, "f")
    with pytest.raises(UsageError, match=r"install tieline\[setup\]"):
        put_table("mcp_servers = {}\n", KEYS, TABLE, "f")
