"""Commands into the programs that they would start: wrappers, shells, runners, scripts, folders, bounds."""

import pytest

from tieline.engine.gate.reading import LAYERS_MAX, SUBJECTS_MAX, TEXTS_MAX, Subject, executable_name, read


def names(text: str) -> list[str]:
    """Return the programs of a text that must be readable."""
    reading = read(None, text, "/w")
    assert reading.fault == "", text
    return [subject.executable for subject in reading.subjects]


def last(text: str) -> Subject:
    """Return the innermost program of a text."""
    return read(None, text, "/w").subjects[-1]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("pytest", "pytest"),
        ("/usr/bin/make", "make"),
        ("./node_modules/.bin/jest.js", "jest"),
        ("gradlew.bat", "gradlew"),
        ("python3.11", "python"),
        ("python3", "python"),
        ("vitest@1.2", "vitest"),
        ("@scope/tool@1", "tool"),
        ("@tool", "@tool"),
        ("gmake", "make"),
        ("", ""),
        ("dir/", ""),
    ],
)
def test_name_of_executable_drops_folder_version_and_ending(path: str, name: str) -> None:
    """A program has one name, however it is called."""
    assert executable_name(path) == name


@pytest.mark.parametrize(
    ("text", "programs"),
    [
        ("env -u A -C /x B=1 pytest", ["env", "pytest"]),
        ("env -S 'pytest -x' y", ["env", "pytest"]),
        ("time -p pytest", ["time", "pytest"]),
        ("nice -n 5 pytest", ["nice", "pytest"]),
        ("nice -n5 pytest", ["nice", "pytest"]),
        ("nice --adjustment=5 pytest", ["nice", "pytest"]),
        ("nohup pytest &", ["nohup", "pytest"]),
        ("timeout -k 5 -s KILL 60 pytest", ["timeout", "pytest"]),
        ("sudo -nu root -- pytest", ["sudo", "pytest"]),
        ("sudo -n A=1 pytest", ["sudo", "pytest"]),
        ("sudo -l", ["sudo"]),
        ("xargs -0 -I{} -n 1 pytest {}", ["xargs", "pytest"]),
        ("npx -y vitest run", ["npx", "vitest"]),
        ("npx -c 'vitest run'", ["npx", "vitest"]),
        ("command -v pytest", ["command"]),
        ("command pytest", ["command", "pytest"]),
        ("exec pytest", ["exec", "pytest"]),
        ("flock -w 5 /tmp/x pytest", ["flock", "pytest"]),
        ("flock /tmp/x -c 'pytest -x'", ["flock", "pytest"]),
        ("su -c pytest root", ["su", "pytest"]),
        ("watch -n 5 'pytest -x | tail'", ["watch", "pytest", "tail"]),
        ("eval pytest '&&' make", ["eval", "pytest", "make"]),
        ("trap 'make clean' EXIT", ["trap", "make"]),
        ("python3 -um pytest", ["python", "pytest"]),
        ("python -W error -m coverage run -m pytest", ["python", "coverage", "pytest"]),
        ("python -c 'import pytest'", ["python"]),
        ("python -Ic pytest", ["python"]),
        ("python manage.py test", ["python", "manage.py"]),
        ("python", ["python"]),
        ("node --require x server.js", ["node", "server"]),
        ("uv run --with x --directory y pytest", ["uv", "pytest"]),
        ("uv tool run pytest", ["uv", "pytest"]),
        ("uv sync", ["uv"]),
        ("uv", ["uv"]),
        ("poetry -C x run pytest", ["poetry", "pytest"]),
        ("pnpm --filter web exec vitest", ["pnpm", "vitest"]),
        ("pnpm vitest run", ["pnpm", "vitest"]),
        ("pnpm install x", ["pnpm"]),
        ("npm run test", ["npm"]),
        ("npm exec -- vitest", ["npm", "vitest"]),
        ("sh -c 'pytest; make'", ["sh", "pytest", "make"]),
        ("bash -lc 'pytest'", ["bash", "pytest"]),
        ("bash -euo pipefail -c pytest", ["bash", "pytest"]),
        ("bash --rcfile x --norc -c pytest", ["bash", "pytest"]),
        ("bash +o posix -c pytest", ["bash", "pytest"]),
        ("fish --command pytest", ["fish", "pytest"]),
        ("bash -c", ["bash"]),
        ("bash -- ./gradlew build", ["bash", "gradlew"]),
        ("bash build.sh make", ["bash", "build.sh"]),
        ("bash - <<E\npytest\nE\n", ["bash", "pytest"]),
        ("cat <<E\npytest\nE\n", ["cat"]),
        ("bash <<< pytest", ["bash", "pytest"]),
        ("busybox sh -c pytest", ["busybox", "sh", "pytest"]),
        (". ./build.sh", [".", "build.sh"]),
        ("find . -name x -exec pytest {} \\; -o -execdir make {} +", ["find", "pytest", "make"]),
        ("find . -exec pytest", ["find", "pytest"]),
        ("git status | make", ["git", "make"]),
        ("pytest; pytest", ["pytest"]),
        ("A=1", []),
        ("tieline peers", []),
        ("tieline run pytest", []),
    ],
)
def test_program_behind_wrappers_is_found(text: str, programs: list[str]) -> None:
    """Every layer of a command is a program of its own, down to the one that starts no other."""
    assert names(text) == programs


@pytest.mark.parametrize(
    ("text", "scripts"),
    [
        ("npm test", ("test",)),
        ("npm t -- -x", ("test",)),
        ("npm --prefix web run test:unit -- --watch", ("test:unit",)),
        ("npm install test", ()),
        ("npm", ()),
        ("pnpm -r run build", ("build",)),
        ("pnpm build", ("build",)),
        ("pnpm add build", ()),
        ("yarn t", ("test",)),
        ("yarn workspace web build", ("build",)),
        ("yarn workspaces run", ()),
        ("bun run dev", ("dev",)),
        ("npx test", ("test",)),
        ("deno task check", ("check",)),
        ("deno fmt check", ()),
        ("make -j 4 -C x test", ("4", "test")),
        ("just -f x test lint", ("test", "lint")),
        ("./gradlew :app:test", ("test",)),
        ("cargo +nightly test", ()),
    ],
)
def test_script_of_task_runner_is_found(text: str, scripts: tuple[str, ...]) -> None:
    """Scripts and targets are known by name, behind the options of their runner."""
    found = [
        subject for subject in read(None, text, "/w").subjects if subject.executable not in {"test", "build"}
    ]
    assert found[0].scripts == scripts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("git -C x -c a=b --git-dir=y commit -m z", ("commit", "z")),
        ("cargo +nightly -Z a test", ("test",)),
        ("docker compose -f a.yml --profile b up -d", ("compose", "up")),
        ("unknown -x y --z w", ("y", "w")),
        ("git - x", ("-", "x")),
        ("git -c", ()),
    ],
)
def test_words_of_program_leave_out_options_and_values(text: str, words: tuple[str, ...]) -> None:
    """A subcommand is found behind global options."""
    assert last(text).words == words


@pytest.mark.parametrize(
    ("text", "directory"),
    [
        ("make", "/w"),
        ("cd a && make", "/w/a"),
        ("cd -P ../b/./c && make", "/b/c"),
        ("pushd /x/y && make", "/x/y"),
        ("(cd a; ls); make", "/w"),
        ("cd a; (make)", "/w/a"),
        ("cd a; (cd b); make", "/w/a"),
        ("cd $X && make", ""),
        ("cd $X; cd a && make", ""),
        ("cd $X; cd /a && make", "/a"),
        ("cd && make", ""),
        ("cd - && make", ""),
        ("cd ~/a && make", ""),
        ("cd .. ; cd ../.. && make", "/"),
        ("cd / && cd a && make", "/a"),
        ("cd " + "a" * 1_100 + " && make", ""),
        ("make -C a", "/w/a"),
        ("make --directory=a", "/w/a"),
        ("env -C a make", "/w/a"),
        ("env --chdir=a make", "/w/a"),
        ("uv --directory a run make", "/w/a"),
        ("GIT_DIR=/x/.git git commit", "/x/.git"),
        ("GIT_WORK_TREE=a make", "/w"),
        ("cd a && sh -c 'cd b && make'", "/w/a/b"),
    ],
)
def test_folder_of_program_follows_changes(text: str, directory: str) -> None:
    """Where a program works is followed as far as the text says it."""
    assert last(text).directory == directory


def test_assignment_reaches_program_through_wrappers() -> None:
    """The environment that a text sets for a program comes along."""
    assert last("A=1 env B=2 sh -c 'C=3 make'").assignments == ("A=1", "B=2", "C=3")


@pytest.mark.parametrize(
    "text", ["$X", "$X test", "eval $X", 'sh -c "$X"', "''", "x/ y", "pytest '", "sh -c '$Y'"]
)
def test_command_that_cannot_be_told_is_opaque(text: str) -> None:
    """What the shell puts together is a program without a name, never a guess."""
    reading = read(None, text, "/w")
    assert reading.fault
    assert reading.subjects[-1].executable == ""


def test_expansion_in_folder_or_argument_leaves_name_known() -> None:
    """A path that begins with a variable still ends in the program's name."""
    assert names("$VENV/bin/pytest $ARGS") == ["pytest"]


def test_layers_beyond_bound_are_opaque() -> None:
    """Programs in programs and texts in texts are followed to a bound, and then told."""
    assert read(("env",) * (LAYERS_MAX + 1) + ("make",), "", "/w").fault == "it is nested too deeply"
    assert read(("env",) * (LAYERS_MAX - 1) + ("make",), "", "/w").fault == ""
    assert read(None, "eval " * TEXTS_MAX + "make", "/w").fault == "it is nested too deeply"
    assert read(None, "eval " * (TEXTS_MAX - 1) + "make", "/w").fault == ""
    found = "find . -exec " * (TEXTS_MAX + 2) + "make"
    assert read(tuple(found.split()), "", "/w").fault == "it is nested too deeply"


def test_programs_beyond_bound_are_opaque() -> None:
    """A command that starts too many programs is told so, and its end is opaque."""
    reading = read(("find", *("-exec", "make", ";") * (SUBJECTS_MAX + 9)), "", "/w")
    assert reading.fault == "it is too long to be read whole"
    assert len(reading.subjects) == SUBJECTS_MAX + 1
    assert reading.subjects[-1].executable == ""


def test_arguments_given_apart_are_not_read_as_text() -> None:
    """Separate arguments hold no separators, expansions or assignments."""
    reading = read(("echo", "a;make", "$(make)"), "", "/w")
    assert [subject.executable for subject in reading.subjects] == ["echo"]
    assert reading.subjects[0].arguments == ("a;make", "$(make)")
    assert read((), "", "/w").subjects == []


def test_command_under_tieline_run_is_covered_by_what_it_names() -> None:
    """What already runs under a resource is not asked for it again."""
    subject = last("tieline run --timeout 5 --resource a --resource=b -- sh -c 'make'")
    assert subject.covered == {("a", "/w"), ("b", "/w")}
    assert not subject.is_covered_whole
    assert last("tieline run --gate -- make").is_covered_whole
    assert last("python -m tieline run --gate -- make").is_covered_whole
    assert not last("tieline run --resource a -- make --gate").is_covered_whole
