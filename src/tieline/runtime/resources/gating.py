"""What the configured rules ask of a command that is about to start here.

Rule: the rules are pure; this module reads the configuration and asks git which repository is meant.

Source: reference/native.md 2.14, 3.5; DESIGN.md 4.
"""

import os
from typing import NamedTuple

from tieline import config
from tieline.engine.gate import (
    Class,
    GateCommand,
    RepositoryFacts,
    Verdict,
    requirements,
    rules_of,
    suggestion,
)
from tieline.model.resource import ResourceKey
from tieline.runtime.options import RootOptions, settings
from tieline.runtime.resources.claims import facts_of

__all__ = ["Judgement", "verdict_on"]

FOLDERS_ASKED_MAX = 8


class Judgement(NamedTuple):
    """What a command needs: `keys` sorted; `names` of its classes; `use` the line to run instead."""

    keys: tuple[ResourceKey, ...]
    names: tuple[str, ...]
    reason: str
    executable: str
    use: str


def verdict_on(argv: tuple[str, ...] | None, text: str, directory: str, home: str) -> Judgement:
    """Return what the rules of this home ask of a command.

    Args:
        argv: Program and arguments, or None when a shell would be given `text`.
        text: What a shell would be given.
        directory: Where it would run.
        home: Whose config.toml holds.

    Raises:
        UsageError: the configuration is wrong.
    """
    held = settings(RootOptions(home=home), os.environ)
    return _judge(GateCommand(argv, text, os.path.realpath(directory)), held)


def _judge(command: GateCommand, held: config.Settings) -> Judgement:
    rules = rules_of(held.resource)
    facts = facts_of(command.directory) if rules else RepositoryFacts(None, command.directory)
    verdict: Verdict = requirements(command, rules, facts)
    if verdict.directories:
        elsewhere = {
            folder: facts_of(os.path.join(command.directory, folder))
            for folder in verdict.directories[:FOLDERS_ASKED_MAX]
        }
        verdict = requirements(command, rules, facts._replace(elsewhere=elsewhere))
    names = tuple(
        name for name, flag in (("build", Class.BUILD), ("strict", Class.STRICT)) if flag in verdict.classes
    )
    keys = tuple(ResourceKey(key) for key in verdict.keys)
    use = suggestion(command, verdict.keys) if keys else ""
    return Judgement(keys, names, verdict.reason, verdict.executable, use)
