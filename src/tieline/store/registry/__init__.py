"""The shared registry of the pi-peers wire: which windows say that they are there, and with which key."""

from tieline.store.registry.others import Fault, Listed
from tieline.store.registry.record import RecordFault, Window, encode, key_name, read, record_name
from tieline.store.registry.registry import Registry

__all__ = [
    "Fault",
    "Listed",
    "RecordFault",
    "Registry",
    "Window",
    "encode",
    "key_name",
    "read",
    "record_name",
]
