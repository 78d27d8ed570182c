"""Real agents of the Agent Client Protocol behind `tieline acp`: tools, wake, no second prompt, the end."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from tests.harness.model import Call, ModelServer, Say
from tests.harness.neighbour import Neighbour
from tests.harness.programs import Program
from tests.harness.shimmed import SECONDS_MAX, await_state, shimmed
from tests.harness.test_gemini import set_up

Opener = Callable[..., Program]

WORDS = {"gemini": ("-m", "gemini-2.5-flash", "--acp"), "opencode": ("acp",), "omp": ("acp",)}
NAMES = {"gemini": "gemini-cli", "opencode": "opencode", "omp": "oh-my-pi"}
KEEPS = ("session/load", "session/resume", "session/fork")
"""How an agent makes a session of one that it knows. Gemini CLI has but the first, and fails at it."""
END_SECONDS_MAX = 20.0


class Editor:
    """A client of the protocol that allows what it is asked for."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self._input, self._output = process, process.stdin, process.stdout
        self.frames: list[dict[str, Any]] = []
        self._answers: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self._output:
            frame = json.loads(line)
            self.frames.append(frame)
            if frame.get("method") == "session/request_permission":
                chosen = {"outcome": "selected", "optionId": frame["params"]["options"][0]["optionId"]}
                self._tell({"id": frame["id"], "result": {"outcome": chosen}})
            elif "method" not in frame:
                self._answers.put(frame)

    def _tell(self, frame: dict[str, Any]) -> None:
        self._input.write(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n")
        self._input.flush()

    def ask(self, number: int, method: str, **params: Any) -> None:
        """Write a request."""
        self._tell({"id": number, "method": method, "params": params})

    def answer(self, number: int) -> dict[str, Any]:
        """Return the result of a request; the answers come in the order of the requests."""
        try:
            frame = self._answers.get(timeout=SECONDS_MAX)
        except Empty:
            raise AssertionError(f"no answer to {number}: {self.frames}") from None
        assert frame["id"] == number
        found: dict[str, Any] = frame["result"]
        return found

    def prompt(self, number: int, session: str, text: str) -> None:
        """Prompt the agent."""
        self.ask(number, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])

    def leave(self) -> int:
        """Close the agent's input; return the exit code."""
        self._input.close()
        code = self.process.wait(END_SECONDS_MAX)
        self._thread.join(END_SECONDS_MAX)
        self._output.close()
        return code


@contextmanager
def edited(program: Program, harness: str) -> Iterator[tuple[Editor, str]]:
    """Give an editor with a session of the agent behind the proxy; the session is made without servers."""
    command = ["tieline", "acp", "--scope", "machine", "--", *program.command, *WORDS[harness]]
    told = {"TIELINE_HOME": str(program.place.shared), "TIELINE_IDLE_BEHAVIOR": "auto"}
    errors = (program.place.home / "errors").open("wb")
    process = subprocess.Popen(
        command,
        cwd=program.place.work,
        env={**program.environment(), **told, "PATH": os.environ["PATH"]},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
    )
    editor = Editor(process)
    try:
        editor.ask(0, "initialize", protocolVersion=1, clientCapabilities={})
        editor.answer(0)
        editor.ask(1, "session/new", cwd=str(program.place.work), mcpServers=[])
        yield editor, editor.answer(1)["sessionId"]
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(END_SECONDS_MAX)
        errors.close()
        print((program.place.home / "errors").read_text(errors="replace")[-2_000:])


def running(word: str) -> list[str]:
    """Return the processes whose environment or command names this folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            command = (place / "cmdline").read_bytes()
            if word.encode() in command + (place / "environ").read_bytes() and int(place.name) != os.getpid():
                found.append(command.replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


@pytest.mark.parametrize("harness", ["opencode", "omp"])
def test_session_that_is_loaded_resumed_or_forked_is_one_peer_with_the_tools(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path, harness: str
) -> None:
    """In a new process, and once more in the same: the peer bears the session's id, a fork one of its own."""
    program = open_program(harness, is_wired=False)
    model.script("BUSY-NOW", Call("list_peers"), Say("Listed them."))
    with Neighbour(shared, private_home / "n", "reviewer") as neighbour:
        with edited(program, harness) as (editor, session):
            editor.prompt(2, session, "Please BUSY-NOW")
            editor.answer(2)
            editor.leave()
        with edited(program, harness) as (editor, other):
            expected = {other}
            for number, method in enumerate(KEEPS, 10):
                editor.ask(number, method, sessionId=session, cwd=str(program.place.work), mcpServers=[])
                made = editor.answer(number).get("sessionId", session)
                assert (made != session) == (method == "session/fork")
                expected.add(made)
                model.script(f"AGAIN-{number}", Call("list_peers"), Say("Listed them."))
                editor.prompt(number + 10, made, f"Please AGAIN-{number}")
                editor.answer(number + 10)
                peers = neighbour.peers()
                assert sorted(one["sessionId"] for one in peers) == sorted(expected)
                (peer,) = [one for one in peers if one["sessionId"] == made]
                (*_, last) = [one.seen for one in model.requests if one.seen.count(f"AGAIN-{number}", "user")]
                assert peer["peerId"] in last.results()[-1]
                assert last.count("BUSY-NOW", "user") == 1, "the agent knows what was said before"
            editor.leave()


@pytest.mark.parametrize("harness", WORDS)
def test_agent_that_is_set_up_as_well_is_one_peer(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path, harness: str
) -> None:
    """Its plugin or its own server stands aside: one address, one set of tools, mail shown once."""
    program = open_program(harness, is_wired=False)
    (set_up if harness == "gemini" else shimmed)(program)
    model.script("BUSY-NOW", Call("list_peers"), Say("Listed them."))
    model.script("B-2002", Say("Read it."))
    with (
        Neighbour(shared, private_home / "n", "reviewer") as neighbour,
        edited(program, harness) as (editor, session),
    ):
        peer = neighbour.until_listed(program.place.work.name)
        editor.prompt(2, session, "Please BUSY-NOW")
        assert editor.answer(2)["stopReason"] == "end_turn"
        (told,) = [one for one in model.requests if one.seen.results()]
        assert peer["peerId"] in told.seen.results()[0]
        offered = [one.name for one in told.seen.tools if one.name.endswith("list_peers")]
        assert len(offered) == 1, offered
        sent = neighbour.send(peer["peerId"], "The build is red. B-2002")
        assert model.with_text("B-2002", SECONDS_MAX).seen.count("B-2002", "user") == 1
        await_state(neighbour, sent["messageId"], "consumed")
        assert [one["sessionId"] for one in neighbour.peers()] == [session]
        editor.leave()


@pytest.mark.parametrize("harness", WORDS)
def test_agent_has_our_tools_is_woken_and_never_prompted_twice(
    open_program: Opener, model: ModelServer, shared: Path, private_home: Path, harness: str
) -> None:
    """Mail for a busy agent comes in a prompt behind its turn; nothing is left when the editor leaves."""
    program = open_program(harness, is_wired=False)
    held = threading.Event()
    model.script("BUSY-NOW", Call("list_peers", {}, held), Say("Listed them."))
    model.script("B-2002", Say("Read it."))
    with (
        Neighbour(shared, private_home / "n", "reviewer") as neighbour,
        edited(program, harness) as (editor, session),
    ):
        peer = neighbour.until_listed(program.place.work.name)
        assert (peer["sessionId"], peer["harness"]) == (session, NAMES[harness])
        editor.prompt(2, session, "Please BUSY-NOW")
        model.with_text("BUSY-NOW", SECONDS_MAX)
        sent = neighbour.send(peer["peerId"], "The build is red. B-2002")
        time.sleep(1)
        held.set()
        assert editor.answer(2)["stopReason"] == "end_turn", "a second prompt would have cancelled it"
        request = model.with_text("B-2002", SECONDS_MAX)
        assert request.seen.count("B-2002", "user") == 1
        assert '"self"' in request.seen.results()[0].replace("\\", "")
        await_state(neighbour, sent["messageId"], "consumed")
        editor.prompt(3, session, "And now?")
        assert editor.answer(3)["stopReason"] == "end_turn"
        assert neighbour.last(peer["peerId"])["text"]
        home = str(program.place.home)
        assert running(home)
        editor.leave()
        give_up = time.monotonic() + END_SECONDS_MAX
        while left := running(home):
            assert time.monotonic() < give_up, left
            time.sleep(0.2)
