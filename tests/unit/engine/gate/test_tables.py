"""The tables of programs: what they say of each other must agree."""

from tieline.engine.gate.tables import (
    BUILTIN_SUBCOMMANDS,
    NICKNAMES,
    PLAIN_TOOL,
    RUNNERS,
    SCRIPT_TOOLS,
    SHELLS,
    TOOLS,
    WRAPPERS,
)


def test_options_of_tables_are_written_as_options() -> None:
    """Every option starts with a dash, and one that names a folder, a module or a text takes a value."""
    wrappers = [*WRAPPERS.values(), *(one for words in RUNNERS.values() for one in words.values())]
    for wrapper in wrappers:
        assert all(one.startswith("-") for one in wrapper.valued | wrapper.stops)
        assert wrapper.folders | wrapper.modules | wrapper.texts <= wrapper.valued
        assert not wrapper.valued & wrapper.stops
    for tool in TOOLS.values():
        assert tool.folders <= tool.valued
        assert all(one.startswith("-") for one in tool.valued)
    assert PLAIN_TOOL.valued == frozenset()


def test_program_of_tables_is_read_in_one_way() -> None:
    """No program is a shell, a wrapper and a runner at once, and no nickname hides an entry."""
    assert not SHELLS & set(WRAPPERS)
    assert not set(RUNNERS) & (set(WRAPPERS) | SHELLS)
    assert not set(NICKNAMES) & (set(WRAPPERS) | set(RUNNERS) | set(TOOLS) | set(SCRIPT_TOOLS) | SHELLS)
    assert set(BUILTIN_SUBCOMMANDS) <= set(TOOLS)
    assert TOOLS["gradlew"] is TOOLS["gradle"]


def test_wrapper_of_the_published_list_is_known() -> None:
    """Each wrapper that the reference names has its entry."""
    assert {"env", "time", "nice", "nohup", "timeout", "sudo", "xargs", "npx"} <= set(WRAPPERS)
    assert {"sh", "bash"} <= SHELLS
    assert "run" in RUNNERS["uv"]
    assert "run" in RUNNERS["poetry"]
