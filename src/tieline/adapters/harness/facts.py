"""What `setup` writes and the doors read: names, hooks, files of each harness, in one table.

Rule 1: a hook and the ladder meet here: what a hook sends is written down once, and both sides take it from
here. `event` is the harness's own name of the event, since the form of the answer depends on it.
Rule 2: data only; who edits which file stands in the module of that harness.
Rule 3: a member of an event that is not there comes as "" or not at all: the ladder takes both for nothing.

Source: reference/harnesses.md 2 to 7; each harness's own documentation of its hooks.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

__all__ = [
    "CLAUDE_HOOKS",
    "CODEX_HOOKS",
    "COMMAND_HOOK_MS_MAX",
    "COMMAND_LINE",
    "EXTRAS",
    "GATE_EVENT",
    "GATE_LINE",
    "GATE_MATCHER",
    "GEMINI_HOOKS",
    "GUARD",
    "GUARDED_LINE",
    "HOOK_CLIENT",
    "HOST_TOOL",
    "SERVER",
    "SHARED_CALL",
    "SHIMS",
    "TELLING_LINE",
    "TOOL_HOOK_SECONDS_MAX",
    "WAITING_LINE",
    "WAIT_DOOR",
    "WAIT_EVENT",
    "WAIT_EVENTS",
    "WAIT_SECONDS_MAX",
    "CommandHook",
    "ToolHook",
    "tool_input",
]

SERVER: Final = "tieline"
"""The MCP server's name in every harness: letters alone, since Gemini CLI forbids the underscore."""
HOST_TOOL: Final = "tieline_host"
"""The tool that hooks call."""

EXTRAS: Final[Mapping[str, str]] = {
    "permission": "let the model use Tieline's tools without asking each time",
    "gate": "judge shell commands by the resource rules before they start",
    "trust": "mark Tieline's hooks as trusted, so that they run",
    "direct": "show the tools directly to models that otherwise reach them through code",
}
"""What is written only with a consent of its own, and the question."""

SHIMS: Final[Mapping[str, str]] = {
    "pi": "shims/pi/tieline.js",
    "omp": "shims/pi/tieline.js",
    "opencode": "shims/opencode/tieline.js",
}
"""The program that runs inside a harness, below the package's folder; one file serves pi and oh-my-pi."""
COMMAND_LINE: Final = 'const TIELINE = ["tieline"];'
"""A whole line of every shim: how it starts us. The copy that `setup` puts in names the program's path."""


class ToolHook(NamedTuple):
    """A hook that calls our MCP server, which runs already.

    Attributes:
        event: The harness's name of the event; goes into `event` of the tool.
        payload: Member of `payload`, and the event's member that is put there.
        matcher: Which of them, in the harness's own pattern; "" for all.
        names_run: Whether the event bears the subagent's id, or the harness puts nothing where it does not.
    """

    event: str
    payload: Mapping[str, str]
    matcher: str = ""
    names_run: bool = True


class CommandHook(NamedTuple):
    """A hook that starts a command.

    Attributes:
        event: The harness's name of the event; the word after `tieline hook HARNESS`.
        line: Whether the root is told of it where no mail waits, and whether the harness waits for that.
        matcher: Of which tools, in the harness's own pattern; "" for all.
    """

    event: str
    line: str
    matcher: str = ""


TOOL_HOOK_SECONDS_MAX: Final = 10
"""How long a harness may wait for our answer; one takes milliseconds."""
COMMAND_HOOK_MS_MAX: Final = 10_000

CLAUDE_HOOKS: Final = (
    ToolHook("UserPromptSubmit", {"prompt": "prompt", "transcript": "transcript_path"}),
    # Which subagent called a tool of ours: the call's own `_meta` has the same id.
    ToolHook("PreToolUse", {"tool": "tool_name", "call": "tool_use_id"}, "mcp__tieline__.*"),
    ToolHook("PostToolUse", {"tool": "tool_name", "call": "tool_use_id"}),
    ToolHook("Stop", {"answer": "last_assistant_message", "transcript": "transcript_path"}),
    ToolHook("StopFailure", {}),
    ToolHook("SubagentStart", {"type": "agent_type"}),
    ToolHook("SubagentStop", {"type": "agent_type", "answer": "last_assistant_message"}),
)
"""Claude Code. Before SessionStart no server is connected: the session's id comes from the environment."""
CODEX_HOOKS: Final = (
    ToolHook("SessionStart", {"source": "source", "model": "model"}, names_run=False),
    ToolHook("UserPromptSubmit", {"prompt": "prompt", "model": "model"}, names_run=False),
    ToolHook("PostToolUse", {"tool": "tool_name", "call": "tool_use_id"}, names_run=False),
    ToolHook("Stop", {"answer": "last_assistant_message"}, names_run=False),
    ToolHook("SubagentStart", {"type": "agent_type"}),
    ToolHook("SubagentStop", {"type": "agent_type", "answer": "last_assistant_message"}),
)
"""Codex. It fails a hook, in silence, that names what its event does not have: the id of the subagent is
only in the last two, and which thread the others come from is in the call's `_meta`."""
GUARD: Final = '"${TIELINE_HOME:-$HOME/.tieline}/mail/${GEMINI_SESSION_ID}"'
"""The flag of waiting mail, as `sh` reads it: a file of the session's id in the folder `mail`.

The braces keep Gemini CLI from putting a quoted id into the quotes."""
GUARDED_LINE: Final = 'f={guard}; [ -e "$f" ] || exit 0; {call} 2>/dev/null || exit 0'
"""A hook that starts nothing where no mail waits."""
TELLING_LINE: Final = (
    'f={guard}; t() {{ {call} 2>/dev/null; }}; if [ -e "$f" ] || [ ! -e "$f.door" ]; then t || exit 0; '
    "else {{ {{ t; }} <&3 >/dev/null 2>&1 & }} 3<&0; fi"
)
"""A hook that the harness waits for where mail waits, or where the root does not know the session yet.

The inner braces matter: at a plain call the shell would keep copies of the harness's pipes open."""
WAITED_LINE: Final = "f={guard}; {call} 2>/dev/null || exit 0"
"""A hook that the harness waits for: what comes next depends on it."""
GEMINI_SUBAGENT: Final = "invoke_agent"
"""The tool by which the model of Gemini CLI starts a subagent."""
GEMINI_HOOKS: Final = (
    CommandHook("SessionStart", TELLING_LINE),
    CommandHook("BeforeAgent", TELLING_LINE),
    CommandHook("BeforeTool", WAITED_LINE, f"^{GEMINI_SUBAGENT}$"),
    CommandHook("AfterTool", GUARDED_LINE, f"^(?!{GEMINI_SUBAGENT}$)"),
    CommandHook("AfterTool", WAITED_LINE, f"^{GEMINI_SUBAGENT}$"),
    CommandHook("AfterAgent", TELLING_LINE),
    CommandHook("SessionEnd", TELLING_LINE),
)
"""Gemini CLI has command hooks alone; between two tools nothing is started unless mail waits. A subagent's
hooks are its session's, so the root is told when one begins and ends: what waits is not the subagent's."""
SHARED_CALL: Final = '{{ if [ -r "$f.client" ]; then set -- {words}; . "$f.client"; else {call}; fi; }}'
"""What a hook starts in a file that may name no place of this machine: the line that the root left there."""
HOOK_CLIENT: Final = "shims/hook.py"
"""The program of such a hook, below the package's folder; its first word is the session's door."""

WAIT_EVENTS: Final = ("SessionStart", "Stop")
"""Where Claude Code starts the command that waits in the background and wakes the session by its end."""
WAIT_EVENT: Final = "Wait"
"""What that command is called behind `tieline hook HARNESS`."""
WAIT_SECONDS_MAX: Final = 604_800
"""After a week the harness ends it; the next turn's end starts another."""
WAIT_DOOR: Final = '"${TIELINE_HOME:-$HOME/.tieline}/mail/host-$PPID.door"'
"""Where the root of the harness's process says where it is."""
WAITING_LINE: Final = (
    'd={door}; [ "$CLAUDE_CODE_ENTRYPOINT" != cli ] || [ -S "$CLAUDE_CODE_MESSAGING_SOCKET" ] || exec {call}'
)
"""Nothing starts where a socket wakes the session, nor without a window: the harness would wait for it."""

GATE_EVENT: Final = "PreToolUse"
GATE_MATCHER: Final = "Bash"
"""Where Claude Code and Codex ask before a shell command; both call that tool Bash."""

GATE_LINE: Final = (
    "{variables}h=${{TIELINE_HOME:-$HOME/.tieline}}; r=0; "
    'if [ -e "$h/config.toml" ] || {{ [ -e "$h" ] && [ ! -x "$h" ]; }}; then '
    'LC_ALL=C grep -qs -e resource -e coordination_directory "$h/config.toml"; [ $? = 1 ] || r=1; fi; '
    '[ $r = 1 ] || [ -d "${{TIELINE_COORDINATION_DIRECTORY:-$h}}/peer-resources" ] || exit 0; '
    'f="$h/mail/host-$PPID"; {{ {call}; }}; c=$?; [ $c != 0 ] || exit 0; '
    'if [ $r = 0 ]; then echo "tieline hook {words}: this command was not judged" >&2; exit 0; fi; '
    '[ $c = 2 ] || echo "tieline hook {words}: ended with $c and could not judge, so this may not start:'
    ' tieline doctor shows more" >&2; exit 2'
)
"""Nothing starts where no rule and no resource may concern a command. Where a rule may, each end but 0 is a
refusal: harnesses take 2 alone for one. Given to `sh` as one word, since a person's own shell may read it."""


def tool_input(hook: ToolHook) -> dict[str, Any]:
    """Return the arguments of `tieline_host` as the hook's configuration has them.

    `${name}` is replaced by the harness with that member of the event.
    """
    payload = {name: "${" + member + "}" for name, member in hook.payload.items()}
    run = {"run": "${agent_id}"} if hook.names_run else {}
    return {"event": hook.event, "session": "${session_id}", **run, "payload": payload}
