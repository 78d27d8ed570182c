"""One frame of the intercom wire."""

import pytest

from tieline.errors import ProtocolError
from tieline.wire.intercom.framing import FRAME_BYTES_MAX, fields_of, framed, payload


@pytest.mark.clause("intercom-9")
def test_payload_is_an_object_with_a_type() -> None:
    """Anything else is a typed error."""
    assert fields_of(b'{"type":"x","a":1}') == {"type": "x", "a": 1}
    for wrong in (b"null", b"[]", b"{}", b'{"type":1}', b'"type"', b""):
        with pytest.raises(ProtocolError):
            fields_of(wrong)


@pytest.mark.clause("intercom-11", "intercom-4")
def test_payload_over_the_bound_is_not_written() -> None:
    """The bound is inclusive; one more is refused with its size."""
    assert framed(payload({"type": "x"})) == b'\x00\x00\x00\x0c{"type":"x"}'
    assert len(framed(b"x" * FRAME_BYTES_MAX)) == FRAME_BYTES_MAX + 4
    with pytest.raises(ProtocolError, match=r"Intercom message too large \(1048577 bytes; max 1048576\)"):
        framed(b"x" * (FRAME_BYTES_MAX + 1))
