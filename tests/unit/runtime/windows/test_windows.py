"""One root as a window among windows, over real sockets."""

import asyncio
import json
import os
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.roots import call
from tests.unit.runtime.windows.kit import FarWindow, root_with_window, until
from tieline.errors import OutcomeUnknown, Refused
from tieline.runtime.options import RootOptions
from tieline.runtime.root import Root, open_root
from tieline.runtime.windows import leaving
from tieline.runtime.windows.windows import Windows

pytestmark = pytest.mark.asyncio


def windows_of(root: Root) -> Windows:
    """Return the root's place among windows."""
    found: Windows | None = root.node.windows
    assert found is not None
    return found


def events(root: Root) -> list[dict[str, Any]]:
    """Return the list in which the events of a door are kept from now on: the root has a host."""
    told: list[dict[str, Any]] = []
    root.operations.subscribe(lambda _kind, params: told.append(params.get("event", {})))
    return told


@pytest.mark.clause("pi-peers-1", "pi-peers-2", "pi-peers-3", "pi-peers-16")
async def test_window_is_shown_while_the_root_lives_and_gone_after(private_home: Path) -> None:
    """Record, key and socket; every field that the contract names; nothing of it is left."""
    async with root_with_window(private_home) as (root, far):
        record = far.record()
        assert record["name"] == "bob"
        assert (record["pid"], record["cwd"], record["sessionId"]) == (
            os.getpid(), str(private_home / "w"), root.who()["sessionId"],
        )  # fmt: skip
        assert (record["status"], record["peerProtocol"], record["features"]) == ("idle", 1, ["notify_idle"])
        assert os.stat(record["socketPath"]).st_mode & 0o777 == 0o600
    assert [name for name in os.listdir(far.registry) if str(os.getpid()) in name] == []
    assert os.listdir(far.registry / "socks") in ([], ["far-77777.sock"])


async def test_root_without_the_wire_is_no_window(private_home: Path) -> None:
    """Off unless switched on: no registry is made, and a host's question about windows is refused."""
    options = RootOptions(home=str(private_home / "h"), workspace=str(private_home), host_pid=1)
    async with await open_root(options) as root:
        assert root.node.windows is None
        assert (await call(root, "host.environment"))["environment"] == {}
        for method, params in (
            ("host.shutdown", {"request": "x"}),
            ("host.shutdown_peer", {"to": "bob"}),
        ):
            with pytest.raises(Refused) as caught:
                await call(root, method, **params)
            assert caught.value.code == "CAPABILITY_DENIED"


async def test_second_root_of_a_process_goes_on_without_a_window(private_home: Path) -> None:
    """One window per process id: the first keeps it, the second is reached natively."""
    async with root_with_window(private_home) as (root, far):
        options = RootOptions(home=str(private_home / "h"), workspace=str(private_home / "w"), host_pid=1)
        async with await open_root(options) as other:
            assert windows_of(other).address == ""
            assert (await call(other, "host.run_begin", run="r"))["environment"] == {}
            assert far.record()["name"] == "bob"
            assert (await other.send("bob", "natively"))["state"] == "accepted"
        assert far.record()["name"] == "bob"
        assert windows_of(root).address


@pytest.mark.clause("pi-peers-14", "pi-peers-15")
async def test_record_is_written_at_a_flip_and_at_a_whole_percent(private_home: Path) -> None:
    """Busy and idle stamp the flip; a percent rewrites without stamping; the same again writes nothing."""
    async with root_with_window(private_home) as (root, far):
        begun = far.record()["statusUpdatedAt"]
        await asyncio.sleep(0.01)
        await call(root, "host.state", busy=True, contextPercent=5)
        busy = far.record()
        assert (busy["status"], busy["contextUsage"]) == ("busy", 5)
        assert busy["statusUpdatedAt"] > begun
        inode = os.stat(far.registry / f"{os.getpid()}.json").st_ino
        await call(root, "host.state", busy=True, contextPercent=5)
        assert os.stat(far.registry / f"{os.getpid()}.json").st_ino == inode
        await call(root, "host.state", contextPercent=6)
        assert far.record()["contextUsage"] == 6
        assert far.record()["statusUpdatedAt"] == busy["statusUpdatedAt"]


async def test_window_taken_away_comes_back_with_the_beat(private_home: Path) -> None:
    """Record, key, socket, or all of it: put back, and it can be written to again."""
    async with root_with_window(private_home) as (root, far):
        window = windows_of(root)
        before = far.record()
        for name in list(os.listdir(far.registry)):
            if str(os.getpid()) in name:
                os.unlink(far.registry / name)
        window.beat()
        assert far.record() == before
        os.unlink(before["socketPath"])
        window.beat()
        assert far.record()["socketPath"] == before["socketPath"]
        await far.say(message := far.user("are you back"))
        await until(lambda: far.statuses(message["msg_id"]) == ["delivered"])


@pytest.mark.clause("pi-peers-23", "pi-peers-30", "pi-peers-32")
async def test_message_of_a_window_is_mail_like_any_other(private_home: Path) -> None:
    """Its exact body, from who the registry says; the receipt comes over a connection of ours."""
    async with root_with_window(private_home) as (root, far):
        await far.say(message := far.user("exact &amp; body"))
        await until(lambda: far.statuses(message["msg_id"]) == ["delivered"])
        read = await call(root, "peer_messages")
        (item,) = read["messages"]
        assert (item["content"], item["fromAlias"], item["wire"]) == ("exact &amp; body", "far", "pi-peers")
        (peer,) = (await call(root, "list_peers"))["peers"]
        assert (item["from"], peer["wire"], peer["alias"]) == (peer["peerId"], "pi-peers", "far")
        await far.say(far.user("stranger"), token="0" * 32)
        assert (await call(root, "peer_messages"))["messages"] == []


@pytest.mark.clause("pi-peers-28", "pi-peers-31", "pi-peers-45", "pi-peers-U8", "pi-peers-U23")
@pytest.mark.parametrize("form", ["far", "far [{ref}]", "[{ref}]", "{path}", "uds:{path}", "was-far", "{id}"])
async def test_window_is_reached_by_every_form_of_its_name(private_home: Path, form: str) -> None:
    """Name, ref, both, address, former name, exact id; unknown until its receipt, then accepted."""
    async with root_with_window(private_home) as (root, far):
        (peer,) = (await call(root, "list_peers"))["peers"]
        target = form.format(ref=peer["ref"], path=far.path, id=peer["peerId"])
        sent = await call(root, "send_peer_message", to=target, content="on it")
        assert (sent["state"], sent["wire"]) == ("unknown", "pi-peers")
        (frame,) = far.frames
        assert (frame["from"], frame["msg_id"]) == (far.record()["socketPath"], sent["messageId"])
        assert frame["content"].endswith(">on it</cross-session-message>")
        await far.say(far.control("peer_message_status", orig_msg_id=sent["messageId"], status="delivered"))
        told = (await call(root, "peer_messages", messageId=sent["messageId"]))["receipts"][0]
        assert (told["state"], told["durability"]) == ("accepted", "volatile")


@pytest.mark.clause("pi-peers-17")
async def test_window_of_a_newer_protocol_is_refused_before_anything_is_stored(private_home: Path) -> None:
    """It is listed as what it is; nothing is connected to."""
    async with root_with_window(private_home) as (root, far):
        far.write(peerProtocol=2)
        windows_of(root).registry.scan(0, fresh=True)
        with pytest.raises(Refused) as caught:
            await call(root, "send_peer_message", to="far", content="future")
        assert caught.value.code == "UNSUPPORTED_PROTOCOL"
        assert "protocol_version" in str(caught.value)
        assert far.frames == []


@pytest.mark.clause("pi-peers-47")
async def test_window_of_another_project_is_counted_and_reached_on_request_only(private_home: Path) -> None:
    """The project bounds who is seen; who asks for all crosses."""
    async with root_with_window(private_home) as (root, far):
        far.write(projectRoot="/elsewhere", cwd="/elsewhere")
        windows_of(root).registry.scan(0, fresh=True)
        assert (await call(root, "list_peers"))["peers"] == []
        assert root.node.book.other_projects_count == 1
        with pytest.raises(Refused) as caught:
            await call(root, "send_peer_message", to="far", content="x")
        assert caught.value.code == "SCOPE_DENIED"
        found = await root.node.book.resolve("far", None, is_crossing=True)
        assert found.wire == "pi-peers"


@pytest.mark.clause("pi-peers-34", "pi-peers-36", "pi-peers-37")
async def test_idle_notices_go_both_ways_once_each(private_home: Path) -> None:
    """Told at once by an idle host, at the flip by a busy one; ours comes as mail while its nonce lives."""
    async with root_with_window(private_home) as (root, far):
        await far.say(far.control("notify_when_idle", reply_to=far.path, nonce="n-1"))
        await until(lambda: [item["nonce"] for item in far.told("peer_idle_notice")] == ["n-1"])
        await call(root, "host.state", busy=True)
        await far.say(far.control("notify_when_idle", reply_to=far.path, nonce="n-2"))
        await asyncio.sleep(0.05)
        assert len(far.told("peer_idle_notice")) == 1
        for _ in range(2):
            await call(root, "host.state", busy=False)
            await call(root, "host.state", busy=True)
        await until(lambda: [item["nonce"] for item in far.told("peer_idle_notice")] == ["n-1", "n-2"])
        await call(root, "send_peer_message", to="far", content="tell me", notifyWhenIdle=True)
        (asked,) = await until(lambda: far.told("notify_when_idle"))
        assert asked["nonce"] == asked["msg_id"]
        for nonce in ("forged", asked["nonce"], asked["nonce"]):
            await far.say(far.control("peer_idle_notice", nonce=nonce))
        mail = (await call(root, "peer_messages", waitMs=2_000))["messages"]
        assert [(item["topic"], item["fromAlias"]) for item in mail] == [("idle", "far")]
        assert (await call(root, "peer_messages"))["messages"] == []


@pytest.mark.clause("pi-peers-18")
async def test_optional_question_is_not_put_to_a_window_that_does_not_know_it(private_home: Path) -> None:
    """The message goes; the subscription does not."""
    async with root_with_window(private_home) as (root, far):
        far.write(features=[])
        windows_of(root).registry.scan(0, fresh=True)
        await call(root, "send_peer_message", to="far", content="tell me", notifyWhenIdle=True)
        assert [frame["type"] for frame in far.frames] == ["user"]


@pytest.mark.clause("pi-peers-38")
async def test_shutdown_is_offered_to_the_host_and_denied_where_nobody_answers(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No door: denied at once. A door: its word; or a denial when its time is over."""
    async with root_with_window(private_home) as (root, far):

        async def asked() -> str:
            frame = far.control("shutdown", reply_to=far.path, text="please end")
            await far.say(frame)
            return str(frame["msg_id"])

        def outcomes() -> list[str]:
            return [item["outcome"] for item in far.told("shutdown_response")]

        await asked()
        await until(lambda: outcomes() == ["denied"])
        told = events(root)
        name = await asked()
        (event,) = [item for item in told if item.get("type") == "shutdown"]
        assert (event["text"], event["child"]) == ("please end", False)
        with pytest.raises(Refused) as caught:
            await call(root, "host.shutdown", request="another")
        assert caught.value.code == "UNKNOWN_TARGET"
        await call(root, "host.shutdown", request=event["request"], accept=False)
        await until(lambda: outcomes() == ["denied", "denied"])
        assert far.told("shutdown_response")[1]["inReplyTo"] == name
        assert not root.node.shutdown.is_set()
        monkeypatch.setattr(leaving, "ANSWER_MS", 50)
        monkeypatch.setattr("tieline.runtime.windows.windows.ANSWER_MS", 50)
        await asked()
        await until(lambda: outcomes() == ["denied"] * 3)
        monkeypatch.undo()
        await asked()
        request = [item for item in told if item.get("type") == "shutdown"][-1]["request"]
        await call(root, "host.shutdown", request=request, accept=True)
        assert root.node.shutdown.is_set()
    assert outcomes() == ["denied"] * 3 + ["accepted"]


async def test_shutdown_asked_of_a_window_is_answered_by_an_event(private_home: Path) -> None:
    """The request reaches it, its answer bears the same id; a native root is not asked so."""
    async with root_with_window(private_home) as (root, far):
        told = events(root)
        answer = await call(root, "host.shutdown_peer", to="far", text="done?")
        (frame,) = await until(lambda: far.told("shutdown"))
        assert frame["msg_id"] == answer["request"]
        await far.say(far.control("shutdown_response", inReplyTo=frame["msg_id"], outcome="accepted"))
        await until(lambda: [item for item in told if item.get("type") == "shutdown_response"])
        with pytest.raises(Refused):
            await call(root, "host.shutdown_peer", to="bob")
        with pytest.raises(Refused):
            await call(root, "host.shutdown_peer", to="nobody")


@pytest.mark.clause("pi-peers-39")
async def test_rename_tells_other_windows_and_keeps_the_former_name(private_home: Path) -> None:
    """Ours is in the record and in a frame; another's is read from its record."""
    async with root_with_window(private_home) as (root, far):
        await call(root, "host.state", name="robert")
        assert (far.record()["name"], far.record()["formerNames"]) == ("robert", ["bob"])
        (frame,) = await until(lambda: far.told("rename"))
        assert (frame["name"], frame["formerNames"]) == ("robert", ["bob"])
        await call(root, "host.state", name="robert")
        with pytest.raises(Refused):
            await call(root, "host.state", name="a [b]")
        far.write(name="further", formerNames=["far"])
        await far.say(far.control("rename", name="further", formerNames=["far"]))
        (peer,) = (await call(root, "list_peers"))["peers"]
        assert peer["alias"] == "further"
        sent = await call(root, "send_peer_message", to="far", content="by the old name")
        assert sent["target"]["alias"] == "further"
        assert len(far.told("rename")) == 1


@pytest.mark.clause("pi-peers-25", "pi-peers-26", "S15")
async def test_child_token_proves_its_run_and_dies_with_it(private_home: Path) -> None:
    """First class whatever the policy; in no file; worth nothing after the run."""
    async with root_with_window(private_home, settings='accept = "off"\n') as (root, far):
        begun = await call(root, "host.run_begin", run="r-1", alias="kid")
        own = (await call(root, "host.environment"))["environment"]
        environment = begun["environment"]
        assert environment["PI_PEERS_SOCKET"] == own["PI_PEERS_SOCKET"] == far.record()["socketPath"]
        secret = environment["PI_PEERS_TOKEN"]
        assert len({secret, own["PI_PEERS_TOKEN"], far.key()}) == 3
        files = "".join(path.read_text() for path in far.registry.iterdir() if path.is_file())
        assert secret not in files
        assert own["PI_PEERS_TOKEN"] not in files
        await far.say(refused := far.user("stranger"))
        await until(lambda: far.statuses(refused["msg_id"]) == ["refused"])
        await far.say(message := far.user("from the run"), token=secret)
        await until(lambda: far.statuses(message["msg_id"]) == ["delivered"])
        await far.say(far.user("from the root's own"), token=own["PI_PEERS_TOKEN"])
        read = (await call(root, "peer_messages", waitMs=2_000))["messages"]
        assert (read[0]["content"], read[0]["from"]) == ("from the run", begun["peerId"])
        await until(lambda: root.node.engine.latest_cursor)
        await call(root, "host.run_end", run="r-1")
        await far.say(late := far.user("late"), token=secret)
        await asyncio.sleep(0.05)
        assert far.statuses(late["msg_id"]) == []


async def test_parent_is_written_to_with_the_token_it_gave(private_home: Path) -> None:
    """A root that a window started proves itself with the child token of its environment."""
    registry = private_home / "p"
    registry.mkdir(mode=0o700)
    path = registry / "socks" / "far-77777.sock"
    environment = {"PI_PEERS_SOCKET": f"uds:{path}", "PI_PEERS_TOKEN": "far-token"}
    async with root_with_window(private_home, environment=environment) as (root, far):
        for name in os.listdir(registry):
            if name.endswith(".key") and name.startswith("77777"):
                os.unlink(registry / name)
        sent = await call(root, "send_peer_message", to="far", content="father")
        assert sent["state"] == "unknown"
        assert len(far.frames) == 1


@pytest.mark.clause("pi-peers-U16")
async def test_held_message_waits_for_the_person_and_its_sender_is_told(private_home: Path) -> None:
    """Asked first: held, listed, in no mailbox; then delivered, or denied."""
    async with root_with_window(private_home, settings='accept = "ask"\n') as (root, far):
        for is_accepted, word, arrived in ((False, "denied", 0), (True, "delivered", 1)):
            await far.say(message := far.user(f"may I {word}"))
            name = message["msg_id"]
            await until(lambda name=name: far.statuses(name) == ["held"])
            assert (await call(root, "peer_messages"))["messages"] == []
            await call(root, "local.consent", messageId=name, accept=is_accepted)
            await until(lambda name=name, word=word: far.statuses(name) == ["held", word])
            read = (await call(root, "peer_messages"))["messages"]
            assert [item["content"] for item in read] == ["may I delivered"] * arrived


async def test_refused_receipt_of_a_window_is_told_as_such(private_home: Path) -> None:
    """Dropped for its reason: the message is rejected, and says why."""
    async with root_with_window(private_home) as (root, far):
        sent = await call(root, "send_peer_message", to="far", content="too much")
        status = {"orig_msg_id": sent["messageId"], "status": "dropped:queue-full"}
        await far.say(far.control("peer_message_status", **status))
        told = (await call(root, "peer_messages", messageId=sent["messageId"]))["receipts"][0]
        assert (told["state"], told["outcome"]) == ("rejected", "QUEUE_FULL")


async def test_registry_that_cannot_be_used_leaves_the_root_as_it_is(private_home: Path) -> None:
    """Broad modes: no window, no crash; native peers are still listed."""
    (private_home / "p").mkdir(mode=0o700)
    (private_home / "h").mkdir(mode=0o700)
    (private_home / "p").chmod(0o777)
    (private_home / "h" / "config.toml").write_text(
        f'[wires.pi_peers]\nenabled = true\ndirectory = "{private_home / "p"}"\n'
    )
    options = RootOptions(home=str(private_home / "h"), workspace=str(private_home), host_pid=1)
    async with await open_root(options) as root:
        assert windows_of(root).address == ""
        windows_of(root).beat()
        assert (await call(root, "list_peers"))["peers"] == []


async def test_window_that_cannot_be_compared_is_settled_by_a_connection(private_home: Path) -> None:
    """Another form of start: one that answers stays, one that nobody answers for goes with its key."""
    async with root_with_window(private_home) as (root, far):
        window = windows_of(root)
        domain = far.record()["pidDomain"]
        far.write(pidDomain=domain, pid=os.getppid(), procStart="of another form")
        own = FarWindow(far.registry, private_home / "w", "answers", os.getppid())
        await own.open(pidDomain=domain, procStart="of another form")
        key = next(path for path in far.registry.glob(f"{own.pid}.*.key"))
        key.write_text(json.dumps({"peerToken": "t", "procStart": "of another form", "pidDomain": domain}))
        window.registry.scan(0, fresh=True)
        window.beat()
        assert (far.registry / f"{own.pid}.json").exists()
        await own.close()
        window.registry.scan(0, fresh=True)
        window.beat()
        assert not (far.registry / f"{own.pid}.json").exists()


async def test_message_ids_of_calls_fit_the_wire_and_repeat_with_the_call(private_home: Path) -> None:
    """A tool call's id becomes a UUID, the same for the same call: one frame leaves."""
    async with root_with_window(private_home) as (root, far):
        first = await call(root, "send_peer_message", to="far", content="once", callId="c-1")
        again = await call(root, "send_peer_message", to="far", content="once", callId="c-1")
        assert first["messageId"] == again["messageId"] == str(uuid.UUID(first["messageId"]))
        assert len(far.frames) == 1


@pytest.mark.clause("pi-peers-44")
async def test_a_send_that_would_be_dropped_fails_fast_with_a_hint(private_home: Path) -> None:
    """The same text again within its window is refused here, before anything is stored."""
    async with root_with_window(private_home) as (root, far):
        await call(root, "send_peer_message", to="far", content="same")
        with pytest.raises((Refused, OutcomeUnknown)) as caught:
            await call(root, "send_peer_message", to="far", content="same")
        assert caught.value.code == "RATE_LIMITED"
        assert len(far.frames) == 1


@pytest.mark.clause("pi-peers-44")
async def test_send_that_comes_too_fast_is_told_how_long_to_wait_and_to_merge(private_home: Path) -> None:
    """The next action agrees with the text: a second is not enough, and nothing is to be said twice."""
    async with root_with_window(private_home) as (root, _far):
        await call(root, "send_peer_message", to="far", content="x")
        with pytest.raises(Refused) as refused:
            await call(root, "send_peer_message", to="far", content="x")
        assert "same text; wait " in str(refused.value)
        assert refused.value.action == "wait as long as the text says, then send one message with all of it"
