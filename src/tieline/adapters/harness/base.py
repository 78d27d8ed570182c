"""What one harness is to `setup`: where its files are, what belongs into them, and what is ours in them.

Rule 1: an entry says its place, its value and whether it needs a consent of its own; nothing else decides.
Rule 2: what is ours is known by what it does, not by who remembers: an older version's entries count.
Rule 3: a project's file may be shared: it names the command alone, and no place of this machine.

Source: DESIGN.md 4 "setup"; reference/harnesses.md.
"""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from tieline.adapters.harness.facts import (
    COMMAND_LINE,
    GATE_EVENT,
    GATE_LINE,
    GATE_MATCHER,
    HOOK_CLIENT,
    HOST_TOOL,
    SERVER,
    SHARED_CALL,
    SHIMS,
    TOOL_HOOK_SECONDS_MAX,
    ToolHook,
    tool_input,
)
from tieline.adapters.harness.files import read

__all__ = [
    "HOOK_MARKS",
    "Document",
    "Entry",
    "Harness",
    "Mark",
    "Place",
    "Whole",
    "command_variables",
    "folder_of",
    "gate_entry",
    "hook_command",
    "is_our_command",
    "is_our_group",
    "is_our_server",
    "is_our_shim",
    "places_of",
    "program",
    "server_entry",
    "shim",
    "tool_hook_entries",
    "with_theirs",
]

_OUR_MEMBERS: Final = frozenset(
    ("alwaysLoad", "args", "command", "enabled", "env", "env_vars", "environment", "exposure", "type")
)
"""Of a server's entry: those that some version of `setup` writes, or that would switch it off."""
_SHIM_LINE: Final = COMMAND_LINE.partition("[")[0]
PASSED_ON: Final = ("TIELINE_HOME", "TIELINE_COORDINATION_DIRECTORY")
"""Variables that a root must see as this command does, where a harness hands down none."""


_OUR_HOOK: Final = re.compile(
    r"(?:tieline\S* hook|tieline/shims/hook\.py\S* \S+) (?:claude|claude-code|codex|gemini) \S"
)


class Place(NamedTuple):
    """Where things are for one call of `setup`.

    Attributes:
        home: The person's home.
        environment: Of this process.
        project: The project's folder; "" sets up for the person.
        command: The words that start Tieline.
        package: The folder of the installed package, which holds the shims.
    """

    home: str
    environment: Mapping[str, str]
    project: str
    command: tuple[str, ...]
    package: str


class Entry(NamedTuple):
    """One value in a file: the member at `keys`, or an element of the list there.

    `is_former` knows it as another version wrote it: what needs a consent has it then.
    """

    keys: tuple[str, ...]
    value: Any
    is_element: bool = False
    extra: str = ""
    is_former: Callable[[Any], bool] = lambda _value: False


class Mark(NamedTuple):
    """What is ours in a file: what stands at `pattern` ("*" is any key or number) and passes `is_ours`."""

    pattern: tuple[str, ...]
    is_ours: Callable[[Any], bool]


class Document(NamedTuple):
    """A file that holds things of others too. `form` is "json" or "toml"."""

    path: str
    form: str
    entries: tuple[Entry, ...]
    marks: tuple[Mark, ...]


class Whole(NamedTuple):
    """A file that is ours alone.

    Attributes:
        is_ours: Knows it as another version wrote it, where nothing is recorded.
        folders: Those that are ours alone, too, the outermost first.
    """

    path: str
    text: str
    is_ours: Callable[[str], bool] = lambda _text: False
    folders: tuple[str, ...] = ()


class Harness(NamedTuple):
    """One coding agent.

    Attributes:
        name: As `tieline setup` calls it.
        title: As its makers call it.
        programs: Its command, by any of its names.
        folder: Where its configuration is, for the person.
        files: What belongs where; raises where this level is not known to it.
        extras: Those of `facts.EXTRAS` that it has.
        hint: What a person does after `setup`, and how far it reaches.
        reach: What `doctor` says of how far mail gets where that is not all the way; "" for all.
    """

    name: str
    title: str
    programs: tuple[str, ...]
    folder: Callable[[Place], str]
    files: Callable[[Place], list[Document | Whole]]
    extras: tuple[str, ...] = ()
    hint: str = "start its windows anew"
    reach: str = ""


def folder_of(place: Place, variable: str, *parts: str) -> str:
    """Return the folder that a variable names, else the one at `parts` below the person's home."""
    named = place.environment.get(variable, "") if variable else ""
    return (
        os.path.abspath(os.path.expanduser(named))
        if named
        else os.path.join(place.home, *filter(None, parts))
    )


def program(harness: Harness, place: Place) -> str:
    """Return the path of its program, or ""."""
    search = place.environment.get("PATH", os.defpath)
    found = (shutil.which(name, path=search) for name in harness.programs)
    return next((path for path in found if path), "")


def command_variables(place: Place) -> dict[str, str]:
    """Return the variables that a root needs; none in a project's file."""
    if place.project:
        return {}
    return {name: place.environment[name] for name in PASSED_ON if place.environment.get(name)}


def server_entry(place: Place, **more: Any) -> dict[str, Any]:
    """Return the entry of our MCP server in the form that most harnesses share, and `more` members."""
    variables = command_variables(place)
    made = {"command": place.command[0], "args": [*place.command[1:], "mcp"], **more}
    return {**made, "env": variables} if variables else made


def hook_command(place: Place, *words: str) -> str:
    """Return the line for a shell that runs `tieline hook` with these words, where the server looks."""
    # A harness hands down the variables of its own start, and not those that the server was set up with.
    variables = [f"{name}={shlex.quote(value)}" for name, value in command_variables(place).items()]
    return " ".join([*variables, shlex.join([*place.command, "hook", *words])])


def tool_hook_entries(hooks: tuple[ToolHook, ...]) -> tuple[Entry, ...]:
    """Return the entries of hooks that call our server, in the form of Claude Code and Codex."""
    return tuple(_tool_hook(hook) for hook in hooks)


def _tool_hook(hook: ToolHook) -> Entry:
    called = {"type": "mcp_tool", "server": SERVER, "tool": HOST_TOOL, "input": tool_input(hook)}
    group: dict[str, Any] = {"hooks": [{**called, "timeout": TOOL_HOOK_SECONDS_MAX}]}
    if hook.matcher:
        group = {"matcher": hook.matcher, **group}
    return Entry(("hooks", hook.event), group, is_element=True)


def gate_entry(place: Place, name: str) -> Entry:
    """Return the entry of the hook that judges a shell command before it starts."""
    words = (name, "pre-tool")
    if place.project:
        call = SHARED_CALL.format(words=" ".join(words), call=hook_command(place, *words))
    else:
        client = [sys.executable, "-I", "-S", os.path.join(place.package, HOOK_CLIENT)]
        call = f'{shlex.join(client)} "$f.door" {" ".join(words)}'
    variables = "".join(
        f"{key}={shlex.quote(value)}; export {key}; " for key, value in command_variables(place).items()
    )
    script = GATE_LINE.format(variables=variables, words=" ".join(words), call=call)
    command = {"type": "command", "command": f"exec sh -c {shlex.quote(script)}"}
    group = {"matcher": GATE_MATCHER, "hooks": [command]}
    return Entry(("hooks", GATE_EVENT), group, is_element=True, extra="gate", is_former=_is_gate)


def shim(name: str, place: Place) -> str | None:
    """Return the program that runs inside a harness, or None where this installation has none."""
    text = read(os.path.join(place.package, SHIMS[name]))
    return (
        None if text is None else text.replace(COMMAND_LINE, f"const TIELINE = {json.dumps(place.command)};")
    )


def is_our_server(value: Any) -> bool:
    """Return whether an MCP server's entry starts ours, in any form a harness writes it."""
    if not isinstance(value, dict):
        return False
    command, arguments = value.get("command"), value.get("args", [])
    words = (
        command
        if isinstance(command, list)
        else [command, *(arguments if isinstance(arguments, list) else [])]
    )
    named = [word for word in words if isinstance(word, str)]
    is_named = any(SERVER in os.path.basename(word) for word in named)
    return "mcp" in named[1:] and is_named


def with_theirs(value: dict[str, Any], held: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of our server, with what a person or the harness added to the one that is there.

    Harnesses keep there what a person allowed each tool; a person adds a limit, a variable, a word.
    """
    added = {name: one for name, one in held.items() if name not in {*value, *_OUR_MEMBERS}}
    merged = {**value, **added}
    for name in ("env", "environment"):
        variables = held.get(name)
        if isinstance(variables, dict) and (
            more := set(variables) - set(PASSED_ON) - set(value.get(name, {}))
        ):
            merged[name] = {**value.get(name, {}), **{one: variables[one] for one in sorted(more)}}
    for name in ("args", "env_vars"):
        words, ours = held.get(name), value.get(name)
        if isinstance(words, list) and isinstance(ours, list) and words[: len(ours)] == ours:
            merged[name] = words
    return merged


def is_our_shim(text: str) -> bool:
    """Return whether a program that runs inside a harness is ours, of any version and any place."""
    return any(line.startswith(_SHIM_LINE) for line in text.splitlines())


def is_our_group(value: Any) -> bool:
    """Return whether a hook's group holds our hooks and no other."""
    hooks = value.get("hooks") if isinstance(value, dict) else None
    return isinstance(hooks, list) and bool(hooks) and all(map(_is_our_hook, hooks))


def _is_gate(value: Any) -> bool:
    return is_our_group(value) and any("pre-tool" in hook.get("command", "") for hook in value["hooks"])


def _is_our_hook(hook: Any) -> bool:
    if not isinstance(hook, dict):
        return False
    if hook.get("type") == "mcp_tool":
        return bool(hook.get("server") == SERVER and hook.get("tool") == HOST_TOOL)
    return is_our_command(hook.get("command"))


def is_our_command(command: Any) -> bool:
    """Return whether a line for a shell runs a hook of ours."""
    return isinstance(command, str) and _OUR_HOOK.search(command) is not None


HOOK_MARKS: Final = (
    Mark(("hooks", "*", "*"), is_our_group),
    # Somebody may put a hook of theirs into a group of ours: theirs stays there.
    Mark(("hooks", "*", "*", "hooks", "*"), _is_our_hook),
)
"""What is ours where a file of Claude Code's form has its hooks."""


def places_of(value: Any, pattern: tuple[str, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield every place in a document that fits a pattern, with what stands there."""
    if not pattern:
        yield (), value
        return
    part, rest = pattern[0], pattern[1:]
    pairs: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        pairs = [(key, one) for key, one in value.items() if part in ("*", key)]
    elif isinstance(value, list) and part == "*":
        pairs = list(enumerate(value))
    for key, one in pairs:
        for place, found in places_of(one, rest):
            yield (key, *place), found
