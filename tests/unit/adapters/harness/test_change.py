"""Set up twice is as once, and taken out is as before: also where somebody wrote the file meanwhile."""

import json

import pytest

from tieline.adapters.harness.base import HOOK_MARKS, Document, Entry, Mark, Whole, is_our_server
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
        *HOOK_MARKS,
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
    "was",
    [
        *(None, "", "\n", "{}", "{\n}\n", '{ "hooks": {"Stop": []} }', '{"allow": ["x"]}'),
        *("// a note\n", "/* a note */", "\ufeff// a note that runs to the end", "\r\n// a\r\n"),
    ],
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
    assert json.loads(taken_out(FILE, rewritten, None).now or "") == {}


def test_taken_out_without_a_record_leaves_no_empty_container_but_a_note_in_one() -> None:
    """Who made it is not known; empty it says nothing, and a comment says something."""
    put = put_in(FILE, '{"mcpServers": { /* mine */ }, "a": 1}', None, ("permission",)).now or ""
    now = taken_out(FILE, put, None).now or ""
    assert "/* mine */" in now
    assert value_of(FILE, now) == {"mcpServers": {}, "a": 1}
    theirs = {"hooks": [{"type": "command", "command": "mine"}]}
    text = json.dumps({"hooks": {"Stop": [theirs], "Gone": []}}, indent=2)
    put = put_in(FILE, text, None, ()).now or ""
    assert json.loads(taken_out(FILE, put, None).now or "") == json.loads(text)


def test_taken_out_of_a_group_that_somebody_shares_leaves_theirs() -> None:
    """A hook of theirs beside ours keeps the group, and ours goes all the same; set up again there is one."""
    theirs = {"type": "command", "command": "mine"}
    change = put_in(FILE, "{}", None, ())
    held = json.loads(change.now or "")
    held["hooks"]["Stop"][0]["hooks"].append(theirs)
    text = json.dumps(held)
    again = put_in(FILE, text, change.record, ()).now or ""
    assert json.loads(again)["hooks"]["Stop"] == [{"hooks": [theirs]}, GROUP]
    for record in (change.record, None):
        now = json.loads(taken_out(FILE, text, record).now or "")
        assert now["hooks"] == {"Stop": [{"hooks": [theirs]}]}


def test_put_in_keeps_what_somebody_added_to_our_entry() -> None:
    """A limit, a variable, a word, what a person allowed each tool: also over another version's entry."""
    added = {
        **SERVER,
        "args": ["mcp", "--alias", "x"],
        "env": {"TIELINE_HOME": "/old", "MINE": "1"},
        "timeout": 9,
        "tools": {"send_peer_message": {"approval_mode": "approve"}},
    }
    for old in ("/x/tieline", "/old/tieline"):
        text = json.dumps({"mcpServers": {"tieline": {**added, "command": old}}})
        change = put_in(FILE._replace(entries=FILE.entries[:1]), text, None, ())
        assert json.loads(change.now or "")["mcpServers"]["tieline"] == {**added, "env": {"MINE": "1"}}
        again = put_in(FILE._replace(entries=FILE.entries[:1]), change.now, change.record, ())
        assert not again.is_needed
    toml = put_in(TOML, "a = 1\n", None, ())
    text = (toml.now or "") + "\n[mcp_servers.tieline.tools.send_peer_message]\napproval_mode = 'approve'\n"
    assert not put_in(TOML, text, toml.record, ()).is_needed
    assert "approv" not in (taken_out(TOML, text, toml.record).now or "")


def test_put_in_over_an_older_version_leaves_one() -> None:
    """What an older version put in goes, and what it was allowed stays."""
    old = FILE._replace(
        entries=(
            Entry(("mcpServers", "tieline"), {**SERVER, "exposure": "direct"}),
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
    with pytest.raises(UsageError, match="not ours"):  # also where the server stands in another file
        put_in(FILE._replace(entries=()), '{"mcpServers": {"tieline": {"command": "else"}}}', None, ())
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
    for theirs in ("// somebody else's\n", "// tieline of somebody else\n"):
        with pytest.raises(UsageError, match="not ours"):
            put_in(file, theirs, None, ())
        with pytest.raises(UsageError, match="not ours"):
            taken_out(file, theirs, None)
    assert taken_out(file, None, None).now is None


def test_whole_file_of_another_version_is_ours() -> None:
    """By its record, by what a writer that was killed was about to replace, or by what it does."""
    older = Whole("/x.js", "// 1\n")
    newer = Whole("/x.js", "// 2\n", lambda text: text.startswith("//"), ("/x",))
    first = put_in(older, None, None, ())
    second = put_in(newer, first.now, first.record, ())
    assert put_in(newer, first.now, second.record, ()).now == "// 2\n"
    assert taken_out(newer, first.now, second.record).now is None
    assert taken_out(newer, "// 0\n", None)[2:] == (None, None, ("/x",))


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
