"""What a command hook costs, as ratios to the least that a process costs on this machine.

Source: reference/harnesses.md 10; docs/harnesses/gemini.md.
"""

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tieline import Root
from tieline.adapters.harness import claude_code, place
from tieline.adapters.harness.base import gate_entry
from tieline.adapters.harness.gemini import HARNESS
from tieline.runtime.hooked import HookAnswer

ROUNDS = 25
TRIES = 3
WITHOUT_MAIL_MAX = 5.0
WITH_MAIL_MAX = 2.0
SESSION = "11111111-2222-3333-4444-555555555555"
ANSWER = json.dumps({"hookSpecificOutput": {"hookEventName": "AfterTool", "additionalContext": "mail"}})
INPUT = json.dumps({"session_id": SESSION, "tool_response": {"llmContent": "x" * 4_096}}).encode()


class Door:
    """A door with mail in every answer."""

    async def take(self, _harness: str, _event: str, _document: dict[str, Any], _actor: Any) -> HookAnswer:
        return HookAnswer(ANSWER, "t")

    def carried(self, token: str) -> None:
        assert token == "t"


def seconds(words: Sequence[str], environment: dict[str, str], told: bytes) -> float:
    """Return what one process of these words costs its caller."""
    begun = time.perf_counter()
    done = subprocess.run(words, input=told, env=environment, capture_output=True, check=True)
    ended = time.perf_counter()
    assert told != INPUT or words[0] != "sh" or done.stdout in (b"", ANSWER.encode())
    return ended - begun


def ratio(
    words: Sequence[str], least: Sequence[str], environment: dict[str, str], told: bytes = INPUT
) -> float:
    """Return the ratio of the medians of both, run in turns; the least of a few tries on a busy machine."""
    found = []
    for _ in range(TRIES):
        pairs = [
            (seconds(words, environment, told), seconds(least, environment, told)) for _ in range(ROUNDS)
        ]
        ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
        found.append(ours / theirs)
    return min(found)


def line(event: str, environment: dict[str, str]) -> list[str]:
    """Return the words that run the hook of an event, as setup writes it."""
    hooks = next(file for file in HARNESS.files(place(environment, "")) if file.path.endswith("hooks.json"))
    group = json.loads(getattr(hooks, "text"))["hooks"][event][0]  # noqa: B009 - a file that is ours alone
    return ["sh", "-c", group["hooks"][0]["command"]]


def shared_line(event: str) -> list[str]:
    """Return the words that run the hook of an event from a project's file."""
    (settings,) = HARNESS.files(place({"HOME": "/nobody"}, "/p")._replace(command=("tieline",)))
    groups = [entry.value for entry in getattr(settings, "entries") if entry.keys == ("hooks", event)]  # noqa: B009 - a shared file
    return ["sh", "-c", groups[0]["hooks"][0]["command"]]


@pytest.mark.asyncio
async def test_hook_costs_what_a_process_costs(private_home: Path) -> None:
    """Without mail at most 5 x /bin/true, with mail at most 2 x a bare interpreter."""
    shared = private_home / "t"
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(private_home),
        "TIELINE_HOME": str(shared),
        "GEMINI_SESSION_ID": SESSION,
    }
    async with Root.open(alias="host", home=str(shared), workspace=str(private_home)) as root:
        flags = root.hook_by(Door())
        flags.open(SESSION)
        for event in ("AfterTool", "AfterAgent"):
            cost = await asyncio.to_thread(ratio, line(event, environment), ["/bin/true"], environment)
            print(f"{event} without mail: {cost:.2f} x /bin/true")
            assert cost <= WITHOUT_MAIL_MAX
        flags.is_owed = True
        flags.look()
        bare = [sys.executable, "-I", "-S", "-c", "pass"]
        for name, words in (
            ("a person", line("AfterTool", environment)),
            ("a project", shared_line("AfterTool")),
        ):
            cost = await asyncio.to_thread(ratio, words, bare, environment)
            print(f"AfterTool of {name} with mail: {cost:.2f} x python -I -S -c pass")
            assert cost <= WITH_MAIL_MAX


def test_command_that_waits_costs_a_shell_where_a_socket_wakes_the_session(private_home: Path) -> None:
    """Claude Code begins it with each session and each turn's end."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(private_home), "CLAUDE_CODE_ENTRYPOINT": "cli"}
    settings = claude_code.HARNESS.files(place(environment, ""))[1]
    commands = [entry.value["hooks"][0] for entry in getattr(settings, "entries") if entry.keys[-1] == "Stop"]  # noqa: B009 - a shared file
    (waiting,) = [one["command"] for one in commands if one.get("asyncRewake")]
    path = private_home / "s"
    with socket.socket(socket.AF_UNIX) as link:
        link.bind(str(path))
        environment["CLAUDE_CODE_MESSAGING_SOCKET"] = str(path)
        cost = ratio(["sh", "-c", waiting], ["/bin/true"], environment)
    print(f"the command that waits, not needed: {cost:.2f} x /bin/true")
    assert cost <= WITHOUT_MAIL_MAX


@pytest.mark.asyncio
async def test_gate_costs_what_a_process_costs(private_home: Path) -> None:
    """Where no rule is: at most 5 x /bin/true. Else the root judges: at most 2 x a bare interpreter."""
    shared = private_home / "t"
    environment = {"PATH": os.environ["PATH"], "HOME": str(private_home), "TIELINE_HOME": str(shared)}
    told = {"session_id": SESSION, "cwd": str(private_home), "tool_name": "Bash"}
    async with Root.open(alias="host", home=str(shared), workspace=str(private_home)) as root:
        await root.publish(SESSION)
        root.hook_by(Door()).open_host(os.getpid())
        for name, where in (("a person", ""), ("a project", "/p")):
            at = place(environment, where)
            group = gate_entry(at._replace(command=("tieline",)) if where else at, "claude").value
            words = ["sh", "-c", group["hooks"][0]["command"]]
            for text in ("", "[wires.intercom]\nenabled = true\n"):
                (shared / "config.toml").write_text(text)
                cost = await asyncio.to_thread(ratio, words, ["/bin/true"], environment)
                print(f"the gate of {name} without rules: {cost:.2f} x /bin/true")
                assert cost <= WITHOUT_MAIL_MAX
            (shared / "config.toml").write_text('[resource]\nrule_sets = ["git"]\n')
            bare = [sys.executable, "-I", "-S", "-c", "pass"]
            for command, is_free in (("ls", True), ("git commit", False)):
                document = json.dumps({**told, "tool_input": {"command": command}}).encode()
                judge = partial(ratio, words, bare, environment, document)
                cost = await asyncio.to_thread(judge)
                print(f"the gate of {name} with rules, {command}: {cost:.2f} x python -I -S -c pass")
                assert cost <= WITH_MAIL_MAX
                done = await asyncio.to_thread(
                    subprocess.run, words, input=document, env=environment, capture_output=True, check=True
                )
                assert (b"deny" not in done.stdout) == is_free
            (shared / "config.toml").unlink()
