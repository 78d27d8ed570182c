"""The ready rule sets: each names what collides and leaves alone what only reads."""

from pathlib import Path

import pytest

from tieline.config import PATTERNS_MAX, RULE_SETS, ResourceSettings, Rule, is_resource_key, load
from tieline.engine.gate.rules import GateCommand, RepositoryFacts, requirements
from tieline.engine.gate.rulesets import rules_of, ruleset, table

PAGE = Path(__file__).resolve().parents[4] / "docs" / "gate-rules.md"
FACTS = RepositoryFacts("r", "/w")


def needed(name: str, text: str) -> set[str]:
    """Return what a command needs under one set, without the repository's token."""
    verdict = requirements(GateCommand(None, text, "/w"), ruleset(name), FACTS)
    return {key.replace("/r/", "/") for key in verdict.keys}


@pytest.mark.parametrize(
    "command",
    [
        "add .", "commit -m x", "commit -nm x", "merge x", "rebase x", "reset --hard", "checkout x",
        "switch x", "pull",
        "cherry-pick x", "stash", "stash pop", "rm x", "mv a b", "restore x", "revert x", "am x", "apply x",
        "worktree add x", "submodule update", "clean -fd", "update-index --refresh", "sparse-checkout set x",
    ],
)  # fmt: skip
def test_git_command_that_writes_needs_the_index(command: str) -> None:
    """A mutating command is seen behind environment prefixes and global options."""
    for prefix in ("git", "GIT_EDITOR=true git -c a=b", "cd /w && env A=1 git --no-pager -C ."):
        assert needed("git", f"{prefix} {command}") == {"repository/git-index"}


@pytest.mark.parametrize(
    "command",
    [
        "status", "log --grep commit", "diff", "show commit", "fetch", "push", "branch", "stash list",
        "worktree list",
        "submodule status", "add --dry-run .", "commit --help", "apply --check x", "rev-parse add", "",
        "ls-files add",
    ],
)  # fmt: skip
def test_git_command_that_reads_needs_nothing(command: str) -> None:
    """Looking at a repository waits for nobody."""
    assert needed("git", f"git {command}") == set()


@pytest.mark.parametrize(
    ("name", "text", "resources"),
    [
        ("python", "pytest -x", "tests"),
        ("python", "uv run python -m pytest", "tests"),
        ("python", "tox -e py", "tests"),
        ("python", "nox", "tests"),
        ("python", "pytest --collect-only", ""),
        ("python", "python x.py", ""),
        ("node", "npm test", "tests"),
        ("node", "pnpm run test:unit", "tests"),
        ("node", "npx vitest", "tests"),
        ("node", "npx playwright test", "tests"),
        ("node", "npx playwright install", ""),
        ("node", "yarn build", "build"),
        ("node", "npm ci", "packages"),
        ("node", "npm install -g x", ""),
        ("node", "npm ls", ""),
        ("cargo", "cargo build", "build"),
        ("cargo", "cargo +nightly test", "build tests"),
        ("cargo", "cargo metadata", ""),
        ("cargo", "cargo --version", ""),
        ("make", "make", "build"),
        ("make", "make -j8 test", "build tests"),
        ("make", "cmake --build b", "build"),
        ("make", "ninja -C b", "build"),
        ("make", "ctest", "tests"),
        ("make", "make -n", ""),
        ("jvm", "./gradlew assemble", "build"),
        ("jvm", "./gradlew :app:test", "build tests"),
        ("jvm", "mvn -q verify", "build tests"),
        ("jvm", "mvn package -DskipTests", "build"),
        ("jvm", "gradle tasks", ""),
        ("compose", "docker compose -f a.yml up -d", "compose"),
        ("compose", "docker-compose down", "compose"),
        ("compose", "docker compose logs", ""),
        ("compose", "docker build .", ""),
    ],
)
def test_command_of_set_needs_its_resources(name: str, text: str, resources: str) -> None:
    """Each set gates the commands it is named after, and not those that only look."""
    assert needed(name, text) == {f"repository/{one}" for one in resources.split()}


@pytest.mark.parametrize(
    ("text", "is_needed"),
    [
        ("npm run dev", True),
        ("npm run dev -- --port 3000", True),
        ("PORT=3000 yarn start", True),
        ("npm run dev -- --port 4000", False),
        ("PORT=4000 npm run dev", False),
        ("npx next dev -p 3000", True),
        ("uvicorn a:b --port=3000", True),
        ("python manage.py runserver 0.0.0.0:3000", True),
        ("python -m http.server 3000", True),
        ("python -m http.server 4000", False),
        ("docker run -p 3000:80 x", True),
        ("gunicorn -b 127.0.0.1:3000 a", True),
        ("curl localhost:3000", False),
        ("npm test", False),
    ],
)
def test_command_that_listens_needs_the_port(text: str, is_needed: bool) -> None:
    """A server that names the port, or a script that names none, needs it; a client does not."""
    assert needed("port:3000", text) == ({"machine/port-3000"} if is_needed else set())


@pytest.mark.parametrize(
    ("text", "is_needed"),
    [
        ("psql -d app_test -c 'drop table x'", True),
        ("psql other", False),
        ("dropdb app_test", True),
        ("alembic upgrade head", True),
        ("alembic history", False),
        ("python manage.py migrate", True),
        ("rails db:migrate", True),
        ("npx prisma migrate dev", True),
        ("dbmate up", True),
        ("pytest", True),
        ("pytest --collect-only", False),
        ("npm test", True),
        ("npm run build", False),
        ("make test", True),
        ("make", False),
        ("go test ./...", True),
    ],
)
def test_command_that_changes_database_needs_it(text: str, is_needed: bool) -> None:
    """Two test runs, a migration and a client that names the database never overlap."""
    assert needed("database:app_test", text) == ({"machine/database-app_test"} if is_needed else set())


def test_rules_of_sets_are_ones_that_a_person_could_write() -> None:
    """Every ready rule passes the checks of the configuration, and bears its set's name."""
    for name, form in RULE_SETS.items():
        full = f"{name}:{({'PORT': '3000', 'NAME': 'x'})[form]}" if form else name
        for rule in ruleset(full):
            assert rule.name == full
            assert is_resource_key(rule.resource)
            fields = [
                (field, list(value))
                for field in ("executables", "subcommands", "scripts", "arguments", "without")
                if (value := getattr(rule, field))
            ]
            assert all(len(value) <= PATTERNS_MAX for _field, value in fields)
            written = "".join(f"{field} = {value!r}\n" for field, value in fields)
            text = f'[[resource.rule]]\nresource = "{rule.resource}"\n{written}'
            loaded = load(text, "c", {}).resource.rules[0]
            assert loaded == Rule(rule.resource, **{field: tuple(value) for field, value in fields})


def test_rules_of_settings_are_a_persons_then_those_of_sets() -> None:
    """A person's rule is named first when several need one resource."""
    own = Rule("machine/x", executables=("x",))
    rules = rules_of(ResourceSettings(rule_sets=("git", "port:1"), rules=(own,)))
    assert rules[0] == own
    assert [rule.name for rule in rules[1:]] == ["git", "port:1", "port:1", "port:1"]


def test_page_of_gate_holds_the_table_of_sets() -> None:
    """docs/gate-rules.md shows the rules as they are."""
    assert table() in PAGE.read_text(encoding="utf-8")
