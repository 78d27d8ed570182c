"""What a host says, and the mail it gets at its boundaries."""

import asyncio
from pathlib import Path

import pytest

from tests.unit.runtime.roots import call, two
from tieline import Refused
from tieline.model.identity import Peer
from tieline.runtime import inspect
from tieline.runtime.options import RootOptions
from tieline.runtime.root import open_root

pytestmark = pytest.mark.asyncio


@pytest.mark.clause("native-103", "native-104", "native-121", "I9", "I16", "O01", "mutant-23")
async def test_boundary_mail_is_consumed_on_evidence_only(private_home: Path) -> None:
    """Exposed is not consumed; one exposure is in flight; refused gives it back; taken consumes it."""
    async with two(private_home) as (alice, bob):
        await alice.send("bob", "one")
        shown = await call(bob, "host.boundary", kind="tool")
        assert "one" in shown["text"]
        assert (await call(bob, "host.boundary", kind="tool"))["messageIds"] == []
        assert (await call(bob, "host.refused", token=shown["token"]))["freed"] == 1
        again = await call(bob, "host.boundary", kind="tool")
        assert again["messageIds"] == shown["messageIds"]
        assert (await call(bob, "host.taken", token=again["token"]))["consumed"] == 1
        assert (await call(bob, "host.taken", token=again["token"]))["consumed"] == 0
        assert (await call(bob, "host.boundary", kind="prompt"))["text"] == ""


@pytest.mark.clause("native-121", "native-122")
async def test_boundary_kind_decides_what_may_come(private_home: Path) -> None:
    """Steering mail comes at a tool boundary, queued mail at the turn's end, passive mail with a prompt."""
    async with two(private_home) as (alice, bob):
        for delivery in ("passive", "queue", "steer"):
            await alice.send("bob", delivery, delivery=delivery)
        seen = {}
        for kind in ("tool", "turn_end", "prompt"):
            shown = await call(bob, "host.boundary", kind=kind)
            seen[kind] = [name for name in ("passive", "queue", "steer") if f'"{name}"' in shown["text"]]
            await call(bob, "host.taken", token=shown["token"])
            assert shown["generation"] == bob.node.engine.arrival_generation
        assert "steer" in seen["tool"]
        assert "queue" in seen["turn_end"]
        assert "passive" in seen["prompt"]


@pytest.mark.clause("I9", "I16")
async def test_boundary_consumes_only_what_its_text_shows_whole(private_home: Path) -> None:
    """What does not fit waits; what fits no boundary is shown once as an excerpt and stays unread."""
    limits = {"boundary_bytes": 6_000}
    async with two(private_home, limits=limits) as (alice, bob):
        await alice.send("bob", "x" * 7_900)
        for number in range(3):
            await alice.send("bob", f"{number}" * 3_000)
        seen: list[str] = []
        for _ in range(4):
            shown = await call(bob, "host.boundary", kind="tool")
            assert len(shown["text"].encode()) <= 6_000
            seen += shown["messageIds"]
            if shown["token"]:
                await call(bob, "host.taken", token=shown["token"])
        assert len(seen) == len(set(seen)) == 3
        left = await bob.inbox()
        assert [len(message.content) for message in left] == [7_900]
        assert (await call(bob, "host.boundary", kind="tool"))["text"] == ""
        read = await call(bob, "peer_messages", messageId=left[0].message_id)
        assert "x" * 7_900 in read["text"]
        assert await bob.inbox() == []


@pytest.mark.clause("I9", "I16")
async def test_boundary_shows_and_counts_each_of_two_messages_of_one_id(private_home: Path) -> None:
    """Two senders may use one id: each is shown before it counts as read, and one that waits stays unread."""
    async with two(private_home, limits={"boundary_messages": 1}) as (alice, bob):
        await alice.send("bob", "from alice", message_id="z")
        await bob.send("bob", "from bob", message_id="z")
        for text, other in (("from alice", "from bob"), ("from bob", "from alice")):
            shown = await call(bob, "host.boundary", kind="tool")
            assert text in shown["text"]
            assert other not in shown["text"]
            assert shown["messageIds"] == ["z"]
            assert (await call(bob, "host.taken", token=shown["token"]))["consumed"] == 1
    async with two(private_home) as (alice, bob):
        await alice.send("bob", "from alice", message_id="z")
        await bob.send("bob", "from bob", message_id="z")
        shown = await call(bob, "host.boundary", kind="tool")
        assert "from alice" in shown["text"]
        assert "from bob" in shown["text"]
        assert shown["messageIds"] == ["z", "z"]


@pytest.mark.clause("I9")
async def test_mail_given_back_is_measured_as_it_will_be_shown_again(private_home: Path) -> None:
    """A repeated message says so and is longer by that, also when it is measured before it is prepared."""
    async with two(private_home) as (alice, bob):
        await alice.send("bob", "x")
        own = Peer(bob.node.instance)

        def measured() -> str:
            held = bob.node.engine.held(own, count_max=1)
            return inspect.rendered(held, lambda: "0" * 32, 32_768, 16).text

        assert "reExposed" not in measured()
        shown = await call(bob, "host.boundary", kind="tool")
        assert "reExposed" not in shown["text"]
        await call(bob, "host.refused", token=shown["token"])
        before = measured()
        shown = await call(bob, "host.boundary", kind="tool")
        assert '"reExposed": true' in shown["text"]
        assert len(before) == len(measured()) == len(shown["text"])


@pytest.mark.clause("native-114", "native-116", "native-115", "O06")
async def test_wake_is_told_once_until_the_host_took_it(private_home: Path) -> None:
    """Five arrivals make one wake; after the boundary the next arrival makes another."""
    async with two(private_home, idle_behavior="auto") as (alice, bob):
        told: list[str] = []
        bob.operations.subscribe(lambda kind, _params: told.append(kind))
        for number in range(5):
            await alice.send("bob", f"n{number}")
        assert told.count("wake") == 1
        assert told.count("peer_update") == 5
        shown = await call(bob, "host.boundary", kind="prompt")
        assert len(shown["messageIds"]) == 5
        await call(bob, "host.taken", token=shown["token"])
        await alice.send("bob", "later")
        assert told.count("wake") == 2


@pytest.mark.clause("native-116")
async def test_wake_of_a_run_takes_none_from_its_session(private_home: Path) -> None:
    """Each has one that is outstanding; under notify the host is told of a run's mail all the same."""
    for idle in ("auto", "notify"):
        async with two(private_home, idle_behavior=idle) as (alice, bob):
            child = (await call(bob, "host.run_begin", run="child"))["peerId"]
            told: list[tuple[str, object]] = []
            note = told.append
            bob.operations.subscribe(lambda kind, params, note=note: note((kind, params.get("runId"))))
            for to in (child, child, "bob", "bob"):
                await alice.send(to, "x")
            wakes = [run for kind, run in told if kind == "wake"]
            assert wakes == (["child", None] if idle == "auto" else [])
            assert [kind for kind, _ in told].count("peer_update") == 4
            await call(bob, "host.boundary", kind="tool")
            shown = await call(bob, "host.boundary", kind="tool", run="child")
            assert len(shown["messageIds"]) == 2
            await alice.send(child, "y")
            assert len([kind for kind, _ in told if kind == "wake"]) == (3 if idle == "auto" else 0)


async def test_wake_counts_and_names_what_waits(private_home: Path) -> None:
    """As many ids as the count says, up to a bound; what a boundary has already is neither."""
    limits = {"rate_per_second": 1_000, "rate_burst": 1_000, "inbox_messages": 64}
    async with two(private_home, idle_behavior="auto", limits=limits) as (alice, bob):
        told: list[dict[str, object]] = []
        bob.operations.subscribe(lambda kind, params: told.append(params) if kind == "wake" else None)
        await alice.send("bob", "for later", delivery="passive", message_id="m-0")
        await alice.send("bob", "x", message_id="m-1")
        assert (told[-1]["count"], told[-1]["messageIds"]) == (2, ["m-0", "m-1"])
        assert len((await call(bob, "host.boundary", kind="prompt"))["messageIds"]) == 2
        await alice.send("bob", "y", message_id="m-2")
        assert (told[-1]["count"], told[-1]["messageIds"]) == (1, ["m-2"])
        for number in range(40):
            await alice.send("bob", "z", message_id=f"n-{number}")
        bob.node.host.is_wake_out = False
        await alice.send("bob", "z", message_id="n-40")
        assert told[-1]["count"] == 42
        assert len(told[-1]["messageIds"]) == 32  # type: ignore[arg-type]


@pytest.mark.clause("native-147", "native-116")
async def test_wake_is_withheld_under_notify_pause_and_passive(private_home: Path) -> None:
    """Notify never wakes; a pause holds back; passive and muted mail wakes nobody."""
    async with two(private_home) as (alice, bob):
        told: list[str] = []
        bob.operations.subscribe(lambda kind, _params: told.append(kind))
        await alice.send("bob", "x")
        assert "wake" not in told
    async with two(private_home, idle_behavior="auto") as (alice, bob):
        told.clear()
        bob.operations.subscribe(lambda kind, _params: told.append(kind))
        await alice.send("bob", "x", delivery="passive")
        await call(bob, "host.state", paused="permission")
        await alice.send("bob", "y")
        await call(bob, "host.state", resumed=True)
        await call(bob, "local.mute", peer="alice")
        await alice.send("bob", "z")
        assert "wake" not in told
        assert told.count("peer_update") == 2


async def test_state_of_the_host_is_published(private_home: Path) -> None:
    """Busy, model and context fill are seen by others at once."""
    async with two(private_home) as (alice, bob):
        await call(bob, "host.state", busy=True, model="m-1", contextPercent=37)
        peer = (await alice.peers())[0]
        assert (peer["busy"], peer["model"], peer["contextPercent"]) == (True, "m-1", 37)
        for wrong in ({"paused": "lunch"}, {"contextPercent": 101}, {"busy": "yes"}, {"nope": 1}):
            with pytest.raises(Refused) as caught:
                await call(bob, "host.state", **wrong)
            assert caught.value.code == "INVALID_PARAMS"


async def test_answer_of_the_host_is_read_by_a_peer_in_pages(private_home: Path) -> None:
    """`last` shows finished answers only, wakes nobody, and pins an entry."""
    async with two(private_home) as (alice, bob):
        assert (await alice.last("bob"))["entry"] is None
        await call(bob, "host.answer", entry="e-1", text="first")
        await call(bob, "host.answer", entry="e-2", text="x" * 20_000)
        page = await alice.last("bob")
        assert (page["entry"], page["nextOffset"]) == ("e-2", 16_384)
        rest = await alice.last("bob", entry="e-2", offset=16_384)
        assert page["text"] + rest["text"] == "x" * 20_000
        assert (await alice.last("bob", entry="e-1"))["text"] == "first"


@pytest.mark.clause("native-138", "native-139", "native-144")
async def test_run_gets_no_capability_that_its_root_lacks(private_home: Path) -> None:
    """Delegates inherit messages and requests; control needs a root that has it."""
    async with two(private_home) as (_alice, bob):
        with pytest.raises(Refused) as caught:
            await call(bob, "host.run_begin", run="r", capabilities=["resource.control"])
        assert caught.value.code == "CAPABILITY_DENIED"
        run = await call(bob, "host.run_begin", run="r", capabilities=["message.receive"])
        with pytest.raises(Refused) as caught:
            await call(bob, "send_peer_message", to="alice", content="x", run=run["token"])
        assert caught.value.code == "CAPABILITY_DENIED"
        assert run["token"] not in str(bob.who())


async def test_shutdown_is_told_to_the_door(private_home: Path) -> None:
    """The host's shutdown ends whoever runs the root."""
    async with two(private_home) as (_alice, bob):
        await call(bob, "host.shutdown")
        async with asyncio.timeout(1):
            await bob.shutdown.wait()


@pytest.mark.clause("native-32")
async def test_run_with_a_narrower_scope_sees_and_is_seen_no_further(private_home: Path) -> None:
    """A run of a machine-wide root that was given its workspace: both directions end there."""
    far_work = private_home / "far"
    far_work.mkdir()
    async with two(private_home, scope="machine") as (alice, bob):
        far = await open_root(
            RootOptions(
                home=str(private_home / "h"),
                workspace=str(far_work),
                alias="far",
                scope="machine",
                host_pid=1,
            )
        )
        try:
            near = await call(bob, "host.run_begin", run="near", alias="nearkid", scope="workspace")
            await call(bob, "host.run_begin", run="wide", alias="widekid")
            assert {peer["alias"] for peer in await far.peers(scope="machine")} == {"alice", "bob", "widekid"}
            assert "nearkid" in {peer["alias"] for peer in await alice.peers(scope="machine")}
            with pytest.raises(Refused) as caught:
                await far.send(near["peerId"], "hello")
            assert caught.value.code in {"SCOPE_DENIED", "UNKNOWN_TARGET"}
            for method, params in (
                ("send_peer_message", {"to": "far", "content": "x"}),
                ("send_peer_message", {"to": "far", "content": "x", "scope": "machine"}),
                ("list_peers", {"scope": "machine"}),
            ):
                with pytest.raises(Refused) as caught:
                    await call(bob, method, run=near["token"], **params)
                assert caught.value.code == "SCOPE_DENIED", method
            sent = await call(bob, "send_peer_message", run=near["token"], to="alice", content="near enough")
            assert sent["state"] == "accepted"
        finally:
            await far.close()
        with pytest.raises(Refused) as caught:
            await call(alice, "host.run_begin", run="r", scope="galaxy")
        assert caught.value.code == "INVALID_PARAMS"


@pytest.mark.clause("native-32")
async def test_run_gets_no_wider_scope_than_its_root(private_home: Path) -> None:
    """Delegation narrows: a workspace root cannot make a machine-wide run."""
    async with two(private_home) as (alice, _bob):
        with pytest.raises(Refused) as caught:
            await call(alice, "host.run_begin", run="r", scope="machine")
        assert caught.value.code == "SCOPE_DENIED"
