"""What a root is opened with, and where its things are.

Rule: flags go before variables, those before config.toml; a private directory is never guessed.

Source: DESIGN.md 3; reference/native.md 1P, 1Q.
"""

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from tieline import config
from tieline.runtime.configuration import configuration_path, configuration_text

__all__ = ["Places", "RootOptions", "places", "settings"]


class RootOptions(msgspec.Struct, frozen=True):
    """How one root is to be opened; empty texts mean "as configured" or "unknown"."""

    home: str = ""
    coordination: str = ""
    workspace: str = ""
    session: str = ""
    alias: str = ""
    scope: str = ""
    idle_behavior: str = ""
    mode: str = "interactive"  # interactive, command, rpc, acp or teammate
    harness: str = ""
    model: str = ""
    host_pid: int = 0  # the process that started the door; 0: our parent
    is_published: bool = True  # False: presence is withheld until `Node.publish`
    limits: dict[str, int] = {}


class Places(msgspec.Struct, frozen=True):
    """Absolute directories of one root."""

    home: str
    coordination: str

    @property
    def active_agents(self) -> str:
        """Public presence."""
        return os.path.join(self.coordination, "active-agents")

    @property
    def runtime(self) -> str:
        """Sockets and owner files."""
        return os.path.join(self.coordination, "peer-runtime")

    @property
    def stores(self) -> str:
        """Private journals, one directory per instance."""
        return os.path.join(self.home, "peer-messages")

    @property
    def logs(self) -> str:
        """Log files."""
        return os.path.join(self.home, "logs")


def home_directory(given: str, environment: Mapping[str, str]) -> str:
    """Return the absolute home: given, or `TIELINE_HOME`, or `~/.tieline`."""
    path = given or environment.get("TIELINE_HOME", "") or os.path.join(os.path.expanduser("~"), ".tieline")
    return os.path.abspath(path)


def settings(options: RootOptions, environment: Mapping[str, str]) -> config.Settings:
    """Return the settings that hold for `options`.

    Raises:
        UsageError: a configured value is wrong; the text names source, line, field and what is allowed.
        Refused: config.toml may not be read, or others may write it.
    """
    home = home_directory(options.home, environment)
    path, text = configuration_path(home), configuration_text(home)
    flags: dict[str, Any] = {
        "alias": options.alias or None,
        "scope": options.scope or None,
        "idle_behavior": options.idle_behavior or None,
        "coordination_directory": options.coordination or None,
    }
    loaded = config.load(text, path, environment, flags)
    if options.limits:
        loaded = msgspec.structs.replace(
            loaded, limits=msgspec.structs.replace(loaded.limits, **options.limits)
        )
    return loaded


def places(options: RootOptions, held: config.Settings, environment: Mapping[str, str]) -> Places:
    """Return the directories that these options and settings name."""
    home = home_directory(options.home, environment)
    return Places(home, os.path.abspath(held.coordination_directory) if held.coordination_directory else home)
