"""What each wire can answer, as data: nobody asks which wire it is.

Rule: a trait changes how custody is driven, never what a state means.

Source: DESIGN.md section 1; reference/native.md 1P, 2.8, 3.3.
"""

from typing import Final, Literal

import msgspec

__all__ = ["NATIVE", "Traits"]


class Traits(msgspec.Struct, frozen=True):
    """One wire's abilities and the limits that an envelope admitted over it keeps.

    `retry`: "same_id" asks again under the same message id until settled; "never" because a repeat
    would be a second message. `route_advances_on`: what lets the next message of a route leave: a
    receipt of accepted or final, the broker's answer, or the frame written. `expiry_ms` is None where
    mail waits until it is consumed. `durability`: what `accepted` says of the recipient's storage
    when the far end states nothing itself.
    """

    name: str
    retry: Literal["same_id", "never"]
    route_advances_on: Literal["receipt", "broker_answer", "frame_written"]
    message_bytes_max: int
    unconsumed_max: int
    expiry_ms: int | None
    durability: Literal["synced", "unstated", "volatile"]


NATIVE: Final = Traits(
    name="native",
    retry="same_id",
    route_advances_on="receipt",
    message_bytes_max=8_000,
    unconsumed_max=32,
    expiry_ms=600_000,
    durability="unstated",
)
"""Signed links between roots. The numbers are the public profile's defaults; a root's configured limits
go before them."""
