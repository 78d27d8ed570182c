"""An agent's process that does what its lines say."""

import sys

import pytest

from tieline.adapters.demo import agents

STUB = """
import json, sys
print(json.dumps({"jsonrpc": "2.0", "method": "attached", "params": {"instanceId": "i-1"}}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "leave":
        sys.stderr.write("first\\nlast words\\n")
        break
    if asked["method"] == "hang":
        continue
    answer = {"result": asked["params"]}
    if asked["method"] == "refuse":
        answer = {"error": {"code": 1, "message": "no\\x1b[31m"}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every agent's process be the stub above."""
    monkeypatch.setattr(agents, "TIELINE", (sys.executable, "-c", STUB))
