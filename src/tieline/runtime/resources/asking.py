"""The hook before a shell command, in the form of Claude Code, which Codex has as well.

Rule 1: it reads and writes that form and nothing else: who judges, where, stands elsewhere.
Rule 2: it loads next to nothing: a hook pays for it each time.

Source: reference/harnesses.md 4, 5; reference/native.md 2.14.
"""

import os
from typing import Any, Final, NamedTuple

__all__ = ["Asked", "asked_in", "denial", "reason_for"]

SHELL_TOOLS: Final = frozenset(
    {"bash", "shell", "local_shell", "exec_command", "unified_exec", "run_shell_command"}
)
SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
REASON_CHARACTERS_MAX: Final = 400
NAME_CHARACTERS_MAX: Final = 256


class Asked(NamedTuple):
    """A shell command about to start: program and arguments or None, text for a shell, folder or ""."""

    argv: tuple[str, ...] | None
    text: str
    directory: str


def asked_in(document: dict[str, Any]) -> Asked | None:
    """Return the shell command of a hook's document, or None for what is none."""
    tool, given = document.get("tool_name"), document.get("tool_input")
    if not isinstance(tool, str) or tool.lower() not in SHELL_TOOLS or not isinstance(given, dict):
        return None
    directory = given.get("workdir") or given.get("cwd") or document.get("cwd")
    directory = directory if isinstance(directory, str) and os.path.isabs(directory) else ""
    command = given.get("command", given.get("cmd"))
    if isinstance(command, str):
        return Asked(None, command, directory)
    if isinstance(command, list) and command and all(isinstance(word, str) for word in command):
        if len(command) == 3 and os.path.basename(command[0]) in SHELLS and command[1] in ("-c", "-lc"):
            return Asked(None, command[2], directory)
        return Asked(tuple(command), "", directory)
    return None


def reason_for(why: str, use: str, holders: list[tuple[str, str]]) -> str:
    """Return why a command may not start as it is, the line to run instead, and who holds what it needs."""
    held = "; ".join(f"{_line(name, NAME_CHARACTERS_MAX)} is held by {who}" for name, who in holders)
    said = f"{_line(why, REASON_CHARACTERS_MAX)}. Run this instead, it waits for its turn: {use}"
    return said + (f"  Now: {held}." if held else "")


def denial(reason: str) -> dict[str, Any]:
    """Return a refusal in the harness's form."""
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": reason,
        }
    }


def _line(text: str, characters_max: int) -> str:
    if not (text.isascii() and text.isprintable()):
        from tieline.text.terminal import printable  # noqa: PLC0415 - rarely needed

        text = printable(" ".join(text.split()))
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"
