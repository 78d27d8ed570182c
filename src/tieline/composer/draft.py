"""A text that is being typed, with the exact peers that were picked in it.

Theory. A name in a text may come to mean somebody else while the text is edited; a peer that a person
picked may not. So what was picked is a binding: a place in the text, and the exact incarnation. An edit
before it moves it, an edit in it ends it. The draft is a value: the screen may be taken down and put up
again, and nothing of it is lost.

Rule 1: every change of the text goes through `edited`: a binding is where its name is, or is not there.
Rule 2: a draft is kept as JSON and read back strictly: what does not fit is not a draft.

Source: reference/native.md 1N (125, 129), 2.11.
"""

from typing import Any

import msgspec

from tieline.composer.mentions import Mention, Span, mentions, open_mention

__all__ = ["CHARACTERS_MAX", "Binding", "Draft"]

CHARACTERS_MAX = 1_048_576
"""Of a draft: the largest message that any wire takes."""


class Binding(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One exact incarnation that was picked, and where its name stands."""

    alias: str
    start: int
    end: int
    peer_id: str
    instance_id: str
    run_id: str | None = None


class Draft(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What is being typed.

    Attributes:
        text: All of it.
        cursor: Where the next letter goes.
        bindings: What was picked, in order.
        pasted: Spans that came by a bracketed paste.
        scope: How far names reach; None is the root's own scope.
        reply_to: The received message that this answers.
        to: Whom all of it is for, whatever it says; None: its first word says it.
    """

    text: str = ""
    cursor: int = 0
    bindings: tuple[Binding, ...] = ()
    pasted: tuple[Span, ...] = ()
    scope: str | None = None
    reply_to: str | None = None
    to: Binding | None = None

    def edited(self, start: int, end: int, new: str, *, is_pasted: bool = False) -> "Draft":
        """Return the draft with `new` in the place of a span; the cursor stands behind it."""
        text = self.text[:start] + new + self.text[end:]
        shift = len(new) - (end - start)
        bindings = [
            one
            if one.end <= start and not (one.end == start and new[:1].isalnum())
            else msgspec.structs.replace(one, start=one.start + shift, end=one.end + shift)
            for one in self.bindings
            if one.end <= start or one.start >= end
        ]
        pasted = [moved for one in self.pasted for moved in _moved(one, start, end, len(new))]
        if is_pasted and new:
            pasted.append((start, start + len(new)))
        return msgspec.structs.replace(
            self,
            text=text,
            cursor=start + len(new),
            bindings=tuple(one for one in bindings if text[one.start : one.end] == ":" + one.alias),
            pasted=tuple(sorted(pasted)),
        )

    def became(self, text: str, cursor: int, *, is_pasted: bool = False) -> "Draft":
        """Return the draft whose text is now `text`: what differs was one edit that ended at the cursor."""
        if text == self.text:
            return msgspec.structs.replace(self, cursor=cursor)
        kept_behind = len(text) - cursor
        if not (0 <= cursor <= len(text)) or text[cursor:] != self.text[len(self.text) - kept_behind :]:
            kept_behind = _common(self.text[::-1], text[::-1])
        limit = min(len(self.text), len(text)) - kept_behind
        kept_before = _common(self.text[: max(0, limit)], text[: max(0, limit)])
        end = len(self.text) - kept_behind
        kept_before = min(kept_before, end)
        new = text[kept_before : len(text) - kept_behind]
        made = self.edited(kept_before, end, new, is_pasted=is_pasted)
        return msgspec.structs.replace(made, cursor=max(0, min(cursor, len(text))))

    def picking(self) -> Mention | None:
        """Return the name that is being typed at the cursor, or None."""
        if self.cursor and any(one.end == self.cursor for one in self.bindings):
            return None  # it is picked already
        return open_mention(self.text, self.cursor, self.pasted)

    def picked(self, place: Mention, peer: Binding) -> "Draft":
        """Return the draft with an exact peer in the place of a name being typed; a blank follows."""
        is_followed = self.text[place.end : place.end + 1].isspace()
        name = f":{peer.alias}"
        made = self.edited(place.start, place.end, name if is_followed else f"{name} ")
        bound = msgspec.structs.replace(peer, start=place.start, end=place.start + len(name))
        cursor = bound.end + 1
        bindings = tuple(sorted((*made.bindings, bound), key=lambda one: one.start))
        return msgspec.structs.replace(made, bindings=bindings, cursor=cursor)

    def bound(self) -> tuple[tuple[Mention, Binding | None], ...]:
        """Return every mention with what was picked there, in order."""
        at = {(one.start, one.end): one for one in self.bindings}
        return tuple((one, at.get((one.start, one.end))) for one in mentions(self.text, self.pasted))

    def shape(self) -> dict[str, Any]:
        """Return the draft as JSON may hold it."""
        made: dict[str, Any] = msgspec.to_builtins(self)
        return made

    @classmethod
    def of(cls, shape: object) -> "Draft":
        """Return the draft that a shape is; an empty one where it is none."""
        try:
            made = msgspec.convert(shape, cls, strict=True)
        except msgspec.ValidationError:
            return cls()
        length = len(made.text)
        is_whole = (
            length <= CHARACTERS_MAX
            and 0 <= made.cursor <= length
            and all(made.text[one.start : one.end] == ":" + one.alias for one in made.bindings)
            and all(0 <= start <= end <= length for start, end in made.pasted)
        )
        return made if is_whole else cls()


def _common(one: str, other: str) -> int:
    """Return how many characters two texts begin with alike."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _moved(span: Span, start: int, end: int, length: int) -> list[Span]:
    """Return what is left of a pasted span after an edit; what was typed into it is not pasted."""
    first, last = span
    shift = length - (end - start)
    if last <= start:
        return [span]
    if first >= end:
        return [(first + shift, last + shift)]
    parts = [(first, start), (end + shift, last + shift)]
    return [(one, other) for one, other in parts if one < other]
