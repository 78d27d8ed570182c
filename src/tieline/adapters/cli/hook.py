"""`tieline hook HARNESS pre-tool`: may this shell command start as it is, or which line runs it instead.

Rule 1: without a rule and without a policy the answer is allow, and nothing was loaded to say so.
Rule 2: a harness's own form is read and written; what is no shell command is allowed.
Rule 3: a hook that cannot judge does not block: it says so on stderr and exits 1, which no harness takes for
a refusal.

Source: reference/harnesses.md 4, 5; reference/native.md 2.14; DESIGN.md 4.
"""

import json
import os
import sys
from argparse import Namespace
from typing import Any

from tieline.adapters.cli.arguments import Alone, Parser, add_root_options
from tieline.adapters.cli.output import fail, flush, line, note, write, write_json, write_json_line
from tieline.errors import TielineError, UsageError

__all__ = ["parser", "run"]

HARNESSES = ("claude", "codex", "shell")
SHELL_TOOLS = frozenset({"bash", "shell", "local_shell", "exec_command", "unified_exec", "run_shell_command"})
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
INPUT_BYTES_MAX = 4_194_304
USAGE = "tieline hook HARNESS pre-tool [-- COMMAND ...]"
DETAILS = """claude and codex: reads the hook's JSON on stdin; no output means allow, otherwise the
harness's own form of a refusal that names the line to run instead. Put it before the shell tool:

    {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command",
      "command": "tieline hook claude pre-tool"}]}]}}

shell: judges the COMMAND after -- for any other host; exit code 0 allows, 1 refuses and prints the line.
The rules are those of config.toml; see docs/gate-rules.md."""


def parser(sub: Alone) -> Parser:
    """Return the parser of this command."""
    made = sub.add_parser("hook", "Judge a shell command before a harness starts it.", DETAILS, USAGE)
    made.add_argument("harness", choices=HARNESSES, metavar="HARNESS", help="claude, codex or shell")
    made.add_argument("event", choices=("pre-tool",), metavar="EVENT", help="pre-tool")
    made.add_argument("command", nargs="*", metavar="COMMAND", help="shell: after --, what is about to start")
    add_root_options(made)
    return made


def run(options: Namespace) -> int:
    """Judge, answer, and return the exit code."""
    if options.harness == "shell" and not options.command:
        raise UsageError("give the command after --")
    if options.harness != "shell" and options.command:
        raise UsageError("a harness's hook gives its command on stdin, not as words")
    home = os.path.abspath(os.environ.get("TIELINE_HOME") or os.path.expanduser("~/.tieline"))
    if not _has_anything(home):
        if options.harness == "shell" and options.json:
            write_json("hook", {"decision": "allow"})
        return 0
    try:
        return _judge(options, home)
    except TielineError as error:
        fail(error, "hook", as_json=options.json)
        return 1


def _has_anything(home: str) -> bool:
    """Return whether a rule or a resource may concern a command at all; reads one file."""
    try:
        with open(home + "/config.toml", "rb") as file:
            data = file.read(INPUT_BYTES_MAX)
    except OSError:
        data = b""
    coordination = os.environ.get("TIELINE_COORDINATION_DIRECTORY", "")
    if b"resource" in data or b"coordination_directory" in data:
        return True
    return os.path.exists(f"{coordination or home}/peer-resources/index.json")


def _judge(options: Namespace, home: str) -> int:
    asked = _asked(options)
    if asked is None:
        return 0
    argv, text, directory = asked
    from tieline.runtime.resources.gating import judged_here

    judged, holders = judged_here(argv, text, directory, home, options.run)
    if not judged.keys:
        if options.harness == "shell" and options.json:
            write_json("hook", {"decision": "allow"})
            flush()
        return 0
    held = "; ".join(f"{line(name, 256)} is held by {who}" for name, who in holders)
    reason = f"{line(judged.reason, 400)}. Run this instead, it waits for its turn: {judged.use}" + (
        f"  Now: {held}." if held else ""
    )
    if options.harness == "shell":
        return _answer_shell(options, judged, reason, holders)
    write_json_line(
        {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": reason,
            }
        }
    )
    flush()
    return 0


def _answer_shell(options: Namespace, judged: Any, reason: str, holders: list[tuple[str, str]]) -> int:
    if options.json:
        shown = [{"resource": name, "holder": who} for name, who in holders]
        body = {"use": judged.use, "resources": list(judged.keys), "reason": judged.reason, "held": shown}
        write_json("hook", {"decision": "deny", **body})
    else:
        write(judged.use)
        note(f"tieline hook: {reason}")
    flush()
    return 1


def _asked(options: Namespace) -> tuple[tuple[str, ...] | None, str, str] | None:
    """Return (arguments or None, text for a shell, directory), or None for what is no shell command.

    Raises:
        UsageError: stdin holds no JSON object.
    """
    if options.harness == "shell":
        words = tuple(options.command)
        return (None, words[0], os.getcwd()) if len(words) == 1 else (words, "", os.getcwd())
    data = b"" if sys.stdin is None else sys.stdin.buffer.read(INPUT_BYTES_MAX)
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise UsageError("stdin holds no JSON object, as a hook gets it")
    tool, given = document.get("tool_name"), document.get("tool_input")
    if not isinstance(tool, str) or tool.lower() not in SHELL_TOOLS or not isinstance(given, dict):
        return None
    directory = given.get("workdir") or given.get("cwd") or document.get("cwd")
    directory = directory if isinstance(directory, str) and os.path.isabs(directory) else os.getcwd()
    command = given.get("command", given.get("cmd"))
    if isinstance(command, str):
        return None, command, directory
    if isinstance(command, list) and command and all(isinstance(word, str) for word in command):
        if len(command) == 3 and os.path.basename(command[0]) in SHELLS and command[1] in ("-c", "-lc"):
            return None, command[2], directory
        return tuple(command), "", directory
    return None
