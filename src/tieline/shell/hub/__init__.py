"""The intercom broker's outside: where it is, who owns it, how it is started, and its sockets."""

from tieline.shell.hub.lines import CLOSE_SECONDS_MAX, UNREAD_BYTES_MAX, HubLine, serve
from tieline.shell.hub.listening import Claim, HubEndpoint, claim
from tieline.shell.hub.place import AGENT_VARIABLE, BLANK, VARIABLE, Paths, Place, agent_directory, place_of
from tieline.shell.hub.reaching import connect_hub, is_answering
from tieline.shell.hub.revision import paths_of_script
from tieline.shell.hub.spawning import start_if_missing

__all__ = [
    "AGENT_VARIABLE",
    "BLANK",
    "CLOSE_SECONDS_MAX",
    "UNREAD_BYTES_MAX",
    "VARIABLE",
    "Claim",
    "HubEndpoint",
    "HubLine",
    "Paths",
    "Place",
    "agent_directory",
    "claim",
    "connect_hub",
    "is_answering",
    "paths_of_script",
    "place_of",
    "serve",
    "start_if_missing",
]
