"""What was sent before, to be recalled; and what the desk keeps when it ends.

Rule 1: a recalled draft has its bindings: whether they still hold is asked when it is sent.
Rule 2: going through the history keeps what was being typed.

Source: reference/native.md 1N (125, 129), 2.11.
"""

from typing import Any

from tieline.composer import Draft

__all__ = ["Memory"]

VERSION = 1
SENT_MAX = 100


class Memory:
    """The drafts of one person."""

    def __init__(self) -> None:
        self.sent: list[Draft] = []
        self._place: int | None = None
        self._typing = Draft()

    def sent_now(self, draft: Draft) -> None:
        """Remember what was sent, once when it is sent twice."""
        self._place = None
        if not self.sent or self.sent[-1] != draft:
            self.sent = [*self.sent, draft][-SENT_MAX:]

    def edited(self) -> None:
        """What is recalled was changed: the next recall begins anew."""
        self._place = None

    def recall(self, draft: Draft, step: int) -> Draft | None:
        """Return the draft `step` places on (-1 is earlier), or None where there is none.

        Behind the newest is what was being typed when the recall began.
        """
        if self._place is None:
            if step > 0 or not self.sent:
                return None
            self._typing, self._place = draft, len(self.sent)
        place = self._place + step
        if place < 0:
            return None
        if place >= len(self.sent):
            self._place = None
            return self._typing
        self._place = place
        return self.sent[place]

    def shape(self, draft: Draft) -> dict[str, Any]:
        """Return what is kept, with what is being typed."""
        return {
            "version": VERSION,
            "draft": draft.shape(),
            "sent": [one.shape() for one in self.sent],
        }

    def load(self, kept: dict[str, Any]) -> Draft:
        """Take over what was kept; return what was being typed."""
        if kept.get("version") != VERSION:
            return Draft()
        sent = kept.get("sent")
        found = [Draft.of(one) for one in sent] if isinstance(sent, list) else []
        self.sent = [one for one in found if one.text][-SENT_MAX:]
        return Draft.of(kept.get("draft"))
