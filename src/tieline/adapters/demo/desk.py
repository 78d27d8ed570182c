"""`tieline demo --desk`: three agents at work around a person's desk, with a question and a ring to break.

Theory. Each agent is a process with a root of its own, driven by a thread here. One asks the person
something. All three ask each other in a ring, so that nobody goes on; whoever is written to by the person
answers what it was asked, and the ring comes apart by itself. One of them holds a resource.

Rule 1: nothing is pretended: what the desk shows came over the agents' own doors.
Rule 2: the desk is a process of its own in this terminal; when it is left, the agents end and the folder
    goes.

Source: DESIGN.md 4; docs/howto-desk.md.
"""

import os
import subprocess
import sys
import threading
import time
from typing import Any, Final

from tieline.adapters.demo import agents
from tieline.adapters.demo.agents import ANSWER_S, Agent, StepFailed, shown
from tieline.adapters.demo.stage import Stage

__all__ = ["PERSON", "Player", "play"]

PERSON: Final = "you"
QUESTION: Final = "Which colour shall the checkout button have: blue or orange? (r replies)"
RING: Final = (
    ("planner", "builder", "Is the build green? I need to know before I plan on."),
    ("builder", "reviewer", "Is the review done? I build nothing new before."),
    ("reviewer", "planner", "What is planned next? I review nothing before I know."),
)
HELD: Final = "machine/staging-database"
LONG_MS: Final = 3_600_000
LOOK_MS: Final = 500


class Player(threading.Thread):
    """One agent at work."""

    def __init__(self, agent: Agent, stop: threading.Event) -> None:
        super().__init__(name=agent.name, daemon=True)
        self.agent, self._stop_asked = agent, stop
        self.failure = ""
        self._person = ""
        self._asked: list[tuple[str, str]] = []  # who asked us, and the message
        self._question = ""  # ours to the person
        self._waits: int | None = None

    def run(self) -> None:
        """Play until the stage is cleared."""
        try:
            self._meet()
            while not self._stop_asked.is_set():
                self._look()
        except (StepFailed, LookupError, ValueError, OSError) as error:
            if not self._stop_asked.is_set():  # else the stage is being cleared
                self.failure = f"{self.name} stopped playing: {shown(error)}"

    def _meet(self) -> None:
        """Wait for the person; then ask what there is to ask."""
        percent = {"planner": 22, "builder": 61}.get(self.name, 38)
        self.agent.call("host.state", {"busy": True, "model": "demo", "contextPercent": percent})
        while not self._person and not self._stop_asked.is_set():
            peers = self.agent.call("list_peers", {})["peers"]
            self._person = next((one["peerId"] for one in peers if one["alias"] == PERSON), "")
            self._stop_asked.wait(0.2)
        if self.name == "planner" and self._person:
            sent = self.agent.call(
                "local.send", {"to": self._person, "content": QUESTION, "topic": "checkout", "ask": True}
            )
            self._question = str(sent["receipts"][0]["messageId"])
        to, text = next((other, said) for own, other, said in RING if own == self.name)
        self._waits = self.agent.begin("local.ask", {"to": to, "content": text, "timeoutMs": LONG_MS})

    def _look(self) -> None:
        """Read what came, and do what follows from it."""
        found = self.agent.call("peer_messages", {"waitMs": LOOK_MS})
        for mail in found["messages"]:
            self._take(mail)
        if self._waits is not None and self.agent.is_answered(self._waits):
            self.agent.finish(self._waits)
            self._waits = None
            self._answer_all("Yes: I go on now.")
            self.agent.call("host.state", {"busy": False})

    def _take(self, mail: dict[str, Any]) -> None:
        if mail.get("replyTo") == self._question and self._question:
            self._tell(f"Thank you. The button will be: {str(mail['content'])[:60]}")
        elif mail["from"] == self._person:
            self._answer_all("The person at the desk asked me to give way: go on without me.")
            self._tell("Done: I answered, and the ring is broken.")
        elif mail.get("ask"):
            self._asked.append((mail["from"], mail["messageId"]))

    def _answer_all(self, text: str) -> None:
        asked, self._asked = self._asked, []
        for _, message_id in asked:
            self.agent.call("local.reply", {"messageId": message_id, "content": text})

    def _tell(self, text: str) -> None:
        self.agent.call("local.send", {"to": self._person, "content": text})


def play(stage: Stage) -> int:
    """Set the stage, show the desk in this terminal, and clear the stage once it is left.

    Returns:
        The desk's exit code.

    Raises:
        StepFailed: an agent did not start, or stopped playing.
    """
    for name, _, _ in RING:
        stage.begin_agent(name)
    for agent in stage.agents.values():
        agent.start()
    stop = threading.Event()
    players = [Player(agent, stop) for agent in stage.agents.values()]
    holder = _hold(stage)
    try:
        for player in players:
            player.start()
        code = _desk(stage)
    finally:
        stop.set()
        end = time.monotonic() + ANSWER_S
        for player in players:
            player.join(max(0.0, end - time.monotonic()))
        holder.terminate()
        holder.wait(ANSWER_S)
    failure = next((player.failure for player in players if player.failure), "")
    if failure:
        raise StepFailed(failure)
    return code


def _hold(stage: Stage) -> "subprocess.Popen[bytes]":
    """Start a command that holds a resource in the name of an agent."""
    sleeping = [sys.executable, "-c", "import time; time.sleep(3600)"]
    words = ["run", "--instance", stage.agents["builder"].instance, "--resource", HELD]
    words += ["--reason", "migrates the schema", "--on-orphan", "stop", "--no-terminal"]
    return subprocess.Popen(  # noqa: S603 - our own interpreter and our own words
        [*agents.TIELINE, *words, "--", *sleeping],
        env=stage.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=stage.workspace,
        start_new_session=True,
    )


def _desk(stage: Stage) -> int:
    words = ["desk", "--alias", PERSON, "--workspace", stage.workspace]
    environment = {**stage.environment, "TERM": os.environ.get("TERM", "xterm")}
    return subprocess.run([*agents.TIELINE, *words], env=environment, check=False).returncode  # noqa: S603 - ours
