"""The one table of operations."""

from pathlib import Path

import msgspec
import pytest

from tests.unit.runtime.roots import call, two
from tieline import Refused, Root
from tieline.runtime import hosting, local, tools
from tieline.runtime.calls import Params
from tieline.runtime.operations import TABLE

GOLDEN = {
    "host.answer", "host.answered", "host.boundary", "host.carried", "host.environment", "host.hook",
    "host.judge", "host.refused", "host.run_begin",
    "host.run_end", "host.seen", "host.shutdown", "host.shutdown_peer", "host.state", "host.taken",
    "host.user_prompt", "intercom", "intercom.context", "intercom.guard", "intercom.provenance",
    "intercom.turn_failed", "intercom.wake_outcome", "list_peers", "local.ask", "local.consent",
    "host.compose", "local.conversations", "local.doctor", "local.inbox", "local.last", "local.log",
    "local.mute", "local.records", "local.reply",
    "local.send", "local.status", "local.waits", "local.who", "peer_messages", "send_peer_message",
}  # fmt: skip
"""Reviewed by hand: a method that is added is authority that is added."""


@pytest.mark.clause("S16")
def test_table_holds_the_reviewed_methods_and_no_other() -> None:
    """Every method is in the golden list; tools, host and local methods share no name."""
    assert {name for name in TABLE if not name.startswith(("resource", "coordinate"))} == GOLDEN
    assert len(TABLE) >= len(tools.TABLE) + len(hosting.TABLE) + len(local.TABLE)


def test_params_of_every_method_are_closed() -> None:
    """No operation takes a member that it does not know."""
    for name, (shape, _) in TABLE.items():
        assert issubclass(shape, Params), name
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"surely": "unknown"}, shape, strict=True)


@pytest.mark.asyncio
@pytest.mark.clause("S16", "native-137")
async def test_call_of_an_unknown_method_or_field_does_nothing(private_home: Path) -> None:
    """The code says which; nothing was stored or sent."""
    async with two(private_home) as (alice, bob):
        for method, params, code in (
            ("peer.send", {}, "METHOD_NOT_FOUND"),
            ("", {}, "METHOD_NOT_FOUND"),
            ("send_peer_message", {"to": "bob", "content": "x", "from": "carol"}, "INVALID_PARAMS"),
            ("send_peer_message", {"to": "bob"}, "INVALID_PARAMS"),
            ("local.send", {"to": "bob", "content": "x", "delivery": "now"}, "INVALID_PARAMS"),
            ("local.inbox", {"limit": "5"}, "INVALID_PARAMS"),
        ):
            with pytest.raises(Refused) as caught:
                await call(alice, method, **params)
            assert caught.value.code == code
        with pytest.raises(Refused) as caught:
            await alice.operations.call(alice.operations.root_actor, "local.who", ["no object"])
        assert caught.value.code == "INVALID_PARAMS"
        assert await bob.inbox() == []
        assert (await call(alice, "local.log"))["events"] == []


@pytest.mark.asyncio
@pytest.mark.clause("I9", "K33", "O01")
async def test_read_that_was_not_flushed_leaves_the_mail_unread(private_home: Path) -> None:
    """Consumption is the flush's word: unflushed gives the mail back, flushed consumes it, once."""
    async with two(private_home) as (alice, bob):
        await alice.send("bob", "one")
        actor = bob.operations.root_actor
        first = await bob.operations.call(actor, "peer_messages", {})
        assert first.taken is not None
        assert (await bob.operations.call(actor, "peer_messages", {})).result["messages"] == []
        assert await bob.operations.unflushed(first.taken) == 1
        again = await bob.operations.call(actor, "peer_messages", None)
        assert again.taken is not None
        assert [item["messageId"] for item in again.result["messages"]] == [
            item["messageId"] for item in first.result["messages"]
        ]
        assert await bob.operations.flushed(again.taken) == 1
        assert await bob.operations.flushed(again.taken) == 0
        assert await bob.operations.unflushed(first.taken) == 0
        assert (await bob.operations.call(actor, "peer_messages", {})).result["messages"] == []


@pytest.mark.asyncio
async def test_subscriber_that_left_is_told_nothing(private_home: Path) -> None:
    """Events come from subscribing until its end; ending twice is no fault."""
    async with two(private_home) as (alice, bob):
        told: list[str] = []
        leave = bob.operations.subscribe(lambda kind, _params: told.append(kind))
        await alice.send("bob", "one")
        assert told == ["peer_update"]
        leave()
        leave()
        await alice.send("bob", "two")
        assert told == ["peer_update"]


async def _code(root: Root, method: str, params: dict[str, object]) -> str | None:
    """Return the code of a refusal, also of one that is told for the one target."""
    try:
        answer = await call(root, method, **params)
    except Refused as error:
        return error.code
    return next((str(error["code"]) for error in answer.get("errors", ())), None)


@pytest.mark.asyncio
@pytest.mark.clause("S15", "native-85")
async def test_every_operation_that_takes_a_run_refuses_a_token_that_proves_none(private_home: Path) -> None:
    """An unknown token is no run: nothing is read or done in the root's name instead."""
    asked: dict[str, dict[str, object]] = {
        "list_peers": {},
        "send_peer_message": {"to": "bob", "content": "x"},
        "peer_messages": {},
        "local.who": {},
        "local.send": {"to": "bob", "content": "x"},
        "local.ask": {"to": "bob", "content": "x"},
        "local.inbox": {},
        "local.consent": {"messageId": "m-1", "accept": True},
        "local.reply": {"content": "x", "messageId": "m-1"},
        "local.status": {"messageId": "m-1"},
        "local.last": {"to": "bob"},
        "local.log": {},
        "local.mute": {"peer": "bob"},
        "local.waits": {},
        "local.conversations": {},
        "host.compose": {"draft": {"text": ":bob x"}},
        "coordinate_resource": {"operation": "status", "resource": "machine/x"},
        "resource.list": {},
        "host.boundary": {"kind": "tool"},
        "host.answer": {"entry": "e", "text": "x"},
        "host.user_prompt": {},
        "intercom": {"action": "list"},
    }
    unchecked = {"host.run_begin", "host.run_end"}  # these make and end the run itself
    takes_run = {
        name
        for name, (shape, _handler) in TABLE.items()
        if "run" in shape.__struct_fields__ and not name.startswith("resource.")
    }
    assert takes_run - unchecked <= set(asked)
    async with two(private_home) as (alice, bob):
        for method, params in asked.items():
            assert await _code(alice, method, {**params, "run": "bogus"}) == "TARGET_ENDED", method
        assert not alice.node.engine.is_muted(bob.who()["peerId"])
        assert await bob.inbox() == []


@pytest.mark.asyncio
async def test_reading_with_a_runs_token_is_that_runs_own(private_home: Path) -> None:
    """Who it is, its history and its messages; and it silences nobody in its root's name."""
    async with two(private_home) as (alice, bob):
        kid = await call(alice, "host.run_begin", run="r-1", alias="kid")
        token = kid["token"]
        await bob.send("alice", "to the root", message_id="m-root")
        await bob.send("kid", "to the run", message_id="m-run")
        listed = await call(alice, "list_peers", run=token)
        assert (listed["self"]["peerId"], listed["self"]["alias"]) == (kid["peerId"], "kid")
        log = await call(alice, "local.log", run=token)
        assert [item["messageId"] for item in log["events"]] == ["m-run"]
        assert len((await call(alice, "local.status", messageId="m-run", run=token))["received"]) == 1
        for method, params, code in (
            ("local.status", {"messageId": "m-root"}, "UNKNOWN_TARGET"),
            ("local.mute", {"peer": "bob"}, "CAPABILITY_DENIED"),
        ):
            with pytest.raises(Refused) as caught:
                await call(alice, method, **params, run=token)
            assert caught.value.code == code
        assert not alice.node.engine.is_muted(bob.who()["peerId"])
