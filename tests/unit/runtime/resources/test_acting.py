"""`coordinate_resource` as peers of real roots use it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.roots import call, host_of, two
from tieline.engine.contract import Act
from tieline.errors import Refused, next_action
from tieline.model.identity import Peer
from tieline.runtime.root import Root

KEY = "machine/database"


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the roots of these tests control resources."""
    monkeypatch.setenv("TIELINE_ALLOW_RESOURCE_CONTROL", "1")


async def ask(root: Root, operation: str, **fields: Any) -> dict[str, Any]:
    """Call `coordinate_resource` as the root's host."""
    return await call(root, "coordinate_resource", operation=operation, **fields)


async def code_of(work: Any) -> str:
    """Return the code that a call is refused with."""
    with pytest.raises(Refused) as caught:
        await work
    return caught.value.code


async def until(condition: Callable[[], bool], seconds: float = 6.0) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - nothing tells this but a look
            await asyncio.sleep(0.02)


@asynccontextmanager
async def governed(home: Path) -> AsyncIterator[tuple[Root, Root]]:
    """Give `alice`, who controls the database, and `bob`, who may claim it."""
    async with two(home) as (alice, bob):
        fields = {"resource": KEY, "controller": "alice", "participants": ["bob"], "profile": "strict"}
        installed = await ask(alice, "set_controller", **fields)
        assert installed["resource"]["epoch"] == 1
        yield alice, bob


@pytest.mark.asyncio
@pytest.mark.clause("native-136", "native-187", "native-188", "I31")
async def test_request_is_granted_by_the_controller_and_given_back(private_home: Path) -> None:
    """Request, grant, release: one ticket, one fence, and its owner is told each step."""
    async with governed(private_home) as (alice, bob):
        asked = await ask(bob, "request", resource=KEY, reason="migrate", requestId="r-1")
        assert asked["ticket"]["state"] == "queued"
        again = await ask(bob, "request", resource=KEY, reason="migrate", requestId="r-1")
        assert again["ticket"] == asked["ticket"]
        assert ":alice grants it" in asked["resource"]["nextAction"]
        granted = await ask(alice, "grant", requestId="r-1")
        assert (granted["ticket"]["state"], granted["ticket"]["fence"]) == ("reserved", 1)
        repeated = await ask(alice, "grant", requestId="r-1")
        assert repeated["ticket"]["fence"] == 1
        released = await ask(bob, "release", requestId="r-1")
        assert released["ticket"]["state"] == "released"
        assert released["resource"]["state"] == "available"


@pytest.mark.asyncio
@pytest.mark.clause("native-139", "native-209", "native-215")
async def test_each_typed_no_names_its_next_action(private_home: Path) -> None:
    """Stale policy, busy, conflict, ambiguity, scope, capability: a code each, and what helps."""
    async with governed(private_home) as (alice, bob):
        await ask(bob, "request", resource=KEY, reason="migrate", requestId="r-1")
        await ask(alice, "request", resource=KEY, reason="own", requestId="r-2")
        codes = [
            await code_of(ask(bob, "request", resource=KEY, reason="another", requestId="r-1")),
            await code_of(ask(alice, "grant", requestId="r-1", epoch=7)),
            await code_of(ask(bob, "grant", requestId="r-1")),
            await code_of(ask(alice, "grant", requestId="nobody")),
        ]
        assert codes == ["REQUEST_ID_CONFLICT", "STALE_POLICY", "CAPABILITY_DENIED", "INVALID_PARAMS"]
        await ask(alice, "grant", requestId="r-2")
        assert await code_of(ask(alice, "grant", requestId="r-1")) == "RESOURCE_BUSY"
        await call(alice, "resource.policy", resource=KEY, controller="me", participants=[])
        assert await code_of(ask(alice, "grant", requestId="r-2")) == "STALE_POLICY"
        assert await code_of(ask(bob, "request", resource=KEY, reason="x")) == "SCOPE_DENIED"
        await ask(alice, "request", resource="machine/a", reason="x", requestId="same")
        await ask(alice, "request", resource="machine/b", reason="x", requestId="same")
        assert await code_of(ask(alice, "release", requestId="same")) == "AMBIGUOUS_TARGET"
        for code in (*codes, "RESOURCE_BUSY", "SCOPE_DENIED", "AMBIGUOUS_TARGET"):
            assert next_action(code)


@pytest.mark.asyncio
@pytest.mark.clause("native-209", "native-3.6.20")
async def test_status_for_who_is_not_enrolled_says_free_or_busy(private_home: Path) -> None:
    """Reasons, names and queues are for the enrolled."""
    async with governed(private_home) as (alice, bob):
        await ask(bob, "request", resource=KEY, reason="a secret plan", requestId="r-1")
        await call(alice, "resource.policy", resource=KEY, unenrol=["bob"])
        seen = (await ask(bob, "status", resource=KEY))["resource"]
        assert seen["state"] == "free"
        assert not {"queue", "holder", "controller", "epoch", "fence"} & set(seen)
        assert (await ask(alice, "status", resource=KEY))["resource"]["enrolled"] is True


@pytest.mark.asyncio
@pytest.mark.clause("native-194")
async def test_controller_that_ended_is_replaced_and_one_that_lives_is_not(private_home: Path) -> None:
    """A takeover of a living controller is a person's word; a dead one's place is free."""
    async with governed(private_home) as (alice, bob):
        take = {"resource": KEY, "controller": "bob", "participants": [], "profile": "build"}
        assert await code_of(ask(bob, "set_controller", **take)) == "CAPABILITY_DENIED"
        wish = {"resource": KEY, "controller": "bob", "isTakeover": True}
        in_tree = host_of(bob)._replace(is_in_tree=True, act=Act.AGENT)
        assert await code_of(call(bob, "resource.policy", in_tree, **wish)) == "CAPABILITY_DENIED"
        await alice.close()
        await until(lambda: bob.node.world.lookup(alice.node.instance, is_fresh=True) is None)
        taken = await ask(bob, "set_controller", **take)
        assert taken["resource"]["controller"] == Peer(bob.node.instance).id
        assert taken["resource"]["epoch"] == 2


async def advice_of(work: Any) -> str:
    """Return what a refused call advises."""
    with pytest.raises(Refused) as caught:
        await work
    assert caught.value.code == "CAPABILITY_DENIED"
    return caught.value.action


@pytest.mark.asyncio
async def test_refused_control_says_who_may_or_which_setting(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Controller, setting, takeover, open resource: each no names what would change it."""
    async with governed(private_home) as (alice, bob):
        await ask(bob, "request", resource=KEY, reason="x", requestId="r-1")
        assert KEY in await advice_of(ask(bob, "grant", requestId="r-1"))
        take = {"resource": KEY, "controller": "bob", "participants": [], "profile": "build"}
        assert "--takeover" in await advice_of(ask(bob, "set_controller", **take))
        in_tree = host_of(bob)._replace(is_in_tree=True, act=Act.AGENT)
        wish = {"resource": KEY, "controller": "bob", "isTakeover": True}
        assert "no agent has started" in await advice_of(call(bob, "resource.policy", in_tree, **wish))
        await ask(bob, "request", resource="machine/open", reason="x", requestId="r-2")
        assert "tieline run" in await advice_of(ask(alice, "grant", requestId="r-2"))
        plain = await call(alice, "host.run_begin", run="plain")
        assert "delegate" in await advice_of(ask(alice, "grant", requestId="r-1", run=plain["token"]))
    monkeypatch.delenv("TIELINE_ALLOW_RESOURCE_CONTROL")
    async with two(private_home) as (alice, _bob):
        said = await advice_of(call(alice, "resource.policy", resource=KEY, isOpen=True))
        assert "allow_resource_control = true" in said


@pytest.mark.asyncio
async def test_takeover_by_a_person_replaces_a_living_controller(private_home: Path) -> None:
    """The local user's confirmation is enough, and it is told in the history."""
    async with governed(private_home) as (_alice, bob):
        person = host_of(bob)._replace(act=Act.PERSON)
        taken = await call(bob, "resource.policy", person, resource=KEY, controller="me", isTakeover=True)
        assert taken["resource"]["controllerAlias"] == "bob"


@pytest.mark.asyncio
async def test_controller_that_does_not_answer_is_unavailable(private_home: Path) -> None:
    """A policy is not given to somebody who is not there."""
    async with two(private_home) as (alice, _bob):
        fields = {"resource": KEY, "participants": [], "profile": "strict"}
        nobody = "peer-" + "0" * 32
        assert (
            await code_of(ask(alice, "set_controller", controller=nobody, **fields))
            == "CONTROLLER_UNAVAILABLE"
        )
        assert await code_of(ask(alice, "set_controller", controller="nobody", **fields)) == "UNKNOWN_TARGET"


@pytest.mark.asyncio
@pytest.mark.clause("native-199", "native-203", "I38")
async def test_events_reach_attach_and_the_mailbox_once_each_flush(private_home: Path) -> None:
    """An event is told to the doors, comes with peer_messages, and again only while no flush confirmed it."""
    async with governed(private_home) as (alice, bob):
        told: list[dict[str, Any]] = []
        bob.operations.subscribe(
            lambda kind, params: told.append(params) if kind == "resource_update" else None
        )
        await ask(bob, "request", resource=KEY, reason="migrate", requestId="r-1")
        await ask(alice, "grant", requestId="r-1")
        bob.node.desk.beat()
        await until(lambda: [one["event"]["state"] for one in told][-2:] == ["queued", "reserved"])
        last = told[-1]["event"]
        assert (last["resource"], last["requestId"], last["epoch"], last["fence"]) == (KEY, "r-1", 1, 1)
        assert last["to"] == Peer(bob.node.instance).id
        reply = await bob.operations.call(bob.operations.root_actor, "peer_messages", {})
        read = [one for one in reply.result["events"] if one["type"] == "resource"]
        assert [one["state"] for one in read] == ["policy_changed", "queued", "reserved"]
        assert reply.taken is not None
        await bob.operations.unflushed(reply.taken)
        again = await bob.operations.call(bob.operations.root_actor, "peer_messages", {})
        assert [one for one in again.result["events"] if one["type"] == "resource"] == read
        assert again.taken is not None
        await bob.operations.flushed(again.taken)
        assert (await call(bob, "peer_messages"))["events"] == []
        log = (await call(bob, "local.log"))["events"]
        assert [one["sequence"] for one in log] == [one["sequence"] for one in read]


@pytest.mark.asyncio
async def test_wait_in_peer_messages_ends_with_a_resource_event(private_home: Path) -> None:
    """A reader that follows its history is woken by a grant, without a question in between."""
    async with governed(private_home) as (alice, bob):
        await ask(bob, "request", resource=KEY, reason="migrate", requestId="r-1")
        bob.node.desk.beat()
        await asyncio.sleep(0.3)
        await call(bob, "peer_messages")
        waiting = asyncio.create_task(call(bob, "peer_messages", after="0", waitMs=8_000))
        await asyncio.sleep(0.1)
        await ask(alice, "grant", requestId="r-1")
        events = (await waiting)["events"]
        assert [one["state"] for one in events] == ["reserved"]


@pytest.mark.asyncio
@pytest.mark.clause("native-3.6.11")
async def test_controller_that_grants_in_order_needs_no_turn(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest ticket is granted by itself, the next one when that is given back."""
    monkeypatch.setenv("TIELINE_RESOURCE_AUTO_GRANT", "fifo")
    async with governed(private_home) as (alice, bob):
        alice.node.desk.beat()
        await ask(bob, "request", resource=KEY, reason="first", requestId="r-1")
        await ask(bob, "request", resource=KEY, reason="second", requestId="r-2")

        async def state(request_id: str) -> str:
            found = await alice.node.desk.run(lambda c: c.store.read(KEY).ticket(request_id))  # type: ignore[arg-type]
            return "" if found is None else str(found.state)

        async with asyncio.timeout(6):
            while await state("r-1") != "reserved":  # noqa: ASYNC110 - nothing tells this but a look
                await asyncio.sleep(0.05)
        assert await state("r-2") == "queued"
        await ask(bob, "release", requestId="r-1")
        async with asyncio.timeout(6):
            while await state("r-2") != "reserved":  # noqa: ASYNC110 - nothing tells this but a look
                await asyncio.sleep(0.05)


@pytest.mark.asyncio
@pytest.mark.clause("native-3.6.11")
async def test_grants_in_order_are_of_the_one_resource_and_of_its_present_policy(private_home: Path) -> None:
    """What was asked for one resource gives no other one away, and a policy without it is by hand again."""
    async with two(private_home) as (alice, bob):
        fields: dict[str, Any] = {"controller": "me", "participants": ["bob"]}
        await call(alice, "resource.policy", resource=KEY, isAutoGrant=True, **fields)
        await call(alice, "resource.policy", resource="machine/by-hand", **fields)

        async def settled(resource: str, request_id: str) -> str:
            await ask(bob, "request", resource=resource, reason="x", requestId=request_id)
            alice.node.desk.look()
            await asyncio.sleep(1.5)
            shown = await ask(bob, "status", resource=resource)
            await ask(bob, "cancel_request", requestId=request_id)
            return str(shown["resource"]["state"])

        assert await settled("machine/by-hand", "r-1") == "available"
        assert await settled(KEY, "r-2") == "reserved"
        await call(alice, "resource.policy", resource=KEY, enrol=["alice"])
        assert await settled(KEY, "r-3") == "reserved"
        await call(alice, "resource.policy", resource=KEY, **fields)
        assert await settled(KEY, "r-4") == "available"


@pytest.mark.asyncio
async def test_controller_grants_nothing_by_itself_by_default(private_home: Path) -> None:
    """Manual is the specification's default."""
    async with governed(private_home) as (alice, bob):
        await ask(bob, "request", resource=KEY, reason="first", requestId="r-1")
        alice.node.desk.look()
        await asyncio.sleep(1.5)
        assert (await ask(bob, "status", resource=KEY))["resource"]["state"] == "available"


@pytest.mark.asyncio
async def test_open_resource_grants_a_request_at_once(private_home: Path) -> None:
    """Nobody has to configure a resource: first come, first served."""
    async with two(private_home) as (alice, bob):
        first = await ask(alice, "request", resource=KEY, reason="mine")
        second = await ask(bob, "request", resource=KEY, reason="mine")
        assert [first["ticket"]["state"], second["ticket"]["state"]] == ["reserved", "queued"]
        assert second["resource"]["queue"][0]["alias"] == "bob"
        alice_id = first["ticket"]["requestId"]
        await ask(alice, "release", requestId=alice_id)
        bob.node.desk.look()

        async def state() -> str:
            return str((await ask(bob, "status", resource=KEY))["resource"]["state"])

        async with asyncio.timeout(6):
            while await state() != "reserved":  # noqa: ASYNC110 - nothing tells this but a look
                await asyncio.sleep(0.05)


@pytest.mark.asyncio
@pytest.mark.clause("native-138", "native-139")
async def test_run_requests_and_controls_only_by_explicit_delegation(private_home: Path) -> None:
    """A child gets the request capability by default and control only by name; enrolment by its root."""
    async with governed(private_home) as (alice, bob):
        plain = await call(alice, "host.run_begin", run="plain")
        trusted = await call(
            alice, "host.run_begin", run="trusted", capabilities=["resource.request", "resource.control"]
        )
        assert (await ask(bob, "request", resource=KEY, reason="x", requestId="r-1"))["ticket"]
        assert await code_of(ask(alice, "grant", requestId="r-1", run=plain["token"])) == "CAPABILITY_DENIED"
        # Holding the capability is not being the controller: that is the root, and a child is not its root.
        assert (
            await code_of(ask(alice, "grant", requestId="r-1", run=trusted["token"])) == "CAPABILITY_DENIED"
        )
        mine = await ask(alice, "request", resource=KEY, reason="y", requestId="r-2", run=plain["token"])
        assert mine["ticket"]["peerId"] == Peer(alice.node.instance, "plain").id


@pytest.mark.asyncio
async def test_end_of_a_run_gives_back_what_it_did_not_use(private_home: Path) -> None:
    """Its queued tickets and unused rights end with it."""
    async with governed(private_home) as (alice, bob):
        run = await call(bob, "host.run_begin", run="child")
        await ask(bob, "request", resource=KEY, reason="x", requestId="r-1", run=run["token"])
        await ask(alice, "grant", requestId="r-1")
        await ask(bob, "request", resource=KEY, reason="x", requestId="r-2")
        await call(bob, "host.run_end", run="child")
        seen = (await ask(bob, "status", resource=KEY))["resource"]
        assert seen["state"] == "available"
        assert [one["requestId"] for one in seen["queue"]] == ["r-2"]
        await bob.close()
        assert (await ask(alice, "status", resource=KEY))["resource"]["queue"] == []


@pytest.mark.asyncio
async def test_root_that_touches_no_resource_loads_none_of_it(private_home: Path) -> None:
    """The desk of a root costs nothing until somebody asks."""
    async with two(private_home) as (alice, _bob):
        alice.node.desk.beat()
        assert alice.node.desk._coordinator is None
        assert alice.node.desk._executor is None


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "fields",
    [
        {"operation": "status"},
        {"operation": "status", "resource": KEY, "reason": "x"},
        {"operation": "request", "resource": KEY},
        {"operation": "grant", "requestId": "r", "resource": KEY},
        {"operation": "release", "requestId": "r", "epoch": 1},
        {"operation": "grant", "requestId": "r", "epoch": -1},
        {"operation": "set_controller", "resource": KEY, "controller": "me", "participants": []},
        {"operation": "status", "resource": "machine/../x"},
        {"operation": "status", "resource": "elsewhere/x"},
        {"operation": "recover", "resource": KEY},
        {"operation": "request", "resource": KEY, "reason": ""},
    ],
)
async def test_fields_of_an_operation_are_closed(private_home: Path, fields: dict[str, Any]) -> None:
    """A field that is missing, strange or out of range is named, and nothing happened."""
    async with two(private_home) as (alice, _bob):
        assert await code_of(call(alice, "coordinate_resource", **fields)) == "INVALID_PARAMS"
