"""An agent of the Agent Client Protocol that a second prompt cancels; it asks its servers what it is told to.

Source: reference/harnesses.md 9; reference/native.md 4.1.
"""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

LOG = Path(sys.argv[1])
LOCK = threading.Lock()
RUNNING: dict[str, Any] = {}
SERVERS: list[dict[str, Any]] = []


def tell(frame: dict[str, Any]) -> None:
    with LOCK:
        print(json.dumps({"jsonrpc": "2.0", **frame}), flush=True)


def tool(name: str, arguments: dict[str, Any]) -> str:
    """Start the server that the client named for us, call one tool, return its text."""
    server = next(one for one in SERVERS if one["name"] == "tieline")
    variables = {one["name"]: one["value"] for one in server["env"]}
    lines = [
        {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}}},
        {"id": 2, "method": "tools/call", "params": {"name": name, "arguments": arguments}},
    ]
    with subprocess.Popen(
        [server["command"], *server["args"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in lines:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **line}) + "\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
        process.stdin.close()
    return "\n".join(one["text"] for one in answer["result"]["content"])


def work(request: dict[str, Any], ended: threading.Event) -> None:
    session = request["params"]["sessionId"]
    text = request["params"]["prompt"][0]["text"]
    if text.startswith("HOLD"):
        ended.wait(20)
    told = tool(*json.loads(text[5:])) if text.startswith("CALL ") else f"answer to {text[:4]}"
    chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": told}}
    tell({"method": "session/update", "params": {"sessionId": session, "update": chunk}})
    reason = "cancelled" if ended.is_set() and RUNNING.get("cancelled") else "end_turn"
    RUNNING.pop("turn", None)
    tell({"id": request["id"], "result": {"stopReason": reason}})


for line in sys.stdin:
    with LOG.open("a") as log:
        log.write(line)
    frame = json.loads(line)
    method = frame.get("method")
    if method == "initialize":
        tell(
            {"id": frame["id"], "result": {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}}
        )
    elif method == "session/new":
        SERVERS[:] = frame["params"]["mcpServers"]
        tell({"id": frame["id"], "result": {"sessionId": "acp-1"}})
    elif method == "session/prompt":
        if "turn" in RUNNING:  # as several agents do
            RUNNING["cancelled"] = True
            RUNNING["turn"].set()
        RUNNING["turn"] = threading.Event()
        threading.Thread(target=work, args=(frame, RUNNING["turn"]), daemon=True).start()
    elif method == "session/cancel" and "turn" in RUNNING:
        RUNNING["cancelled"] = True
        RUNNING["turn"].set()
    elif method == "test/release" and "turn" in RUNNING:
        RUNNING["turn"].set()
