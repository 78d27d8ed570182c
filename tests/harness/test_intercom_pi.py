"""A companion in a real pi: the intercom's events are answered at once, from what is kept current."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tieline
from tests.harness.model import ModelServer
from tests.harness.programs import Program
from tests.harness.shimmed import SECONDS_MAX, shimmed

Opener = Callable[..., Program]

pytestmark = pytest.mark.harness("pi")

MESSAGE_ID = "0b0c5a4e-6a59-4b6d-9a39-0d7c5d0f7a11"
LOOK_SECONDS = 0.2
COMPANION = """
import { appendFileSync } from "node:fs";
const tell = (name, told) => appendFileSync(FILE, JSON.stringify({ name, told }) + "\\n");
export default function companion(pi) {
  const say = (name, asked = {}) =>
    pi.events.emit(`pi-intercom:${name}`, { version: 1, ...asked, respond: (told) => tell(name, told) });
  let root, timer;
  pi.events.on("pi-intercom:context-state", (state) => {
    tell("context-state", state);
    say("context-query");
    const { rootSessionId, peerId, incarnation } = state;
    root = rootSessionId;
    const isNew = state.connected && state.applicationGuard !== "g-1";
    if (isNew) say("application-guard", { target: { rootSessionId, peerId, incarnation }, revision: "g-1" });
    timer ??= setInterval(() => say("provenance-query", { rootSessionId: root, messageId: "ID" }), 300);
    timer.unref();
  });
}
"""


def told(path: Path, name: str, fits: Callable[[Any], bool]) -> Any:
    """Return the first answer of this name that fits, once the companion has it."""
    lines: list[str] = []
    give_up = time.monotonic() + SECONDS_MAX
    while time.monotonic() < give_up:
        lines = path.read_text().splitlines() if path.exists() else []
        for frame in map(json.loads, lines):
            if frame["name"] == name and fits(frame["told"]):
                return frame["told"]
        time.sleep(LOOK_SECONDS)
    raise AssertionError(f"no such {name}: {lines}")


async def guarded(target: dict[str, Any]) -> dict[str, Any]:
    """Send one message to the guarded session as a client without a model; return the broker's word."""
    session = {"name": "c", "cwd": "/", "model": "none", "rootSessionId": "r", "incarnation": "i"}
    async with await tieline.connect(spawn=False, session=session) as client:
        return dict(
            await client.send(
                target["peerId"],
                message_id=MESSAGE_ID,
                text="Under your guard. G-1010",
                delivery="steer",
                guard=target,
            )
        )


def test_companion_is_told_the_context_sets_a_guard_and_reads_the_receipt_of_a_guarded_message(
    open_program: Opener, model: ModelServer, private_home: Path
) -> None:
    """Context, guard and provenance of one real window; the message wakes it and is shown once."""
    program = shimmed(
        open_program("pi", is_wired=False),
        TIELINE_IDLE_BEHAVIOR="auto",
        TIELINE_INTERCOM_ENABLED="true",
        PI_INTERCOM_RUNTIME_DIR=str(private_home / "i"),
    )
    path = private_home / "told"
    text = COMPANION.replace("FILE", json.dumps(str(path))).replace('"ID"', json.dumps(MESSAGE_ID))
    assert MESSAGE_ID in text
    (program.place.home / "agent" / "extensions" / "companion.js").write_text(text)
    with program.window() as window:
        window.until(*program.ready)
        state = told(path, "context-state", lambda one: one["connected"])
        assert state["guardedDelivery"] == 1
        assert told(path, "context-query", lambda one: one["connected"])["peerId"] == state["peerId"]
        assert told(path, "application-guard", lambda _one: True) == {"revision": "g-1"}
        current = told(path, "context-state", lambda one: one.get("applicationGuard") == "g-1")
        target = {
            name: current[name] for name in ("rootSessionId", "peerId", "incarnation", "applicationGuard")
        }
        assert told(path, "provenance-query", lambda one: "error" in one) == {"error": "receipt_not_found"}
        assert asyncio.run(guarded(target))["accepted"]
        assert model.with_text("G-1010", SECONDS_MAX).seen.count("G-1010") == 1
        receipt = told(path, "provenance-query", lambda one: "receipt" in one)["receipt"]
        assert (receipt["messageId"], receipt["rootSessionId"]) == (MESSAGE_ID, target["rootSessionId"])
