"""Tieline: coding agents on one machine find each other and hand over messages that are kept.

The public names are loaded when they are used: a command or a door pays for what it touches.
"""

TYPE_CHECKING = False  # known to type checkers; importing typing would cost every start 10 ms

if TYPE_CHECKING:
    from tieline.errors import (
        OutcomeUnknown,
        ProtocolError,
        RecoveryRequired,
        Refused,
        TielineError,
        UsageError,
    )
    from tieline.model.identity import Availability, Capability, Descriptor, Peer, Scope
    from tieline.model.message import Attachment, Delivery
    from tieline.model.receipt import Durability, Receipt, State
    from tieline.runtime.intercom.connecting import Client, connect
    from tieline.runtime.root import Message, Root

__all__ = [
    "Attachment",
    "Availability",
    "Capability",
    "Client",
    "Delivery",
    "Descriptor",
    "Durability",
    "Message",
    "OutcomeUnknown",
    "Peer",
    "ProtocolError",
    "Receipt",
    "RecoveryRequired",
    "Refused",
    "Root",
    "Scope",
    "State",
    "TielineError",
    "UsageError",
    "__version__",
    "connect",
]

__version__ = "0.1.0"

_HOMES = {
    "tieline.errors": (
        "OutcomeUnknown",
        "ProtocolError",
        "RecoveryRequired",
        "Refused",
        "TielineError",
        "UsageError",
    ),
    "tieline.model.identity": ("Availability", "Capability", "Descriptor", "Peer", "Scope"),
    "tieline.model.message": ("Attachment", "Delivery"),
    "tieline.model.receipt": ("Durability", "Receipt", "State"),
    "tieline.runtime.intercom.connecting": ("Client", "connect"),
    "tieline.runtime.root": ("Message", "Root"),
}


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            from importlib import import_module  # noqa: PLC0415 - paid for on first use

            return getattr(import_module(module), name)
    raise AttributeError(f"module 'tieline' has no attribute {name!r}")
