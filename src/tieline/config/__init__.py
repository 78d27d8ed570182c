"""Settings and every limit: unit in the name, default, range and reason.

Rule 1: `Limits` and `Settings` are frozen values passed in; two roots in one simulator may differ.
Rule 2: nothing here reads a file or an environment of its own; it is handed both.

Source: specification, "Configuration reference"; reference/native.md 1P.
"""

from tieline.config.limits import (
    HEARTBEAT_MS,
    IDLE_LINK_MS,
    LIMITS,
    PAIR_WINDOW_MS,
    PREPARED_MS,
    PRUNE_MS,
    RECEIPT_RESERVE_BYTES,
    RETRY_FIRST_MS,
    RETRY_LAST_MS,
    STALE_MS,
    WAIT_MS_MAX,
    Limits,
)
from tieline.config.rules import (
    PATTERNS_MAX,
    RESOURCE_FIELDS,
    RULE_FIELDS,
    ResourceSettings,
    Rule,
)
from tieline.config.settings import FIELDS, SECTIONS, Settings, load
from tieline.config.wires import (
    ACCEPT_POLICIES,
    INTERCOM_FIELDS,
    PI_PEERS_FIELDS,
    IntercomSettings,
    PiPeersSettings,
    WireSettings,
)
from tieline.config.words import (
    ALIAS_CHARACTERS_MAX,
    RULE_SETS,
    Scope,
    is_alias,
    is_resource_key,
    is_rule_set,
)

__all__ = [
    "ACCEPT_POLICIES",
    "ALIAS_CHARACTERS_MAX",
    "FIELDS",
    "HEARTBEAT_MS",
    "IDLE_LINK_MS",
    "INTERCOM_FIELDS",
    "LIMITS",
    "PAIR_WINDOW_MS",
    "PATTERNS_MAX",
    "PI_PEERS_FIELDS",
    "PREPARED_MS",
    "PRUNE_MS",
    "RECEIPT_RESERVE_BYTES",
    "RESOURCE_FIELDS",
    "RETRY_FIRST_MS",
    "RETRY_LAST_MS",
    "RULE_FIELDS",
    "RULE_SETS",
    "SECTIONS",
    "STALE_MS",
    "WAIT_MS_MAX",
    "IntercomSettings",
    "Limits",
    "PiPeersSettings",
    "ResourceSettings",
    "Rule",
    "Scope",
    "Settings",
    "WireSettings",
    "is_alias",
    "is_resource_key",
    "is_rule_set",
    "load",
]
