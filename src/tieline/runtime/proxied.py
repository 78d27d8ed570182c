"""Whether the agent that started this process has its sessions served by `tieline acp`.

A harness that is set up and also started behind the proxy would have two doors: each session would be two
peers.

Rule 1: the proxy's own server says which root it joins, and stays.
Rule 2: what counts is the process session: the proxy starts its agent as the leader of one. A command that
the agent runs inherits the variable, and mostly has a session of its own: it may be another agent.

Source: DESIGN.md 2, "A session is one root"; docs/harnesses/acp.md.
"""

import os
from collections.abc import Mapping
from typing import Final

from tieline.runtime.joined import JOIN_VARIABLE
from tieline.shell.process import ancestors

__all__ = ["PROXY_VARIABLE", "is_proxied"]

PROXY_VARIABLE: Final = "TIELINE_ACP"
"""Names the proxy, in the environment of its agent: its process number, in decimal."""


def is_proxied(environment: Mapping[str, str]) -> bool:
    """Return whether this process belongs to an agent whose sessions the proxy serves."""
    told = environment.get(PROXY_VARIABLE)
    if told is None or JOIN_VARIABLE in environment:
        return False
    return [str(parent.pid) for parent in ancestors(os.getsid(0))[:1]] == [told]
