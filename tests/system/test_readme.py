"""A first user types what README.md says, in two terminals, and sees what it promises."""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"
TIELINE = [sys.executable, "-m", "tieline.adapters.cli.main"]
SECONDS_MAX = 30


def blocks() -> list[list[str]]:
    """Return the commands of each block of shell text below "Start", without their comments."""
    section = README.read_text(encoding="utf-8").split("## Start", 1)[1].split("\n## ", 1)[0]
    found = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return [[line.split("  #")[0].strip() for line in block.splitlines() if line.strip()] for block in found]


def words_of(line: str) -> list[str]:
    """Return a `tieline` command as it is started here."""
    first, *rest = shlex.split(line)
    assert first == "tieline"
    return [*TIELINE, *rest]


@pytest.fixture
def first_terminal(private_home: Path) -> Iterator[Path]:
    """Run the block of the first terminal, in a shell of its own; gives the folder of both."""
    (line,) = next(block for block in blocks() if block[0].startswith("tieline attach"))
    workspace = private_home / "w"
    workspace.mkdir()
    # The shell stays, as a terminal's does: it is the host of the root, and no ancestor of this process's.
    terminal = subprocess.Popen(
        ["sh", "-c", shlex.join(words_of(line)) + "; :"],
        cwd=workspace, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert terminal.stdin is not None
    assert terminal.stdout is not None
    assert '"attached"' in terminal.stdout.readline()
    yield workspace
    terminal.stdin.close()
    assert terminal.wait(SECONDS_MAX) == 0
    terminal.stdout.close()


def test_start_as_the_readme_says_shows_a_message_and_its_receipt(first_terminal: Path) -> None:
    """Each line of the second terminal does what stands beside it."""
    (lines,) = [block for block in blocks() if block[0].startswith("tieline peers")]
    seen: dict[str, str] = {}
    deadline = time.monotonic() + SECONDS_MAX
    for line in lines:
        words = words_of(line)
        done = subprocess.run(
            words, cwd=first_terminal, capture_output=True, text=True, check=False, timeout=SECONDS_MAX
        )
        assert (done.returncode, time.monotonic() < deadline) == (0, True), done.stderr
        seen[words[len(TIELINE)]] = done.stdout
    assert ":api" in seen["peers"]
    assert "you are" not in seen["peers"]
    assert "stable storage" in seen["send"]
    assert "the schema has changed" in seen["inbox"]
    # The command's own root is gone with all that it left in common.
    home = Path(os.environ["TIELINE_HOME"])
    assert len(list((home / "active-agents").glob("*.json"))) == 1


def test_refused_commands_leave_nothing_behind(first_terminal: Path) -> None:
    """A misspelt alias costs a person no folder and no log."""
    home = Path(os.environ["TIELINE_HOME"])
    before = sorted(path.name for name in ("peer-messages", "logs") for path in (home / name).iterdir())
    for _ in range(2):
        done = subprocess.run(
            [*TIELINE, "send", ":apo", "x"], cwd=first_terminal, capture_output=True, text=True, check=False
        )
        assert (done.returncode, "UNKNOWN_TARGET" in done.stderr) == (4, True)
    after = sorted(path.name for name in ("peer-messages", "logs") for path in (home / name).iterdir())
    assert after == before


@pytest.mark.clause("O03")
def test_person_outside_every_agent_is_told_how_to_act_and_is_not_counted_as_one(
    first_terminal: Path,
) -> None:
    """`reply` and its like name the root of the directory; with its id the act is a person's, unlimited."""

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*TIELINE, *words], cwd=first_terminal, capture_output=True, text=True, check=False,
            timeout=SECONDS_MAX,
        )  # fmt: skip

    refused = command("inbox", "--consume")
    assert (refused.returncode, "one root works in this directory" in refused.stderr) == (4, True)
    (instance,) = re.findall(r"--instance ([0-9a-f-]{36})", refused.stderr)
    assert command("inbox", "--consume", "--instance", instance).returncode == 0
    script = (
        "import sys\n"
        "from tieline.runtime.client import Client\n"
        "from tieline.runtime.locate import find_root, places\n"
        "import os\n"
        "where = places(os.environ)\n"
        "found = find_root(where.home, where.coordination, environment={}, may_change=True,"
        " instance=sys.argv[1])\n"
        "assert not found.is_below_host\n"
        "own = Client(found.root.control).call('local.who')['peerId']\n"
        "with Client(found.root.control) as client:\n"
        "    for number in range(25):\n"
        "        answer = client.call('local.send', {'to': own, 'content': str(number), 'expiryMs': 60000})\n"
        "        code = answer['errors'][0]['code'] if answer['errors'] else 'sent'\n"
        "        print(code)\n"
        "        import time; time.sleep(0.11)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, instance], cwd=first_terminal, capture_output=True, text=True,
        check=False, timeout=SECONDS_MAX,
    )  # fmt: skip
    assert done.stdout.split() == ["sent"] * 25, done.stderr
