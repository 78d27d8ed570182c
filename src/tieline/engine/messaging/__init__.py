"""One root's custody of messages, from the sender's intent to the recipient's context."""

from tieline.engine.messaging.root import InboxCounts, Messaging

__all__ = ["InboxCounts", "Messaging"]
