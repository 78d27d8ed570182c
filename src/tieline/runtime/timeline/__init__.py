"""What happened among a person's agents, put together from the journals of their roots."""

from tieline.runtime.timeline.reader import Timeline, timeline
from tieline.runtime.timeline.values import (
    PeerName,
    ReceiptStep,
    TimelineEntry,
    TimelinePage,
    TimelineQuery,
    shape,
)

__all__ = [
    "PeerName",
    "ReceiptStep",
    "Timeline",
    "TimelineEntry",
    "TimelinePage",
    "TimelineQuery",
    "shape",
    "timeline",
]
