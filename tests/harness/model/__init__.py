"""A model server of our own on loopback: it answers as a script says, and remembers what it was shown.

Source: reference/harnesses.md 1, "Mock wiring".
"""

from tests.harness.model.conversation import Conversation, Item
from tests.harness.model.script import Call, Say, Step
from tests.harness.model.server import ModelServer, Request

__all__ = ["Call", "Conversation", "Item", "ModelServer", "Request", "Say", "Step"]
