"""Who claims for a local process, and which repository its folder belongs to.

Rule 1: a claim is made by an exact peer of a root that its owner file proves; never by a name.
Rule 2: a repository is named by a token of its canonical git directory: linked worktrees share one,
    clones do not.

Source: reference/native.md 2.3, 2.13; DESIGN.md 2.
"""

import hashlib
import os
from typing import Any

from tieline.engine.gate import RepositoryFacts, repository_token
from tieline.errors import Refusal, Refused
from tieline.model.identity import Peer, Principal
from tieline.model.resource import Claimant, ResourceKey, complete_key
from tieline.runtime.glance import repository_of
from tieline.shell.endpoint import hosts
from tieline.shell.process import self_identity

__all__ = ["claimant_of", "facts_of", "full_key", "full_keys"]

TOKEN_CHARACTERS = 32


def claimant_of(who: dict[str, Any], runtime_directory: str) -> tuple[Principal, Claimant]:
    """Return the acting peer of a root as principal and claimant, this process being the one that waits.

    Args:
        who: The root's answer to `local.who`, with `acting`.
        runtime_directory: Where owner files are.

    Raises:
        Refused: NO_ROOT when the root's owner file is gone.
    """
    acting = who["acting"]
    instance = str(who["instanceId"])
    owner = next((one.owner for one in hosts(runtime_directory) if one.instance == instance), None)
    if owner is None:
        raise Refused("NO_ROOT", "the root that this command found has ended")
    peer = Peer(instance, acting.get("runId"))
    principal = Principal(peer, frozenset(acting["capabilities"]), alias=acting["alias"])
    return principal, Claimant(
        peer_id=peer.id,
        instance_id=instance,
        alias=acting["alias"],
        owner=owner,
        run_id=peer.run,
        enrollment_peer_id=None if peer.run is None else peer.root.id,
        waiter=self_identity(),
    )


def facts_of(directory: str) -> RepositoryFacts:
    """Return the repository of a folder, as the gate's rules want it; reads `.git`, starts nothing."""
    place = os.path.realpath(directory)
    common = repository_of(place)
    if not common:
        return RepositoryFacts(None, place)
    token = hashlib.sha256(os.fsencode(common)).hexdigest()[:TOKEN_CHARACTERS]
    return RepositoryFacts(token, place)


def full_key(text: str, directory: str, facts: RepositoryFacts | None = None) -> ResourceKey:
    """Return the key that a person typed, the short `repository/NAME` completed for this folder.

    Raises:
        Refused: INVALID_PARAMS: it is no key.
    """
    parts = text.split("/")
    token = ""
    if len(parts) == 2 and parts[0] == "repository":
        token = repository_token(facts or facts_of(directory))
    key = complete_key(text, token)
    if isinstance(key, Refusal):
        raise Refused.of(key)
    return key


def full_keys(texts: list[str], directory: str) -> tuple[ResourceKey, ...]:
    """Return the keys, sorted and without repeats; raises as `full_key`."""
    facts = facts_of(directory) if any(text.startswith("repository/") for text in texts) else None
    return tuple(sorted({full_key(text, directory, facts) for text in texts}))
