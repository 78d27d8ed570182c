"""The `tieline` command: which file serves which word, exit codes, and what a person never sees.

Rule 1: this module imports nothing of the product before it knows the command; a command imports
nothing of another. A person pays for exactly the command that was called.
Rule 2: data goes to stdout, everything else to stderr; no traceback reaches a person unless
`TIELINE_DEBUG=1` asks for it.
Rule 3: a reader that went away ends the command quietly, and so does Ctrl-C.
Rule 4: an adapter is a leaf that may be left out of an installation: its command is then not there.
Rule 5: it decides no messaging; it maps errors to exit codes, and that table is here alone.

Source: DESIGN.md 4; reference/reliability.md K33.
"""

import sys

__all__ = ["COMMANDS", "EXIT_CODES", "commands_here", "exit_code", "main"]

COMMANDS: dict[str, tuple[str, str]] = {
    "peers": ("cli.peers", "who is there, and who am I"),
    "send": ("cli.send", "hand a message over, and print its receipt"),
    "ask": ("cli.ask", "send a question and wait for its reply"),
    "inbox": ("cli.inbox", "what has arrived; a preview unless --consume"),
    "reply": ("cli.reply", "answer a message that was received"),
    "status": ("cli.status", "what is known of one message"),
    "last": ("cli.last", "a peer's last finished answer, without waking it"),
    "run": ("cli.run", "hold what a command needs while it runs"),
    "resource": ("cli.resource", "who holds what, who waits, and what to do next"),
    "hook": ("cli.hook", "what a harness's hook calls before a shell command"),
    "recover": ("cli.recover", "unread mail of an ended instance, for review"),
    "setup": ("cli.setup", "put Tieline into the coding agents of this machine"),
    "unsetup": ("cli.unsetup", "take out what setup put in"),
    "doctor": ("cli.doctor", "what works, what does not, and the next action"),
    "log": ("cli.log", "what happened, oldest first"),
    "mute": ("cli.mute", "keep a peer's mail without being woken by it"),
    "forget": ("cli.forget", "remove what an ended instance left on disk"),
    "mcp": ("mcp", "the door for MCP hosts, over stdio"),
    "attach": ("attach", "the door for hosts in any language, over stdio"),
    "acp": ("acp", "an agent of the Agent Client Protocol, with our tools and mail"),
    "desk": ("desk", "a person's screen among the agents"),
    "broker": ("cli.broker", "serve the intercom: the hub of its sessions"),
    "demo": ("demo", "the thing itself in a minute"),
    "bench": ("bench", "its measured speed, beside the limit of this machine"),
    "completion": ("cli.completion", "a completion script for bash, zsh or fish"),
}
"""Each command: its module under `tieline.adapters`, and one line for a person."""

EXIT_CODES: dict[int, str] = {
    0: "done",
    1: "refused: nothing was taken; the code on stderr says why",
    2: "wrong usage",
    3: "the outcome is not known: ask with `tieline status`, or send the same id again",
    4: "no such peer, or no root",
    5: "recovery required",
    124: "timed out waiting",
    130: "interrupted",
    141: "the reader of stdout went away",
}

_EXIT_OF_CODE = {
    "USAGE": 2,
    "INVALID_PARAMS": 2,
    "DELIVERY_UNKNOWN": 3,
    "OUTCOME_PENDING": 3,
    "NO_ROOT": 4,
    "UNKNOWN_TARGET": 4,
    "PEER_OFFLINE": 4,
    "TARGET_ENDED": 4,
    "RECOVERY_REQUIRED": 5,
    "WAIT_TIMEOUT": 124,
    "RESOURCE_WAIT_TIMEOUT": 124,
}
HELP_HEAD = (
    "usage: tieline COMMAND [options]",
    "",
    "Coding agents on this machine find each other and hand over",
    "messages that are never lost or told falsely.",
    "",
    "commands:",
)
_HELP = ("-h", "--help", "help")


def exit_code(code: str) -> int:
    """Return the exit code for a typed code; 1 (refused) for every code that has no own one."""
    return _EXIT_OF_CODE.get(code, 1)


def commands_here() -> dict[str, tuple[str, str]]:
    """Return those of `COMMANDS` whose adapter is installed, in the same order."""
    from importlib.util import find_spec

    return {
        name: entry
        for name, entry in COMMANDS.items()
        if entry[0].startswith("cli.") or find_spec(f"tieline.adapters.{entry[0]}") is not None
    }


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code, a key of `EXIT_CODES`.

    Args:
        argv: Words after the program's name; None takes those of this process.
    """
    words = sys.argv[1:] if argv is None else argv
    try:
        code = _dispatch(words)
        return code if _is_flushed() else code or 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _close_stdout()
        return 141


def _is_flushed() -> bool:
    """Flush what is left for stdout; return whether it was taken. A full disk was told before this."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError:
        _close_stdout()
        return False
    return True


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in _HELP:
        return _help(is_wanted=bool(words))
    name = words[0]
    if name in ("--json", "--jsonl"):
        return _unknown(words, "a command comes first; `tieline help` lists them")
    if name in ("--version", "-V"):
        return _version(words)
    if name not in COMMANDS or (not COMMANDS[name][0].startswith("cli.") and name not in commands_here()):
        return _unknown(words, "")
    if sys.platform == "win32":
        return _failed(_unsupported(), name, words)
    try:
        return _run(name, words[1:])
    except (KeyboardInterrupt, BrokenPipeError):
        raise
    except SystemExit as leaving:  # argparse, after --help
        return leaving.code if isinstance(leaving.code, int) else 0
    except Exception as error:  # noqa: BLE001 - the one place where a defect is turned into a sentence
        return _failed(error, name, words)


def _run(name: str, words: list[str]) -> int:
    from importlib import import_module

    module = import_module("tieline.adapters." + COMMANDS[name][0])
    if not COMMANDS[name][0].startswith("cli."):
        return int(module.main(words))
    from tieline.adapters.cli.arguments import Alone, parse

    options = parse(module.parser(Alone()), words)
    return int(module.run(options))


def _failed(error: Exception, name: str, words: list[str]) -> int:
    from tieline.adapters.cli.output import fail

    details = fail(error, name, as_json="--json" in words or "--jsonl" in words)
    import os

    if os.environ.get("TIELINE_DEBUG") == "1":
        import traceback

        traceback.print_exception(error)
    return 3 if details == "INTERNAL_ERROR" else exit_code(details)


def _unsupported() -> Exception:
    from tieline.errors import Refused

    return Refused(
        "UNSUPPORTED_PLATFORM", "private sockets with proven owners are not built for this platform"
    )


def _unknown(words: list[str], text: str) -> int:
    from tieline.adapters.cli.output import fail
    from tieline.errors import UsageError

    near = [word for word in commands_here() if word[:2] == words[0][:2]]
    hint = f"; near it: {', '.join(near)}" if near else ""
    error = UsageError(text or f"there is no command {words[0]!r}{hint}")
    return exit_code(fail(error, "", as_json="--json" in words))


def _help(*, is_wanted: bool) -> int:
    lines = list(HELP_HEAD)
    width = max(map(len, COMMANDS))
    lines += [f"  {name:<{width}}  {summary}" for name, (_, summary) in commands_here().items()]
    lines += ["", "exit codes:"]
    lines += [f"  {code:>3}  {meaning}" for code, meaning in EXIT_CODES.items()]
    lines += ["", "`tieline COMMAND --help` explains one command; every command has --json."]
    from tieline.adapters.cli.output import note, write

    (write if is_wanted else note)("\n".join(lines))
    return 0 if is_wanted else 2


def _version(words: list[str]) -> int:
    from tieline import __version__
    from tieline.adapters.cli.output import write, write_json

    if "--json" in words:
        write_json("version", {"tieline": __version__})
    else:
        write(f"tieline {__version__}")
    return 0


def _close_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush has nobody to complain to."""
    import os

    if sys.stdout is None:
        return
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, sys.stdout.fileno())
    except (OSError, ValueError):
        return  # stdout is no descriptor, as in a test: there is no last flush either.
    finally:
        os.close(nothing)


if __name__ == "__main__":
    sys.exit(main())
