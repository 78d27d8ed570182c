"""`tieline demo`: three agents in three processes find each other, talk, and one of them dies.

Rule 1: every fact that is printed came from an answer or a store in this run; what a step says is
checked before it is said, and the first that does not hold ends the demo with its name.
Rule 2: it works in a private folder of its own, and reaches no root but those that it started.
Rule 3: it ends only processes that it started, all of them, also on Ctrl-C; then the folder goes.
Rule 4: the agents are reached through the doors that everybody has: MCP and `attach` over stdio, the
control endpoint, the command line.

Source: DESIGN.md 3, 4, 5; reference/native.md 1Q (182 to 185), 2.8.
"""

import argparse
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn, Self

from tieline.runtime.client import Client
from tieline.runtime.locate import survey
from tieline.text.terminal import printable

__all__ = ["STEPS", "Agent", "McpAgent", "Stage", "StepFailed", "main", "parser", "without_settings"]

VERSION: Final = 1
"""Of the JSON shape."""
ANSWER_S: Final = 5.0
START_S: Final = 8.0
END_S: Final = 3.0
LINE_BYTES_MAX: Final = 8 * 1024 * 1024
COLUMNS_MAX: Final = 100
SHORT_FOLDER: Final = "/tmp"  # noqa: S108 - mkdtemp makes a 0700 folder in it; a socket's path has 107 bytes
TIELINE: Final = (sys.executable, "-m", "tieline.adapters.cli.main")

TASK = "The parser is in src/parser. Please write its tests."
QUESTION = "May builder touch the lock file?"
ANSWER = "Yes, once the release is tagged."
LAST_TASK = "Run the whole suite before you go."


class StepFailed(Exception):
    """A step is not what it says; the text is for a person."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of `tieline demo`, with its full help."""
    made = argparse.ArgumentParser(
        prog="tieline demo",
        description="Start three agents in three processes and show them at work: who is there, a message, a "
        "question and its reply, a kill -9 right after a message was accepted, and its recovery. All of it "
        "happens in a private folder, which is removed at the end.",
        epilog="Exit codes: 0 every step was as it says; 1 one was not, and is named; 130 interrupted.",
        allow_abbrev=False,
    )
    made.add_argument("--json", action="store_true", help="print the facts as one JSON object")
    made.add_argument("--keep", action="store_true", help="keep the folder, to look into it afterwards")
    return made


def without_settings(environment: dict[str, str]) -> dict[str, str]:
    """Return the variables without those that configure or identify a root of the caller's."""
    names = ("CLAUDE_CODE_SESSION_ID", "CODEX_THREAD_ID", "GEMINI_SESSION_ID", "PI_SESSION_ID")
    return {
        name: text
        for name, text in environment.items()
        if not name.startswith("TIELINE_") and name not in names
    }


class Interrupts:
    """Ctrl-C and its like end the demo in order; between a start and its entry in the list they wait."""

    def __init__(self) -> None:
        self._is_held = False
        self._waiting = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._come)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _come(self, number: int, _frame: object) -> None:
        if self._is_held:
            self._waiting = number
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
        else:
            raise SystemExit(128 + number)

    def hold(self) -> None:
        """From here on nothing interrupts any more: what was started is being ended."""
        self._is_held = True

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let an interrupt wait until the end of the block."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self._waiting:
            self._come(self._waiting, None)


class Agent:
    """One agent's process, whose root is reached by lines of JSON-RPC on its standard streams."""

    door = "tieline attach"

    def __init__(self, name: str, words: Sequence[str], environment: dict[str, str], folder: str) -> None:
        self.name = name
        self.instance = ""
        self._errors_path = os.path.join(folder, f"{name}.stderr")
        with open(self._errors_path, "ab") as errors:
            self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and our own words
                [*TIELINE, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                start_new_session=True,  # a terminal's Ctrl-C reaches us alone, and we end it in order
            )
        self._rest = bytearray()
        self._last_number = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._told: list[dict[str, Any]] = []

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def start(self) -> None:
        """Return when its root is open and its instance is known."""
        self.instance = str(self.told("attached", lambda _params: True, START_S)["instanceId"])

    def begin(self, method: str, params: dict[str, Any]) -> int:
        """Send a request; return its number for `finish`."""
        self._last_number += 1
        self._put({"jsonrpc": "2.0", "id": self._last_number, "method": method, "params": params})
        return self._last_number

    def finish(self, number: int, timeout_s: float = ANSWER_S) -> dict[str, Any]:
        """Return the result of a request that was begun.

        Raises:
            StepFailed: it was refused, or no answer came in time.
        """
        deadline = time.monotonic() + timeout_s
        while number not in self._answers:
            self._read(deadline)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise StepFailed(f"{self.name} was refused: {shown(answer['error'].get('message'))}")
        result: dict[str, Any] = answer["result"]
        return result

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the result of one request."""
        return self.finish(self.begin(method, params))

    def told(
        self, method: str, fits: Callable[[dict[str, Any]], bool], timeout_s: float = ANSWER_S
    ) -> dict[str, Any]:
        """Return the params of the first notification of that kind that fits; it is told once."""
        deadline = time.monotonic() + timeout_s
        while True:
            for place, item in enumerate(self._told):
                params: dict[str, Any] = item.get("params", {})
                if item["method"] == method and fits(params):
                    del self._told[place]
                    return params
            self._read(deadline)

    def kill(self) -> int:
        """End it as `kill -9` does; return its exit status, minus the signal's number."""
        self.process.kill()
        return self.process.wait(END_S)

    def end(self) -> int:
        """Let it end in order, or end it; return its exit status."""
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    continue  # it went away with a line unread; it ends by itself
        for harder in (None, self.process.terminate, self.process.kill):
            if harder is not None:
                harder()
            try:
                return self.process.wait(END_S)
            except subprocess.TimeoutExpired:
                continue
        return self.process.wait()

    def last_words(self) -> str:
        """Return the last line of what it wrote to standard error, "" when there is none."""
        with open(self._errors_path, encoding="utf-8", errors="replace") as file:
            return (file.read().strip().splitlines() or [""])[-1]

    def _put(self, frame: dict[str, Any]) -> None:
        assert self.process.stdin is not None, "it was started with a pipe"
        try:
            self.process.stdin.write(json.dumps(frame).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            self._gone()

    def _gone(self) -> NoReturn:
        words = self.last_words()
        raise StepFailed(f"{self.name} ended by itself" + (f": {shown(words)}" if words else ""))

    def _read(self, deadline: float) -> None:
        """Take in what it wrote; wait for some until `deadline`."""
        assert self.process.stdout is not None, "it was started with a pipe"
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not select.select([self.process.stdout], [], [], left_s)[0]:
            raise StepFailed(f"{self.name} did not answer in time")
        data = os.read(self.process.stdout.fileno(), 65_536)
        if not data or len(self._rest) > LINE_BYTES_MAX:
            self._gone()
        self._rest += data
        *lines, rest = self._rest.split(b"\n")
        self._rest = bytearray(rest)
        for line in lines:
            frame = json.loads(line)
            if "method" in frame:
                self._told.append(frame)
            else:
                self._answers[frame["id"]] = frame


class McpAgent(Agent):
    """An agent whose harness speaks MCP, as most coding agents do."""

    door = "tieline mcp"

    def start(self) -> None:
        """Say the opening of MCP, and ask the root who it is."""
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "demo", "version": "1"},
        }
        super().finish(super().begin("initialize", params), START_S)
        self._put({"jsonrpc": "2.0", "method": "notifications/initialized"})
        listed = super().finish(super().begin("tools/list", {}))
        if "send_peer_message" not in {tool["name"] for tool in listed["tools"]}:
            raise StepFailed("the MCP door does not offer send_peer_message")
        self.instance = str(self.finish(self.begin("list_peers", {}), START_S)["self"]["instanceId"])

    def begin(self, method: str, params: dict[str, Any]) -> int:
        """Call a tool; return its number for `finish`."""
        return super().begin("tools/call", {"name": method, "arguments": params})

    def finish(self, number: int, timeout_s: float = ANSWER_S) -> dict[str, Any]:
        """Return what the tool answered, as structured content."""
        result = super().finish(number, timeout_s)
        content: dict[str, Any] = result["structuredContent"]
        if result.get("isError"):
            raise StepFailed(f"{self.name}'s tool call failed: {shown(content.get('text'))}")
        return content


class Stage:
    """Where the demo happens: its folder, its agents, and what has been told so far."""

    def __init__(self, folder: str, interrupts: Interrupts, *, is_silent: bool) -> None:
        self.folder = folder
        self.agents: dict[str, Agent] = {}
        self.started: list[Agent] = []
        self.facts: dict[str, Any] = {}
        self.workspace = os.path.join(folder, "project")
        os.mkdir(self.workspace, 0o700)
        self.environment = {
            **without_settings(dict(os.environ)),
            "TIELINE_HOME": folder,
            "TIELINE_COORDINATION_DIRECTORY": folder,
        }
        self._interrupts = interrupts
        self._is_silent = is_silent

    def begin_agent(self, name: str, kind: type[Agent] = Agent) -> None:
        """Start an agent's process; it takes the place of an earlier one of that name."""
        word = kind.door.split()[-1]
        words = [word, "--alias", name, "--workspace", self.workspace, "--scope", "workspace"]
        with self._interrupts.held():
            agent = kind(name, words, self.environment, self.folder)
            self.started.append(agent)
            self.agents[name] = agent

    def say(self, text: str = "") -> None:
        """Put a line of the story on standard output."""
        if not self._is_silent:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()

    def status(self, name: str, message_id: str, *states: str) -> list[tuple[str, str]]:
        """Return (state, time) of a sent message from the sender's store, once `states` are all there.

        Raises:
            StepFailed: they were not within `ANSWER_S`.
        """
        roots = {root.instance: root for root in survey(self.folder).roots}
        deadline = time.monotonic() + ANSWER_S
        with Client(roots[self.agents[name].instance].control) as client:
            while True:
                sent = client.call("local.status", {"messageId": message_id})["sent"]
                moves = [(str(move["state"]), str(move["at"])) for move in sent[0]["history"]]
                found = [state for state, _ in moves if state != "unknown"]
                if found == list(states):
                    return moves
                if time.monotonic() > deadline:
                    raise StepFailed(f"{name}'s store says {', '.join(found)}, not {', '.join(states)}")
                time.sleep(0.01)

    def end(self) -> None:
        """End every process that was started and has not ended."""
        for agent in self.started:
            if agent.process.stdin is not None:
                try:
                    agent.process.stdin.close()  # all of them first: they end side by side
                except OSError:
                    continue
        for agent in self.started:
            agent.end()


def require(is_so: bool, text: str) -> None:  # noqa: FBT001 - it reads as a sentence: require(this, "else that")
    """Raise `StepFailed` with `text` unless it is so."""
    if not is_so:
        raise StepFailed(text)


def shown(text: object) -> str:
    """Return any text as one line that a terminal may show."""
    return printable(" ".join(str(text).split()), COLUMNS_MAX)


def columns(rows: Sequence[Sequence[str]], indent: str = "   ") -> str:
    """Return rows of equal length as aligned columns."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(indent + line.rstrip() for line in lines)


def elapsed_ms(begun: float) -> float:
    """Return milliseconds since `begun`, with one digit behind the point."""
    return round((time.monotonic() - begun) * 1000, 1)


def day_time(moment: str) -> str:
    """Return the time of day, in UTC, of a moment as the stores tell it."""
    return moment[11:23]


# --- the steps ------------------------------------------------------------------------------------


def start(stage: Stage) -> None:
    """Three processes, each with a root of its own."""
    begun = time.monotonic()
    stage.begin_agent("planner", McpAgent)
    stage.begin_agent("builder")
    stage.begin_agent("reviewer")
    for agent in stage.started:
        agent.start()
    require(len({agent.instance for agent in stage.started}) == 3, "two roots have one instance id")
    took_ms = elapsed_ms(begun)
    rows = [("agent", "door", "process", "instance")]
    rows += [(agent.name, agent.door, str(agent.pid), agent.instance) for agent in stage.started]
    stage.say(f"Three agents, three processes, one private folder, {stage.folder}  ({took_ms} ms)")
    stage.say(columns(rows))
    stage.facts["agents"] = [
        {"alias": agent.name, "door": agent.door, "pid": agent.pid, "instanceId": agent.instance}
        for agent in stage.started
    ]


def discovery(stage: Stage) -> None:
    """Each of them lists the two others."""
    rows, facts = [], {}
    for name, agent in stage.agents.items():
        others = {other.instance: other.name for other in stage.agents.values() if other is not agent}
        deadline = time.monotonic() + ANSWER_S
        while True:
            peers = agent.call("list_peers", {})["peers"]
            found = {str(peer["instanceId"]): str(peer["alias"]) for peer in peers}
            if found == others or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        require(found == others, f"{name} lists {len(found)} peers, and not the two others")
        words = [f":{shown(peer['alias'])} {peer['availability']}" for peer in peers]
        rows.append((f":{name} sees", *sorted(words)))
        facts[name] = sorted(found.values())
    stage.say("\n1  Who is there (list_peers, asked of each root)")
    stage.say(columns(rows))
    stage.facts["discovery"] = facts


def read_mail(agent: Agent, message_id: str, content: str) -> dict[str, Any]:
    """Let an agent's model read one message at a safe boundary; return what the door gave its host."""
    agent.told("peer_update", lambda params: params.get("event", {}).get("messageId") == message_id)
    given = agent.call("host.boundary", {"kind": "turn_end"})
    require(given["messageIds"] == [message_id], f"{agent.name} was given other mail")
    require(content in given["text"], f"{agent.name} was given another text")
    taken = agent.call("host.taken", {"token": given["token"]})
    require(taken["consumed"] == 1, f"{agent.name}'s root does not record the message as consumed")
    return given


def message(stage: Stage) -> None:
    """A message is accepted, read, and its sender knows both."""
    planner, builder = stage.agents["planner"], stage.agents["builder"]
    begun = time.monotonic()
    receipt = planner.call("send_peer_message", {"to": "builder", "content": TASK})
    took_ms = elapsed_ms(begun)
    require(receipt["state"] == "accepted", f"the receipt says {receipt['state']}")
    require(receipt.get("durability") == "synced", "the receipt does not state synced storage")
    read_mail(builder, receipt["messageId"], TASK)
    moves = stage.status("planner", receipt["messageId"], "pending", "accepted", "consumed")
    stage.say("\n2  A message: planner to builder, by the MCP tool send_peer_message")
    rows = [
        ("text", shown(TASK)),
        ("id", shown(receipt["messageId"])),
        ("receipt", f"{receipt['state']}, {receipt['durability']}  ({took_ms} ms after the call)"),
        ("store", "  ".join(f"{state} {day_time(at)}" for state, at in moves) + "  (planner's, UTC)"),
    ]
    stage.say(columns(rows))
    stage.facts["message"] = {"receipt": receipt, "tookMs": took_ms, "history": _history(moves)}


def question(stage: Stage) -> None:
    """A question waits for its reply; its history has four states."""
    planner, reviewer = stage.agents["planner"], stage.agents["reviewer"]
    asked = planner.call("send_peer_message", {"to": "reviewer", "content": QUESTION, "topic": "question"})
    message_id = asked["messageId"]
    waiting = planner.begin("peer_messages", {"replyTo": message_id, "waitMs": int(ANSWER_S * 1000)})
    read_mail(reviewer, message_id, QUESTION)
    answered = reviewer.call(
        "send_peer_message", {"to": asked["from"], "content": ANSWER, "replyTo": message_id}
    )
    replies = planner.finish(waiting, ANSWER_S + 1)["messages"]
    require(len(replies) == 1, f"{len(replies)} replies came, not one")
    reply = replies[0]
    require(reply["messageId"] == answered["messageId"], "the reply has another id than it was sent with")
    require((reply["content"], reply.get("replyTo")) == (ANSWER, message_id), "it is not the reply")
    require(reply["authority"] == "external", "a peer's text is not marked as external")
    moves = stage.status("planner", message_id, "pending", "accepted", "consumed", "replied")
    stage.say("\n3  A question and its reply: planner waits (peer_messages) while reviewer answers")
    rows = [
        ("question", shown(QUESTION), shown(message_id)),
        ("reply", shown(reply["content"]), shown(reply["messageId"])),
        *((state, day_time(at), "UTC, planner's store") for state, at in moves),
    ]
    stage.say(columns(rows))
    stage.facts["question"] = {"receipt": asked, "reply": reply, "history": _history(moves)}


def death(stage: Stage) -> None:
    """The recipient dies right after it accepted, and comes back as somebody new."""
    planner, builder = stage.agents["planner"], stage.agents["builder"]
    receipt = planner.call("send_peer_message", {"to": "builder", "content": LAST_TASK})
    begun = time.monotonic()
    status = builder.kill()
    took_ms = elapsed_ms(begun)
    require(receipt["state"] == "accepted", f"the receipt says {receipt['state']}")
    require(status == -signal.SIGKILL, f"the process ended with {status}, not by signal 9")
    stage.begin_agent("builder")
    fresh = stage.agents["builder"]
    fresh.start()
    require(fresh.instance != builder.instance, "the new process took the old one's instance id")
    inbox = fresh.call("local.inbox", {})["messages"]
    require(inbox == [], "the new instance has mail that was not sent to it")
    stage.say("\n4  kill -9 right after a message was accepted, then a restart")
    rows = [
        ("text", shown(LAST_TASK)),
        ("id", shown(receipt["messageId"])),
        ("receipt", f"{receipt['state']}, {receipt.get('durability')}"),
        ("kill -9", f"process {builder.pid} of builder ended by signal {-status} within {took_ms} ms"),
        ("restart", f"process {fresh.pid}, instance {fresh.instance}, {len(inbox)} messages"),
    ]
    stage.say(columns(rows))
    stage.facts["death"] = {
        "receipt": receipt,
        "endedInstanceId": builder.instance,
        "exitStatus": status,
        "newInstanceId": fresh.instance,
    }


def recovery(stage: Stage) -> None:
    """The dead instance's mail is there, unread, under its own id."""
    death_facts = stage.facts["death"]
    wanted, instance = death_facts["receipt"]["messageId"], death_facts["endedInstanceId"]
    done = subprocess.run(  # noqa: S603 - our own interpreter and our own words
        [*TIELINE, "recover", instance, "--json"],
        env=stage.environment,
        capture_output=True,
        timeout=START_S,
        check=False,
    )
    require(done.returncode == 0, f"tieline recover failed: {shown(done.stderr.decode(errors='replace'))}")
    found = json.loads(done.stdout)["messages"]
    require([item["messageId"] for item in found] == [wanted], f"{len(found)} messages, not the one lost")
    require(found[0].get("content") == LAST_TASK, "its text is another one")
    moves = stage.status("planner", wanted, "pending", "accepted")
    stage.say(f"\n5  tieline recover {instance}")
    rows = [
        ("unread", str(len(found))),
        ("id", f"{shown(found[0]['messageId'])}  (the id that planner was given)"),
        ("text", shown(found[0]["content"])),
        ("planner", f"its store still says {moves[-1][0]}: kept, and not read by anybody"),
    ]
    stage.say(columns(rows))
    stage.facts["recovery"] = {"instanceId": instance, "messages": found, "history": _history(moves)}


def _history(moves: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"state": state, "at": at} for state, at in moves]


STEPS: Final[tuple[tuple[str, Callable[[Stage], None]], ...]] = (
    ("start", start),
    ("discovery", discovery),
    ("message", message),
    ("question", question),
    ("death", death),
    ("recovery", recovery),
)
"""The story, in order; a step that raises ends it."""


# --- the run --------------------------------------------------------------------------------------


def main(argv: list[str]) -> int:
    """Run the demo and print it.

    Args:
        argv: The words after `tieline demo`.

    Returns:
        0 when every step was as it says; 1 when one was not, named on standard error.
    """
    given = parser().parse_args(argv)
    begun = time.monotonic()
    failure = ""
    with Interrupts() as interrupts:
        folder, stage = "", None
        try:
            with interrupts.held():
                folder = tempfile.mkdtemp(prefix="tieline-demo-", dir=_short_folder())
            stage = Stage(folder, interrupts, is_silent=given.json)
            failure = _play(stage)
        finally:
            interrupts.hold()
            if stage is not None:
                stage.end()
            if folder and not given.keep:
                shutil.rmtree(folder, ignore_errors=True)
    failure = failure or _end(stage, folder, is_kept=given.keep, took_s=time.monotonic() - begun)
    if given.json:
        body = {"version": VERSION, "command": "demo", "ok": not failure, "failure": failure or None}
        sys.stdout.write(json.dumps({**body, **stage.facts}) + "\n")
    if failure:
        sys.stderr.write(f"tieline demo: {failure}\n")
    return 1 if failure else 0


def _short_folder() -> str | None:
    return SHORT_FOLDER if os.access(SHORT_FOLDER, os.W_OK | os.X_OK) else None


def _play(stage: Stage) -> str:
    """Play the steps; return "" or which one failed and why."""
    for number, (name, step) in enumerate(STEPS):
        try:
            step(stage)
        except StepFailed as error:
            return f"step {number} ({name}): {error}"
        except BrokenPipeError:
            raise  # nobody reads the story any more
        except (LookupError, TypeError, ValueError, OSError, subprocess.TimeoutExpired) as error:
            what = f"{type(error).__name__}: {shown(error)}"
            return f"step {number} ({name}): an answer is not what it should be: {what}"
    return ""


def _end(stage: Stage, folder: str, *, is_kept: bool, took_s: float) -> str:
    """Tell what is left, as it was looked up; return "" or what should not be there."""
    left = [agent.pid for agent in stage.started if agent.process.poll() is None]
    is_there = os.path.exists(folder)
    stage.facts["end"] = {
        "processesStarted": len(stage.started),
        "processesLeft": len(left),
        "folderLeft": is_there,
        "tookS": round(took_s, 2),
    }
    if left or is_there != is_kept:
        return f"the end: {len(left)} processes are left; {folder} is {'left' if is_there else 'gone'}"
    where = f"the folder is kept: {folder}" if is_there else "the folder is gone"
    stage.say(
        f"\n{len(stage.started)} processes were started, {len(left)} are left; {where}  ({took_s:.1f} s)"
    )
    return ""
