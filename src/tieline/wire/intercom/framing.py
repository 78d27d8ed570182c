"""One frame of the intercom wire: a length of four bytes, then one JSON object with a `type`.

Rule 1: what breaks this is a ProtocolError and costs the socket; there is no error frame for it.
Rule 2: the bound counts the payload, and both ends keep it: nothing over it is ever written.

Source: reference/intercom.md 1.1.
"""

from collections.abc import Mapping
from typing import Any, Final

from tieline.errors import ProtocolError
from tieline.wire.intercom.reading import dump, parse

__all__ = ["FRAME_BYTES_MAX", "fields_of", "framed", "payload"]

FRAME_BYTES_MAX: Final = 1_048_576
"""Payload of one frame, the length before it not counted, this number included."""


def fields_of(data: bytes) -> dict[str, Any]:
    """Return the object in a payload; ProtocolError where it is none with a string `type`."""
    value = parse(data)
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise ProtocolError("MALFORMED_FRAME", "not an object with a type")
    return value


def payload(fields: Mapping[str, Any]) -> bytes:
    """Return the bytes of a frame without the length before them, however many."""
    return dump(fields)


def framed(data: bytes) -> bytes:
    """Return a payload as it is written.

    Raises:
        ProtocolError: `FRAME_TOO_LARGE`; nothing of it is to be written.
    """
    if len(data) > FRAME_BYTES_MAX:
        raise ProtocolError(
            "FRAME_TOO_LARGE", f"Intercom message too large ({len(data)} bytes; max {FRAME_BYTES_MAX})"
        )
    return len(data).to_bytes(4, "big") + data
