#!/usr/bin/env python3
"""Run the test suites as an ordinary user, away from every person's directories.

Rule 1: nothing runs as root, because permission checks are empty there. Started as root, the
    checkout is copied to a private folder that a user number of this run alone owns; where that
    cannot be done the run fails with the reason, it never goes on as root.
Rule 2: HOME, TMPDIR and XDG_RUNTIME_DIR are folders of this run, 0700 and short, because a
    socket's path has 107 bytes. Of the caller's environment only `PASSED_ON` comes along.
Rule 3: every suite whose folder exists runs, also after another has failed; each one's time is
    printed. Processes that a suite leaves behind fail it.
Rule 4: a few tests of a whole suite that fail run once more, alone, since many of them use real processes and
    a machine that others use, too. What passes then is named as unsteady in the last lines, never silently.
Rule 5: standard library only: it starts before anything is known to work.

Usage: tests/run.py [SUITE ...] or tests/run.py PATH [PYTEST OPTION ...]; nothing means every suite but
those that run on request (`ON_REQUEST`).

Source: DESIGN.md 8, "Test machines"; reference/reliability.md F14.
"""

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[1]
SHORT_FOLDER = "/tmp"  # not TMPDIR: it may be too long for a socket
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
USER_NUMBERS = range(58_000, 59_900)
SUITE_SECONDS_MAX = 900
AGAIN_MAX = 4  # more failures than this in one suite are no accident
# A broker without sessions leaves after 5 s: what is gone by then was not left behind.
LEAVE_SECONDS_MAX = 8
PASSED_ON = (
    "CI",
    "DESK_PICTURE",
    "LANG",
    "LC_ALL",
    "NO_COLOR",
    "PYTEST_ADDOPTS",
    "TERM",
    "TIELINE_HARNESS_CACHE",
    "TIELINE_KILLS",
    "TIELINE_TEST_PROFILE",
    "TIELINE_TEST_REUSES",
    "TIELINE_TEST_ROUNDS",
    "TIELINE_TEST_TREES",
    "TZ",
)

AS_STARTED = "as-started"
SKIPPED = 77

PYTEST = ("-m", "pytest", "-q")
PYTEST_FAILED = 1  # its exit code where tests ran and some failed
FAILED_TESTS = Path(".pytest_cache/v/cache/lastfailed")  # an object whose names are the tests
CHECKED = ("src", "tests", "tools")

# Name: the folder that must exist, and the commands. `{python}` is the interpreter of the run.
SUITES: dict[str, tuple[str, tuple[tuple[str, ...], ...]]] = {
    "lint": (
        "src",
        (
            ("{python}", "-m", "ruff", "check", "--output-format", "concise", *CHECKED),
            ("{python}", "-m", "ruff", "format", "--check", "--output-format", "concise", *CHECKED),
            ("{python}", "-m", "mypy"),
            ("{bin}/lint-imports", "--no-cache"),
        ),
    ),
    "tidy": ("tests", (("{python}", *PYTEST, "{top}"),)),
    "unit": ("tests/unit", (("{python}", *PYTEST, "tests/unit"),)),
    "property": ("tests/property", (("{python}", *PYTEST, "tests/property"),)),
    "scripts": ("tests/scripts", (("{python}", *PYTEST, "tests/scripts"),)),
    "contract": ("tests/contract", (("{python}", *PYTEST, "tests/contract"),)),
    "sim": ("tests/sim", (("{python}", "-m", "tests.sim"),)),
    "mutants": (
        "tests/mutants",
        (("{python}", "-m", "tests.mutants"), ("{python}", *PYTEST, "tests/mutants")),
    ),
    "fuzz": ("tests/fuzz", (("{python}", *PYTEST, "tests/fuzz"),)),
    "system": ("tests/system", (("{python}", *PYTEST, "tests/system"),)),
    "power": (
        "tests/system/power",
        (("{root}", "tests/system/power/cut.py", "50"), ("{root}", "tests/system/power/full.py")),
    ),
    "typing": ("tests/typing", (("{python}", "-m", "mypy", "--strict", "tests/typing"),)),
    "harness": ("tests/harness", (("{python}", *PYTEST, "tests/harness"),)),
}
# It needs the programs that `python3 -m tests.harness` installs, and says at the end which it had.
ON_REQUEST = ("harness",)
SECONDS_MAX = {"harness": 1_500}


class CannotRunError(Exception):
    """The suites cannot be run here; the text says in one sentence what to do."""


class Place(NamedTuple):
    """Where the suites run, and as whom.

    Attributes:
        folder: The run's own folder, removed at the end.
        checkout: The sources under test.
        venv: The environment whose `tieline` and `python` the suites use.
        user: The user and group number to run as; None is the caller's own.
    """

    folder: Path
    checkout: Path
    venv: Path
    user: int | None


def start(place: Place, command: list[str], folder: Path) -> "subprocess.Popen[bytes]":
    """Return `command` running in `folder`, as the user and with the environment of `place`."""
    # Root's own path may lead into folders that nobody else can enter.
    path = os.environ.get("PATH", SYSTEM_PATH) if place.user is None else SYSTEM_PATH
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    environment |= {
        "HOME": str(place.folder / "h"),
        "TMPDIR": str(place.folder / "t"),
        "XDG_RUNTIME_DIR": str(place.folder / "r"),
        "USER": "tieline-test",
        "LOGNAME": "tieline-test",
        "PATH": f"{place.venv / 'bin'}:{path}",
    }
    environment.setdefault("LANG", "C.UTF-8")
    if place.user is None:
        return subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
        )
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        user=place.user,
        group=place.user,
        extra_groups=[],
        umask=0o022,
    )


def run(place: Place, command: list[str], folder: Path, *, seconds: int | None = None) -> int:
    """Return the exit code of `command`, 124 when it did not end within `seconds` (`SUITE_SECONDS_MAX`).

    A harness that needs root, and drops it for what it tests, runs as whoever started this; where it
    says that it cannot (`SKIPPED`, with the reason printed), that is no failure.
    """
    if command[0] == AS_STARTED:
        # It mounts file systems; the journal that it tests runs as an ordinary user there.
        done = subprocess.run(
            [sys.executable, *command[1:]], cwd=CHECKOUT, stdin=subprocess.DEVNULL, check=False
        )
        return 0 if done.returncode == SKIPPED else done.returncode
    seconds = seconds or SUITE_SECONDS_MAX
    process = start(place, command, folder)
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        print(f"no end within {seconds} s: {' '.join(command)}", flush=True)
        return 124
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def run_twice(place: Place, command: list[str], *, seconds: int) -> tuple[int, list[str]]:
    """Return the exit code of a suite's command, and the tests that failed and then passed alone."""
    (place.checkout / FAILED_TESTS).unlink(missing_ok=True)
    code = run(place, command, place.checkout, seconds=seconds)
    if code != PYTEST_FAILED or "pytest" not in command:
        return code, []
    failed = sorted(json.loads((place.checkout / FAILED_TESTS).read_text()))
    if not 1 <= len(failed) <= AGAIN_MAX:
        return code, []
    print(f"once more, alone: {', '.join(failed)}", flush=True)
    interpreter, *_ = command
    # Every test has a limit of its own, and there are few of them.
    if run(place, [interpreter, *PYTEST, *failed], place.checkout, seconds=seconds) != 0:
        return code, []
    return 0, failed


# The copy that an ordinary user owns


def claim_user() -> tuple[int, Path]:
    """Return a user number that no account, process or other run has, and its folder.

    The folder is named after the number, so that making it is what claims the number.
    """
    for number in USER_NUMBERS:
        try:
            pwd.getpwuid(number)
        except KeyError:
            folder = Path(SHORT_FOLDER, f"tl-{number}")
            try:
                folder.mkdir(mode=0o700)
            except FileExistsError:
                continue
            if any(processes_of(number)):
                folder.rmdir()
                continue
            os.chown(folder, number, number)
            return number, folder
    raise CannotRunError(f"tests: no user number is free; remove old folders {SHORT_FOLDER}/tl-*")


def sources() -> list[Path]:
    """Return the files of the checkout that git tracks or would track, relative to it."""
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT,
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0:
        names = sorted({Path(os.fsdecode(name)) for name in listed.stdout.split(b"\0") if name})
        return [name for name in names if (CHECKOUT / name).is_symlink() or (CHECKOUT / name).is_file()]
    # An unpacked archive: everything but what setting up and running leave behind.
    found = (path.relative_to(CHECKOUT) for path in sorted(CHECKOUT.rglob("*")) if path.is_file())
    return [name for name in found if not {".venv", ".git", "__pycache__"} & set(name.parts)]


def copy_sources(target: Path) -> None:
    """Copy the checkout's sources into `target`."""
    for name in sources():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(CHECKOUT / name, target / name, follow_symlinks=False)


def give_away(folder: Path, user: int) -> None:
    """Make everything in `folder` belong to `user`."""
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.lchown(Path(parent, name), user, user)
    os.lchown(folder, user, user)


def packages_of(venv: Path) -> Path:
    """Return the folder in which `venv` keeps its packages."""
    (packages,) = (venv / "lib").glob("python3*/site-packages")
    return packages


def make_venv(place: Place) -> None:
    """Make an environment for the copied sources from the packages of the checkout's.

    It refers to those packages where the user can read them and copies them where not. Its
    commands are the checkout's, told to start its own interpreter.

    Raises:
        CannotRunError: The user cannot execute the interpreter.
    """
    given = CHECKOUT / ".venv"
    interpreter = (given / "bin" / "python").resolve()
    try:
        code = run(
            place, [str(interpreter), "-I", "-m", "venv", "--without-pip", str(place.venv)], place.folder
        )
    except PermissionError:
        code = 126
    if code != 0:
        raise CannotRunError(
            f"tests: an ordinary user cannot execute {interpreter}; install the system's own Python with its "
            "venv package (Debian, Ubuntu: apt-get install python3 python3-venv), then run make setup again"
        )
    packages = packages_of(place.venv)
    pointer = packages / "tieline-test.pth"
    pointer.write_text(f"{place.checkout / 'src'}\n{packages_of(given)}\n")
    readable = [
        str(place.venv / "bin" / "python"),
        "-c",
        "import apsw, msgspec, nacl, pytest",
    ]
    for readable_in_place in (True, False):
        if not readable_in_place:
            pointer.write_text(f"{place.checkout / 'src'}\n")
            ignore = shutil.ignore_patterns("*.pth", "pip")
            shutil.copytree(packages_of(given), packages, dirs_exist_ok=True, ignore=ignore)
            give_away(packages, place.user or 0)
        if run_quietly(place, readable, show=not readable_in_place) == 0:
            break
    else:
        raise CannotRunError("tests: the packages in .venv cannot be imported; remove .venv, run make setup")
    for command in (given / "bin").iterdir():
        copy_command(command, place.venv / "bin" / command.name)


def run_quietly(place: Place, command: list[str], *, show: bool) -> int:
    """Return the exit code of `command`; its errors are seen only with `show`."""
    if show:
        return run(place, command, place.folder)
    return run(place, ["/bin/sh", "-c", 'exec "$@" 2>/dev/null', "sh", *command], place.folder)


def copy_command(command: Path, target: Path) -> None:
    """Copy an installed command, so that a script starts the interpreter beside the copy."""
    if target.exists() or command.name.startswith(("activate", "Activate", "python", "pip")):
        return
    content = command.read_bytes()
    if content.startswith(b"#!") and b"python" in content.split(b"\n", 1)[0]:
        content = b"#!" + os.fsencode(target.parent / "python") + b"\n" + content.split(b"\n", 1)[1]
    target.write_bytes(content)
    target.chmod(0o755)


# Suites


def processes_of(user: int) -> Iterator[str]:
    """Yield "pid name" of every living process of `user`; nothing where there is no /proc."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = dict(
                line.split(":\t", 1) for line in (entry / "status").read_text().splitlines() if ":\t" in line
            )
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields["Uid"].split()[0] == str(user) and not fields["State"].startswith(("Z", "X")):
            yield f"{entry.name} {fields['Name']}"


def left_behind(place: Place) -> list[str]:
    """Return the processes of the run's user that a suite left, after they had time to end; end them."""
    if place.user is None:
        return []
    give_up = time.monotonic() + LEAVE_SECONDS_MAX
    while (left := list(processes_of(place.user))) and time.monotonic() < give_up:
        time.sleep(0.1)
    for process in left:
        # The number belongs to this run alone, so these are ours.
        os.kill(int(process.split()[0]), signal.SIGKILL)
    return left


def commands_of(suite: str, place: Place) -> list[list[str]]:
    """Return the commands of `suite`, ready to start."""
    _, commands = SUITES[suite]
    top = sorted(
        str(path.relative_to(place.checkout)) for path in (place.checkout / "tests").glob("test_*.py")
    )
    result = []
    for command in commands:
        words: list[str] = []
        for word in command:
            words += (
                top
                if word == "{top}"
                else [word.format(python=place.venv / "bin/python", bin=place.venv / "bin", root=AS_STARTED)]
            )
        result.append(words)
    # Whatever lies in tests/sim as a test runs with the simulator itself.
    if suite == "sim" and any((place.checkout / "tests/sim").rglob("test_*.py")):
        result.append([str(place.venv / "bin/python"), *PYTEST, "tests/sim"])
    return result


def run_suites(place: Place, names: list[str]) -> int:
    """Run the suites `names`, print what each took, and return 0 when all are green."""
    lines = []
    for name in names:
        print(f"\n--- suite {name}", flush=True)
        started = time.monotonic()
        seconds = SECONDS_MAX.get(name, SUITE_SECONDS_MAX)
        done = [run_twice(place, command, seconds=seconds) for command in commands_of(name, place)]
        left = left_behind(place)
        failed = any(code for code, _ in done) or bool(left)
        unsteady = [test for _, tests in done for test in tests]
        line = f"suite {name}: {time.monotonic() - started:.1f} s{', FAILED' if failed else ''}"
        if left:
            line += f", left processes behind: {', '.join(left)}"
        if unsteady:
            line += f", unsteady, passed when run alone: {', '.join(unsteady)}"
        print(line, flush=True)
        lines.append(line)
    print("\n" + "\n".join(lines), flush=True)
    return 1 if any("FAILED" in line for line in lines) else 0


def prepare() -> Place:
    """Return the place in which the suites run.

    Raises:
        CannotRunError: There is no .venv, or an ordinary user cannot use it.
    """
    if not (CHECKOUT / ".venv" / "bin" / "python").exists():
        raise CannotRunError("tests: there is no .venv; run make setup")
    if os.geteuid() != 0:
        folder = Path(tempfile.mkdtemp(prefix="tl-", dir=SHORT_FOLDER))
        place = Place(folder, CHECKOUT, CHECKOUT / ".venv", None)
    else:
        user, folder = claim_user()
        place = Place(folder, folder / "c", folder / "c" / ".venv", user)
    for name in ("h", "t", "r"):
        (folder / name).mkdir(mode=0o700)
    if place.user is not None:
        try:
            place.checkout.mkdir(mode=0o700)
            copy_sources(place.checkout)
            give_away(folder, place.user)
            make_venv(place)
        except BaseException:
            shutil.rmtree(folder)
            raise
    return place


def suites_of(arguments: list[str]) -> list[str]:
    """Return the suites that `arguments` name; none when they are for pytest.

    Raises:
        CannotRunError: Suites are mixed with something else, or one is not there.
    """
    asked = [name for name in arguments if name in SUITES]
    if asked and len(asked) != len(arguments):
        raise CannotRunError(f"tests: suites are {', '.join(SUITES)}; or name paths, not both")
    for name in asked:
        if not (CHECKOUT / SUITES[name][0]).is_dir():
            raise CannotRunError(f"tests: there is no {SUITES[name][0]}")
    if arguments:
        return asked
    return [
        name
        for name, (folder, _) in SUITES.items()
        if name not in ON_REQUEST and (CHECKOUT / folder).is_dir()
    ]


def main(arguments: list[str]) -> int:
    """Run what `arguments` name, and return the exit code: 0 green, 1 red, 2 cannot run."""
    # Who ends this run ends what it started: else that would go on, and hold the output open.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        suites = suites_of(arguments)
        place = prepare()
    except CannotRunError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        if suites:
            return run_suites(place, suites)
        code = run(place, [str(place.venv / "bin/python"), *PYTEST, *arguments], place.checkout)
        left = left_behind(place)
        if left:
            print(f"left processes behind: {', '.join(left)}")
        return code or bool(left)
    finally:
        left_behind(place)
        shutil.rmtree(place.folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
