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
    assert [rule.name for rule in rules[1:]] == ["git", "git", "port:1", "port:1", "port:1"]


def test_page_of_gate_holds_the_table_of_sets() -> None:
    """docs/gate-rules.md shows the rules as they are."""
    assert table() in PAGE.read_text(encoding="utf-8")


GATED = r"""
git commit -m --dry-run
git commit -am --dry-run
git commit --message --dry-run
git commit -F --dry-run
git commit --dry-run --no-dry-run
git add -- --dry-run
git add stash list
git stash push -- stash list
git stash -m list
git add --chmod +x --dry-run=false f
git worktree add list
\git commit -m x
"git" commit
g''it commit
g"i"t commit -m x
/usr/bin/git commit -m x
/usr/lib/git-core/git-commit -m x
A=1 B=2 git commit
A[0]=1 git commit
env -i A=1 git commit
env -u X -- git commit
env -S "git commit -m x"
env -S git commit
env --split-string="A=1 git" commit
env -vS 'git commit'
sh -c "git commit"
sh -c 'cd /w && git commit'
bash -lc "git commit"
bash -eu -o pipefail -c 'git commit'
bash --norc -lc 'git commit'
bash -c -- 'git commit'
bash -c 'exec git commit'
bash -c "bash -c 'git commit'"
zsh -ic 'git commit'
busybox sh -c 'git commit'
echo a | xargs git add
xargs -0 -n1 -P4 git add
xargs --replace git add {}
xargs -I{} sh -c 'git add {}'
time git commit
time -p git commit
/usr/bin/time -v git commit
nice git commit
nice -n 5 git commit
nice -5 git commit
ionice -c3 nice -n19 git commit
nohup git commit &
sudo git commit
sudo -u me git commit
sudo -Eu me git commit
sudo -n -- git commit
sudo A=1 git commit
doas -u me git commit
su -c 'git commit' me
su me -c 'git commit'
runuser -u me -- git commit
command git commit
command -p git commit
builtin command git commit
exec git commit
exec -a x git commit
eval git commit
eval "git commit"
eval 'git' "commit"
trap 'git commit' EXIT
bash <<< "git commit"
true && git commit
false || git commit
true; git commit
(git commit)
{ git commit; }
! git commit
x=$(git commit)
echo `git commit`
echo "$(git commit)"
cat <(git commit)
f() { git commit; }; f
function f { git commit; }
alias g=git; g commit
alias gc='git commit'; gc -m x
if true; then git commit; fi
for f in *; do git add "$f"; done
while read f; do git add "$f"; done
case x in x) git commit;; esac
[[ -f x ]] && git commit
((1)) && git commit
2>/dev/null git commit
git commit 2>&1 | tee log
git -C dir -c k=v commit
git -c k=v -C dir commit
git --no-pager commit
git --attr-source HEAD commit
git --git-dir x --work-tree y commit
git -c alias.ci=commit ci -m x
git -c 'alias.x=!git commit' x
git stage f
git submodule foreach 'git commit'
git bisect run true
git $SUB -m x
git {commit,-m,x}
git comm*
timeout 5 git commit
timeout -k 1 --signal=KILL 5 git commit
stdbuf -oL git commit
setsid git commit
flock x git commit
flock x -c 'git commit'
script -qc 'git commit' /dev/null
find . -name x -exec git add {} \;
find . -exec sh -c 'git add "$1"' _ {} +
parallel 'git add {}' ::: a b
parallel git add ::: a
watch -n1 'git commit'
tmux new-session -d 'make test'
tmux new -d -s x make test
screen -dmS x make test
systemd-run --user --scope make test
python -m pytest
python3.11 -m pytest
python3 -mpytest
python -Im pytest
python -W ignore -m pytest
python -m coverage run -m pytest
coverage run --branch -m pytest
uv run pytest
uv run --with x -- pytest
uv run -m pytest
uv run python -m pytest
uvx pytest
uv tool run pytest
poetry run pytest
poetry run python -m pytest
pipenv run pytest
pdm run pytest
hatch run pytest
pipx run pytest
conda run -n x pytest
py.test
.venv/bin/pytest
tox -- --help
tox -e py -- --collect-only
pytest -k --collect-only
pytest -p --co
pytest -- --help
nox -s --version
npx vitest
npx -y vitest run
npx -c 'vitest run'
npx -p x jest
npm exec -- vitest
yarn vitest
pnpm exec vitest
pnpm -r test
pnpm --filter x run test
pnpm -F x test
npm t
npm it
npm run-script test
npm --prefix d test
npm -w p run test
npm run test:unit
npm i --prefix -g x
npm i --dry-run false
npm install --dry-run --no-dry-run
yarn workspace x test
bunx vitest
node node_modules/.bin/vitest
node_modules/.bin/jest -t --version
corepack pnpm test
volta run npm test
make -C dir
make -C -n
make -f -n
make -- -n
gmake test
ctest -V
cmake --build b --target test
mvn -V install
gradle -V build
gradle build tasks
./gradlew test -x test integrationTest
mvn dependency:tree install
cargo +nightly test
cargo --color always test
cargo test -- --no-run
cargo test --test --no-run
cargo run x --help
rustup run nightly cargo test
docker compose up
docker-compose up
docker compose -f a -p b up -d
docker --context c compose up
docker compose run web ls --help
docker compose up --dry-run=false
docker -D compose down
podman compose up
""".strip().split("\n")
FREE = r"""
git commit --dry-run
git commit -a --dry-run
git add -A --dry-run .
git status
git --no-pager log commit
git log --grep commit
git stash list
git -C x worktree list
git diff -- commit
git commit --help
echo git commit
echo "git commit"
printf '%s' 'git commit'
grep -r "git commit" .
pytest --collect-only -q
pytest -q --collect-only
pytest tests --co
cat git
npm install -g x
npm i -g x
npm ls
make -n test
make -j8 -n test
cargo --version
docker compose logs -f up
docker compose --dry-run up
docker compose up -d --dry-run
gradle tasks
./gradlew -q tasks
git config commit.gpgsign
ls; cat a | wc
command -v git
git -c alias.ci=status ci
cd x && git log
""".strip().split("\n")
EVERY = ("git", "python", "node", "cargo", "make", "jvm", "compose")


@pytest.mark.parametrize(
    "text", [*GATED, "bash <<EOF\ngit commit -m x\nEOF", "sh <<'E'\ngit commit\nE", "git \\\n commit"]
)
def test_spelling_of_a_gated_command_does_not_escape(text: str) -> None:
    """Quotes, wrappers, shells in shells and values that look like options hide no command from the gate."""
    assert any(needed(name, text) for name in EVERY)


@pytest.mark.parametrize("text", FREE)
def test_command_that_only_looks_or_is_only_named_is_free(text: str) -> None:
    """A question, a dry run and a text that names a command wait for nobody."""
    assert not any(needed(name, text) for name in EVERY)


@pytest.mark.parametrize(
    "command",
    [
        "perf stat -e cycles pytest", "perf record -o x -- pytest -q", "valgrind --leak-check=full pytest",
        "gdb -ex run --args pytest", "lldb -- pytest", "ccache pytest", "bear --output x -- pytest",
        "dotenv run -- pytest", "dotenv -f .env run pytest", "dotenv -e .env -- pytest", "pyenv exec pytest",
        "rbenv exec pytest", "lerna exec -- pytest",
    ],
)  # fmt: skip
def test_test_run_behind_a_tool_that_starts_it_needs_the_tests(command: str) -> None:
    """A profiler, a debugger, a cache or a chooser of versions hides no program."""
    assert needed("python", command) == {"repository/tests"}


@pytest.mark.parametrize(
    ("command", "resource"),
    [
        ("turbo test", "tests"), ("turbo run build --filter=web", "build"), ("turbo watch test", "tests"),
        ("npx turbo test", "tests"), ("nx test web", "tests"), ("nx run web:test:ci", "tests"),
        ("nx run-many -t build test", "tests"), ("nx affected --target=test", "tests"),
        ("nx run-many --targets=a,build", "build"), ("lerna run test", "tests"),
    ],
)  # fmt: skip
def test_task_of_a_workspace_tool_is_a_script(command: str, resource: str) -> None:
    """The tools that run scripts of many packages are gated as the package managers are."""
    assert f"repository/{resource}" in needed("node", command)
    assert needed("node", "nx graph") == needed("node", "turbo prune web") == set()


def test_exported_variable_counts_for_the_commands_after_it() -> None:
    """In its own shell and those below it, and not outside of them."""
    port = {"machine/port-3000"}
    assert needed("port:3000", "export PORT=3000; node server.js") == port
    assert needed("port:3000", "declare -x PORT=3000 && (cd web; node server.js)") == port
    assert needed("port:3000", "(export PORT=3000; true); node server.js") == set()
    assert needed("port:3000", "node server.js; export PORT=3000") == set()
    assert needed("port:3000", "declare PORT=3000; node server.js") == set()
