"""Replies, correlation, automatic budgets, and what a context record is called.

Theory. Two models can thank each other for ever. Three counts end that: how many automatic answers
deep a message is, how many automatic messages a conversation has here, and how many messages one of
our peers sent to another without a person in between. A person's act binds none of the three.

Rule 1: a reply names a message that exactly its target sent to exactly its author.
Rule 2: `Budgets` is rebuilt from the stored records; only the last prompts of persons and the last
    exposures, of which no record is kept, live beside them.
Rule 3: this module knows no boxes, no wires and no clock; it is told.

Source: reference/native.md 2.9, 3.4 "automatic budget"; DESIGN.md 3 "Automatic or a person's";
reference/reliability.md I26, I29.
"""

import hashlib
import json
from collections import deque

from tieline.config import PAIR_WINDOW_MS
from tieline.engine.contract import Act
from tieline.errors import Refusal
from tieline.model.message import Envelope, Key

__all__ = [
    "DEPTH_MAX",
    "Budgets",
    "act_fault",
    "answer_fault",
    "ask_back_fault",
    "context_record",
    "crossing_fault",
    "depth_of",
    "reply_fault",
]

DEPTH_MAX = 64  # what the wire can say: reference/native.md 2.8
EXPOSURES_KEPT = 16  # per peer: only the last that did not fail counts


def act_fault(act: Act, *, is_reply: bool, idle_behavior: str) -> Refusal | None:
    """Return why an act may not happen at all, or None."""
    if act is not Act.AUTOMATIC:
        return None
    if idle_behavior != "auto":
        return Refusal("CAPABILITY_DENIED", "automatic sends need idle_behavior = auto")
    if not is_reply:
        return Refusal("INVALID_REPLY", "an automatic send answers a message")
    return None


def answer_fault(original: Envelope | None, reply: Envelope) -> Refusal | None:
    """Return why one of our peers may not answer `original` with `reply`, or None.

    `original` is the received message that `reply.reply_to` names, or None when there is none.
    """
    if original is None or original.sender != reply.recipient or original.recipient != reply.sender:
        return Refusal("INVALID_REPLY", "no message with this id came from exactly that peer")
    return None


def ask_back_fault(theirs: Envelope | None) -> Refusal | None:
    """Return why a question may not be asked of a peer that waits for our answer to `theirs`, or None.

    Both would wait for the other. Source: reference/reliability.md I30; reference/open-bugs.md O21.
    """
    if theirs is None:
        return None
    return Refusal(
        "RESOURCE_BUSY", f"that peer waits for your answer to {theirs.message_id}: reply to it first"
    )


def crossing_fault(ours: Envelope | None, theirs: Envelope) -> Refusal | None:
    """Return why an arriving question is refused while its asker is asked `ours` by us, or None.

    Two questions that crossed on the way: of the two, the one with the greater id gives way, so that
    exactly one of them does, whichever end decides first.
    """
    if ours is None or ours.message_id >= theirs.message_id:
        return None
    return Refusal(
        "RESOURCE_BUSY", f"the two questions crossed: this peer waits for your answer to {ours.message_id}"
    )


def reply_fault(original: Envelope | None, reply: Envelope) -> Refusal | None:
    """Return why an arriving reply is none, or None.

    `original` is the message of ours that `reply.reply_to` names, or None when there is none.
    """
    if original is None or original.recipient != reply.sender or original.sender != reply.recipient:
        return Refusal("INVALID_REPLY", "no message with this id was sent to exactly this peer")
    if reply.correlation_id != original.chain:
        return Refusal("INVALID_REPLY", "the reply belongs to another conversation")
    if reply.automatic_depth not in (0, original.automatic_depth + 1):
        return Refusal("INVALID_REPLY", "the automatic depth is not one more than that of the original")
    return None


def depth_of(act: Act, original: Envelope | None, exposed_depth: int | None) -> int:
    """Return the automatic depth of a message about to leave, 0 to 64.

    Args:
        act: Why it is sent.
        original: The message that it answers, if it does.
        exposed_depth: Depth of the last message exposed to its author since a person's last prompt.
    """
    if act is Act.PERSON or (act is Act.AGENT and exposed_depth is None):
        return 0
    before = original.automatic_depth if original is not None else (exposed_depth or 0)
    return min(DEPTH_MAX, before + 1)


def context_record(envelope: Envelope) -> str:
    """Return the record id of a message in a model's context: the same for every attempt to write it."""
    identity = [
        envelope.sender.instance,
        envelope.sender.id,
        envelope.recipient.id,
        envelope.message_id,
    ]
    text = json.dumps(identity, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


class Budgets:
    """What was sent and seen without a person, as far as budgets ask."""

    def __init__(self) -> None:
        self._chains: dict[str, dict[Key, int]] = {}
        self._pairs: dict[str, dict[str, deque[int]]] = {}
        self._exposed: dict[str, dict[str, int]] = {}
        self._prompted: dict[str, int] = {}

    def forget_records(self, latest_cursor: int) -> None:
        """Start anew before the stored records are counted again.

        A prompt remembers the cursor it came at; after a rollback that may be above `latest_cursor`.
        """
        self._chains.clear()
        self._pairs.clear()
        self._prompted = {owner: min(cursor, latest_cursor) for owner, cursor in self._prompted.items()}

    def chain_count(self, chain: str) -> int:
        """Return how many distinct automatic messages of a correlation are stored here."""
        return len(self._chains.get(chain, ()))

    def count_stored(self, envelope: Envelope) -> None:
        """A record was stored; it counts when it is automatic."""
        if envelope.automatic_depth > 0:
            chain = self._chains.setdefault(envelope.chain, {})
            chain[envelope.key] = chain.get(envelope.key, 0) + 1

    def count_forgotten(self, envelope: Envelope) -> None:
        """A record was removed."""
        if envelope.automatic_depth > 0:
            chain = self._chains[envelope.chain]
            chain[envelope.key] -= 1
            if chain[envelope.key] == 0:
                del chain[envelope.key]
            if not chain:
                del self._chains[envelope.chain]

    def count_sent(self, sender: str, recipient: str, cursor: int, mono_ms: int) -> None:
        """One of our peers sent without a person; sends before a person's last prompt do not count."""
        if cursor > self._prompted.get(sender, -1):
            self._pairs.setdefault(sender, {}).setdefault(recipient, deque()).append(mono_ms)

    def pair_count(self, sender: str, recipient: str, now_ms: int) -> int:
        """Return how many such sends of the pair lie in the last ten minutes."""
        window = self._pairs.get(sender, {}).get(recipient)
        if window is None:
            return 0
        while window and window[0] <= now_ms - PAIR_WINDOW_MS:
            window.popleft()
        return len(window)

    def prompt(self, owner: str, latest_cursor: int) -> None:
        """A person began a turn of `owner`."""
        self._prompted[owner] = latest_cursor
        self._pairs.pop(owner, None)
        self._exposed.pop(owner, None)

    def expose(self, owner: str, token: str, depth: int) -> None:
        """A message of this depth was shown to `owner`'s model."""
        shown = self._exposed.setdefault(owner, {})
        shown.pop(token, None)
        shown[token] = depth
        while len(shown) > EXPOSURES_KEPT:
            del shown[next(iter(shown))]

    def unexpose(self, owner: str, token: str) -> None:
        """It was not shown after all."""
        shown = self._exposed.get(owner)
        if shown is not None:
            shown.pop(token, None)
            if not shown:
                del self._exposed[owner]

    def exposed_depth(self, owner: str) -> int | None:
        """Return the depth of the last message shown since a person's last prompt, or None."""
        shown = self._exposed.get(owner)
        return None if not shown else next(reversed(shown.values()))

    def sweep(self, now_ms: int) -> None:
        """Drop windows that are empty by now."""
        for sender in list(self._pairs):
            for recipient in list(self._pairs[sender]):
                if self.pair_count(sender, recipient, now_ms) == 0:
                    del self._pairs[sender][recipient]
            if not self._pairs[sender]:
                del self._pairs[sender]
