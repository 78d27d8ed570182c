"""The world of a root's post: guards before custody, and replies to who asked."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.intercom.kit import Station, intercom_of, station, tool
from tests.unit.runtime.roots import call
from tieline.model.identity import Peer
from tieline.runtime.intercom.postal import SHARED, Postal
from tieline.runtime.root import Root
from tieline.shell.hub import place_of
from tieline.wire.intercom.client import MessageCame
from tieline.wire.intercom.mapping import peer_id_of

pytestmark = pytest.mark.asyncio
ROW = {"id": "pi-x", "cwd": "/", "model": "m"}


def postal_of(at: Station, root: Root) -> Postal:
    """Return the ports of a root's post."""
    return Postal(intercom_of(root), {SHARED: place_of(at.environment)})


@pytest.mark.clause("intercom-135")
async def test_guard_is_checked_whole_before_anything_is_stored(private_home: Path) -> None:
    """One that does not hold in any part, or that asks, keeps the message out; without one it may come."""
    async with station(private_home) as at:
        root = await at.root("api")
        seen = await call(root, "intercom.context", version=1)
        target = {name: seen[name] for name in ("rootSessionId", "peerId", "incarnation")}
        guard = {**target, "applicationGuard": "g"}
        postal = postal_of(at, root)

        def admits(**fields: Any) -> bool:
            message = {"id": "m", "timestamp": 1, "content": {"text": "t"}, "expectsReply": False, **fields}
            return postal.admits(SHARED, MessageCame(ROW, message))

        assert admits()
        assert not admits(guard=guard)
        await call(root, "intercom.guard", version=1, target=target, revision="g")
        assert admits(guard=guard)
        for name in guard:
            assert not admits(guard={**guard, name: "other"})
        assert not admits(guard=guard, expectsReply=True)
        assert not admits(guard="g")


async def test_reply_reaches_the_run_that_asked(private_home: Path) -> None:
    """A run's question is answered to the run; anything else is the root's mail."""
    async with station(private_home) as at:
        one, other = await at.root("one"), await at.root("other")
        token = (await call(one, "host.run_begin", run="r"))["token"]
        sent = await tool(one, "send", to="other", message="from the run", run=token)
        (mail,) = await other.inbox(wait_s=5)
        row = {**ROW, "id": peer_id_of("s-other")}
        postal = postal_of(at, one)
        for reply_to, meant in ((sent["messageId"], "r"), ("unknown", None), (None, None)):
            message = {"id": "x", "timestamp": 1, "content": {"text": "t"}}
            if reply_to is not None:
                message["replyTo"] = reply_to
            assert postal.recipient(MessageCame(row, message)) == Peer(one.node.instance, meant)
        await other.reply(mail.message_id, "to the run")
        found = await call(one, "peer_messages", waitMs=5_000, run=token)
        assert [item["content"] for item in found["messages"]] == ["to the run"]
