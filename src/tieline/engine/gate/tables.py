"""What the gate knows of programs by name: which start another command, and which options take a value.

Rule 1: data only. A program that stands in no table is taken at its name, its options as flags.
Rule 2: an option of one letter is written `-x`,
a long one `--long`; both may hold the value in the same word.

Source: the manual pages of the programs; reference/native.md 2.14 "Profiles", 3.5 "wrappers".
"""

from typing import NamedTuple

__all__ = [
    "BUILTIN_SUBCOMMANDS",
    "COMMON_FLAGS",
    "HAND_OVERS",
    "NICKNAMES",
    "PLAIN_TOOL",
    "RUNNERS",
    "SCRIPT_TOOLS",
    "SHELLS",
    "TOOLS",
    "WRAPPERS",
    "Tool",
    "Wrapper",
]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


class Tool(NamedTuple):
    """Options of a program: those that take a value, those of them that name its folder, and flags.

    `flags` take no value under any subcommand of the program: one that does under some is left out.
    """

    valued: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()


class Wrapper(NamedTuple):
    """A program that starts the command which follows its options and `operand_count` words.

    Of the `valued` options, `folders` name where the command runs, `modules` name the command itself, and the
    value of `texts` is a shell's text. One of `stops` means that it starts none. `takes_assignments`:
    NAME=VALUE before the command are its environment. `own_word` may stand before the command.
    `joins_words`: the command is a shell's text.
    """

    valued: frozenset[str] = frozenset()
    operand_count: int = 0
    takes_assignments: bool = False
    joins_words: bool = False
    folders: frozenset[str] = frozenset()
    modules: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()
    stops: frozenset[str] = frozenset()
    own_word: str = ""


def _wrapper(
    valued: str = "",
    *,
    operand_count: int = 0,
    takes_assignments: bool = False,
    folders: str = "",
    modules: str = "",
    texts: str = "",
    stops: str = "",
) -> Wrapper:
    """Return a wrapper from lists of words; what names a folder, a module or a text takes a value."""
    return Wrapper(
        valued=_words(f"{valued} {folders} {modules} {texts}"),
        operand_count=operand_count,
        takes_assignments=takes_assignments,
        folders=_words(folders),
        modules=_words(modules),
        texts=_words(texts),
        stops=_words(stops),
    )


def _tool(valued: str, folders: str = "", flags: str = "") -> Tool:
    return Tool(_words(f"{valued} {folders}"), _words(folders), _words(flags))


PLAIN_TOOL = Tool()

COMMON_FLAGS = _words("--help --version")
"""Flags of every program."""

SHELLS = _words("sh bash zsh dash ksh ash mksh fish rbash")
"""Programs that read a shell's text: from `-c`, from a file, or from what is fed to them."""

NICKNAMES = {
    "gmake": "make", "py.test": "pytest", "pytest-3": "pytest", "ninja-build": "ninja", "cmake3": "cmake",
    "gtimeout": "timeout", "nodejs": "node", "pypy": "python", "pypy3": "python", "pnpx": "npx",
    "bunx": "npx", "bmake": "make", "remake": "make", "nerdctl": "docker",
}  # fmt: skip
"""Other names of the same program."""

_PYTHON = _wrapper("-W -X --check-hash-based-pycs", modules="-m", stops="-c -V -h --version --help")
_NODE = _wrapper(
    "-r --require --import --loader --experimental-loader --env-file -C --conditions",
    stops="-e --eval -p --print -v --version -h --help",
)
_UV_RUN = _wrapper(
    "--with --with-requirements --with-editable -p --python --extra --group --only-group --no-group "
    "--env-file --package --index --index-url --extra-index-url -i -f --find-links --project "
    "--cache-dir --config-file",
    modules="-m --module",
    folders="--directory",
)
_PLAIN = _wrapper()

_TMUX = _wrapper("-s -n -t -x -y -F -f -e -l -p", folders="-c")._replace(joins_words=True)

WRAPPERS: dict[str, Wrapper] = {
    "env": _wrapper("-u --unset", takes_assignments=True, folders="-C --chdir", texts="-S --split-string"),
    "cross-env": _wrapper(takes_assignments=True),
    "time": _wrapper("-f --format -o --output"),
    "nice": _wrapper("-n --adjustment"),
    "ionice": _wrapper("-c --class -n --classdata", stops="-p --pid"),
    "chrt": _wrapper("-T -P -D", operand_count=1, stops="-p --pid"),
    "taskset": _wrapper(operand_count=1, stops="-p --pid"),
    "nohup": _PLAIN,
    "setsid": _PLAIN,
    "stdbuf": _wrapper("-i --input -o --output -e --error"),
    "unbuffer": _PLAIN,
    "chronic": _PLAIN,
    "caffeinate": _wrapper("-t -w"),
    "timeout": _wrapper("-s --signal -k --kill-after", operand_count=1),
    "sudo": _wrapper("-u --user -g --group -h --host -p --prompt -C -r -t -T -U -R --chroot",
                     takes_assignments=True, folders="-D --chdir", stops="-l --list -v --validate"),
    "doas": _wrapper("-u -C"),
    "su": _wrapper("-s --shell -g --group", operand_count=1, texts="-c --command"),
    "xargs": _wrapper("-I -L -n -P -s -d -E -a --max-args --max-procs --max-chars --delimiter --arg-file "
                      "--process-slot-var"),
    "parallel": _wrapper("-j --jobs -a --arg-file -I -n --max-args -N --delay --timeout --joblog")._replace(
        joins_words=True),
    "command": _wrapper(stops="-v -V"),
    "builtin": _PLAIN,
    "exec": _wrapper("-a"),
    "flock": _wrapper("-w --wait --timeout -E --conflict-exit-code", operand_count=1, texts="-c --command"),
    "watch": _wrapper("-n --interval")._replace(joins_words=True),
    "eval": Wrapper(joins_words=True),
    "trap": Wrapper(joins_words=True),
    "script": _wrapper("-o -O -I -B -T -m -E", texts="-c --command", operand_count=1),
    "valgrind": _PLAIN,  # its options hold their values
    "gdb": _wrapper("-ex -x -iex -ix -d -s -e -c -b -l --eval-command --command --init-command --directory "
                    "--symbols --exec --core", folders="-cd --cd", stops="-p --pid"),
    "lldb": _wrapper("-o -O -s -S -k -K -a --arch --one-line --source", stops="-p --attach-pid -n -c --core"),
    "ccache": _wrapper("-k -o -M -F --config-path", stops="-s -c -C -z -p"),
    "sccache": _wrapper(stops="-s -z"),
    "bear": _wrapper("-o --output --config --cdb --library --wrapper"),
    "strace": _wrapper("-o -e -p -s -u -E -P -a -O -S"),
    "ltrace": _wrapper("-o -e -p -s -u -n -l -x"),
    "xvfb-run": _wrapper("-n --server-num -s --server-args -e --error-file -f --auth-file -w --wait -p"),
    "dbus-run-session": _wrapper("--config-file --dbus-daemon"),
    "busybox": _PLAIN,
    "toybox": _PLAIN,
    "runuser": _wrapper("-u --user -g --group -G --supp-group -s --shell -w --whitelist-environment",
                        texts="-c --command"),
    "pkexec": _wrapper("--user"),
    "sg": _wrapper(operand_count=1, texts="-c"),
    "chroot": _wrapper(operand_count=1),
    "unshare": _wrapper("-S -G --setuid --setgid --propagation", folders="-w --wd"),
    "setpriv": _wrapper("--reuid --regid --groups --inh-caps --ambient-caps --bounding-set"),
    "systemd-run": _wrapper("-p --property -u --unit -E --setenv --slice --uid --gid --description -M "
                            "--machine",
                            folders="--working-directory"),
    "systemd-inhibit": _wrapper("--what --who --why --mode"),
    "prlimit": _PLAIN,
    "numactl": _wrapper("-C -N -m -i -p"),
    "entr": _PLAIN,
    "watchexec": _wrapper("-w --watch -e --exts -f --filter -i --ignore -d --debounce -s --signal"),
    "corepack": _PLAIN,
    "proxychains4": _wrapper("-f"),
    "rlwrap": _wrapper("-f -H -s"),
    "screen": _wrapper("-S -c -h -e -s -T -t -p", stops="-X -x -r -R -ls -list -wipe"),
    "npx": _wrapper("-p --package -w --workspace", texts="-c --call"),
    "uvx": _UV_RUN._replace(valued=_UV_RUN.valued | {"--from"}),
    "dotenv": _wrapper("-e -p -v -f -q --file --quote --export")._replace(own_word="run"),
    "python": _PYTHON,
    "node": _NODE,
    "tsx": _NODE,
    "ts-node": _wrapper("-P --project -r --require -O", stops="-e --eval -p --print"),
    "ruby": _wrapper("-r -I -E -C", stops="-e -v --version"),
    "perl": _wrapper("-I -M", stops="-e -E -v"),
    "php": _wrapper("-c -d", stops="-r -S -t -v -i -m"),
}  # fmt: skip
"""Programs whose first other word is the command that they start; an interpreter's is its script."""

RUNNERS: dict[str, dict[str, Wrapper]] = {
    "uv": {"run": _UV_RUN, "tool run": WRAPPERS["uvx"]},
    "poetry": {"run": _PLAIN},
    "pipenv": {"run": _PLAIN},
    "pdm": {"run": _wrapper("-p --project")},
    "rye": {"run": _PLAIN},
    "hatch": {"run": _PLAIN},
    "pixi": {"run": _wrapper("-e --environment --manifest-path")},
    "conda": {"run": _wrapper("-n --name -p --prefix", folders="--cwd")},
    "mamba": {"run": _wrapper("-n --name -p --prefix", folders="--cwd")},
    "micromamba": {"run": _wrapper("-n --name -p --prefix", folders="--cwd")},
    "bundle": {"exec": _PLAIN},
    "npm": {"exec": _wrapper("-p --package -w --workspace", texts="-c --call"),
            "x": _wrapper("-p --package -w --workspace", texts="-c --call")},
    "pnpm": {"exec": _wrapper("--filter -F"), "dlx": _wrapper("--package")},
    "yarn": {"exec": _PLAIN, "dlx": _wrapper("-p --package")},
    "bun": {"x": _PLAIN, "run": _PLAIN},
    "mise": {"exec": _wrapper("-j --jobs", texts="-c --command"), "x": _wrapper(texts="-c --command")},
    "asdf": {"exec": _PLAIN},
    "pyenv": {"exec": _PLAIN},
    "rbenv": {"exec": _PLAIN},
    "nodenv": {"exec": _PLAIN},
    "lerna": {"exec": _wrapper("--scope --ignore --concurrency --loglevel")},
    "perf": {"stat": _wrapper("-e --event -r --repeat -o --output -x -C --cpu -I -D -G --delay --timeout"),
             "record": _wrapper("-e --event -o --output -F --freq -c --count -C --cpu -m -D -G "
                                "--call-graph"),
             "trace": _wrapper("-e --event -o --output -C --cpu -m")},
    "direnv": {"exec": _wrapper(operand_count=1)},
    "coverage": {"run": _wrapper("--source --omit --include --rcfile --data-file --context", modules="-m")},
    "doppler": {"run": _wrapper("-p --project -c --config", texts="--command")},
    "op": {"run": _wrapper("--env-file --account")},
    "devbox": {"run": _wrapper("-e --env --env-file", folders="-c --config")},
    "nix": {"develop": _wrapper(modules="-c --command")},
    "pipx": {"run": _wrapper("--spec --python --pip-args --index-url")},
    "rustup": {"run": _wrapper(operand_count=1)},
    "volta": {"run": _wrapper("--node --npm --pnpm --yarn")},
    "fnm": {"exec": _wrapper("--using")},
    "git": {"bisect run": _PLAIN, "submodule foreach": Wrapper(joins_words=True)},
    "tmux": dict.fromkeys(("new-session", "new", "new-window", "neww", "split-window", "splitw", "run-shell",
                           "run", "respawn-pane", "respawnp"), _TMUX),
}  # fmt: skip
"""Programs that start a command after a word of their own."""

TOOLS: dict[str, Tool] = {
    # What takes a value in one command of git and none in another (-m, -b, -s, -x) is in neither list.
    "git": _tool("-c --namespace --super-prefix --config-env --attr-source", "-C --git-dir --work-tree",
                 "-a -A -f -d -q -v -n -r -i -k -P --no-pager --paginate --bare --no-replace-objects "
                 "--exec-path "
                 "--literal-pathspecs --no-optional-locks --no-lazy-fetch --no-advice --amend --all --force "
                 "--quiet --verbose --no-edit --no-verify --allow-empty --signoff --patch --cached --staged "
                 "--ff-only --no-ff --squash --no-commit --hard --soft --mixed --update --recursive --init "
                 "--prune --aggressive --autostash --dry-run --short --porcelain --intent-to-add"),
    "make": _tool("-f --file --makefile -I --include-dir -o --old-file -W --what-if", "-C --directory",
                  "-B -k -s -j -i -e -r -R -n -w --always-make --keep-going --silent --quiet --dry-run "
                  "--just-print --jobs"),
    "ninja": _tool("-f -j -k -l -d -t", "-C", "-v -n --verbose --quiet"),
    "pytest": _tool("-k -m -c -p -n -o -W -r --maxfail --tb --rootdir --confcutdir --junitxml --ignore "
                    "--deselect --durations --override-ini --numprocesses --dist", "",
                    "-q -v -x -s -l --lf --ff --nf --sw --co --collect-only --fixtures --markers "
                    "--last-failed --failed-first --exitfirst --no-header --cache-clear --pdb"),
    "tox": _tool("-e -c --workdir --root --result-json --override -x", "", "-q -v -r --recreate --notest"),
    "nox": _tool("-s --session -e -p -t --tags -k --noxfile", "", "-r -R -v --reuse-existing-virtualenvs"),
    "cmake": _tool("-S -G -D -U -T -A --preset --target -t --config", "--build --install -B"),
    "cargo": _tool("--config -Z --color --manifest-path -p --package -F --features --target --profile", "-C",
                   "-v -q -r --release --all --workspace --lib --bins --tests --examples --benches "
                   "--all-targets "
                   "--all-features --no-default-features --locked --offline --frozen --verbose --quiet "
                   "--no-fail-fast --keep-going --no-run"),
    "go": _tool("", "-C"),
    "docker": _tool("-H --host -c --context --config -l --log-level --tlscacert --tlscert --tlskey "
                    "-f --file -p --project-name --profile --env-file --ansi --parallel --progress",
                    "--project-directory",
                    "-d -D --debug --detach --build --no-build --no-deps --force-recreate --remove-orphans "
                    "--wait "
                    "--dry-run --rm --pull-always --quiet -q --tls --tlsverify --compatibility"),
    "npm": _tool("-w --workspace --userconfig --registry --cache --loglevel", "-C --prefix",
                 "-g -D -E -s -f -y --global --save-dev --save --save-exact --no-save --silent --quiet "
                 "--force "
                 "--legacy-peer-deps --ignore-scripts --no-audit --no-fund --production --dry-run "
                 "--workspaces "
                 "--if-present --yes"),
    "pnpm": _tool("--filter -F --registry --store-dir --workspace-concurrency", "-C --dir",
                  "-r -g -D -E -w -s --recursive --global --save-dev --save-exact --frozen-lockfile "
                  "--offline "
                  "--ignore-scripts --workspace-root --silent --dry-run --parallel --stream --if-present"),
    "yarn": _tool("--registry --cache-folder", "--cwd"),
    "bun": _tool("--filter -F --env-file --config -c --preload -r", "--cwd"),
    "deno": _tool("-c --config -L --log-level", "--cwd"),
    "uv": _tool("-p --python --cache-dir --config-file --project --color", "--directory"),
    "poetry": _tool("", "-C --directory -P --project"),
    "gradle": _tool("-b --build-file -c --settings-file -g --gradle-user-home -I --init-script -x "
                    "--exclude-task --max-workers --tests", "-p --project-dir",
                    "-q -i -d -s -S -m --quiet --info --debug --stacktrace --offline --dry-run --continue "
                    "--no-daemon --daemon --parallel --no-parallel --build-cache --no-build-cache"),
    "mvn": _tool("-f --file -pl --projects -P --activate-profiles -s --settings -T --threads -rf "
                 "--resume-from -gs -l --log-file -t --toolchains", "",
                 "-q -B -o -U -e -X -am -amd -ntp -fae -fn -ff --quiet --batch-mode --offline --errors "
                 "--debug"),
    "playwright": _tool("-g --grep -c --config --project --reporter --workers -j", "",
                        "--headed --debug --ui --list -x"),
    "just": _tool("-f --justfile --shell --dotenv-path -E", "-d --working-directory"),
    "task": _tool("-t --taskfile -C --concurrency -o --output", "-d --dir"),
    "bazel": _tool("--bazelrc --output_base --output_user_root"),
    "turbo": _tool("--filter -F --concurrency", "--cwd"),
    "perf": _tool("--exec-path --buildid-dir --debugfs-dir --debug"),
    "lerna": _tool("--scope --ignore --concurrency --loglevel --since"),
    "nx": _tool("-t --target --targets -p --projects -c --configuration --parallel"),
    "hatch": _tool("-e --env -p --project --config"),
    "bundle": _tool("--gemfile"),
    "rails": _tool("-e --environment"),
    "rake": _tool("-f --rakefile", "-C --directory"),
    "vite": _tool("--port --host -c --config --base -m --mode -l --logLevel"),
    "webpack": _tool("-c --config --mode --env"),
    "flask": _tool("-A --app -e --env-file"),
    "composer": _tool("", "-d --working-dir"),
}  # fmt: skip
for _name, _like in (
    ("gradlew", "gradle"), ("mvnw", "mvn"), ("docker-compose", "docker"), ("podman", "docker"),
    ("podman-compose", "docker"),
    ("bazelisk", "bazel"), ("buck2", "bazel"), ("nx-cloud", "nx"),
):  # fmt: skip
    TOOLS[_name] = TOOLS[_like]
"""Options before and among the words of a program that take a value."""

HAND_OVERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "cargo": (("run", "*"), ("r", "*")),
    "docker": (("compose", "run", "*"), ("compose", "exec", "*"), ("run", "*"), ("exec", "*")),
    "podman": (("compose", "run", "*"), ("compose", "exec", "*"), ("run", "*"), ("exec", "*")),
    "docker-compose": (("run", "*"), ("exec", "*")),
    "podman-compose": (("run", "*"), ("exec", "*")),
    "go": (("run", "*"),),
    "dotnet": (("run", "*"),),
}
"""After these words, `*` being any, the rest belongs to a program that is started there."""

BUILTIN_SUBCOMMANDS: dict[str, frozenset[str]] = {
    "npm": _words("install i in ins inst insta instal isnt isnta isntal isntall clean-install ic "
                  "install-clean "
                  "it cit install-test install-ci-test up upgrade udpate un unlink r rb ddp ci add update "
                  "uninstall remove rm link ls list audit outdated publish pack "
                  "version view info config cache init login whoami exec x prefix root dedupe prune rebuild "
                  "fund help"),
    "pnpm": _words("install i add update up remove rm uninstall link ls list audit outdated publish "
                   "pack version why config store init exec dlx import prune rebuild fetch patch deploy "
                   "dedupe help setup env"),
    "yarn": _words("install add remove up upgrade link list audit outdated publish pack version why config "
                   "cache init exec dlx import info plugin set dedupe help node workspace workspaces global"),
    "bun": _words("install i add remove rm update link unlink pm upgrade init create x exec repl publish "
                  "outdated help audit"),
}  # fmt: skip
"""Words of a package manager that are its own and so name no script."""

SCRIPT_TOOLS: dict[str, str] = {
    "make": "", "just": "", "task": "", "rake": "", "poe": "", "run-s": "", "run-p": "", "npm-run-all": "",
    "deno": "task", "turbo": "run", "lerna": "run", "composer": "run-script", "pdm": "run", "hatch": "run",
    "mix": "", "gradle": "", "gradlew": "", "mvn": "", "mvnw": "", "ninja": "", "npx": "", "pixi": "run",
}  # fmt: skip
"""Programs whose words, after this one of their own, name scripts or targets."""
