"""The durable record of a root's moves, and the thread that writes it."""

from tieline.store.journal.identity import Identity
from tieline.store.journal.journal import SEAMS, Journal, StoreFull
from tieline.store.journal.rows import Portion, read_portion
from tieline.store.journal.writer import CommitOutcome, InlineWriter, Writer

__all__ = [
    "SEAMS",
    "CommitOutcome",
    "Identity",
    "InlineWriter",
    "Journal",
    "Portion",
    "StoreFull",
    "Writer",
    "read_portion",
]
