"""The desk over a table of facts, in the terminal that this process is given; its clock and ids are fixed."""

import sys
from typing import Any

from tests.unit.adapters.desk.kit import NOW_MS, OWN, FakePort, entry, message, peer
from tieline.adapters.desk.app import Desk
from tieline.runtime.timeline import PeerName, TimelinePage

EVIL = (
    "\x1b]0;owned\x07\x1b[31m\x1b[2J\x1b[10;10Hx\x9b5n\x1bP1$r\x1b\\\u202egpj.exe\u2066\u200b\u200d\U000e0041"
    "\u0301" * 2 + "\r\b\x7f\x85\u2028[bold red]markup[/] @click=app.quit \ud800 end"
)
WIDE = "\u5b57" * 400 + "e" + "\u0301" * 300 + "\U0001f468\u200d" * 60 + "\t" * 9
API, DB, KID = 1, 2, 3


def plain() -> FakePort:
    """Return three agents, a question, an answer and mail."""
    agents = [
        peer("api", API, busy=True, contextPercent=83),
        peer("db", DB, harness="claude code", model="opus", project="data", scope="machine"),
        peer("kid", KID, instanceId="instance-1", runId="r-1", activity="thinking", harness=""),
        peer("pi-window", 4, harness="pi", model="", wire="pi-peers", contextPercent=None),
    ]
    asked = message(
        "m-2", "Which port does the staging database use?\nThe old one is closed.", ask=True,
        sender=agents[1]["peerId"], alias="db", fromProject="data", topic="staging",
    )  # fmt: skip
    sent = message(
        "m-1", "Please run the tests of the shop.", sender=OWN, to=agents[0]["peerId"], at_ms=NOW_MS - 90_000,
        state="replied",
        steps=[
            {"state": state, "at": f"2026-05-28T20:25:{10 + place:02d}.000Z"}
            for place, state in enumerate(("pending", "accepted", "consumed", "replied"))
        ],
    )  # fmt: skip
    answer = message("m-3", "All 4,211 pass.", replyTo="m-1", at_ms=NOW_MS - 60_000, state="consumed")
    held = message(
        "m-4", None, sender=agents[3]["peerId"], alias="pi-window", isHeld=True, isUnread=False,
        state="pending", at_ms=NOW_MS - 5_000,
    )  # fmt: skip
    holder = {
        "alias": "api", "executable": "make", "state": "running", "fence": 7, "launchId": "launch-1",
        "since": "2026-05-28T20:26:30.000Z", "heldMs": 10_000,
    }  # fmt: skip
    resources = [
        {
            "resource": "machine/db", "state": "held", "configured": True, "controllerAlias": "me",
            "epoch": 2, "profile": "build", "holder": holder, "nextAction": "wait for the holder",
            "blockers": [{"alias": "old", "executable": "psql", "launchId": "launch-0"}],
            "queue": [{"alias": "db", "waitMs": 4_000, "reason": "migrate", "requestId": "request-1"}],
        },
        {"resource": "machine/gpu", "state": "free"},
    ]  # fmt: skip
    waits = [
        {"waiter": agents[0]["peerId"], "awaited": agents[1]["peerId"], "kind": "ask", "subject": "m-8"},
        {"waiter": agents[1]["peerId"], "awaited": agents[0]["peerId"], "kind": "resource",
         "subject": "machine/db", "request": "request-1", "since": "2026-05-28T20:26:36.000Z"},
    ]  # fmt: skip
    way = {
        "peer": agents[0]["peerId"],
        "act": "give_up",
        "other": agents[1]["peerId"],
        "text": "stop waiting for :db",
    }
    ring = {
        "peers": [{"peerId": agents[0]["peerId"]}, {"peerId": agents[1]["peerId"]}], "waits": waits,
        "givesWay": agents[0]["peerId"], "ways": [way], "text": "api waits for db; db waits for api",
    }  # fmt: skip
    loose = [{"waiter": agents[3]["peerId"], "awaited": agents[0]["peerId"], "kind": "ask", "subject": "m-5"}]
    page = TimelinePage((entry("All 4,211 pass."), entry("Which port?", 2, is_ask=True, state="consumed")))
    return FakePort(
        peers=agents, messages=[sent, asked, answer, held], resources=resources, page=page,
        view={"waits": [*waits, *loose], "cycles": [ring]},
    )  # fmt: skip


def evil() -> FakePort:
    """Return the same with hostile text in each field that another may fill."""
    made = plain()

    def poisoned(shape: Any, text: str) -> Any:
        if isinstance(shape, dict):
            kept = (
                "peerId", "instanceId", "runId", "from", "to", "messageId", "chain", "state", "at", "since",
                "waiter", "awaited", "kind", "givesWay", "peer", "act", "other", "replyTo", "wire",
                "availability", "scope",
            )  # fmt: skip
            return {key: value if key in kept else poisoned(value, text) for key, value in shape.items()}
        if isinstance(shape, list):
            return [poisoned(one, text) for one in shape]
        return (
            shape + text
            if isinstance(shape, str) and shape not in ("message.receive", "message.send")
            else shape
        )

    made.peers = [poisoned(one, EVIL if number % 2 else WIDE) for number, one in enumerate(made.peers)]
    made.messages = [poisoned(one, (EVIL + "\n") * 3 + WIDE) for one in made.messages]
    made.resources, made.view = poisoned(made.resources, EVIL), poisoned(made.view, EVIL)
    lines = (
        entry(EVIL + WIDE, sender=PeerName("peer-a", EVIL), topic=EVIL),
        entry(WIDE, 2, recipient=PeerName("peer-b", WIDE)),
    )
    made.page = TimelinePage(lines, faults=(EVIL,))
    return made


def empty() -> FakePort:
    """Return nobody and nothing."""
    return FakePort()


def crowd() -> FakePort:
    """Return 500 agents and 10,000 messages."""
    agents = [peer(f"agent-{number}", number) for number in range(1, 501)]
    messages = [
        message(
            f"m-{number}", f"message {number} of a long day", sender=agents[number % 500]["peerId"],
            alias=f"agent-{number % 500}", at_ms=NOW_MS - number,
            state="consumed" if number % 3 else "accepted", ask=number % 7 == 0,
        )
        for number in range(10_000)
    ]  # fmt: skip
    return FakePort(peers=agents, messages=messages)


CASES = {"plain": plain, "evil": evil, "empty": empty, "crowd": crowd}


def main() -> None:
    """Run the desk of a case until it is left."""
    Desk(CASES[sys.argv[1]]()).run()


if __name__ == "__main__":
    main()
