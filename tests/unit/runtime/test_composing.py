"""What a person typed at a host."""

from pathlib import Path

import pytest

from tests.unit.runtime.roots import call, two
from tieline import Refused

pytestmark = pytest.mark.asyncio


@pytest.mark.clause("native-128", "native-130")
async def test_draft_with_leading_recipient_is_sent_at_once(private_home: Path) -> None:
    """Its content is at the recipient, as a person's, with a receipt."""
    async with two(private_home) as (alice, bob):
        told = await call(alice, "host.compose", draft={"text": ":bob go on, see :bob"})
        assert (told["kind"], told["content"]) == ("letter", "go on, see :bob")
        assert [one["state"] for one in told["receipts"]] == ["accepted"]
        assert [one["alias"] for one in told["references"]] == ["bob"]
        (mail,) = await bob.inbox()
        assert (mail.content, mail.automatic_depth) == ("go on, see :bob", 0)


@pytest.mark.clause("native-131")
async def test_draft_with_inline_reference_sends_nothing(private_home: Path) -> None:
    """It is the local turn's text, with who is meant, and a note that this gives no permission."""
    async with two(private_home) as (alice, bob):
        told = await call(alice, "host.compose", draft={"text": "compare with :bob"})
        assert (told["kind"], told["text"]) == ("instruction", "compare with :bob")
        assert [one["peer_id"] for one in told["references"]] == [bob.who()["peerId"]]
        assert "no further permission" in told["note"]
        assert await bob.inbox() == []
        assert await call(alice, "local.conversations") == {
            "messages": [], "held": [], "cursor": "0", "remaining": False, "gap": False,
        }  # fmt: skip


@pytest.mark.clause("native-129")
async def test_draft_bound_to_ended_incarnation_is_refused(private_home: Path) -> None:
    """What was picked is that incarnation: another that took its name gets nothing."""
    async with two(private_home) as (alice, bob):
        place = {"alias": "bob", "start": 0, "end": 4, "peerId": "peer-x", "instanceId": "gone"}
        with pytest.raises(Refused) as caught:
            await call(alice, "host.compose", draft={"text": ":bob hi", "bindings": [place]})
        assert caught.value.code == "PEER_OFFLINE"
        assert await bob.inbox() == []


@pytest.mark.parametrize(
    ("draft", "code"),
    [
        ({"text": ":nobody hi"}, "UNKNOWN_TARGET"),
        ({"text": "x", "cursor": 7}, "INVALID_PARAMS"),
        ({"text": ":bob hi", "scope": "moon"}, "INVALID_PARAMS"),
        ({"text": ":bob hi", "scope": "machine"}, "SCOPE_DENIED"),
    ],
)
async def test_draft_that_cannot_be_meant_is_refused(
    private_home: Path, draft: dict[str, object], code: str
) -> None:
    """Nobody of that name, a draft that does not fit itself, and a scope beyond the own one."""
    async with two(private_home) as (alice, _bob):
        with pytest.raises(Refused) as caught:
            await call(alice, "host.compose", draft=draft)
        assert caught.value.code == code
