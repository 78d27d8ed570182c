"""Sessions whose harness loads our own program: put in as `setup` does, with a home of the tests.

Source: docs/harnesses/pi.md, docs/harnesses/opencode.md; adapters/harness/facts.py.
"""

import json
import os
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

from tests.harness.neighbour import Neighbour
from tests.harness.programs import Program
from tieline.adapters.harness.facts import COMMAND_LINE, SHIMS

__all__ = [
    "SECONDS_MAX",
    "Other",
    "attached",
    "await_peer",
    "await_run",
    "await_state",
    "own_peers",
    "shimmed",
    "state_of",
]

SECONDS_MAX = 60.0
LOOK_SECONDS = 0.1
FOLDERS = {
    "pi": "agent/extensions",
    "omp": "agent/extensions",
    "opencode": ".config/opencode/plugins",
}


class Other:
    """Equal to every value but one, for `await_peer`."""

    def __init__(self, value: str | None) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return other != self._value

    def __hash__(self) -> int:
        return hash(self._value)


def attached(program: Program) -> int:
    """Return the pid of the root that serves the program's session.

    Raises:
        AssertionError: there is not exactly one.
    """
    found = []
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"attach" in words and os.fsencode(program.place.work) in words:
            found.append(int(folder.name))
    assert len(found) == 1, found
    return found[0]


def shimmed(program: Program, **variables: str) -> Program:
    """Return the program with our shim in its folder; its roots have these variables, and the tests' own."""
    server = program.mcp_server()
    given = {**server["env"], "TIELINE_SCOPE": "machine", **variables}
    words = ["env", *(f"{name}={value}" for name, value in given.items()), server["command"]]
    text = files("tieline").joinpath(SHIMS[program.name]).read_text()
    assert COMMAND_LINE in text
    path = program.place.home / FOLDERS[program.name] / "tieline.js"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.replace(COMMAND_LINE, f"const TIELINE = {json.dumps(words)};"))
    return program


def await_peer(neighbour: Neighbour, work: Path, **members: Any) -> dict[str, Any]:
    """Return the entry of the session that works in `work`, once the neighbour sees it with these members."""
    give_up = time.monotonic() + SECONDS_MAX
    while time.monotonic() < give_up:
        for peer in neighbour.peers():
            if peer.get("project") == work.name and all(
                peer.get(name) == one for name, one in members.items()
            ):
                return peer
        time.sleep(LOOK_SECONDS)
    raise AssertionError(f"no such peer: {neighbour.peers()}")


def await_run(neighbour: Neighbour, work: Path) -> dict[str, Any]:
    """Return the entry of a run of the session that works in `work`, once the neighbour sees it."""
    return await_peer(neighbour, work, runId=Other(None))


def own_peers(neighbour: Neighbour) -> list[str]:
    """Return the peer ids of what works in the program's folder."""
    return [one["peerId"] for one in neighbour.peers() if one.get("project") == "one"]


def await_state(neighbour: Neighbour, message_id: str, state: str) -> None:
    """Wait until the sender was told that its message is in this state."""
    give_up = time.monotonic() + SECONDS_MAX
    seen: Any = None
    while time.monotonic() < give_up:
        seen = neighbour.status(message_id)
        if f"'state': '{state}'" in str(seen):
            return
        time.sleep(LOOK_SECONDS)
    raise AssertionError(f"never {state}: {seen}")


def state_of(neighbour: Neighbour, receipt: dict[str, Any]) -> str:
    """Return what the sender knows now of a message that it sent."""
    state: str = neighbour.status(receipt["messageId"])["sent"][0]["receipt"]["state"]
    return state
