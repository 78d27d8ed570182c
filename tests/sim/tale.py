"""Histories written by hand, for the checker's own tests: a good one, and words to spoil it with.

Source: reference/reliability.md 2.4.
"""

from typing import Any

from tests.sim.history import Entry

__all__ = ["A", "B", "Tale", "good", "message", "move"]

A, B = "root-a", "root-b"
LIMITS = {
    "inbox": 4,
    "pending": 32,
    "storage": 10_000,
    "retention": 60_000,
    "automatic": 2,
    "agent_sends": 3,
    "frame": 65_536,
}


def message(cursor: int, box: str = "in", name: str = "m1", **changed: Any) -> dict[str, Any]:
    """Return a message row from a to b."""
    return {
        "row": "message",
        "cursor": cursor,
        "box": box,
        "message": name,
        "sender_instance": A,
        "sender": "peer-a",
        "recipient_instance": B,
        "recipient": "peer-b",
        "recipient_run": None,
        "sha": "aa",
        "topic": None,
        "reply_to": None,
        "correlation": None,
        "depth": 0,
        "is_ask": False,
        "from_person": True,
        "size": 10,
        "deadline_ms": 100_000,
        **changed,
    }


def move(cursor: int, of: int, state: str, **changed: Any) -> dict[str, Any]:
    """Return a move row."""
    return {
        "row": "move",
        "cursor": cursor,
        "of": of,
        "state": state,
        "outcome": None,
        "note": "",
        "token": None,
        "retryable": False,
        **changed,
    }


class Tale:
    """Entries in the order in which they are told."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.at_ms = 1_000
        self._group = 0
        self._rows: dict[str, list[dict[str, Any]]] = {}
        for root in (A, B):
            self.add(root, "start", honest=True, peer="peer-" + root[-1], pid=1, **LIMITS)
        self.add("evil", "start", honest=False)

    def add(self, root: str, event: str, **data: Any) -> None:
        """Add one entry, a millisecond after the last."""
        self.at_ms += 1
        self.entries.append(Entry(self.at_ms, root, event, data))

    def store(self, root: str, *rows: dict[str, Any], reserve: int = 100_000, admits: bool = True) -> None:
        """Commit rows, durably."""
        self._group += 1
        self.add(root, "commit", group=self._group, admits=admits, reserve=reserve, rows=list(rows))
        self.add(root, "stored", group=self._group)
        self.add(root, "told", group=self._group, outcome="stored")
        self._rows.setdefault(root, []).extend(rows)

    def say(self, root: str, far: str, link: int = 1, **frame: Any) -> None:
        """Write a frame at one end, and read it at the other."""
        self.add(root, "wrote", link=link, far=far, frames=[frame])
        self.add(far, "read", link=link, far=root, frames=[frame], loose=0)

    def prove(self, client: str, server: str, link: int = 1) -> None:
        """Let a handshake happen."""
        self.say(
            client,
            server,
            link,
            kind="request",
            id="h1",
            method="peer.hello",
            nonce=f"n{link}",
            instance=client,
        )
        self.say(server, client, link, kind="result", id="h1", nonce=f"s{link}", proof="p", instance=server)
        self.say(client, server, link, kind="request", id="h2", method="peer.authenticate", proof=f"p{link}")
        self.say(server, client, link, kind="result", id="h2", authenticated=True)

    def offer(
        self, name: str = "m1", link: int = 1, far: str = A, request: str = "r1", **changed: Any
    ) -> None:
        """Let somebody hand a message to b."""
        send = {
            "message": name,
            "to": "peer-b",
            "sha": "aa",
            "topic": None,
            "reply_to": None,
            "correlation": None,
            "depth": 0,
            "run": None,
            **changed,
        }
        self.say(far, B, link, kind="request", id=request, method="peer.send", send=send)

    def receipt(self, state: str, cursor: int, name: str = "m1", **changed: Any) -> dict[str, Any]:
        """Return a receipt as frames carry it."""
        fields = ["cursor", "messageId", "state", "to"]
        return {
            "messageId": name,
            "from": "peer-a",
            "to": "peer-b",
            "state": state,
            "cursor": str(cursor),
            "outcome": None,
            "fields": fields,
            **changed,
        }

    def accept(self, cursor: int, name: str = "m1", request: str = "r1", link: int = 1, far: str = A) -> None:
        """Let b answer with its receipt."""
        self.say(B, far, link, kind="result", id=request, receipt=self.receipt("accepted", cursor, name))

    def submit(self, name: str = "m1", **changed: Any) -> None:
        """Let a person at a send something, answered at once."""
        said = {
            "message": name,
            "sender": "peer-a",
            "recipient": "peer-b",
            "recipient_instance": B,
            "sha": "aa",
            "topic": None,
            "reply_to": None,
            "act": "person",
            "is_ask": False,
            **changed,
        }
        call = len(self.entries)
        self.add(A, "submit", call=call, **said)
        self.add(A, "answer", call=call, kind="receipt", message=name)

    def end(self, **changed: list[dict[str, Any]]) -> list[Entry]:
        """End the tale: note what everybody holds; `root_a=` or `root_b=` says otherwise."""
        self.add("", "heal")
        self.at_ms = max(self.at_ms, 500_000)
        for root in (A, B):
            rows = changed.get(root.replace("-", "_"), self._rows.get(root, []))
            self.add(root, "store", alive=True, rows=rows)
        return self.entries


def good() -> Tale:
    """Return a whole message's life: sent, accepted, consumed, each told when it was true."""
    tale = Tale()
    tale.submit()
    tale.store(A, message(1, "out"))
    tale.prove(A, B)
    tale.offer()
    tale.store(B, message(1))
    tale.accept(1)
    tale.store(A, move(2, 1, "accepted"), admits=False)
    context = {"row": "context", "cursor": 3, "of": 1, "record": "c", "token": "t"}
    tale.store(B, move(2, 1, "accepted", note="prepared", token="t"), admits=False)
    tale.store(B, context, move(4, 1, "consumed"), admits=False)
    tale.prove(B, A, 2)
    receipt = tale.receipt("consumed", 4)
    tale.say(B, A, 2, kind="request", id="q1", method="peer.receipt", receipt=receipt)
    tale.store(A, move(3, 1, "consumed"), admits=False)
    tale.say(A, B, 2, kind="result", id="q1", fields=["recorded"])
    tale.add(A, "baseline", circuits=1, idle=True, doubt=False)
    return tale
