"""Limits: defaults of the specification, ranges, reasons."""

import pytest

from tieline.config.limits import LIMITS, Limits

PUBLISHED = {
    "frame_bytes": 65_536, "message_bytes": 8_000, "inbox_messages": 32, "pending_requests": 32,
    "connections": 16,
    "storage_bytes": 10_485_760, "rate_per_second": 10, "rate_burst": 20, "handshake_ms": 2_000,
    "acknowledgement_ms": 2_000, "expiry_ms": 600_000, "max_expiry_ms": 3_600_000, "retention_ms": 86_400_000,
    "automatic_replies": 8, "directory_page_size": 50, "published_runs": 64,
}  # fmt: skip


@pytest.mark.clause(
    "native-153",
    "native-154",
    "native-155",
    "native-156",
    "native-157",
    "native-158",
    "native-159",
    "native-160",
    "native-161",
    "native-162",
    "native-163",
    "native-164",
    "native-165",
    "native-166",
    "native-167",
)
def test_limits_are_those_of_the_specification() -> None:
    """Every published default holds, and the table of reasons agrees with the values."""
    limits = Limits()
    assert {name: getattr(limits, name) for name in PUBLISHED} == PUBLISHED
    assert {name: getattr(limits, name) for name in LIMITS} == {
        name: bound.default for name, bound in LIMITS.items()
    }
    assert set(LIMITS) == set(Limits.__struct_fields__)
    assert all(
        bound.low <= bound.default <= bound.high and bound.unit and bound.reason for bound in LIMITS.values()
    )
