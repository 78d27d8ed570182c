"""`tieline hook HARNESS pre-tool`: may this shell command start as it is, or which line runs it instead.

Rule 1: without a rule and without a policy the answer is allow, and nothing was loaded to say so.
Rule 2: a harness's own form is read and written; what is no shell command is allowed.
Rule 3: where a rule may apply, a hook that cannot judge blocks: exit code 2 with the reason on stderr, which
harnesses take for a refusal as they take no other, and the refusal in their own form. Where no rule
is configured it lets the command go on, with a note.
Rule 4: the way to mend it stays open: a plain command of Tieline itself is let through with a note.

Source: reference/harnesses.md 4, 5; reference/native.md 2.14; DESIGN.md 4.
"""

import json
import os
import sys
from argparse import Namespace
from typing import Any

from tieline.adapters.cli.arguments import Alone, Parser, add_root_options
from tieline.adapters.cli.output import (
    error_shape,
    fail,
    flush,
    line,
    note,
    write,
    write_json,
    write_json_line,
)
from tieline.errors import UsageError

__all__ = ["parser", "run"]

HARNESSES = ("claude", "claude-code", "codex", "gemini", "shell")
JUDGED = "pre-tool"
INPUT_BYTES_MAX = 4_194_304
CANNOT_JUDGE = 2
SHELL_SIGNS = "\n;&|<>()$`\\\"'*?[]{}#~!"
MENDING = ("doctor", "status", "resource", "recover", "log", "peers", "help")
"""Commands of Tieline that start nothing and help to mend what keeps a hook from judging."""
USAGE = "tieline hook HARNESS pre-tool|EVENT [-- COMMAND ...]"
DETAILS = """claude and codex: reads the hook's JSON on stdin; no output means allow, otherwise the
harness's own form of a refusal that names the line to run instead. Put it before the shell tool:

    {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command",
      "command": "tieline hook claude pre-tool"}]}]}}

any other EVENT, by the harness's own name (AfterTool, PostToolUse, Stop ...): hands the hook to the root of
this session and prints its answer, which is nothing without mail. It never blocks, and always ends with 0.

Wait: for a harness that runs it in the background and wakes its session by it (asyncRewake of Claude Code):
waits for mail, and ends with 2 and the mail on stderr; with 0 when there is nothing more to wait for.

shell: judges the COMMAND after -- for any other host; exit code 0 allows, 1 refuses and prints the line.

When it cannot judge (a wrong config.toml, a damaged record), it refuses with exit code 2 and says why on
stderr; where no rule is configured, it allows and says so.
The rules are those of config.toml; see docs/gate-rules.md."""


def parser(sub: Alone) -> Parser:
    """Return the parser of this command."""
    made = sub.add_parser("hook", "What a harness's hook calls: judge a command, bring mail.", DETAILS, USAGE)
    made.add_argument("harness", choices=HARNESSES, metavar="HARNESS", help="claude, codex, gemini or shell")
    made.add_argument("event", metavar="EVENT", help="pre-tool, or an event by the harness's own name")
    made.add_argument("command", nargs="*", metavar="COMMAND", help="shell: after --, what is about to start")
    add_root_options(made)
    return made


def run(options: Namespace) -> int:
    """Judge, answer, and return the exit code."""
    if options.event != JUDGED:
        from tieline.adapters.cli.hook_event import tell

        return tell(options)
    if options.harness == "gemini":
        raise UsageError("the shell commands of Gemini CLI are not judged; its other hooks are served")
    if options.harness == "shell" and not options.command:
        raise UsageError("give the command after --")
    if options.harness != "shell" and options.command:
        raise UsageError("a harness's hook gives its command on stdin, not as words")
    home = os.path.abspath(os.environ.get("TIELINE_HOME") or os.path.expanduser("~/.tieline"))
    if not _has_anything(home):
        if options.harness == "shell" and options.json:
            write_json("hook", {"decision": "allow"})
        return 0
    asked: tuple[tuple[str, ...] | None, str, str] | None = None
    try:
        asked = _asked(options)
        return 0 if asked is None else _judge(options, home, asked)
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - a harness takes the exit code of any other end for an allow
        return _cannot_judge(options, home, asked, error)


def _cannot_judge(
    options: Namespace, home: str, asked: tuple[tuple[str, ...] | None, str, str] | None, error: Exception
) -> int:
    """Refuse what a rule might hold back; say why, and what helps."""
    if not _may_have_rules(home):
        fail(error, "hook", as_json=False)
        note("tieline hook: no rule is configured, so the command goes on without having been judged")
        return 0
    if asked is not None and _is_own_command(*asked[:2]):
        fail(error, "hook", as_json=False)
        note("tieline hook: a command of Tieline itself goes on, so that this can be mended")
        return 0
    shape = error_shape(error)
    reason = (
        f"tieline could not judge this command, so it may not start: {shape['code']}:"
        f" {line(shape['text'], 400)}. Next: {line(shape['action'], 400)}; `tieline doctor` shows more."
    )
    if options.harness == "shell":
        if options.json:
            write_json("hook", {"decision": "deny", "reason": reason, "error": shape})
    else:
        _deny(reason)
    note(f"tieline hook: {reason}")
    flush()
    return CANNOT_JUDGE


def _may_have_rules(home: str) -> bool:
    """Return whether a rule may be configured: also where the configuration cannot be read."""
    import tomllib

    try:
        with open(home + "/config.toml", "rb") as file:
            data = file.read(INPUT_BYTES_MAX)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    if b"resource" not in data:
        return False
    try:
        held = tomllib.loads(data.decode()).get("resource", {})
    except (ValueError, RecursionError):
        return True
    return not isinstance(held, dict) or bool(held.get("rule_sets") or held.get("rule"))


def _is_own_command(argv: tuple[str, ...] | None, text: str) -> bool:
    """Return whether it is one command of Tieline, in plain words, that starts no other program."""
    words = argv if argv is not None else tuple(text.split())
    is_plain = argv is not None or not set(text) & set(SHELL_SIGNS)
    return is_plain and len(words) > 1 and words[0] == "tieline" and words[1] in MENDING


def _has_anything(home: str) -> bool:
    """Return whether a rule or a resource may concern a command at all; reads one file at most."""
    try:
        with open(home + "/config.toml", "rb") as file:
            data = file.read(INPUT_BYTES_MAX)
    except FileNotFoundError:
        data = b""
    except OSError:
        return True  # a rule may stand in what cannot be read
    coordination = os.environ.get("TIELINE_COORDINATION_DIRECTORY", "")
    if b"resource" in data or b"coordination_directory" in data:
        return True
    # Not the index: where that was lost, a policy may still stand in the records.
    return os.path.isdir(f"{coordination or home}/peer-resources")


def _judge(options: Namespace, home: str, asked: tuple[tuple[str, ...] | None, str, str]) -> int:
    argv, text, directory = asked
    from tieline.runtime.resources.gating import judged_here

    judged, holders = judged_here(argv, text, directory, home, options.run)
    if not judged.keys:
        if options.harness == "shell" and options.json:
            write_json("hook", {"decision": "allow"})
            flush()
        return 0
    from tieline.runtime.resources.asking import reason_for

    reason = reason_for(judged.reason, judged.use, holders)
    if options.harness == "shell":
        return _answer_shell(options, judged, reason, holders)
    _deny(reason)
    flush()
    return 0


def _deny(reason: str) -> None:
    """Refuse in the form of Claude Code, which Codex reads as well."""
    from tieline.runtime.resources.asking import denial

    write_json_line(denial(reason))


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
    from tieline.runtime.resources.asking import asked_in

    asked = asked_in(document)
    return None if asked is None else (*asked[:2], asked.directory or os.getcwd())
