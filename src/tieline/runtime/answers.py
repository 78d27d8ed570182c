"""A peer's last finished answer, in pages of UTF-16 code units.

Rule 1: an answer is one that the peer's host handed in as finished; an empty history is said to be empty.
Rule 2: a page never cuts a surrogate pair; pages of one entry join to its exact text.

Source: spec/intercom.md, "last"; DESIGN.md 4; open-bugs.md O49.
"""

from typing import TYPE_CHECKING, Any

from tieline.errors import Refused
from tieline.model.identity import Descriptor
from tieline.runtime.host import Answers

if TYPE_CHECKING:
    from tieline.runtime.node import Node

__all__ = ["fetch", "page"]

PAGE_UNITS_MAX = 16_384


def page(
    answers: Answers | None, entry: str | None, offset: int, units_max: int = PAGE_UNITS_MAX
) -> dict[str, Any]:
    """Return one page of an answer.

    Args:
        answers: The peer's finished answers, or None.
        entry: The pinned entry, or None for the last one.
        offset: UTF-16 code units to skip; inside a pair it is moved to the pair's start.
        units_max: Code units of one page.

    Returns:
        `{entry, text, offset, nextOffset, entries}`; `entry` is None when there is no answer yet.
    """
    found = answers.find(entry) if answers is not None else None
    if found is None:
        if entry is not None:
            raise Refused("UNKNOWN_TARGET", "this peer has no such entry any more")
        return {"entry": None, "text": "", "offset": 0, "nextOffset": None, "entries": 0}
    units = found.text.encode("utf-16-le", "surrogatepass")
    count = len(units) // 2
    start = _whole(units, min(offset, count))
    end = _whole(units, min(start + units_max, count))
    text = units[2 * start : 2 * end].decode("utf-16-le", "replace")
    return {
        "entry": found.entry,
        "text": text,
        "offset": start,
        "nextOffset": end if end < count else None,
        "entries": len(answers) if answers is not None else 0,
    }


def _whole(units: bytes, at: int) -> int:
    """Return `at`, or one less when it would cut a surrogate pair."""
    if 0 < at < len(units) // 2 and 0xDC <= units[2 * at + 1] <= 0xDF and 0xD8 <= units[2 * at - 1] <= 0xDB:
        return at - 1
    return at


async def fetch(node: "Node", target: Descriptor, entry: str | None, offset: int) -> dict[str, Any]:
    """Return one page of `target`'s answer: our own run's, or asked of its root.

    Raises:
        Refused: CAPABILITY_DENIED when the far end cannot tell, PEER_OFFLINE when it does not answer.
    """
    if target.peer.instance == node.instance:
        return page(node.host.answers.get(target.peer.run), entry, offset)
    reader = node.readers.get(target.wire)
    if reader is not None:
        return await reader(target.peer, entry, offset)
    params = {"to": target.peer.id, "offset": offset} | ({} if entry is None else {"entry": entry})
    return await node.ask_peer(target.peer.instance, "tieline.last", params)
