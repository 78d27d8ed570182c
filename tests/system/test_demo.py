"""The demo as a person runs it: a story that holds, and nothing left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "tieline.adapters.cli.main", "demo"]
SHORT = Path("/tmp")


def folders() -> set[str]:
    """Return the demo folders of this user that exist now."""
    return {path.name for path in SHORT.glob("tieline-demo-*") if path.stat().st_uid == os.getuid()}


def processes_in(folder: str) -> list[str]:
    """Return the processes of this user whose command line names a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if folder.encode() in words:
            found.append(words.replace(b"\0", b" ").decode())
    return found


@pytest.mark.clause("native-182", "native-69", "native-107")
def test_demo_run_tells_the_story_and_leaves_nothing() -> None:
    """Every step holds, the lost agent's message comes back under its id, and nothing stays."""
    before, begun = folders(), time.monotonic()
    done = subprocess.run(COMMAND, capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - begun < 30  # 10 s are promised for a machine that does nothing else
    lines = done.stdout.splitlines()
    assert 25 <= len(lines) <= 45
    assert max(map(len, lines)) <= 120
    for number in range(1, 6):
        assert any(line.startswith(f"{number}  ") for line in lines)
    assert lines[-1].startswith("4 processes were started, 0 are left; the folder is gone")
    assert folders() == before


def test_demo_facts_agree_with_each_other() -> None:
    """The JSON facts are versioned, and what was recovered is what had been accepted."""
    done = subprocess.run([*COMMAND, "--json"], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["version"], facts["command"], facts["ok"]) == (1, "demo", True)
    accepted = facts["death"]["receipt"]
    assert (accepted["state"], accepted["durability"]) == ("accepted", "synced")
    assert [item["messageId"] for item in facts["recovery"]["messages"]] == [accepted["messageId"]]
    states = [move["state"] for move in facts["question"]["history"] if move["state"] != "unknown"]
    assert states == ["pending", "accepted", "consumed", "replied"]
    times = [move["at"] for move in facts["question"]["history"]]
    assert times == sorted(times)
    assert len({agent["pid"] for agent in facts["agents"]}) == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_demo_interrupted_midway_leaves_nothing(number: signal.Signals) -> None:
    """Ctrl-C, or a kill in order, ends every process and removes the folder."""
    process = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    folder = process.stdout.readline().partition("private folder, ")[2].split(" ")[0]
    assert folder
    assert processes_in(folder)
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == (130 if number == signal.SIGINT else 128 + number)
    assert not os.path.exists(folder)
    assert processes_in(folder) == []
