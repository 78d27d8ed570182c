"""`tieline acp` between an editor and an agent, as processes: what is passed on, added, held and told."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Self

import pytest

from tests.harness.neighbour import Neighbour

AGENT = Path(__file__).parent / "fake_acp_agent.py"
SECONDS_MAX = 20.0
MODEL_MARK = "external data"


class Editor:
    """A client of the protocol; use it by `with`."""

    def __init__(self, home: Path, **variables: str) -> None:
        self._home, self._variables = home, variables
        self.log = home / "agent.log"
        self.lines: list[bytes] = []
        self._news: SimpleQueue[dict[str, Any]] = SimpleQueue()

    def __enter__(self) -> Self:
        command = ["tieline", "acp", "--alias", "edited", "--scope", "machine", "--"]
        environment = {"TIELINE_HOME": str(self._home / "t"), **self._variables}
        path = os.environ["PATH"]
        self.process = subprocess.Popen(
            [*command, sys.executable, str(AGENT), str(self.log)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": path, "HOME": str(self._home), **environment},
            cwd=self._home,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(SECONDS_MAX) == 0
        self._thread.join(SECONDS_MAX)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            self._news.put(json.loads(line))

    def say(self, method: str, params: dict[str, Any], request_id: object = None) -> bytes:
        """Write one line; return it."""
        frame = {"jsonrpc": "2.0", "method": method, "params": params}
        line = (json.dumps(frame if request_id is None else {**frame, "id": request_id}) + "\n").encode()
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()
        return line

    def until(self, **members: Any) -> dict[str, Any]:
        """Return the next line that has these members."""
        give_up = time.monotonic() + SECONDS_MAX
        while time.monotonic() < give_up:
            try:
                frame = self._news.get(timeout=0.2)
            except Empty:
                continue
            if members.items() <= frame.items():
                return frame
        raise AssertionError(f"no {members} in {self.lines}")

    def began(self, **capabilities: Any) -> None:
        """Make a session."""
        self.say("initialize", {"protocolVersion": 1, "clientCapabilities": capabilities}, 0)
        self.until(id=0)
        self.say("session/new", {"cwd": str(self._home), "mcpServers": []}, 1)
        assert self.until(id=1)["result"] == {"sessionId": "acp-1"}

    def prompt(self, text: str, request_id: object) -> None:
        """Prompt the agent."""
        params = {"sessionId": "acp-1", "prompt": [{"type": "text", "text": text}]}
        self.say("session/prompt", params, request_id)

    def heard(self) -> list[dict[str, Any]]:
        """Return what the agent was told so far."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def prompts(self) -> list[str]:
        """Return the prompts that the agent was given so far."""
        return [
            one["params"]["prompt"][0]["text"] for one in self.heard() if one["method"] == "session/prompt"
        ]

    def until_prompted(self, count: int) -> str:
        """Return the last of so many prompts."""
        give_up = time.monotonic() + SECONDS_MAX
        while len(self.prompts()) < count:
            assert time.monotonic() < give_up, self.heard()
            time.sleep(0.05)
        return self.prompts()[count - 1]


def peer_of(neighbour: Neighbour) -> dict[str, Any]:
    """Return the one peer that the editor's session is."""
    give_up = time.monotonic() + SECONDS_MAX
    while not (found := [one for one in neighbour.peers() if one.get("sessionId") == "acp-1"]):
        assert time.monotonic() < give_up, neighbour.peers()
        time.sleep(0.05)
    assert len(found) == 1
    return found[0]


@pytest.fixture
def woken(private_home: Path) -> Iterator[Editor]:
    """Give an editor whose agent is woken."""
    with Editor(private_home, TIELINE_IDLE_BEHAVIOR="auto") as editor:
        yield editor


@pytest.fixture
def neighbour(private_home: Path) -> Iterator[Neighbour]:
    """Give a peer of a plain program."""
    with Neighbour(private_home / "t", private_home / "n", "reviewer") as root:
        yield root


def test_session_is_a_peer_whose_agent_has_the_tools_of_the_same_root(
    woken: Editor, neighbour: Neighbour
) -> None:
    """One peer, with the session's id; what its agent sends comes from it."""
    woken.began()
    peer = peer_of(neighbour)
    assert peer["alias"].startswith("edited")
    call = json.dumps(
        ["send_peer_message", {"to": "reviewer", "content": "from the agent", "scope": "machine"}]
    )
    woken.prompt(f"CALL {call}", 2)
    assert woken.until(id=2)["result"] == {"stopReason": "end_turn"}
    message = neighbour.next_message()
    assert (message.content, message.sender) == ("from the agent", peer["peerId"])
    new = next(one for one in woken.heard() if one["method"] == "session/new")
    assert [one["name"] for one in new["params"]["mcpServers"]] == ["tieline"]
    assert (neighbour.last(peer["peerId"]))["text"]


def test_idle_agent_is_woken_and_its_second_prompt_waits_for_the_end_of_ours(
    woken: Editor, neighbour: Neighbour
) -> None:
    """Mail begins a prompt of ours; the client sees its updates, not its answer; its own comes behind."""
    woken.began()
    sent = neighbour.send(peer_of(neighbour)["peerId"], "HOLD nothing. The build is red.")
    shown = woken.until_prompted(1)
    assert MODEL_MARK in shown
    assert "The build is red." in shown
    woken.until(method="session/update")
    give_up = time.monotonic() + SECONDS_MAX
    while "consumed" not in str(neighbour.status(sent["messageId"])):
        assert time.monotonic() < give_up
        time.sleep(0.05)
    woken.prompt("next", 7)
    assert woken.until(id=7)["result"] == {"stopReason": "end_turn"}
    assert woken.prompts()[1] == "next"
    assert not [line for line in woken.lines if b"tieline-" in line]


def test_busy_agent_is_not_prompted_before_its_turn_has_ended(woken: Editor, neighbour: Neighbour) -> None:
    """A second prompt would cancel this agent's turn, so mail waits for the end of the turn."""
    woken.began()
    woken.prompt("HOLD until told", 3)
    woken.until_prompted(1)
    neighbour.send(peer_of(neighbour)["peerId"], "Stop at the next step.")
    time.sleep(1)
    assert len(woken.prompts()) == 1
    woken.say("test/release", {})
    assert woken.until(id=3)["result"] == {"stopReason": "end_turn"}
    assert "Stop at the next step." in woken.until_prompted(2)


def test_cancelled_turn_begins_no_other(woken: Editor, neighbour: Neighbour) -> None:
    """After a cancel the agent rests until its person prompts; then the mail comes."""
    woken.began()
    woken.prompt("HOLD until told", 3)
    woken.until_prompted(1)
    neighbour.send(peer_of(neighbour)["peerId"], "Not now.")
    woken.say("session/cancel", {"sessionId": "acp-1"})
    assert woken.until(id=3)["result"] == {"stopReason": "cancelled"}
    time.sleep(1)
    assert len(woken.prompts()) == 1


@pytest.mark.clause("native-199", "native-200", "native-201", "native-3.6.16")
@pytest.mark.parametrize("told", [1, True, "1", 0, None])
def test_events_are_forwarded_after_negotiation_and_never_without(
    private_home: Path, neighbour: Neighbour, told: object
) -> None:
    """Only a whole number of 1 or more is a yes; without it not one byte differs."""
    meta = {} if told is None else {"_meta": {"tieline": {"peerEvents": told}}}
    with Editor(private_home) as editor:
        editor.began(**meta)
        neighbour.send(peer_of(neighbour)["peerId"], "hello")
        is_wanted = told == 1 and told is not True
        if is_wanted:
            event = editor.until(method="_tieline/peer_update")["params"]
            assert (event["sessionId"], event["version"], event["event"]["type"]) == ("acp-1", 1, "message")
            assert b'"tieline":{"peerEvents":1}' in editor.lines[0]
            editor.say("_tieline/peer_events", {"sessionId": "acp-1", "after": "0"}, 9)
            assert editor.until(id=9)["result"]["events"][0]["type"] == "message"
        else:
            time.sleep(1)
            assert b"tieline" not in b"".join(editor.lines)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_agent_ends_with_a_proxy_that_was_killed(private_home: Path, number: signal.Signals) -> None:
    """Also one that goes on without input, when the proxy could do nothing about it any more."""
    words = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    process = subprocess.Popen(
        ["tieline", "acp", "--", sys.executable, "-c", words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(private_home),
            "TIELINE_HOME": str(private_home / "t"),
        },
    )
    assert process.stdin is not None
    assert process.stdout is not None
    agent = int(process.stdout.readline())
    process.send_signal(number)
    assert process.wait(SECONDS_MAX) == (-number if number == signal.SIGKILL else 128 + number)
    give_up = time.monotonic() + SECONDS_MAX
    while is_running(agent):
        assert time.monotonic() < give_up
        time.sleep(0.05)
    process.stdin.close()
    process.stdout.close()


def is_running(pid: int) -> bool:
    """Return whether a process runs, and is no zombie that nobody waited for."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
