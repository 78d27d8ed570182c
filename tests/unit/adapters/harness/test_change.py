"""Set up twice is as once, and taken out is as before: also where somebody wrote the file meanwhile."""

import json

import pytest

from tieline.adapters.harness.base import Document, Entry, Mark, Whole, is_our_group, is_our_server
from tieline.adapters.harness.change import holds, places_fit, put_in, taken_out, value_of
from tieline.errors import UsageError

SERVER = {"command": "/x/tieline", "args": ["mcp"]}
GROUP = {"hooks": [{"type": "mcp_tool", "server": "tieline", "tool": "tieline_host", "input": {}}]}
FILE = Document(
    "/f.json",
    "json",
    (
        Entry(("mcpServers", "tieline"), SERVER),
        Entry(("hooks", "Stop"), GROUP, is_element=True),
        Entry(("allow",), "mcp__tieline", is_element=True, extra="permission"),
    ),
    (
        Mark(("mcpServers", "tieline"), is_our_server),
        Mark(("hooks", "*", "*"), is_our_group),
        Mark(("allow", "*"), lambda value: value == "mcp__tieline"),
    ),
)
TOML = Document(
    "/f.toml",
    "toml",
    (Entry(("mcp_servers", "tieline"), SERVER), Entry(("hooks", "state", "k"), {"trusted_hash": "h"})),
    (Mark(("mcp_servers", "tieline"), is_our_server),),
)


def test_put_in_twice_changes_nothing_the_second_time() -> None:
    """No drift."""
    first = put_in(FILE, '{"a": 1}', None, ())
    assert first.is_needed
    again = put_in(FILE, first.now, first.record, ())
    assert (again.is_needed, again.record) == (False, first.record)


@pytest.mark.parametrize(
    "was", [None, "", "\n", "{}", "{\n}\n", '{ "hooks": {"Stop": []} }', '{"allow": ["x"]}']
)
def test_taken_out_gives_the_bytes_back(was: str | None) -> None:
    """What was empty is as empty as before; what was no file is none."""
    change = put_in(FILE, was, None, ("permission",))
    assert change.now is not None
    assert "mcp__tieline" in change.now
    assert taken_out(FILE, change.now, change.record).now == was


def test_taken_out_after_somebody_wrote_leaves_theirs() -> None:
    """The harness itself writes its files in its own form."""
    change = put_in(FILE, '{"a": 1}', None, ("permission",))
    held = json.loads(change.now or "")
    held["allow"].append("Bash")
    held["hooks"]["Stop"].append({"hooks": [{"type": "command", "command": "mine"}]})
    now = taken_out(FILE, json.dumps(held, indent=2), change.record).now
    assert json.loads(now or "") == {
        "a": 1,
        "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "mine"}]}]},
        "allow": ["Bash"],
    }


def test_taken_out_of_a_created_file_that_was_rewritten_removes_it() -> None:
    """Nothing of another is in it."""
    change = put_in(FILE, None, None, ())
    rewritten = json.dumps(json.loads(change.now or ""))
    assert taken_out(FILE, rewritten, change.record).now is None
    assert json.loads(taken_out(FILE, rewritten, None).now or "") == {"mcpServers": {}, "hooks": {"Stop": []}}


def test_put_in_over_an_older_version_leaves_one() -> None:
    """What an older version put in goes, and what it was allowed stays."""
    old = FILE._replace(
        entries=(
            Entry(("mcpServers", "tieline"), {**SERVER, "old": 1}),
            Entry(("hooks", "Gone"), GROUP, is_element=True),
            FILE.entries[2],
        )
    )
    before = put_in(old, '{"a": 1}', None, ("permission",))
    after = put_in(FILE, before.now, before.record, ())
    held = json.loads(after.now or "")
    assert held == {
        "a": 1,
        "mcpServers": {"tieline": SERVER},
        "hooks": {"Stop": [GROUP]},
        "allow": ["mcp__tieline"],
    }
    assert taken_out(FILE, after.now, after.record).now == '{"a": 1}'


def test_put_in_where_another_stands_is_refused() -> None:
    """A server of that name that is not ours is not replaced."""
    with pytest.raises(UsageError, match="not ours"):
        put_in(FILE, '{"mcpServers": {"tieline": {"command": "else"}}}', None, ())
    with pytest.raises(UsageError, match="line 2"):
        put_in(FILE, '{"a":\n', None, ())


def test_taken_out_of_toml_that_somebody_wrote_is_exact() -> None:
    """The blocks go as they came, comments between them stay."""
    change = put_in(TOML, "a = 1\n", None, ())
    text = (change.now or "").replace("a = 1", "a = 2 # theirs") + "\n[z] # end\nb = 1\n"
    assert taken_out(TOML, text, change.record).now == "a = 2 # theirs\n\n[z] # end\nb = 1\n"
    without = taken_out(TOML, text, None).now
    assert value_of(TOML, without)["hooks"] == {"state": {"k": {"trusted_hash": "h"}}}
    assert "tieline" not in (without or "")


def test_whole_file_is_ours_alone() -> None:
    """One that somebody changed is not removed."""
    file = Whole("/x.js", "// tieline 2\n")
    made = put_in(file, None, None, ())
    assert (made.now, taken_out(file, made.now, made.record).now) == ("// tieline 2\n", None)
    assert not put_in(file, made.now, made.record, ()).is_needed
    older = put_in(Whole("/x.js", "// tieline 1\n"), None, None, ())
    assert put_in(file, older.now, older.record, ()).now == "// tieline 2\n"
    with pytest.raises(UsageError, match="not as setup left it"):
        taken_out(file, "// tieline 2, and mine\n", made.record)
    with pytest.raises(UsageError, match="not as setup left it"):
        put_in(file, "// somebody else's\n", None, ())
    assert taken_out(file, None, None).now is None


def test_holds_and_places_fit_compare_exactly() -> None:
    """Another value at the place does not hold."""
    assert not holds(FILE, "{}", FILE.entries)
    assert not holds(FILE, '{"mcpServers": {"tieline": 1}}', FILE.entries[:1])
    assert places_fit(("a", 1), ("*", "*"))
    assert not places_fit(("a",), ("a", "*"))


def test_consent_given_to_an_older_version_stays_with_the_newer() -> None:
    """A gate that vanished with an update would let commands through without a word."""
    gate = {"hooks": [{"type": "command", "command": "tieline hook claude pre-tool"}]}
    new = {"hooks": [{"type": "command", "command": "x; tieline hook claude pre-tool; y"}]}
    entry = Entry(("hooks", "Stop"), new, is_element=True, extra="gate", is_former=lambda one: one == gate)
    file = FILE._replace(entries=(*FILE.entries, entry))
    now = put_in(file, json.dumps({"hooks": {"Stop": [gate]}}), None, ()).now
    assert json.loads(now or "")["hooks"]["Stop"] == [GROUP, new]
    assert json.loads(put_in(file, "{}", None, ()).now or "")["hooks"]["Stop"] == [GROUP]
