"""Who claims for a local process, and which repository a folder belongs to."""

import subprocess
from pathlib import Path

import pytest

from tests.unit.runtime.roots import two
from tieline.errors import Refused
from tieline.model.identity import Peer
from tieline.runtime.resources.claims import claimant_of, facts_of, full_key, full_keys
from tieline.shell.process import self_identity


def test_worktrees_share_a_key_and_clones_do_not(private_home: Path) -> None:
    """`repository/NAME` is one resource for a repository; outside of any it belongs to the folder."""
    main, clone, tree = private_home / "main", private_home / "clone", private_home / "tree"
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t.invalid"]
    subprocess.run([*git, "init", "-q", str(main)], check=True)
    subprocess.run([*git, "-C", str(main), "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    subprocess.run([*git, "-C", str(main), "worktree", "add", "-q", str(tree)], check=True)
    subprocess.run([*git, "clone", "-q", str(main), str(clone)], check=True)
    keys = [full_key("repository/tests", str(folder)) for folder in (main, tree, clone, private_home)]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3
    assert keys[3].startswith("repository/workspace-")
    assert facts_of(str(private_home)).repository_id is None


@pytest.mark.parametrize(
    "text", ["", "machine", "machine/", "machine/a/b", "repository/../x", "x/y", "machine/-a"]
)
def test_text_that_is_no_key_is_refused(private_home: Path, text: str) -> None:
    """What is allowed is said."""
    with pytest.raises(Refused) as caught:
        full_key(text, str(private_home))
    assert caught.value.code == "INVALID_PARAMS"


def test_keys_are_sorted_and_named_once(private_home: Path) -> None:
    """The order of the words is no order of locks."""
    assert full_keys(["machine/b", "machine/a", "machine/b"], str(private_home)) == ("machine/a", "machine/b")


@pytest.mark.asyncio
async def test_claimant_is_the_exact_peer_of_a_root_whose_owner_file_proves_it(private_home: Path) -> None:
    """Owner is the root's process, waiter this one; a root that has gone claims nothing."""
    async with two(private_home) as (alice, _bob):
        who = {**alice.who(), "acting": alice.node.acting(Peer(alice.node.instance))}
        principal, found = claimant_of(who, alice.node.places.runtime)
        assert (found.peer_id, found.owner, found.waiter) == (
            principal.peer.id,
            self_identity(),
            self_identity(),
        )
    with pytest.raises(Refused) as caught:
        claimant_of(who, alice.node.places.runtime)
    assert caught.value.code == "NO_ROOT"
