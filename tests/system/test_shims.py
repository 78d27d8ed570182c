"""Our programs for pi and opencode in small hosts in Node, against recorded lines of a root: no harness."""

import json
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from tests.harness.cache import node
from tieline.adapters.harness.facts import COMMAND_LINE, SHIMS

SNAPSHOT = {
    "version": 1,
    "rootSessionId": "s-1",
    "peerId": "p-1",
    "incarnation": "i-1",
    "connected": True,
    "guardedDelivery": 1,
}
RECEIPT = {"messageId": "m-1", "textSha256": "0" * 64}

ROOT = """
import { createInterface } from "node:readline";
import { appendFileSync } from "node:fs";
const tell = (frame) => console.log(JSON.stringify({ jsonrpc: "2.0", ...frame }));
const results = RESULTS;
tell({ method: "attached", params: { version: 1 } });
createInterface({ input: process.stdin }).on("line", (line) => {
  appendFileSync(process.argv[2], line + "\\n");
  const { id, method } = JSON.parse(line);
  if (results[method]) tell({ id, result: results[method] });
  else tell({ id, error: { code: -32000, message: "no", data: { code: "CAPABILITY_DENIED" } } });
  if (method === "intercom.context")
    tell({ method: "peer_update", params: { event: { wire: "intercom", messageId: "m-1" } } });
});
"""

HOST = """
import { EventEmitter } from "node:events";
import extension from "./tieline.mjs";
const handlers = {}, tools = {}, sent = [], notices = [], events = new EventEmitter(), states = [];
events.on("pi-intercom:context-state", (state) => states.push(state));
const pi = {
  on: (name, handler) => (handlers[name] = handler),
  registerTool: (tool) => (tools[tool.name] = tool),
  sendMessage: (message, options) => sent.push({ message, options }),
  events: { on: (name, handler) => events.on(name, handler), emit: (name, data) => events.emit(name, data) },
};
const ctx = {
  cwd: process.cwd(), mode: "tui", hasUI: true, model: { id: "m" }, isIdle: () => true,
  hasPendingMessages: () => false, getContextUsage: () => ({ percent: 41.6 }),
  sessionManager: { getSessionId: () => "s-1" }, ui: { notify: (text) => notices.push(text) },
};
const rest = () => new Promise((resolve) => setTimeout(resolve, 1_000));
const query = (name, asked) => {
  let answer = "nobody";
  events.emit(`pi-intercom:${name}`, { ...asked, respond: (told) => (answer = told) });
  return answer;
};
extension(pi);
const before = query("context-query", { version: 1 });
await handlers.session_start({}, ctx);
await rest();
const target = { rootSessionId: "s-1", peerId: "p-1", incarnation: "i-1" };
const answers = {
  before,
  context: query("context-query", { version: 1 }),
  other: query("context-query", { version: 2 }),
  guard: query("application-guard", { version: 1, target, revision: "r" }),
  stale: query("application-guard", { version: 1, target: { ...target, peerId: "x" }, revision: "r" }),
  receipt: query("provenance-query", { version: 1, rootSessionId: "s-1", messageId: "m-1" }),
  unknown: query("provenance-query", { version: 1, rootSessionId: "s-1", messageId: "m-2" }),
  foreign: query("provenance-query", { version: 1, rootSessionId: "s-2", messageId: "m-1" }),
};
await handlers.input({ source: "interactive" });
const prompted = await handlers.before_agent_start({ messageType: "user" });
await handlers.message_end({ message: { role: "custom", ...prompted?.message } });
await handlers.agent_end({ messages: [{ role: "assistant", stopReason: "aborted", content: [] }] }, ctx);
await handlers.agent_settled({ aborted: true });
await rest();
await handlers.session_shutdown({ reason: "quit" });
const after = query("context-query", { version: 1 });
console.log(JSON.stringify({ answers, prompted, sent, states, after, notices, tools: Object.keys(tools) }));
"""

OPENCODE_HOST = """
import plugin from "./tieline.mjs";
const prompts = [];
const client = { session: {
  get: async () => ({ data: {} }),
  messages: async () => ({ data: [] }),
  promptAsync: async (prompt) => (prompts.push(prompt.body) === 1 ? { error: "not now" } : {}),
} };
const hooks = await plugin({ client, directory: process.cwd() });
const input = { sessionID: "s-1" };
const output = { message: { id: "msg_1" }, parts: [] };
await hooks["chat.message"](input, output);
const part = { ...output.parts[0] };
await hooks.event({ event: { type: "message.part.updated", properties: { part } } });
await hooks.event({ event: { type: "session.status", properties: { ...input, status: { type: "idle" } } } });
await hooks["chat.message"](input, { message: { id: prompts.at(-1).messageID }, parts: [] });
await new Promise((resolve) => setTimeout(resolve, 300));
console.log(JSON.stringify({ prompts, output, tools: Object.keys(hooks.tool) }));
process.exit(0);
"""


def hosted(
    folder: Path, results: dict[str, Any], shim: str = "pi", host: str = HOST
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return what the host saw, and what the root was asked."""
    words = [node(), str(folder / "root.mjs"), str(folder / "asked")]
    text = files("tieline").joinpath(SHIMS[shim]).read_text(encoding="utf-8")
    (folder / "tieline.mjs").write_text(text.replace(COMMAND_LINE, f"const TIELINE = {json.dumps(words)};"))
    (folder / "root.mjs").write_text(ROOT.replace("RESULTS", json.dumps(results)))
    (folder / "host.mjs").write_text(host)
    done = subprocess.run(
        [node(), "host.mjs"], cwd=folder, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    asked = [json.loads(line) for line in (folder / "asked").read_text().splitlines()]
    return json.loads(done.stdout), asked


@pytest.fixture
def results() -> dict[str, Any]:
    """Give the answers of a root with one message."""
    mail = {"text": "framed mail", "messageIds": ["m-1"], "token": "t-1", "generation": 1, "remaining": 0}
    silent = ("host.state", "host.user_prompt", "host.refused", "intercom.guard")
    plain: dict[str, Any] = {name: {} for name in silent}
    return {**plain, "host.boundary": mail, "host.taken": {"consumed": 1}}


def test_companions_are_answered_at_once_from_what_the_root_told(
    private_home: Path, results: dict[str, Any]
) -> None:
    """Context, guard and provenance; nobody answers before the session and behind it."""
    told = {"intercom.context": SNAPSHOT, "intercom.provenance": {"receipt": RECEIPT}}
    seen, asked = hosted(private_home, {**results, **told})
    answers = seen["answers"]
    assert (answers["before"], seen["after"]) == ("nobody", "nobody")
    assert answers["context"] == SNAPSHOT
    assert SNAPSHOT in seen["states"]
    assert answers["other"] == {"error": "unsupported_version"}
    assert (answers["guard"], answers["stale"]) == ({"revision": "r"}, {"error": "context_changed"})
    assert answers["receipt"] == {"receipt": RECEIPT}
    assert answers["unknown"] == {"error": "receipt_not_found"}
    assert answers["foreign"] == {"error": "publication_unavailable"}
    assert [one["params"]["revision"] for one in asked if one["method"] == "intercom.guard"] == ["r"]
    assert "intercom" in seen["tools"]


def test_mail_comes_with_a_prompt_is_taken_on_evidence_and_a_cancelled_turn_begins_no_other(
    private_home: Path, results: dict[str, Any]
) -> None:
    """With the intercom off nobody answers its events, and its tool is not there."""
    seen, asked = hosted(private_home, results)
    methods = [one["method"] for one in asked]
    assert seen["answers"]["context"] == "nobody"
    assert "intercom" not in seen["tools"]
    assert seen["prompted"]["message"]["content"] == "framed mail"
    assert methods.index("host.user_prompt") < methods.index("host.boundary") < methods.index("host.taken")
    assert methods.count("host.boundary") == 1, "a cancelled turn asks for no more mail"
    assert seen["sent"] == []
    last = [one["params"] for one in asked if one["method"] == "host.state"][-1]
    assert (last["busy"], last["paused"], last["contextPercent"]) == (False, "cancelled", 42)


@pytest.mark.parametrize("is_on", [False, True])
def test_push_that_opencode_refuses_is_tried_again_and_the_intercom_follows_its_root(
    private_home: Path, results: dict[str, Any], is_on: bool
) -> None:
    """The second try has the same ids, so nothing comes twice; a tool of a wire that is off is withheld."""
    told = {"intercom.context": SNAPSHOT} if is_on else {}
    seen, asked = hosted(private_home, {**results, **told, "host.answer": {}}, "opencode", OPENCODE_HOST)
    methods = [one["method"] for one in asked]
    assert len(seen["prompts"]) == 2
    assert seen["prompts"][0] == seen["prompts"][1]
    assert methods.count("host.taken") == 2, "what came with the prompt, and what was pushed"
    assert "host.refused" not in methods
    assert "intercom" in seen["tools"]
    assert seen["output"]["message"].get("tools") == (None if is_on else {"intercom": False})
