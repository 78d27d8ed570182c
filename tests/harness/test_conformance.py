"""The door of MCP in the protocol's own conformance suite, over a bridge of the tests.

The suite is for servers that bring fixtures: tools, resources and prompts with agreed names. What needs none
is run; every other scenario stands in `LEFT_OUT` with its reason, and one that the suite gains is noticed.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.harness.conftest import FOUND
from tests.harness.http_bridge import Bridge

SUITE = "mcp-conformance"
SECONDS_MAX = 60
STATUSES_TAKEN = {"SUCCESS", "INFO"}

# Scenario to what the suite must have asked the door for.
RUN = {
    "server-initialize": {"initialize", "notifications/initialized"},
    "ping": {"ping"},
    "tools-list": {"tools/list"},
    "server-sse-multiple-streams": {"tools/list"},
}
TOOL = "needs a tool of its own fixtures"
RESOURCE = "needs resources of its own fixtures; the door has none and says so"
PROMPT = "needs prompts of its own fixtures; the door has none and says so"
LEFT_OUT = {
    "dns-rebinding-protection": "is about an HTTP server; the door has none, the bridge is of the tests",
    "tools-call-simple-text": TOOL,
    "tools-call-image": TOOL,
    "tools-call-audio": TOOL,
    "tools-call-embedded-resource": TOOL,
    "tools-call-mixed-content": TOOL,
    "tools-call-with-logging": TOOL,
    "tools-call-error": TOOL,
    "tools-call-with-progress": TOOL,
    "tools-call-sampling": TOOL,
    "tools-call-elicitation": TOOL,
    "json-schema-2020-12": TOOL,
    "elicitation-sep1034-defaults": TOOL,
    "elicitation-sep1330-enums": TOOL,
    "server-sse-polling": TOOL,
    "resources-list": RESOURCE,
    "resources-read-text": RESOURCE,
    "resources-read-binary": RESOURCE,
    "resources-templates-read": RESOURCE,
    "resources-subscribe": RESOURCE,
    "resources-unsubscribe": RESOURCE,
    "prompts-list": PROMPT,
    "prompts-get-simple": PROMPT,
    "prompts-get-with-args": PROMPT,
    "prompts-get-embedded-resource": PROMPT,
    "prompts-get-with-image": PROMPT,
    "logging-set-level": "the door writes no log to its host and offers no level",
    "completion-complete": "there is nothing to complete: no prompts, no resource templates",
}

pytestmark = pytest.mark.harness(SUITE)


def suite(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Return how a command of the suite ended."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "NO_PROXY": "127.0.0.1,localhost"}
    return subprocess.run(
        [*FOUND[SUITE].command, *words],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def door(shared: Path) -> tuple[list[str], Mapping[str, str]]:
    """Return the door's command and environment."""
    tieline = shutil.which("tieline")
    assert tieline is not None
    return [tieline, "mcp"], {"PATH": os.environ["PATH"], "HOME": str(shared), "TIELINE_HOME": str(shared)}


def test_every_scenario_is_run_or_left_out_for_a_reason(private_home: Path) -> None:
    """A new version of the suite cannot bring a scenario that nobody looks at."""
    listed = suite(private_home, "list", "--server").stdout
    names = set(re.findall(r"^  - ([a-z0-9-]+) ", listed, re.MULTILINE))
    assert names == RUN.keys() | LEFT_OUT.keys(), listed
    assert not RUN.keys() & LEFT_OUT.keys()


@pytest.mark.parametrize("scenario", RUN)
def test_scenario_without_fixtures_holds(private_home: Path, shared: Path, scenario: str) -> None:
    """The suite finds no fault, it did talk to the door, and every door ended orderly."""
    results = private_home / "r"
    with Bridge(door(shared)[0], private_home, door(shared)[1]) as bridge:
        ended = suite(
            private_home, "server", "--url", bridge.url, "--scenario", scenario, "--output-dir", str(results)
        )
        methods = set(bridge.methods)
    told = ended.stdout + ended.stderr
    assert ended.returncode == 0, told
    checks: list[dict[str, Any]] = [
        one for file in results.rglob("checks.json") for one in json.loads(file.read_text())
    ]
    assert checks, told
    assert {one["status"] for one in checks} <= STATUSES_TAKEN, checks
    assert methods >= RUN[scenario], methods
    assert bridge.codes
    assert set(bridge.codes) == {0}
