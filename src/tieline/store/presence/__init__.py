"""Presence records, version 1: what an instance publishes of itself; a hint, never proof."""

from tieline.store.presence.record import Communication, Freshness, Record, file_name, parse
from tieline.store.presence.store import Fault, PresenceStore

__all__ = ["Communication", "Fault", "Freshness", "PresenceStore", "Record", "file_name", "parse"]
