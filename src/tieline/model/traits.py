"""What each wire can answer, as data: nobody asks which wire it is.

Rule 1: a trait changes how custody is driven, never what a state means.
Rule 2: None for a number means that the root's configured limit holds.

Source: DESIGN.md section 1; reference/native.md 1P, 2.8, 3.3; reference/pi-peers-and-harness-doors.md 1.6,
1.7; spec/pi-peers.md "Anti-abuse on receive".
"""

from functools import lru_cache
from typing import Final, Literal

import msgspec

from tieline.model.identity import wire_of
from tieline.model.message import OPTIONS
from tieline.model.receipt import Durability

__all__ = ["INTERCOM", "NATIVE", "PI_PEERS", "TRAITS", "Traits", "traits_of"]

_NOTHING: Final[frozenset[str]] = frozenset()


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """One wire's abilities and the limits that an envelope admitted over it keeps.

    `retry`: "same_id" asks again under the same message id until settled; "never" because a repeat
    would be a second message. `route_advances_on`: what lets the next message of a route leave: a
    receipt of accepted or final, the broker's answer, or the frame written. `durability`: what
    `accepted` says of the recipient's storage when the far end states nothing itself.

    `carries` are the options of a message (`message.OPTIONS`) that every end of this wire can be told,
    `extends` those that a Tieline end can be told besides. `holds`: a recipient may ask its person first
    and say so. `has_status`: a recipient can be asked what became of a message; where it cannot, a reply
    that names the message is the word that it was replied to. `names_chain`: a reply bears its correlation;
    where it does not, it belongs to that of the message it names. `pace_*`: how fast we send to one
    recipient, so that it drops nothing; `repeat_window_ms`: within it the same text to the same
    recipient would be dropped. `rates_itself`: this wire's own room counts what arrives.
    """

    name: str
    retry: Literal["same_id", "never"]
    route_advances_on: Literal["receipt", "broker_answer", "frame_written"]
    durability: Durability
    message_bytes_max: int | None = None
    unconsumed_max: int | None = None
    expiry_ms: int | None = None
    is_kept_until_consumed: bool = False  # mail has no expiry; `expiry_ms` says nothing then
    carries: frozenset[str] = _NOTHING
    extends: frozenset[str] = _NOTHING
    holds: bool = False
    has_status: bool = True
    names_chain: bool = True
    pace_burst: int | None = None
    pace_per_second: float = 0.0
    repeat_window_ms: int | None = None
    rates_itself: bool = False
    first_link: int = 0  # the links of its carrier are numbered from here: an answer finds who asked


NATIVE: Final = Traits(
    name="native",
    retry="same_id",
    route_advances_on="receipt",
    durability=Durability.UNSTATED,
    extends=OPTIONS,
)
"""Signed links between roots; every number is the root's configured limit."""

PI_PEERS: Final = Traits(
    name="pi-peers",
    retry="never",
    route_advances_on="frame_written",
    durability=Durability.VOLATILE,
    message_bytes_max=1_048_576,
    unconsumed_max=50,
    is_kept_until_consumed=True,
    carries=frozenset({"queue", "notify_when_idle"}),
    holds=True,
    has_status=False,
    names_chain=False,
    pace_burst=30,
    pace_per_second=0.5,
    repeat_window_ms=30_000,
    rates_itself=True,
)
"""Windows of pi and oh-my-pi: one connection per message, receipts over fresh ones."""

INTERCOM: Final = Traits(
    name="intercom",
    retry="never",
    route_advances_on="broker_answer",
    durability=Durability.UNSTATED,
    message_bytes_max=1_048_576,
    unconsumed_max=100,
    is_kept_until_consumed=True,
    carries=frozenset({"queue", "passive", "thread", "replaces", "attachments"}),
    has_status=False,
    names_chain=False,
    first_link=1 << 41,
)
"""Sessions behind a broker, whose answer says that it took the frame."""

TRAITS: Final[dict[str, Traits]] = {one.name: one for one in (NATIVE, PI_PEERS, INTERCOM)}


@lru_cache(maxsize=4_096)
def traits_of(instance: str) -> Traits:
    """Return the traits of the wire that reaches an instance."""
    return TRAITS[wire_of(instance)]
