"""The steps of the story, each checked before it is told.

Rule: what a step says came from an answer or a store in this run; the first thing that does not hold
ends the demo with that step's name.

Source: DESIGN.md 4, 5; reference/native.md 1Q (182 to 185), 2.8.
"""

import json
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any, Final

from tieline.adapters.demo import agents
from tieline.adapters.demo.agents import ANSWER_S, START_S, Agent, McpAgent, StepFailed, shown
from tieline.adapters.demo.stage import Stage, columns

__all__ = ["STEPS"]

TASK = "The parser is in src/parser. Please write its tests."
QUESTION = "May builder touch the lock file?"
ANSWER = "Yes, once the release is tagged."
LAST_TASK = "Run the whole suite before you go."


def require(is_so: bool, text: str) -> None:  # noqa: FBT001 - it reads as a sentence: require(this, "else that")
    """Raise `StepFailed` with `text` unless it is so."""
    if not is_so:
        raise StepFailed(text)


def elapsed_ms(begun: float) -> float:
    """Return milliseconds since `begun`, with one digit behind the point."""
    return round((time.monotonic() - begun) * 1000, 1)


def day_time(moment: str) -> str:
    """Return the time of day, in UTC, of a moment as the stores tell it."""
    return moment[11:23]


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
        [*agents.TIELINE, "recover", instance, "--json"],
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
