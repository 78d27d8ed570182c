"""Mail made ready for a model: chosen, put into one text, prepared under a token.

Rule 1: only what the text shows whole is prepared; a message too long for it is shown once as an
excerpt that says how to read it, and stays unread.
Rule 2: what another rung has in flight is never chosen: a message is claimed once.
Rule 3: passive mail is shown before the rest; the rest, and passive mail itself, in the order of admission.
That order also decides what is chosen where not all fits: passive mail never keeps work out.

Source: DESIGN.md 3 "Exposure and consumption"; reference/native.md 3.4 "context rendering"; specification of
the intercom, "Persistence and lifecycle"; reference/intercom.md 76.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from tieline.engine.contract import Expose, Held
from tieline.errors import Refusal, Refused
from tieline.model.identity import Peer
from tieline.model.message import Delivery
from tieline.model.receipt import State
from tieline.text import printable

if TYPE_CHECKING:
    from tieline.runtime.node import Node

__all__ = ["Bounds", "Prepared", "prepared"]

WAITING_SEEN_MAX = 1_024
"""Unread records looked at per boundary, so that passive mail in front hides no other."""
SENDER_COLUMNS = 64


class Bounds(NamedTuple):
    """What one exposure may hold.

    Attributes:
        rung: The way it goes, as `Expose.rung` names it.
        bytes_max: UTF-8 bytes of the whole text.
        evidence_ms: Without evidence for so long, the next rung may have it.
    """

    rung: str
    bytes_max: int
    evidence_ms: int


class Prepared(NamedTuple):
    """The text, what it shows whole, and the token of that; '' and None where there is nothing."""

    text: str
    held: tuple[Held, ...]
    token: str | None

    @property
    def senders(self) -> list[str]:
        """The readable names of who sent it, each once, fit for a person's terminal."""
        names = (printable(item.envelope.sender_alias or "?", SENDER_COLUMNS) for item in self.held)
        return list(dict.fromkeys(names))


async def prepared(node: "Node", owner: Peer, bounds: Bounds, may_come: Callable[[Held], bool]) -> Prepared:
    """Return the mail of `owner` that may come now, as much of the oldest as fits, prepared.

    Raises:
        Refused: RESOURCE_BUSY, another reader took one of these meanwhile.
    """
    waiting = tuple(
        item
        for item in node.engine.held(owner, unread_only=True, count_max=WAITING_SEEN_MAX)
        if not item.is_prepared
        and item.state is State.ACCEPTED
        and item.cursor not in node.host.excerpted
        and may_come(item)
    )
    count_max = node.settings.limits.boundary_messages
    fitting = node.rendered(waiting, bounds.bytes_max, count_max)
    excerpts = [waiting[place] for place in fitting.excerpts]
    node.host.note_excerpts(item.cursor for item in excerpts)
    cursors = tuple(waiting[place].cursor for place in fitting.whole)
    exposed, token = await _exposed(node, owner, cursors, bounds, count_max)
    node.host.note_beside((item.cursor for item in exposed), node.now().mono_ms)
    held = tuple(sorted(exposed, key=lambda item: item.envelope.delivery is not Delivery.PASSIVE))
    return Prepared(node.rendered((*held, *excerpts), bounds.bytes_max, count_max).text, held, token)


async def _exposed(
    node: "Node", owner: Peer, cursors: tuple[int, ...], bounds: Bounds, count_max: int
) -> tuple[tuple[Held, ...], str | None]:
    """Prepare exactly these; return them with their token, or nothing and None."""
    if not cursors:
        return (), None
    token = node.new_token()
    held = await node.ask(
        Expose(
            owner=owner,
            token=token,
            rung=bounds.rung,
            count_max=count_max,
            bytes_max=bounds.bytes_max,
            cursors=cursors,
            evidence_ms=bounds.evidence_ms,
        )
    )
    if isinstance(held, Refusal):
        raise Refused.of(held)
    return held, token
