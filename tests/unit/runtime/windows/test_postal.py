"""The world of one root's post."""

from pathlib import Path
from uuid import UUID

import pytest

from tests.unit.runtime.roots import call
from tests.unit.runtime.windows.kit import root_with_window
from tieline.engine.contract import BeginRun
from tieline.errors import Refusal, Refused
from tieline.model.identity import Peer, foreign_instance
from tieline.runtime.windows.postal import WRITTEN_MAX, Postal
from tieline.shell.peers import Target
from tieline.wire.peers.frames import UserFrame
from tieline.wire.peers.protocol import Grade

pytestmark = pytest.mark.asyncio


def frame(sender: str, name: str = "claims") -> UserFrame:
    """Return a message that claims a session and a name."""
    return UserFrame(str(UUID(int=1)), sender, 1, "claimed-session", name, (), "next", "x")


async def test_sender_is_who_the_registry_or_the_token_says(private_home: Path) -> None:
    """The record's session at that address; an unknown address is itself; a run's token is that run."""
    async with root_with_window(private_home) as (root, far):
        assert root.node.windows is not None
        postal = Postal(root.node.windows)
        known = postal.sender(frame(far.path), Grade(is_child=False))
        assert known is not None
        assert known.peer == Peer(foreign_instance("pi-peers", "session-77777"))
        assert (known.standing.alias, known.standing.project) == ("far", "w")
        stranger = postal.sender(frame("/x"), Grade(is_child=False))
        assert stranger is not None
        assert stranger.peer == Peer(foreign_instance("pi-peers", "", "/x"))
        assert stranger.standing.alias == "claims"
        await root.node.ask(BeginRun("r-1", "kid", frozenset({"message.send"})))
        run = postal.sender(frame("/x"), Grade(is_child=True, run="r-1"))
        assert run is not None
        assert (run.peer, run.standing.alias) == (Peer(root.node.instance, "r-1"), "kid")
        ended = postal.sender(frame("/x"), Grade(is_child=True, run="r-9"))
        assert ended is not None
        assert ended.standing.capabilities == frozenset()
        assert UUID(postal.new_id()).version == 4
        assert postal.letterhead.address == far.record()["socketPath"]


@pytest.mark.clause("pi-peers-35")
async def test_sent_is_ours_only_from_the_end_it_went_to(private_home: Path) -> None:
    """By the address it was written to, or by the identity; never from another, nor unnamed and unproven."""
    async with root_with_window(private_home) as (root, far):
        assert root.node.windows is not None
        sent = await call(root, "send_peer_message", to="far", content="x")
        postal = Postal(root.node.windows)
        for address, is_ours in ((far.path, True), ("", False), ("/x", False)):
            assert (postal.sent(sent["messageId"], address, 1) is not None) is is_ours
        assert postal.sent("another", far.path, 1) is None
        envelope = root.node.engine.sent(sent["messageId"], None)[0].envelope
        postal.transmitted(envelope, Target("i", "/moved", "t", 0))
        assert postal.sent(sent["messageId"], "/moved", 1) is envelope
        for _ in range(WRITTEN_MAX):
            postal._written[str(len(postal._written))] = "/y"
        postal.transmitted(envelope, Target("i", "/moved", "t", 0))
        assert len(postal._written) == WRITTEN_MAX


async def test_registry_that_fails_is_a_window_that_is_away(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The send is tried again; the listing goes on without windows."""
    async with root_with_window(private_home) as (root, _far):
        windows = root.node.windows
        assert windows is not None

        def fails(*_: object, **__: object) -> None:
            raise Refused("UNSAFE_ENDPOINT", "others may write there")

        monkeypatch.setattr(windows.registry, "scan", fails)
        postal = Postal(windows)
        for found in (postal.target("i"), postal.target_at("/x")):
            assert isinstance(found, Refusal)
            assert found.code == "PEER_OFFLINE"
        assert postal.is_listed("i")
        assert postal.sender(frame("/x"), Grade(is_child=False)) is None
        assert windows.roots([], {}) == []
