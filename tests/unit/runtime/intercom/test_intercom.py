"""A root's place on the intercom: joined when published, told when changed, gone when closed."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.intercom.kit import intercom_of, station, tool, until
from tests.unit.runtime.roots import call
from tieline.errors import Refused
from tieline.runtime.intercom.intercom import Intercom
from tieline.runtime.intercom.lineage import child_environment
from tieline.runtime.options import RootOptions
from tieline.runtime.root import Root, open_root
from tieline.text import parse_context
from tieline.wire.intercom.mapping import peer_id_of

pytestmark = pytest.mark.asyncio


async def test_root_without_the_wire_is_on_no_intercom(private_home: Path) -> None:
    """Off unless switched on: no broker is started, and the tool says how to turn it on."""
    async with await open_root(
        RootOptions(home=str(private_home / "h"), workspace=str(private_home))
    ) as root:
        assert root.node.intercom is None
        with pytest.raises(Refused, match="tieline setup intercom"):
            await call(root, "intercom", action="list")
        for method in ("intercom.context", "intercom.guard", "intercom.provenance", "intercom.wake_outcome"):
            given: dict[str, Any] = {
                "intercom.context": {"version": 1},
                "intercom.guard": {
                    "version": 1, "revision": None,
                    "target": {"rootSessionId": "r", "peerId": "p", "incarnation": "i"},
                },
                "intercom.provenance": {"version": 1, "rootSessionId": "r", "messageId": "m"},
                "intercom.wake_outcome": {"token": "t", "ok": True},
            }[method]  # fmt: skip
            with pytest.raises(Refused) as caught:
                await call(root, method, **given)
            assert caught.value.code == "CAPABILITY_DENIED"
    assert not (private_home / "i").exists()


async def test_registration_says_who_where_and_what(private_home: Path) -> None:
    """What every revision's reader demands, the group, this life; the id of the native session is wanted."""
    async with station(private_home) as at:
        root = await at.root("api")
        made = intercom_of(root).registration()
        assert made.requested_id == peer_id_of("s-api")
        said = made.session
        assert (said["name"], said["cwd"], said["status"], said["acceptsAsks"]) == (
            "api", str(private_home / "w"), "idle", True,
        )  # fmt: skip
        assert (said["rootSessionId"], said["tielineInstance"]) == ("s-api", root.node.instance)
        assert {"pid", "startedAt", "lastActivity", "incarnation"} <= set(said)
        assert "parentSessionId" not in said


async def test_another_session_is_another_life_under_another_id(private_home: Path) -> None:
    """The old registration ends, the guard with it; a companion is told of the new context."""
    async with station(private_home) as at:
        root = await at.root("api")
        told: list[dict[str, Any]] = []
        root.operations.subscribe(lambda _kind, params: told.append(params.get("event", {})))
        intercom = intercom_of(root)
        before = await call(root, "intercom.context", version=1)
        target = {name: before[name] for name in ("rootSessionId", "peerId", "incarnation")}
        await call(root, "intercom.guard", version=1, target=target, revision="g")
        await call(root, "host.state", session="s-next")
        await until(lambda: intercom.peer == peer_id_of("s-next"))
        after = await call(root, "intercom.context", version=1)
        assert (after["rootSessionId"], "applicationGuard" in after) == ("s-next", False)
        assert after["incarnation"] != before["incarnation"]
        kinds = [one for one in told if one.get("type") == "intercom_context"]
        assert kinds[-1]["peerId"] == after["peerId"]
        assert {"version", "incarnation", "connected", "wire"} <= set(kinds[-1])


async def test_root_that_is_not_published_is_nowhere(private_home: Path) -> None:
    """Until its host told the session it is not on the intercom either."""
    async with station(private_home) as at:
        options = RootOptions(
            home=str(private_home / "q"), workspace=str(private_home), host_pid=1, is_published=False
        )
        from tieline.runtime.node import Node

        node = await Node.open(options, at.environment)
        assert node.intercom is not None
        assert not node.intercom.post.is_connected
        await node.publish("s-late")
        await until(lambda: node.intercom is not None and node.intercom.peer == peer_id_of("s-late"))
        await node.close()
        assert not node.intercom.post.is_connected


async def test_wrong_place_or_group_keeps_the_wire_away_and_says_why(private_home: Path) -> None:
    """No other place is tried, the root itself goes on; the environment of a run names no group then."""
    async with station(private_home) as at:
        for environment, words in (
            ({"PI_INTERCOM_RUNTIME_DIR": "relative"}, "absolute path"),
            ({"PI_INTERCOM_PARENT_SESSION_ID": "x"}, "PI_INTERCOM_ROOT_SESSION_ID is not set"),
            (child_environment("s-odd"), "name this very session"),
        ):
            root = await at.root("odd", is_joined=False, **environment)
            assert words in intercom_of(root).fault
            with pytest.raises(Refused, match="Intercom not connected"):
                await tool(root, "status")
            assert (await call(root, "host.run_begin", run="r"))["environment"] == {}
            await root.close()


async def test_child_whose_session_becomes_its_mains_leaves(private_home: Path) -> None:
    """It is nobody's child then and not its main either: the wire is left, and a companion is told."""
    async with station(private_home) as at:
        main, child = await at.root("main"), await at.root("child", **child_environment("s-main"))
        told: list[dict[str, Any]] = []
        child.operations.subscribe(lambda _kind, params: told.append(params.get("event", {})))
        await call(child, "host.state", session="s-main")
        assert "name this very session" in intercom_of(child).fault
        await until(lambda: not intercom_of(main).roster.rows())
        contexts = [one for one in told if one.get("type") == "intercom_context"]
        assert [one["connected"] for one in contexts][-1:] == [False]
        with pytest.raises(Refused, match="Intercom not connected"):
            await tool(child, "list")
        await call(child, "host.state", session="s-third")
        assert not intercom_of(child).post.is_connected


async def test_name_comes_from_the_variable_and_follows_the_host(private_home: Path) -> None:
    """Control characters and halves of pairs never reach a broker, which would hang up."""
    async with station(private_home) as at:
        one = await at.root("api", PI_SUBAGENT_INTERCOM_SESSION_NAME="  sub\x07agent ")
        other = await at.root("other")
        assert [row["name"] for row in (await tool(other, "list"))["sessions"]] == ["subagent"]
        await call(one, "host.state", name="renamed", model="a\x01b\n")
        await until(lambda: intercom_of(one)._said["name"] == "renamed")
        (row,) = (await tool(other, "list"))["sessions"]
        assert (row["name"], row["model"]) == ("renamed", "ab")
        assert isinstance(intercom_of(one), Intercom)


async def test_failed_wakes_and_departures_are_remembered_in_bounds(private_home: Path) -> None:
    """What ends a wait is known until it is forgotten by age of order, never by leaking."""
    async with station(private_home) as at:
        intercom = intercom_of(await at.root("api"))
        for number in range(300):
            intercom.wake_failed(f"m{number}", "no")
        assert (intercom.wake_fault("m0"), intercom.wake_fault("m299")) == (None, "no")
        for number in range(5_000):
            intercom.session_left(f"s{number}")
        assert (intercom.has_left("s0"), intercom.has_left("s4999")) == (False, True)


async def test_checks_say_whether_and_why_a_root_is_not_there(private_home: Path) -> None:
    """Connected under an id, kept away by a wrong variable, or with an older broker beside the new one."""
    async with station(private_home) as at:
        root = await at.root("api")
        assert ("intercom", True) in [(one["name"], one["ok"]) for one in root.node.checks()]
        odd = await at.root("odd", is_joined=False, PI_INTERCOM_ROOT_SESSION_ID="x")
        (check,) = [one for one in odd.node.checks() if one["name"] == "intercom"]
        assert (check["ok"], "PI_INTERCOM_PARENT_SESSION_ID" in check["text"]) == (False, True)


@pytest.mark.clause("intercom-97", "intercom-98")
async def test_turn_that_failed_answers_the_question_it_began_with_once(private_home: Path) -> None:
    """The asker hears of a failure; not after the question was answered, nor where the turn had none."""
    async with station(private_home) as at:
        one, other = await at.root("one"), await at.root("other")
        asking = asyncio.create_task(tool(one, "ask", to="other", message="well?"))
        await until(lambda: len(intercom_of(other).asks.waiting(0)) == 1)
        assert await call(other, "intercom.turn_failed", error="too early") == {"replied": []}
        await call(other, "host.state", busy=True)
        token = (await call(other, "host.boundary", kind="prompt"))["token"]
        await call(other, "host.taken", token=token)
        told = await call(other, "intercom.turn_failed", error="model error")
        answered = await asking
        assert (answered["status"], told["replied"]) == ("failed", [answered["messageId"]])
        assert answered["reply"]["content"] == "Recipient turn failed: model error"
        assert await call(other, "intercom.turn_failed", error="again") == {"replied": []}


# ---------------------------------------------------------------- as a recipient


async def shown(root: Root, kind: str, *, is_taken: bool = True) -> list[str]:
    """Return the texts that a boundary shows, and settle them."""
    told = await call(root, "host.boundary", kind=kind)
    if told["token"] is not None:
        await call(root, "host.taken" if is_taken else "host.refused", token=told["token"])
    return [str(one["content"]) for one in parse_context(told["text"])]


@pytest.mark.clause("intercom-71", "intercom-72", "intercom-73", "intercom-75", "intercom-80")
async def test_mail_wakes_and_waits_as_its_sender_asked(private_home: Path) -> None:
    """A passive message wakes nobody, others once; each reaches a busy model where its delivery says.

    A host without a screen is no other, and nothing is answered by itself.
    """
    async with station(private_home) as at:
        far, me = await at.root("far"), await at.root("me", TIELINE_IDLE_BEHAVIOR="auto")
        wakes: list[dict[str, Any]] = []
        me.operations.subscribe(lambda kind, params: wakes.append(params) if kind == "wake" else None)
        await tool(far, "send", to="me", message="crumb", delivery="passive")
        assert wakes == []
        await tool(far, "send", to="me", message="plain")
        await tool(far, "send", to="me", message="more")
        assert len(wakes) == 1
        await call(me, "host.state", busy=True, activity="idle")
        await until(lambda: intercom_of(me)._said["status"] == "thinking")
        assert intercom_of(me)._said["acceptsAsks"] is False
        assert await shown(me, "tool") == ["plain", "more"]
        await tool(far, "send", to="me", message="later", delivery="queue")
        asked = await tool(far, "ask", to="me", message="well?")
        assert asked["reason"] == "peer_busy"
        assert await shown(me, "tool") == ["well?"]
        assert await shown(me, "turn_end") == ["later"]
        assert await shown(me, "prompt") == ["crumb"]
        assert await far.inbox() == []


@pytest.mark.clause("intercom-78", "intercom-85", "intercom-86")
async def test_mail_that_an_abort_left_is_shown_again_and_what_was_read_never(private_home: Path) -> None:
    """Not twice at once, again after the host could not place it, a second time too; consumed is consumed."""
    async with station(private_home) as at:
        far, me = await at.root("far"), await at.root("me")
        await tool(far, "send", to="me", message="kept")
        await until(lambda: me.node.engine.counters.get("accepted"))
        await call(me, "host.state", busy=True)
        token = (await call(me, "host.boundary", kind="tool"))["token"]
        assert await shown(me, "tool") == []
        await call(me, "host.refused", token=token)
        for _ in range(2):
            assert await shown(me, "tool", is_taken=False) == ["kept"]
        assert await shown(me, "tool") == ["kept"]
        assert await shown(me, "prompt") == []


@pytest.mark.clause("intercom-82", "intercom-83", "intercom-84")
async def test_mail_of_an_ended_root_is_recovered_once_and_adopted_by_nobody(private_home: Path) -> None:
    """What was stored is there for review, what was read is not, and nothing comes after the end."""
    async with station(private_home) as at:
        far, me = await at.root("far"), await at.root("me")
        for text in ("read", "unread"):
            await tool(far, "send", to="me", message=text)
        await until(lambda: me.node.engine.counters.get("accepted") == 2)
        peer = (await far.peers())[0]["peerId"]
        await call(me, "host.state", busy=True)
        first = (await me.inbox())[0]
        await call(me, "peer_messages", messageId=first.message_id)
        instance = me.node.instance
        await me.close()
        with pytest.raises(Refused):
            await far.send(peer, "after the end")
        again = await at.root("me", is_joined=True)
        assert await again.inbox() == []
        with pytest.raises(Refused):
            await again.recover(instance, session="s-other")
        recovered = await again.recover(instance, session="s-me")
        assert [item.envelope.content for item in recovered.unread] == ["unread"]
