"""`tieline completion`: a script that lets a shell complete commands, options and aliases.

Rule 1: the script is made of the parsers, so it knows what they know: commands, options, and the values of
an option or a word that has a closed set.
Rule 2: aliases and ended instances are asked for when a person presses the key, of the program that is
being completed, and only where one stands. Files are offered only where a file stands.

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
WITH_INSTANCES = ("forget", "recover")
WITH_FILES = ("run",)
FILE_OPTIONS = ("--attach",)
DIRECTORY_OPTIONS = ("--coordination", "--home", "--workspace")
ALIASES = "peers --aliases 2>/dev/null"
INSTANCES = 'recover --all 2>/dev/null | cut -d " " -f 1'


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


def _choices() -> tuple[dict[str, str], dict[str, str]]:
    """Return the closed sets: of options, as "command option" to words, and of a command's first word."""
    options: dict[str, str] = {}
    words: dict[str, str] = {}
    for name, (made, _, _) in parsers().items():
        for action in actions_of(made):
            if not action.choices:
                continue
            values = " ".join(map(str, action.choices))
            for option in action.option_strings:
                options[f"{name} {option}"] = values
            if not action.option_strings:
                words.setdefault(name, values)
    return options, words


def _offer(values: str) -> str:
    return f"COMPREPLY=($(compgen -W '{values}' -- \"$current\"))"


def _bash() -> str:
    cases = [
        f"        {name}) words='{' '.join(word for action in actions for word in action.option_strings)}' ;;"
        for name, actions in _options().items()
    ]
    of_options, of_words = _choices()
    asked = f'"$(${{COMP_WORDS[0]}} {ALIASES})"'
    ended = f'"$(${{COMP_WORDS[0]}} {INSTANCES})"'
    return "\n".join(
        [
            "# tieline completion for bash",
            "_tieline() {",
            "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} words=''",
            "    COMPREPLY=()",
            "    # A colon, as a person writes an alias, ends a word for bash.",
            "    [ \"$current\" = : ] && current=''",
            '    if [ "$COMP_CWORD" -eq 1 ]; then',
            "        " + _offer(" ".join([*commands_here(), *TOP])),
            "        return",
            "    fi",
            "    case ${COMP_WORDS[1]} in",
            *cases,
            "    esac",
            '    case "${COMP_WORDS[1]} $previous" in',
            *[f"        '{place}') {_offer(values)}; return ;;" for place, values in of_options.items()],
            "    esac",
            "    case $previous in",
            f'        {"|".join(FILE_OPTIONS)}) COMPREPLY=($(compgen -f -- "$current")); return ;;',
            f'        {"|".join(DIRECTORY_OPTIONS)}) COMPREPLY=($(compgen -d -- "$current")); return ;;',
            "    esac",
            "    case $current in",
            '        -*) COMPREPLY=($(compgen -W "$words" -- "$current")); return ;;',
            "    esac",
            "    case ${COMP_WORDS[1]} in",
            f'        {"|".join(WITH_ALIASES)}) COMPREPLY=($(compgen -W {asked} -- "$current")) ;;',
            f'        {"|".join(WITH_INSTANCES)}) COMPREPLY=($(compgen -W {ended} -- "$current")) ;;',
            *[f"        {name}) {_offer(values)} ;;" for name, values in of_words.items()],
            f'        {"|".join(WITH_FILES)}) COMPREPLY=($(compgen -c -f -- "$current")) ;;',
            "    esac",
            "}",
            "complete -F _tieline tieline",
        ]
    )


def _zsh_lines(words: str) -> str:
    return f'aliases=(${{(f)"$(${{words[1]}} {words})"}}); compadd -a aliases'


def _zsh() -> str:
    described = [f"        '{name}:{_quoted(summary)}'" for name, (_, summary) in commands_here().items()]
    cases = [
        f"        {name}) known=({' '.join(word for action in actions for word in action.option_strings)}) ;;"
        for name, actions in _options().items()
    ]
    of_options, of_words = _choices()
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
            '    case "$chosen ${words[CURRENT-1]}" in',
            *[f"        '{place}') compadd {values}; return ;;" for place, values in of_options.items()],
            "    esac",
            "    case ${words[CURRENT-1]} in",
            f"        {'|'.join(FILE_OPTIONS)}) _files; return ;;",
            f"        {'|'.join(DIRECTORY_OPTIONS)}) _files -/; return ;;",
            "    esac",
            "    case $chosen in",
            f"        {'|'.join(WITH_ALIASES)}) {_zsh_lines(ALIASES)} ;;",
            f"        {'|'.join(WITH_INSTANCES)}) {_zsh_lines(INSTANCES)} ;;",
            *[f"        {name}) compadd {values} ;;" for name, values in of_words.items()],
            f"        {'|'.join(WITH_FILES)}) _files ;;",
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
    asked = dict.fromkeys(WITH_ALIASES, f"(tieline {ALIASES})")
    asked |= dict.fromkeys(WITH_INSTANCES, f"(tieline {INSTANCES})")
    lines += [
        f"complete -c tieline -n '__fish_seen_subcommand_from {name}' -a '{values}'"
        for name, values in {**asked, **_choices()[1]}.items()
    ]
    lines += [f"complete -c tieline -n '__fish_seen_subcommand_from {name}' -F" for name in WITH_FILES]
    return "\n".join(lines)


def _fish_option(name: str, action: argparse.Action) -> str:
    words = [
        f"-l {word[2:]}" if word.startswith("--") else f"-s {word[1:]}" for word in action.option_strings
    ]
    parts = [f"complete -c tieline -n '__fish_seen_subcommand_from {name}'", *words]
    if action.nargs != 0:
        takes_file = set(action.option_strings) & {*FILE_OPTIONS, *DIRECTORY_OPTIONS}
        parts.append("-r" + (" -F" if takes_file else ""))
    if action.choices:
        parts.append(f"-a '{' '.join(map(str, action.choices))}'")
    return " ".join([*parts, f"-d '{_quoted(action.help or '')}'"])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "").replace(":", " -")
