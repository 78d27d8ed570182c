"""The intercom broker as a process, and how a root makes sure that one runs."""

from tieline.runtime.broker.ensuring import ensure_broker
from tieline.runtime.broker.process import Started, paths_of, run_broker
from tieline.shell.hub import VARIABLE, Paths, Place, connect_hub, place_of

__all__ = [
    "VARIABLE",
    "Paths",
    "Place",
    "Started",
    "connect_hub",
    "ensure_broker",
    "paths_of",
    "place_of",
    "run_broker",
]
