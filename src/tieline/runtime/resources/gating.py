"""What the configured rules ask of a command that is about to start here.

Rule: the rules are pure; this module reads the configuration and looks which repository is meant.

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
from tieline.errors import Refused
from tieline.model.identity import Peer
from tieline.model.resource import ResourceKey
from tieline.runtime.locate import Places as LocatedPlaces
from tieline.runtime.locate import find_root, places
from tieline.runtime.options import RootOptions, settings
from tieline.runtime.resources.claims import facts_of
from tieline.runtime.resources.coordinator import Coordinator
from tieline.runtime.resources.viewing import glimpse, local_viewer

__all__ = ["Judgement", "judged_by", "judged_here", "verdict_on"]

FOLDERS_ASKED_MAX = 8
ENROLLED = "its root is enrolled under a policy"


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


def judged_here(
    argv: tuple[str, ...] | None, text: str, directory: str, home: str, run: str | None
) -> tuple[Judgement, list[tuple[str, str]]]:
    """Return what rules and policies ask of a command of this process's agent, and who holds it now.

    Args:
        argv: As for `verdict_on`.
        text: Likewise.
        directory: Likewise.
        home: Likewise.
        run: Capability of the run that the command belongs to.

    Returns:
        The judgement, and (resource, who) for each needed one that is held and may be seen.
    """
    where = places(os.environ)
    found = verdict_on(argv, text, directory, home)
    return _with_policies(found, GateCommand(argv, text, directory), where.coordination, where, run)


def judged_by(
    asked: tuple[tuple[str, ...] | None, str, str], home: str, coordination: str, peer: Peer
) -> tuple[Judgement, list[tuple[str, str]]]:
    """Return what `judged_here` does, in the process of the root that `peer` is of.

    Raises:
        UsageError: the configuration is wrong.
        RecoveryRequired: a record is damaged, so that nobody knows what policies ask.
    """
    found = verdict_on(*asked, home)
    return _with_policies(found, GateCommand(*asked), coordination, frozenset({peer.id}), None)


def _with_policies(
    found: Judgement,
    command: GateCommand,
    coordination: str,
    asker: LocatedPlaces | frozenset[str],
    run: str | None,
) -> tuple[Judgement, list[tuple[str, str]]]:
    """Add what policies ask of the peers that `asker` is, or that are found from there, and who holds it."""
    coordinator = Coordinator(coordination)
    try:
        keys = coordinator.known_keys()
        if keys:
            peers = asker if isinstance(asker, frozenset) else _own_peer(asker, run)
            gated = coordinator.gated_by(peers, frozenset(found.names)) if peers else ()
            if not frozenset(gated) <= frozenset(found.keys):
                both = tuple(sorted({*found.keys, *gated}))
                command = command._replace(directory=os.path.realpath(command.directory))
                reason = ENROLLED if not found.keys else f"{found.reason}; {ENROLLED}"
                found = found._replace(keys=both, reason=reason, use=suggestion(command, both))
        return found, [
            (key, who) for key in found.keys if key in keys and (who := _holder(coordinator, key)) is not None
        ]
    finally:
        coordinator.close()


def _own_peer(where: LocatedPlaces, run: str | None) -> frozenset[str]:
    """Return the peer ids of the agent that this process belongs to, none where there is no such agent."""
    try:
        found = find_root(where.home, where.coordination, environment=os.environ, may_change=True, run=run)
    except Refused:
        return frozenset()
    return frozenset({Peer(found.root.instance).id})


def _holder(coordinator: Coordinator, key: ResourceKey) -> str | None:
    """Return who holds a resource, as anybody of this OS user may see it; None when nobody does."""
    shape = glimpse(coordinator, key, local_viewer())
    holder = shape.get("holder")
    if holder is not None:
        return f":{holder['alias']} ({holder.get('executable', 'a command')}) since {holder['since']}"
    return "somebody" if shape["state"] == "busy" else None


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
