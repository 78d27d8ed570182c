"""Names to peers, as one root sees them now."""

import os
from pathlib import Path

import pytest

from tests.unit.runtime.roots import call, two
from tieline import Refused
from tieline.config import Scope
from tieline.errors import Refusal
from tieline.model.identity import Descriptor, Peer

pytestmark = pytest.mark.asyncio


@pytest.mark.clause("native-29", "native-30", "I43", "O04")
async def test_name_resolves_when_exactly_one_fits(private_home: Path) -> None:
    """An id or a whole alias names a peer; a part of either names nobody; two of a name are told apart."""
    async with two(private_home) as (alice, bob):
        own = bob.who()["peerId"]
        for name in ("bob", own):
            found = await alice.node.book.resolve(name, None)
            assert isinstance(found, Descriptor)
            assert found.peer == Peer(bob.node.instance)
        for name in (own[:-1], own[:13], "bo", "BOB"):
            refused = await alice.node.book.resolve(name, None)
            assert isinstance(refused, Refusal)
            assert refused.code == "UNKNOWN_TARGET"
        for number in range(2):
            await call(bob, "host.run_begin", run=f"r-{number}", alias="twin")
        twins = await alice.node.book.resolve("twin", None)
        assert isinstance(twins, Refusal)
        assert twins.code == "AMBIGUOUS_TARGET"


@pytest.mark.clause("native-31", "native-28")
async def test_run_that_ended_is_told_from_a_name_never_seen(private_home: Path) -> None:
    """A listed run that ended is TARGET_ENDED, its ended root PEER_OFFLINE, a stranger UNKNOWN_TARGET."""
    async with two(private_home) as (alice, bob):
        run = await call(bob, "host.run_begin", run="r-1", alias="kid")
        assert isinstance(await alice.node.book.resolve("kid", None), Descriptor)
        await call(bob, "host.run_end", run="r-1")
        alice.node.neighbours.runs_told(bob.node.instance, None, alice.node.now())
        root_id = bob.who()["peerId"]
        for target, code in ((run["peerId"], "TARGET_ENDED"), ("peer-" + "0" * 32, "UNKNOWN_TARGET")):
            refused = await alice.node.book.resolve(target, None)
            assert isinstance(refused, Refusal)
            assert refused.code == code
        await bob.close()
        refused = await alice.node.book.resolve(root_id, None)
        assert isinstance(refused, Refusal)
        assert refused.code == "PEER_OFFLINE"


async def test_own_root_lists_itself_with_its_runs(private_home: Path) -> None:
    """A run is described as a peer of its own, with its own capabilities."""
    async with two(private_home) as (alice, _bob):
        run = await call(alice, "host.run_begin", run="r-1", alias="kid", capabilities=["message.send"])
        own = alice.node.book.own_root()
        assert [item.alias for item in own.runs] == ["kid"]
        shown = alice.node.book.describe_self(Peer(alice.node.instance, "r-1"))
        assert (shown["peerId"], shown["capabilities"]) == (run["peerId"], ["message.send"])
        assert shown["isSelf"]


@pytest.mark.clause("I42")
async def test_scope_wider_than_our_own_is_denied(private_home: Path) -> None:
    """A listing asks no further than this root may see."""
    async with two(private_home) as (alice, _bob):
        refused = alice.node.book.listing(Scope.MACHINE, "", None)
        assert isinstance(refused, Refusal)
        assert refused.code == "SCOPE_DENIED"
        await alice.node.book.refresh_runs(Scope.MACHINE)  # asks nobody
        assert alice.node.switchboard.counters["circuits_opened"] == 0


async def test_known_peer_of_a_filter_is_an_id_or_a_present_name(private_home: Path) -> None:
    """An id needs no presence; a name that nobody has is refused."""
    async with two(private_home) as (alice, bob):
        book = alice.node.book
        stranger = "peer-" + "0" * 32
        assert book.known_peer_id(stranger) == stranger
        assert book.known_peer_id("bob") == bob.who()["peerId"]
        assert book.known_peer_id("alice") == alice.who()["peerId"]
        with pytest.raises(Refused) as caught:
            book.known_peer_id("carol")
        assert caught.value.code == "UNKNOWN_TARGET"
        assert book.age_ms(bob.node.instance) is not None
        assert book.presence_faults == 0


async def test_faults_of_presence_are_counted_and_hide_nobody(private_home: Path) -> None:
    """A record that cannot be read is told; the others are listed."""
    async with two(private_home) as (alice, _bob):
        broken = Path(alice.node.places.active_agents) / "s-1.i-1.json"
        broken.write_text("{")
        broken.chmod(0o600)
        os.utime(broken, (0, 0))  # older than any writer takes
        shown = await call(alice, "list_peers")
        assert [peer["alias"] for peer in shown["peers"]] == ["bob"]
        assert shown["presenceFaults"] == 1
