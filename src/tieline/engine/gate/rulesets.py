"""Ready rules, switched on by name under `[resource] rule_sets`.

Rule 1: data only; a set is made of the same rules that a person can write.
Rule 2: `port` and `database` take what they are about after a colon: `port:3000`, `database:app_test`.
Rule 3: a set names what collides, not what only reads: `git status` and `cargo --version` wait for nobody.
Rule 4: the names are those of `config.RULE_SETS`, which checks them before they come here.

Source: reference/native.md section 6 (what agents were seen to collide on), 3.5.
"""

import msgspec

from tieline.config import RULE_SETS, ResourceSettings, Rule
from tieline.engine.gate.profiles import BUILD_SCRIPTS, SERVER_SCRIPTS

__all__ = ["rules_of", "ruleset", "table"]

_QUESTIONS = ("--help", "--version", "-V")


def _variants(*names: str) -> tuple[str, ...]:
    """Return patterns for scripts and for `name:variant`."""
    return tuple(pattern for name in names for pattern in (name, f"{name}:*"))


_TEST_SCRIPTS = _variants("test", "check", "proof", "lint", "typecheck")
_BUILD_SCRIPTS = _variants("build", "compile")
_PYTHON_TESTS = ("pytest", "tox", "nox", "unittest")
_MANAGERS = ("npm", "pnpm", "yarn", "bun", "npx")
_SCRIPT_RUNNERS = (*_MANAGERS, "turbo", "nx", "lerna")
_SERVERS = (
    "vite", "next", "nuxt", "astro", "ng", "webpack", "webpack-dev-server", "uvicorn", "gunicorn",
    "hypercorn",
    "daphne", "flask", "fastapi", "manage.py", "rails", "artisan", "http.server", "http-server",
    "live-server",
    "serve", "wrangler", "expo", "hugo", "jekyll", "mkdocs", "storybook", "php", "docker", "docker-compose",
    "podman", "node", "python", "deno", "bun", "caddy", "mix",
)  # fmt: skip
_MIGRATIONS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("alembic",), ("upgrade", "downgrade", "stamp")),
    (("manage.py",), ("migrate", "flush", "loaddata", "test", "sqlflush")),
    (("rails", "rake"), ("db:*", "test", "spec")),
    (("artisan",), ("migrate*", "db:*", "test")),
    (("prisma",), ("migrate", "db")),
    (("knex", "sequelize", "sequelize-cli", "typeorm", "drizzle-kit"), ("*",)),
    (("mix",), ("ecto.*", "test")),
    (("flyway", "liquibase", "dbmate", "goose", "sqlx", "diesel", "migrate", "golang-migrate"), ("*",)),
)

_GIT = Rule(
    "repository/git-index",
    executables=("git",),
    subcommands=(
        "add", "am", "apply", "bisect", "checkout", "checkout-index", "cherry-pick", "clean", "commit",
        "gc", "merge",
        "mv", "prune", "pull", "read-tree", "rebase", "reset", "restore", "revert", "rm", "sparse-checkout",
        "stage", "stash", "submodule", "switch", "update-index", "worktree", "citool", "filter-branch",
        "filter-repo", "lfs checkout", "lfs pull", "maintenance", "mergetool", "quiltimport", "repack",
        "subtree",
    ),
    without=(
        *_QUESTIONS, "--dry-run", "--check", "stash list", "stash show", "submodule status",
        "submodule summary",
        "bisect log", "bisect view", "sparse-checkout list", "worktree list",
    ),
)  # fmt: skip

_SETS: dict[str, tuple[str, tuple[Rule, ...]]] = {
    "git": (
        "commands of git that write the index, the checkout, or what worktrees share",
        (
            _GIT,
            Rule("repository/git-index", executables=("gh",),
                 subcommands=("pr checkout", "pr co", "repo sync"), without=("--help",)),
        ),
    ),
    "python": (
        "test runs of Python",
        (
            Rule("repository/tests", executables=_PYTHON_TESTS,
                 without=(*_QUESTIONS, "--collect-only", "--co", "--fixtures", "--markers")),
        ),
    ),
    "node": (
        "test runs, builds and installations of JavaScript",
        (
            Rule("repository/tests", executables=("vitest", "jest", "mocha", "ava", "cypress"),
                 without=_QUESTIONS),
            Rule("repository/tests", executables=("playwright",), subcommands=("test",),
                 without=(*_QUESTIONS, "--list")),
            Rule("repository/tests", executables=_SCRIPT_RUNNERS, scripts=_TEST_SCRIPTS),
            Rule("repository/build", executables=_SCRIPT_RUNNERS, scripts=_BUILD_SCRIPTS),
            Rule("repository/packages", executables=_MANAGERS,
                 subcommands=("install", "i", "ci", "add", "update", "up", "upgrade", "remove", "rm",
                              "uninstall", "dedupe",
                              "prune", "rebuild", "import", "in", "ins", "inst", "insta", "instal", "isnt",
                              "isnta", "isntal", "isntall", "clean-install", "ic", "install-clean", "it",
                              "cit", "install-test", "install-ci-test", "udpate", "un", "unlink", "r", "rb",
                              "ddp"),
                 without=(*_QUESTIONS, "--dry-run", "-g", "--global")),
        ),
    ),
    "cargo": (
        "builds with cargo, which share one target folder, and their tests",
        (
            Rule("repository/build", executables=("cargo",),
                 subcommands=("build", "b", "check", "c", "clippy", "run", "r", "test", "t", "nextest",
                              "bench", "doc", "d",
                              "clean", "fix", "install", "package", "publish", "rustc", "tarpaulin",
                              "llvm-cov", "watch", "hack", "miri", "xtask"),
                 without=_QUESTIONS),
            Rule("repository/tests", executables=("cargo",),
                 subcommands=("test", "t", "nextest", "bench", "tarpaulin", "llvm-cov", "watch",
                              "hack", "miri"),
                 without=(*_QUESTIONS, "--no-run")),
        ),
    ),
    "make": (
        "make, cmake, ninja, and the tests that they run",
        (
            Rule("repository/build", executables=("make", "cmake", "ninja", "meson"),
                 without=(*_QUESTIONS, "-n", "--dry-run", "--just-print", "--help*")),
            Rule("repository/tests", executables=("make", "ninja"), scripts=_variants("test", "tests",
                "check"),
                 without=("-n", "--dry-run", "--just-print")),
            Rule("repository/tests", executables=("ctest",),
                 without=("--help", "--version", "-N", "--show-only*")),
        ),
    ),
    "jvm": (
        "builds with gradle and maven, and their tests",
        (
            Rule("repository/build", executables=("gradle", "gradlew", "mvn", "mvnw"),
                 without=("--help", "--version", "-v", "tasks", "dependencies", "properties", "help:*",
                          "dependency:tree", "--dry-run")),
            Rule("repository/tests", executables=("gradle", "gradlew", "mvn", "mvnw"),
                 scripts=("test", "check", "build", "verify", "package", "install"),
                 without=("-DskipTests", "-DskipTests=true", "--dry-run", "-x test")),
            Rule("repository/tests", executables=("gradle", "gradlew", "mvn", "mvnw"),
                 scripts=("integrationTest",), without=("-DskipTests", "-DskipTests=true", "--dry-run")),
        ),
    ),
    "compose": (
        "containers of a compose file, whose names and ports are fixed",
        (
            Rule("repository/compose", executables=("docker", "podman"),
                 subcommands=tuple(f"compose {word}" for word in (
                     "up", "down", "build", "run", "restart", "start", "stop", "rm", "create", "kill",
                     "pull", "watch", "scale")),
                 without=("--help", "--dry-run")),
            Rule("repository/compose", executables=("docker-compose", "podman-compose"),
                 subcommands=("up", "down", "build", "run", "restart", "start", "stop", "rm", "create",
                              "kill", "pull", "watch", "scale"),
                 without=("--help", "--dry-run")),
        ),
    ),
}  # fmt: skip


def ruleset(name: str) -> tuple[Rule, ...]:
    """Return the rules of a set, each with the set's name.

    Args:
        name: One that `config.is_rule_set` admits.
    """
    kind, _, subject = name.partition(":")
    if kind == "port":
        rules = _port(subject)
    elif kind == "database":
        rules = _database(subject)
    else:
        rules = _SETS[kind][1]
    return tuple(msgspec.structs.replace(rule, name=name) for rule in rules)


def rules_of(settings: ResourceSettings) -> tuple[Rule, ...]:
    """Return a person's rules, then those of the sets that were switched on."""
    return settings.rules + tuple(rule for name in settings.rule_sets for rule in ruleset(name))


def table() -> str:
    """Return the sets as a table in Markdown, one row a rule; the page of the gate holds it."""
    rows = ["| set | resource | what needs it |", "| --- | --- | --- |"]
    for name, form in RULE_SETS.items():
        shown = f"{name}:{form}" if form else name
        example = {"PORT": "3000", "NAME": "app_test"}.get(form, "")
        rows += [
            f"| `{shown}` | `{rule.resource}` | {_described(rule)} |"
            for rule in ruleset(f"{name}:{example}" if form else name)
        ]
    return "\n".join(rows) + "\n"


def _described(rule: Rule) -> str:
    """Return what a rule looks for, in one cell."""
    parts = [
        f"{title} {', '.join(f'`{one}`' for one in value)}"
        for title, value in (
            ("", rule.executables),
            ("with the words", rule.subcommands),
            ("with the script", rule.scripts),
            ("with the argument", rule.arguments),
            ("not with", rule.without),
        )
        if value
    ]
    return "; ".join(parts).strip()


def _port(number: str) -> tuple[Rule, ...]:
    """Return the rules of one port: who names it, and scripts of a server that name no other."""
    resource = f"machine/port-{number}"
    hosts = ("", "localhost", "127.0.0.1", "0.0.0.0", "[::]", "[::1]")  # noqa: S104 - text to look for
    named = (
        f"--port={number}", f"-p{number}", f"-p={number}", f"PORT={number}", f"-P{number}", number,
        f"{number}:*",
        *(f"{host}:{number}" for host in hosts),
        *(f"{option}={host}:{number}" for option in ("--bind", "--listen", "--addr",
                                                     "-b") for host in hosts[1:]),
    )  # fmt: skip
    others = ("--port", "--port=*", "-p", "-p*", "-P", "PORT=*")
    return (
        Rule(resource, executables=_SERVERS, arguments=named),
        Rule(resource, executables=_SCRIPT_RUNNERS, scripts=_variants(*SERVER_SCRIPTS), arguments=named),
        Rule(resource, executables=_SCRIPT_RUNNERS, scripts=_variants(*SERVER_SCRIPTS), without=others),
    )


def _database(name: str) -> tuple[Rule, ...]:
    """Return the rules of one database: who names it, migrations, and test runs, which empty it."""
    resource = f"machine/database-{name}"
    clients = (
        "psql", "createdb", "dropdb", "pg_restore", "pgbench", "mysql", "mysqladmin", "mariadb", "mongosh",
        "mongorestore",
        "sqlite3", "sqlcmd", "redis-cli",
    )  # fmt: skip
    named = (name, f"--dbname={name}", f"--database={name}", f"-d{name}", f"-D{name}", f"--db={name}")
    tests = (*_PYTHON_TESTS, "vitest", "jest", "mocha", "rspec", "phpunit", "playwright", "cypress")
    return (
        Rule(resource, executables=clients, arguments=named),
        *(
            Rule(resource, executables=tools, subcommands=words, without=("--help",))
            for tools, words in _MIGRATIONS
        ),
        Rule(resource, executables=tests, without=(*_QUESTIONS, "--collect-only", "--list")),
        Rule(
            resource,
            executables=("cargo", "go", "dotnet", "swift", "deno", "bun"),
            subcommands=("test", "nextest"),
        ),
        Rule(resource, executables=_SCRIPT_RUNNERS, scripts=_variants(BUILD_SCRIPTS[1])),
        Rule(
            resource,
            executables=("make", "just", "task", "gradle", "gradlew", "mvn", "mvnw"),
            scripts=_variants("test"),
        ),
    )
