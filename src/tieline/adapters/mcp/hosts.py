"""What an MCP host tells of itself without being asked: its name, its session, the id of a tool call.

Rule 1: an environment variable of one host counts only when the client says that it is this host: a
program that runs inside another agent's shell inherits that agent's variables.
Rule 2: what a host says is a claim about itself, good for listings and for dividing its own calls; it
never authorises anything.
Rule 3: this module is pure and imports nothing.

Source: reference/harnesses.md 2 to 7; DESIGN.md 2.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "call_id",
    "client_name",
    "drops_texts",
    "harness",
    "is_model_call",
    "session",
    "thread",
    "workspace",
]

CLIENT_META = "io.modelcontextprotocol/clientInfo"
VERSION_META = "io.modelcontextprotocol/protocolVersion"
CALL_ID_META = ("claudecode/toolUseId", "tieline/callId")
"""Members of a call's `_meta` that name the model's tool call, the same again when the host retries it."""
MODEL_META = (CALL_ID_META[0], "x-codex-turn-metadata", "callId", "itemId")
"""Members that the host puts into `_meta` of the model's own calls: Claude Code the first, Codex the others.

A hook's call has none of them, and a model cannot take one away: `_meta` is the host's, not the model's.
"""

# Part of the client's name: our word for the host, and the variable that holds its session.
_HOSTS = (
    ("claude", "claude-code", "CLAUDE_CODE_SESSION_ID"),
    ("codex", "codex", ""),
    ("gemini", "gemini-cli", "GEMINI_SESSION_ID"),
    ("opencode", "opencode", ""),
    ("omp", "oh-my-pi", ""),
    ("oh-my-pi", "oh-my-pi", ""),
)
_DROP_TEXTS = ("claude", "codex")
_ID_CHARACTERS_MAX = 256
_NAME_CHARACTERS_MAX = 64
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.")


def client_name(params: "Mapping[str, object]") -> str:
    """Return the client's own name from `initialize` or from a request's `_meta`, lower case, or ''."""
    told = params.get("clientInfo")
    if not isinstance(told, dict):
        meta = params.get("_meta")
        told = meta.get(CLIENT_META) if isinstance(meta, dict) else None
    name = told.get("name") if isinstance(told, dict) else None
    return name.lower()[:_NAME_CHARACTERS_MAX] if isinstance(name, str) else ""


def harness(name: str) -> str:
    """Return our word for the host of this client name; of an unknown one, its name made plain."""
    if name == "pi" or name.startswith("pi-"):
        return "pi"
    for part, word, _variable in _HOSTS:
        if part in name:
            return word
    return "".join(character if character in _NAME_CHARACTERS else "-" for character in name).strip("-")


def drops_texts(name: str) -> bool:
    """Return whether this host shows the model a result's members and, where there are some, no text.

    The label around received text is a text: with members beside it that model would never see it.
    Source: docs/harnesses/README.md, seen on Claude Code 2.1.332 and Codex 0.171.0.
    """
    return any(part in name for part in _DROP_TEXTS)


def session(name: str, environment: "Mapping[str, str]", meta: "Mapping[str, object]") -> str:
    """Return the session id that the host told, or ''.

    Args:
        name: The client's name.
        environment: Of this process. `TIELINE_SESSION` is a shim's word and goes before all else.
        meta: The `_meta` of a call, or nothing.
    """
    told: list[object] = [environment.get("TIELINE_SESSION")]
    told += [environment.get(variable) for part, _word, variable in _HOSTS if variable and part in name]
    told += [meta.get("sessionId"), meta.get("threadId")]
    return next((value for value in told if isinstance(value, str) and _is_id(value)), "")


def thread(meta: "Mapping[str, object]") -> str:
    """Return the id of the thread a call comes from, where it is not the session's own; else ''."""
    value = meta.get("threadId")
    return value if isinstance(value, str) and _is_id(value) and value != meta.get("sessionId", value) else ""


def call_id(meta: "Mapping[str, object]") -> str | None:
    """Return the host's id of the model's tool call, or None where the host gives none."""
    for member in CALL_ID_META:
        value = meta.get(member)
        if isinstance(value, str) and _is_id(value):
            return value
    return None


def is_model_call(meta: "Mapping[str, object]") -> bool:
    """Return whether the host marks this call as the model's own, not a hook's."""
    return any(member in meta for member in MODEL_META)


def workspace(name: str, environment: "Mapping[str, str]") -> str:
    """Return the folder that the host says it works in, or '' for the current one."""
    folder = environment.get("CLAUDE_PROJECT_DIR", "") if "claude" in name else ""
    return folder if folder.startswith("/") and "\0" not in folder else ""


def _is_id(value: str) -> bool:
    return 0 < len(value) <= _ID_CHARACTERS_MAX and value.isprintable()
