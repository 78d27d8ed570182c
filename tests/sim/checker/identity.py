"""I43 and I45 to I48: names, proofs, senders, pages of a directory.

Source: reference/reliability.md 2.4 "Topology, identity, authentication".
"""

from collections.abc import Callable

from tests.sim.checker.claims import Claim
from tests.sim.checker.reading import NOT_YET, Reading

__all__ = ["INVARIANTS"]

HANDSHAKE = ("peer.hello", "peer.authenticate")


def i43_ambiguity(reading: Reading, claim: Claim) -> None:
    """A name that two bear is refused, an exact id wins, and nothing else routes."""
    for _, entry in reading.all_of("resolve"):
        data = entry.data
        exact = [peer for peer, _ in data["bearers"] if peer == data["target"]]
        named = [peer for peer, alias in data["bearers"] if alias == data["target"]]
        chosen = data["chosen"]
        if exact:
            claim(chosen == exact[0], entry.root, "took", chosen, "for the id", data["target"])
        elif len(named) > 1:
            claim(data["code"] == "AMBIGUOUS_TARGET", entry.root, "picked", chosen, "of", named)
        elif named:
            claim(chosen == named[0], entry.root, "took", chosen, "for", data["target"])
        else:
            claim(chosen is None, entry.root, "took", chosen, "for", data["target"])


def i45_proof_first(reading: Reading, claim: Claim) -> None:
    """Nothing has an effect before both proofs; an inbox and resources are never reached over a line."""
    proved: dict[tuple[str, int], int] = {}
    for words in [*reading.wrote, *reading.read]:
        if words.frame.get("authenticated") is True and words.root in reading.honest:
            name = (words.root, words.link)
            proved[name] = min(proved.get(name, NOT_YET), words.place)
    for offer in reading.offers:
        method = offer.asked.frame["method"]
        if method in HANDSHAKE or offer.answer is None:
            continue
        if offer.answer.frame["kind"] == "result":
            at = proved.get((offer.asked.root, offer.asked.link), NOT_YET)
            claim(
                at < offer.answer.place, offer.asked.root, "answered", method, "before both ends were proved"
            )
        if method == "peer.read" or method.startswith("resource."):
            claim(offer.answer.frame["kind"] == "error", offer.asked.root, "allowed", method)
    for root in reading.honest:
        far_proved = {
            words.far: words.place
            for words in reversed(reading.wrote)
            if words.root == root and words.frame.get("authenticated") is True
        }
        for fact in reading.facts(root, "message"):
            sender = fact.row["sender_instance"]
            if fact.row["box"] == "in" and sender != root:
                at = far_proved.get(sender, NOT_YET)
                claim(at < fact.asked_at, root, "took mail of", sender, "which had proved nothing")


def i46_nonce_once(reading: Reading, claim: Claim) -> None:
    """A nonce or a proof is taken once in the life of who verifies it."""
    nonces: dict[str, dict[str, int]] = {}
    proofs: dict[str, dict[str, int]] = {}
    for offer in reading.offers:
        if offer.answer is None or offer.answer.frame["kind"] != "result":
            continue
        frame = offer.asked.frame
        for name, table in (("nonce", nonces), ("proof", proofs)):
            if frame["method"] in HANDSHAKE and frame.get(name):
                seen = table.setdefault(offer.asked.root, {})
                claim(frame[name] not in seen, offer.asked.root, "took the same", name, "twice")
                seen[frame[name]] = offer.asked.place


def i47_sender_is_key(reading: Reading, claim: Claim) -> None:
    """The stored and shown sender is the one whose key proved the line that the message came over."""
    came: dict[tuple[str, str, str, str], int] = {}
    for words in reading.read:
        send = words.frame.get("send")
        if send is not None:
            came.setdefault((words.root, words.far, str(send["message"]), str(send["to"])), words.place)
    for root in reading.honest:
        for fact in reading.facts(root, "message"):
            row = fact.row
            if row["box"] == "in" and row["sender_instance"] != root:
                place = came.get((root, row["sender_instance"], row["message"], row["recipient"]), NOT_YET)
                claim(
                    place < fact.asked_at, root, "says", row["message"], "came from", row["sender_instance"]
                )
    for _, entry in reading.all_of("listed"):
        for cursor, message, sender, _ in entry.data["held"]:
            held = reading.messages.get(entry.root, {}).get(cursor)
            if held is not None:
                claim(held.row["sender_instance"] == sender, entry.root, "shows", message, "as of", sender)


def i48_pages(reading: Reading, claim: Claim) -> None:
    """Pages of a directory are bounded, and hold everybody once."""
    for _, entry in reading.all_of("directory"):
        data = entry.data
        seen = [peer for page in data["pages"] for peer in page]
        claim(sorted(seen) == data["there"], entry.root, "listed", seen, "of", data["there"])
        claim(all(len(page) <= data["size"] for page in data["pages"]), entry.root, "filled a page too far")


INVARIANTS: dict[str, Callable[[Reading, Claim], None]] = {
    "I43": i43_ambiguity,
    "I45": i45_proof_first,
    "I46": i46_nonce_once,
    "I47": i47_sender_is_key,
    "I48": i48_pages,
}
