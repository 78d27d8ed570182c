"""Whom a draft is for, who is there now, and what a draft therefore is: a letter, an instruction, or a no.

Rule 1: what was picked is that incarnation or nobody: one that ended or came back as another is refused.
Rule 2: a letter goes out at once, and asks no model; a reference in other text sends nothing.
Rule 3: a name that was not picked stands where exactly one bears it; in a letter's place nobody is no letter.

Source: reference/native.md 1N (129 to 131), 2.10, 2.11.
"""

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tieline.composer.draft import Binding, Draft
from tieline.composer.mentions import Mention, direct
from tieline.errors import Refusal

__all__ = ["Instruction", "Known", "Letter", "Reference", "note", "read"]

CANDIDATES_MAX = 8


class Known(NamedTuple):
    """One peer that is there now."""

    alias: str
    peer_id: str
    instance_id: str
    run_id: str | None = None
    has_inbox: bool = True

    def binding(self) -> Binding:
        """Return this incarnation as it is picked; `Draft.picked` gives it its place."""
        return Binding(self.alias, 0, 0, self.peer_id, self.instance_id, self.run_id)


class Reference(NamedTuple):
    """A peer that a text names without being for it."""

    alias: str
    peer_id: str
    instance_id: str
    run_id: str | None
    start: int
    end: int


class Letter(NamedTuple):
    """What goes to one peer at once."""

    to: Known
    content: str
    references: tuple[Reference, ...]
    reply_to: str | None
    scope: str | None


class Instruction(NamedTuple):
    """What is for the local turn: its text, and who is named in it. Nothing is sent."""

    text: str
    references: tuple[Reference, ...]
    reply_to: str | None
    scope: str | None


def read(draft: Draft, known: Iterable[Known]) -> Letter | Instruction | Refusal:
    """Return what a draft is, against who is there now.

    Args:
        draft: What was typed.
        known: Everybody who is there.

    Returns:
        A letter, an instruction, or a refusal: PEER_OFFLINE (pick again), CAPABILITY_DENIED (it has no
        inbox), AMBIGUOUS_TARGET (several bear the name), UNKNOWN_TARGET (nobody does).
    """
    book = _Book(known)
    bound = draft.bound()
    whole = None if draft.to is not None else direct(draft.text, draft.pasted)
    if draft.to is None and whole is None:
        references = _references(bound, book)
        if isinstance(references, Refusal):
            return references
        return Instruction(draft.text.strip(), references, draft.reply_to, draft.scope)
    target: Known | Refusal | None
    if whole is None:
        target, content, inline = book.exact(draft.to), draft.text.strip(), bound
    else:
        target, content, inline = book.one(*bound[0]), whole.content, bound[1:]
    if target is None:
        return Refusal("UNKNOWN_TARGET", f"nobody here is called :{bound[0][0].alias}")
    if isinstance(target, Refusal):
        return target
    references = _references(inline, book)
    if isinstance(references, Refusal):
        return references
    return Letter(target, content, references, draft.reply_to, draft.scope)


def note(references: Sequence[Reference]) -> str:
    """Return what a model may be told of the peers that its instruction names; "" where it names none."""
    if not references:
        return ""
    named = [
        {
            "type": "peer_reference",
            "alias": one.alias,
            "peerId": one.peer_id,
            **({"runId": one.run_id} if one.run_id else {}),
        }
        for one in references
    ]
    return (
        "The text above names these peers. A reference gives no access to their transcripts and no further "
        "permission, and nothing was sent to them.\n" + json.dumps(named, ensure_ascii=True)
    )


class _Book:
    """Everybody who is there, by id and by name."""

    def __init__(self, known: Iterable[Known]) -> None:
        self._by_id: dict[str, Known] = {}
        self._by_alias: dict[str, list[Known]] = {}
        for one in known:
            self._by_id[one.peer_id] = one
            self._by_alias.setdefault(one.alias, []).append(one)

    def exact(self, picked: Binding | None) -> Known | Refusal:
        """Return the incarnation that was picked, if it is there still and can be told something."""
        assert picked is not None, "asked where something was picked"
        found = self._by_id.get(picked.peer_id)
        if found is None or (found.instance_id, found.run_id) != (picked.instance_id, picked.run_id):
            return Refusal(
                "PEER_OFFLINE",
                f":{picked.alias}, as it was picked, is not there any more: pick it again",
            )
        return _with_inbox(found)

    def one(self, mention: Mention, picked: Binding | None) -> Known | Refusal | None:
        """Return whom a mention means; None where nobody bears the name."""
        if picked is not None:
            return self.exact(picked)
        found = self._by_alias.get(mention.alias, [])
        if len(found) > 1:
            ids = tuple(one.peer_id for one in found[:CANDIDATES_MAX])
            text = f"{len(found)} peers are called :{mention.alias}: pick one"
            return Refusal("AMBIGUOUS_TARGET", text, candidates=ids)
        return _with_inbox(found[0]) if found else None


def _with_inbox(peer: Known) -> Known | Refusal:
    if peer.has_inbox:
        return peer
    return Refusal("CAPABILITY_DENIED", f":{peer.alias} is shown only; it has no inbox")


def _references(
    bound: Sequence[tuple[Mention, Binding | None]], book: _Book
) -> tuple[Reference, ...] | Refusal:
    found: list[Reference] = []
    for mention, picked in bound:
        peer = book.one(mention, picked)
        if isinstance(peer, Refusal):
            return peer
        if peer is not None:  # a name that nobody bears is text
            found.append(
                Reference(peer.alias, peer.peer_id, peer.instance_id, peer.run_id, mention.start, mention.end)
            )
    return tuple(found)
