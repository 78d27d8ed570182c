"""Every limit of a root: unit in the name, default, range and reason.

Rule 1: `Limits` is a frozen value passed in; two roots in one simulator may differ.
Rule 2: raising a limit is allowed inside its range; nothing is unlimited.

Source: specification, "Configuration reference"; reference/native.md 1P, 2.8, 2.14, 3.4.
"""

from typing import NamedTuple

import msgspec

__all__ = [
    "HEARTBEAT_MS",
    "IDLE_LINK_MS",
    "LIMITS",
    "PAIR_WINDOW_MS",
    "PREPARED_MS",
    "PRUNE_MS",
    "RECEIPT_RESERVE_BYTES",
    "RETRY_FIRST_MS",
    "RETRY_LAST_MS",
    "STALE_MS",
    "WAIT_MS_MAX",
    "Bound",
    "Limits",
]


class Bound(NamedTuple):
    """One limit: its default, its lowest and highest value, its unit and why it is there."""

    default: int
    low: int
    high: int
    unit: str
    reason: str


LIMITS: dict[str, Bound] = {
    "frame_bytes": Bound(
        65_536, 1_024, 16_777_216, "bytes", "one line of the native wire, checked before parsing"
    ),
    "message_bytes": Bound(8_000, 1, 1_048_576, "UTF-8 bytes", "one text with its attachments"),
    "inbox_messages": Bound(
        32,
        1,
        1_000_000,
        "unconsumed messages per recipient",
        "an agent that does not read is told to senders early",
    ),
    "pending_requests": Bound(
        32, 1, 65_536, "requests per connection", "bounds work that one end can make the other hold"
    ),
    "connections": Bound(16, 1, 4_096, "cached outbound connections", "descriptors are shared with the host"),
    "storage_bytes": Bound(
        10_485_760, 65_536, 1 << 40, "bytes per instance", "what peers may make one root keep"
    ),
    "rate_per_second": Bound(
        10, 1, 1_000_000, "new messages per second and sender", "a flood costs the flooder"
    ),
    "rate_burst": Bound(20, 1, 1_000_000, "new messages", "a short burst is normal work"),
    "handshake_ms": Bound(2_000, 50, 60_000, "ms", "the whole exchange, however it is dripped"),
    "acknowledgement_ms": Bound(2_000, 50, 60_000, "ms", "then the outcome is unknown, not refused"),
    "expiry_ms": Bound(600_000, 1, 86_400_000, "ms", "life of a message that names none"),
    "max_expiry_ms": Bound(3_600_000, 1, 86_400_000, "ms", "longest life that a sender may ask"),
    "retention_ms": Bound(
        86_400_000, 60_000, 31_536_000_000, "ms", "finished records are kept for questions"
    ),
    "automatic_replies": Bound(
        8, 1, 64, "automatic messages per conversation", "two models thank each other for ever otherwise"
    ),
    "directory_page_size": Bound(50, 1, 1_000, "peers per page", "a model reads the page"),
    "published_runs": Bound(64, 1, 4_096, "live runs", "a directory answer stays one frame"),
    "agent_sends_max": Bound(
        20,
        1,
        1_000_000,
        "sends per pair in 10 minutes without a person",
        "a loop across fresh conversations ends too",
    ),
    "events_kept": Bound(10_000, 100, 10_000_000, "events", "an endless history ends in QUEUE_FULL"),
    "ended_runs_kept": Bound(4_096, 1, 1_000_000, "identities", "a late reply to an ended run is told so"),
    "boundary_messages": Bound(
        16, 1, 256, "messages per boundary", "a burst must not fill the model's context"
    ),
    "boundary_bytes": Bound(32_768, 1_024, 1_048_576, "bytes per boundary", "the same, in bytes"),
}
"""Every limit of a root. Raising one is allowed inside its range; nothing is unlimited."""

WAIT_MS_MAX = 30_000  # peer_messages: reference/native.md 135
RECEIPT_RESERVE_BYTES = 2_048  # per unresolved record: reference/native.md 2.8
HEARTBEAT_MS = 5_000  # reference/native.md 33
STALE_MS = 15_000  # reference/native.md 34
RETRY_FIRST_MS = 500  # head of a route: reference/native.md 3.4
RETRY_LAST_MS = 30_000
IDLE_LINK_MS = 60_000  # reference/native.md 3.4
PRUNE_MS = 600_000  # reference/native.md 3.4
PAIR_WINDOW_MS = 600_000  # `agent_sends_max` counts over this
PREPARED_MS = 120_000  # an exposure without evidence is given to the next rung after this


class Limits(msgspec.Struct, frozen=True):
    """The limits of one root; see `LIMITS` for units and reasons."""

    frame_bytes: int = 65_536
    message_bytes: int = 8_000
    inbox_messages: int = 32
    pending_requests: int = 32
    connections: int = 16
    storage_bytes: int = 10_485_760
    rate_per_second: int = 10
    rate_burst: int = 20
    handshake_ms: int = 2_000
    acknowledgement_ms: int = 2_000
    expiry_ms: int = 600_000
    max_expiry_ms: int = 3_600_000
    retention_ms: int = 86_400_000
    automatic_replies: int = 8
    directory_page_size: int = 50
    published_runs: int = 64
    agent_sends_max: int = 20
    events_kept: int = 10_000
    ended_runs_kept: int = 4_096
    boundary_messages: int = 16
    boundary_bytes: int = 32_768
