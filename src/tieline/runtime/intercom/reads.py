"""What others read of us without waking anybody: our last answer, and what became of their messages.

Rule 1: an answer is one that our host handed in as finished; no summary and no status stands in for it.
Rule 2: a receipt is told of exactly the named root and message, as it was recorded when it came; what is
    not known is null or false, never guessed. It holds no text, no attachment and no path.
Rule 3: who cannot be taken in is told so in words where somebody waits for us, and never in answer to words.

Source: specification of the intercom, "Read the last response without waking", "Native-owned receipts and
publication provenance"; reference/intercom.md 4.1 "Staging", 5; cases 77, 136, 137.
"""

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from tieline.engine.contract import Held
from tieline.errors import Refusal, Refused
from tieline.model.identity import Peer
from tieline.model.moment import to_iso
from tieline.model.receipt import State
from tieline.runtime import answers
from tieline.wire.intercom import mapping
from tieline.wire.intercom.client import LastAsked, MessageCame, ReceiptAsked
from tieline.wire.intercom.mapping import Provenance

if TYPE_CHECKING:
    from tieline.runtime.intercom.intercom import Intercom

__all__ = ["NOT_FOUND", "UNAVAILABLE", "Reads"]

UNAVAILABLE: Final = "publication_unavailable"
NOT_FOUND: Final = mapping.NOT_RECORDED
PROVENANCE_MAX: Final = 10_000
FOUND_MAX: Final = 16
WORDS: Final = {
    "QUEUE_FULL": "the recipient's queue is full",
    "PEER_OFFLINE": "the recipient is ending",
    "RESOURCE_BUSY": "the recipient itself waits for your answer",
    "MESSAGE_TOO_LARGE": "the message is larger than the recipient takes",
    "INVALID_PARAMS": "the message has a form that the recipient does not take",
}


class Reads:
    """What one root tells of itself when it is read."""

    def __init__(self, intercom: "Intercom") -> None:
        self._intercom, self._node = intercom, intercom.node
        self._provenance: OrderedDict[tuple[str, str], Provenance] = OrderedDict()
        self._is_evicted = False

    # ------------------------------------------------------------ the last answer

    def asked_last(self, broker: str, asked: LastAsked) -> None:
        """Answer a read of our last answer."""
        member = self._intercom.post.members[broker]
        if member.link is not None:
            member.link.answer_last(asked.token, self._page(asked))
            member.flush()

    def _page(self, asked: LastAsked) -> dict[str, Any]:
        limit = min(asked.limit or answers.PAGE_UNITS_MAX, answers.PAGE_UNITS_MAX)
        try:
            page = answers.page(self._node.host.answers.get(None), asked.entry, asked.offset, limit)
        except Refused:
            return {"error": "entry_not_found"}
        if page["entry"] is None:
            return {"entryId": None, "text": "", "offset": 0, "nextOffset": None, "empty": True}
        if page["offset"] != asked.offset:
            return {"error": "invalid_offset"}
        if page["nextOffset"] == asked.offset:
            return {"error": "invalid_limit"}  # a page without its first character would lead nowhere
        return {
            "entryId": page["entry"],
            "text": page["text"],
            "offset": page["offset"],
            "nextOffset": page["nextOffset"],
        }

    # ------------------------------------------------------------ receipts

    def recorded(self, came: MessageCame) -> None:
        """Keep what is told of a message that was taken; the first word of an id stands."""
        key = (mapping.instance_of(came.sender["id"]), came.message["id"])
        if key not in self._provenance:
            self._provenance[key] = mapping.provenance(came.sender, came.message)
            while len(self._provenance) > PROVENANCE_MAX:
                self._provenance.popitem(last=False)
                self._is_evicted = True

    def asked_receipt(self, broker: str, asked: ReceiptAsked) -> None:
        """Answer a read of a receipt."""
        member = self._intercom.post.members[broker]
        if member.link is not None:
            body = self.receipt(asked.root, asked.message_id, mapping.instance_of(asked.sender["id"]))
            member.link.answer_receipt(asked.token, body)
            member.flush()

    def receipt(self, root: str, message_id: str, asker: str | None = None) -> dict[str, Any]:
        """Return `{receipt}` of a message to this root, or `{error}`.

        Args:
            root: The native session that it was for.
            message_id: Its id.
            asker: Who asks: where several senders used the id, their own message is meant.
        """
        if root != self._intercom.context.root or self._node.is_closing:
            return {"error": UNAVAILABLE}
        found = [
            item
            for item in self._node.engine.held(
                Peer(self._node.instance), message_id=message_id, unread_only=False, count_max=FOUND_MAX
            )
            if item.envelope.sender.wire == mapping.WIRE
        ]
        # What is not on disk yet was told to nobody: until then there is no checkpoint.
        found = [item for item in found if self._is_evicted or self._known(item) is not None]
        own = [item for item in found if item.envelope.sender.instance == asker]
        if not found:
            return {"error": NOT_FOUND}
        return {"receipt": self._facts((own or found)[0])}

    def _known(self, item: Held) -> Provenance | None:
        return self._provenance.get((item.envelope.sender.instance, item.envelope.message_id))

    def _facts(self, item: Held) -> dict[str, Any]:
        envelope, receipt = item.envelope, item.receipt
        known = self._known(item)
        is_placed = receipt.consumed_ms is not None
        facts: dict[str, Any] = {
            "version": 1,
            "rootSessionId": self._intercom.context.root,
            "messageId": envelope.message_id,
            "sender": {
                "peerId": known.peer if known else self._intercom.post.session_of(envelope.sender.instance),
                "rootSessionId": known.root if known else None,
                "incarnation": known.incarnation if known else None,
            },
            "delivery": known.delivery if known else str(envelope.delivery),
            "receivedAt": to_iso(item.at_ms),
            "textSha256": known.text_sha256 if known else mapping.text_sha256(envelope.content),
            "checkpointEntryId": str(item.cursor),
            "queued": True,
            "nativeHandoff": item.exposure_count > 0 or is_placed,
            "placementEntryId": f"{item.cursor}-context" if is_placed else None,
            "discarded": receipt.state is State.EXPIRED,
            "tieline": {
                "version": 1,
                "state": str(receipt.state),
                "cursor": receipt.cursor,
                "outcome": receipt.outcome,
                "acceptedAt": receipt.accepted_ms,
                "durability": None if receipt.durability is None else str(receipt.durability),
            },
        }
        if known is not None and known.guard is not None:
            facts["guard"] = known.guard
        if known is not None and known.hint is not None:
            facts["replyHint"] = known.hint
        return facts

    # ------------------------------------------------------------ who is not taken in

    def turned_away(self, broker: str, came: MessageCame, refusal: Refusal) -> None:
        """Tell the sender of a refused message, where they wait or could send it later."""
        message = came.message
        why = WORDS.get(refusal.code, refusal.text)
        is_ask = message.get("expectsReply") is True
        if not is_ask and (refusal.code != "QUEUE_FULL" or "replyTo" in message or _is_passive(message)):
            return
        text = f"Message {message['id'][:80]} was not taken: {why}. ({refusal.code})"
        said: dict[str, Any] = {
            "id": self._node.new_message_id(),
            "timestamp": self._node.now().wall_ms,
            "content": {"text": text},
        }
        if is_ask:
            failure = {"type": "context", "name": mapping.FAILURE_NAME, "content": text}
            said |= {"replyTo": message["id"], "delivery": "steer"}
            said["content"]["attachments"] = [failure]
        else:
            said |= {"delivery": "passive", "passive": True}
        post = self._intercom.post
        post.say(post.members[broker], came.sender["id"], said)


def _is_passive(message: dict[str, Any]) -> bool:
    return message.get("passive") is True or message.get("delivery") == "passive"
