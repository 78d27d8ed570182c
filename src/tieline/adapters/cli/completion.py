"""`tieline completion`: a script that lets a shell complete commands, options and aliases.

Rule: the script is made of the parsers, so it knows what they know; aliases are asked for when a person
presses the key, and only where a recipient stands.

Source: DESIGN.md 4.
"""

import argparse
from argparse import Namespace

from tieline.adapters.cli.arguments import Alone, Parser, actions_of
from tieline.adapters.cli.main import commands_here
from tieline.adapters.cli.output import flush, write, write_json
from tieline.adapters.cli.reference import parsers

__all__ = ["SHELLS", "parser", "run", "script"]

SHELLS = ("bash", "zsh", "fish")
TOP = ("--help", "--version")
WITH_ALIASES = ("ask", "last", "mute", "send")


def parser(sub: Alone) -> Parser:
    """Return the parser of this command."""
    details = "bash: source <(tieline completion bash); zsh: the same; fish: tieline completion fish | source"
    made = sub.add_parser("completion", "Print a completion script.", details)
    made.add_argument("shell", choices=SHELLS, help="for which shell")
    made.add_argument("--json", action="store_true", help="print one versioned JSON object")
    return made


def run(options: Namespace) -> int:
    """Print the script, and return the exit code."""
    text = script(options.shell)
    if options.json:
        write_json("completion", {"shell": options.shell, "script": text})
    else:
        write(text)
    flush()
    return 0


def _options() -> dict[str, list[argparse.Action]]:
    """Return each command's options."""
    return {
        name: [action for action in actions_of(made) if action.option_strings]
        for name, (made, _, _) in parsers().items()
    }


def script(shell: str) -> str:
    """Return the completion script for one of `SHELLS`."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]()


def _bash() -> str:
    cases = [
        f"        {name}) words='{' '.join(word for action in actions for word in action.option_strings)}' ;;"
        for name, actions in _options().items()
    ]
    return "\n".join(
        [
            "# tieline completion for bash",
            "_tieline() {",
            "    local current=${COMP_WORDS[COMP_CWORD]} words=''",
            "    COMPREPLY=()",
            '    if [ "$COMP_CWORD" -eq 1 ]; then',
            f"        COMPREPLY=($(compgen -W '{' '.join([*commands_here(), *TOP])}' -- \"$current\"))",
            "        return",
            "    fi",
            "    case ${COMP_WORDS[1]} in",
            *cases,
            "    esac",
            "    case $current in",
            '        -*) COMPREPLY=($(compgen -W "$words" -- "$current")); return ;;',
            "    esac",
            "    case ${COMP_WORDS[1]} in",
            f'        {"|".join(WITH_ALIASES)}) COMPREPLY=($(compgen -W "$(tieline peers --aliases 2>/dev/null)" -- "$current")) ;;',  # noqa: E501
            f"        completion) COMPREPLY=($(compgen -W '{' '.join(SHELLS)}' -- \"$current\")) ;;",
            '        *) COMPREPLY=($(compgen -f -- "$current")) ;;',
            "    esac",
            "}",
            "complete -F _tieline tieline",
        ]
    )


def _zsh() -> str:
    described = [f"        '{name}:{_quoted(summary)}'" for name, (_, summary) in commands_here().items()]
    cases = [
        f"        {name}) known=({' '.join(word for action in actions for word in action.option_strings)}) ;;"
        for name, actions in _options().items()
    ]
    return "\n".join(
        [
            "#compdef tieline",
            "# tieline completion for zsh",
            "_tieline() {",
            "    local -a commands known aliases",
            "    local chosen=${words[2]}",
            "    commands=(",
            *described,
            "    )",
            "    if (( CURRENT == 2 )); then",
            "        _describe command commands",
            "        return",
            "    fi",
            "    case $chosen in",
            *cases,
            "    esac",
            "    if [[ $PREFIX == -* ]]; then",
            "        compadd -a known",
            "        return",
            "    fi",
            "    case $chosen in",
            f'        {"|".join(WITH_ALIASES)}) aliases=(${{(f)"$(tieline peers --aliases 2>/dev/null)"}}); compadd -a aliases ;;',  # noqa: E501
            f"        completion) compadd {' '.join(SHELLS)} ;;",
            "        *) _files ;;",
            "    esac",
            "}",
            'if [[ $funcstack[1] == _tieline ]]; then _tieline "$@"; else compdef _tieline tieline; fi',
        ]
    )


def _fish() -> str:
    lines = ["# tieline completion for fish", "complete -c tieline -f"]
    for name, (_, summary) in commands_here().items():
        lines.append(f"complete -c tieline -n __fish_use_subcommand -a {name} -d '{_quoted(summary)}'")
    for name, actions in _options().items():
        lines += [_fish_option(name, action) for action in actions]
    aliases = "'(tieline peers --aliases 2>/dev/null)'"
    lines += [
        f"complete -c tieline -n '__fish_seen_subcommand_from {name}' -a {aliases}" for name in WITH_ALIASES
    ]
    lines.append(f"complete -c tieline -n '__fish_seen_subcommand_from completion' -a '{' '.join(SHELLS)}'")
    return "\n".join(lines)


def _fish_option(name: str, action: argparse.Action) -> str:
    words = [
        f"-l {word[2:]}" if word.startswith("--") else f"-s {word[1:]}" for word in action.option_strings
    ]
    parts = [f"complete -c tieline -n '__fish_seen_subcommand_from {name}'", *words]
    if action.nargs != 0:
        parts.append("-r" + (" -F" if "attach" in action.dest else ""))
    if action.choices:
        parts.append(f"-a '{' '.join(map(str, action.choices))}'")
    return " ".join([*parts, f"-d '{_quoted(action.help or '')}'"])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "").replace(":", " -")
