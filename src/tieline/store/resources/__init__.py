"""Resources that roots share: their documents, the launch ledger, and what was ever there."""

from tieline.store.resources.salvage import Damage
from tieline.store.resources.store import ResourceStore, Transaction

__all__ = ["Damage", "ResourceStore", "Transaction"]
