"""Promises that span rooms: what a root is made of, what a text can cause, what a restart may not do."""

import ast
import asyncio
import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

import tieline
from tests.unit.runtime.roots import call, two
from tieline import Refused, config
from tieline.model.identity import Peer
from tieline.runtime.options import RootOptions
from tieline.runtime.root import open_root

pytestmark = pytest.mark.asyncio
PACKAGE = Path(tieline.__file__).parent
PROJECT = PACKAGE.parents[1]


@pytest.mark.clause("native-6")
async def test_messaging_needs_no_transport_package() -> None:
    """What an installation brings is a codec, a database and signatures: no server and no transport."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    names = sorted(name.split(">")[0].split("=")[0].strip().lower() for name in project["dependencies"])
    assert names == ["apsw", "msgspec", "pynacl"]


@pytest.mark.clause("native-45", "S5", "native-1")
async def test_source_opens_no_socket_that_others_could_reach() -> None:
    """No source names another address family than AF_UNIX, and no socket has an abstract name."""
    for path in PACKAGE.rglob("*.py"):
        names = {
            node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)
        }
        assert not names & {
            "AF_INET",
            "AF_INET6",
            "create_server",
            "start_server",
            "create_datagram_endpoint",
        }, path


@pytest.mark.clause("native-5", "native-2", "native-3")
async def test_root_starts_no_other_process_and_has_one_endpoint(private_home: Path) -> None:
    """A root is this process: no helper runs beside it, and peers see one socket of it."""
    before = _children()
    async with two(private_home) as (alice, bob):
        await alice.send("bob", "x")
        await call(bob, "host.run_begin", run="r", alias="kid")
        assert _children() == before
        sockets = sorted(os.listdir(private_home / "h" / "peer-runtime"))
        assert sum(name.endswith(".sock") for name in sockets) == 2


def _children() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit() and _parent(name) == os.getpid()]


def _parent(pid: str) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    fields = text[text.rfind(")") + 2 :].split()
    return 0 if fields[0] == "Z" else int(fields[1])


@pytest.mark.clause("native-9", "native-17", "native-22", "native-23", "native-24")
async def test_two_roots_of_one_saved_session_are_two_peers(private_home: Path) -> None:
    """A session recurs: each life has its own record, and ending one leaves the other's."""
    work = private_home / "w"
    work.mkdir()
    options = [
        RootOptions(
            home=str(private_home / "h"), workspace=str(work), alias=alias, session="saved", host_pid=1
        )
        for alias in ("one", "two")
    ]
    one, two_ = await open_root(options[0]), await open_root(options[1])
    try:
        assert one.node.instance != two_.node.instance
        assert [peer["sessionId"] for peer in await one.peers()] == ["saved"]
        await one.close()
        records = os.listdir(private_home / "h" / "active-agents")
        assert records == [f"saved.{two_.node.instance}.json"]
    finally:
        await one.close()
        await two_.close()


@pytest.mark.clause("native-33", "native-34")
async def test_heartbeat_renews_the_record(private_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five seconds a beat, fifteen until stale; every beat writes the record anew."""
    assert (config.HEARTBEAT_MS, config.STALE_MS) == (5_000, 15_000)
    monkeypatch.setattr(config, "HEARTBEAT_MS", 40)
    async with two(private_home) as (alice, _bob):
        folder = private_home / "h" / "active-agents"
        path = folder / f"{alice.node.session}.{alice.node.instance}.json"
        first = json.loads(path.read_text())["updatedAt"]
        for _ in range(250):
            if json.loads(path.read_text())["updatedAt"] != first:
                break
            await asyncio.sleep(0.02)
        assert json.loads(path.read_text())["updatedAt"] != first


@pytest.mark.clause("native-96")
async def test_documents_claim_no_exactly_once_effects() -> None:
    """The first page says what is promised and what is not; no page claims more."""
    readme = (PROJECT / "README.md").read_text()
    assert "Not promised" in readme
    for path in [PROJECT / "README.md", *(PROJECT / "docs").rglob("*.md")]:
        text = path.read_text().lower()
        assert "exactly-once delivery" not in text, path


@pytest.mark.clause("native-123", "native-124", "native-116", "O05")
async def test_mail_during_any_transition_of_a_turn_is_shown_once_in_order(private_home: Path) -> None:
    """A host that starts, pauses, cancels or is busy loses nothing: one admission, original order."""
    async with two(private_home, idle_behavior="auto") as (alice, bob):
        transitions: list[dict[str, Any]] = [
            {"busy": True}, {"paused": "permission"}, {"resumed": True}, {"paused": "cancelled"},
            {"busy": True},
            {"busy": False}, {"paused": "shutdown"}, {"resumed": True},
        ]  # fmt: skip
        for number, transition in enumerate(transitions):
            await call(bob, "host.state", **transition)
            await alice.send("bob", f"body-{number}")
        two_at_once = await asyncio.gather(
            call(bob, "host.boundary", kind="prompt"), call(bob, "host.boundary", kind="prompt")
        )
        shown = [message for part in two_at_once for message in part["messageIds"]]
        assert len(shown) == len(set(shown)) == len(transitions)
        first = max(two_at_once, key=lambda part: len(part["messageIds"]))
        places = [first["text"].index(f"body-{number}") for number in range(len(transitions))]
        assert places == sorted(places)
        cancelled = await call(bob, "host.refused", token=first["token"])  # before the provider was entered
        assert cancelled["freed"] == len(transitions)
        assert len(await bob.inbox()) == len(transitions)


@pytest.mark.clause("native-140", "native-20", "native-21")
async def test_record_of_another_program_is_listed_and_left_as_it_is(private_home: Path) -> None:
    """A record without the extension is a read-only entry: listed, not addressed, never written."""
    async with two(private_home) as (alice, _bob):
        folder = private_home / "h" / "active-agents"
        mine = json.loads((folder / f"{alice.node.session}.{alice.node.instance}.json").read_text())
        record = {**mine, "sessionId": "other", "projectName": "legacy", "pid": os.getpid()}
        del record["communication"]
        path = folder / "other.json"
        path.write_text(json.dumps(record))
        path.chmod(0o600)
        before = (path.read_bytes(), path.stat().st_mtime_ns)
        listed = [peer for peer in await alice.peers() if peer["availability"] == "presence_only"]
        assert [peer["project"] for peer in listed] == ["legacy"]
        with pytest.raises(Refused) as caught:
            await alice.send(listed[0]["peerId"], "x")
        assert caught.value.code in {"CAPABILITY_DENIED", "UNKNOWN_TARGET"}
        assert (path.read_bytes(), path.stat().st_mtime_ns) == before


@pytest.mark.clause("S24", "native-138")
async def test_run_that_may_only_receive_sends_nothing(private_home: Path) -> None:
    """The outward channel is a capability: a receive-only run reads and cannot send, ask or reply."""
    async with two(private_home) as (alice, bob):
        run = await call(bob, "host.run_begin", run="r", alias="kid", capabilities=["message.receive"])
        await alice.send("kid", "read this")
        mail = await call(bob, "peer_messages", run=run["token"])
        assert len(mail["messages"]) == 1
        for method, params in (
            ("send_peer_message", {"to": "alice", "content": "x"}),
            ("local.ask", {"to": "alice", "content": "x"}),
            ("local.reply", {"messageId": mail["messages"][0]["messageId"], "content": "x"}),
        ):
            try:
                result = await call(bob, method, run=run["token"], **params)
            except Refused as refused:
                code = refused.code
            else:
                code = result["errors"][0]["code"]
            assert code == "CAPABILITY_DENIED", method


@pytest.mark.clause("O08", "native-182", "native-184")
async def test_restart_shows_nothing_of_the_predecessor_by_itself(private_home: Path) -> None:
    """Four unread messages, a restart: listed on request as often as asked, never shown to the new model."""
    async with two(private_home) as (alice, bob):
        for number in range(4):
            await alice.send("bob", f"n{number}")
        ended = bob.node.instance
        await bob.close()
        for _ in range(2):
            again = await open_root(
                RootOptions(
                    home=str(private_home / "h"), workspace=str(private_home / "w"), alias="bob", host_pid=1,
                    session=bob.node.session,
                )
            )  # fmt: skip
            found = await again.recover(ended)
            assert [item.envelope.content for item in found.unread] == ["n0", "n1", "n2", "n3"]
            assert await again.inbox() == []
            assert (await call(again, "host.boundary", kind="prompt"))["text"] == ""
            await again.close()


@pytest.mark.clause("O09", "I11")
async def test_ids_and_sequences_stay_when_the_store_is_read_anew(private_home: Path) -> None:
    """The same message has the same id and sequence before and after a reload and other mail's end."""
    async with two(private_home) as (alice, bob):
        for number in range(3):
            await alice.send("bob", f"n{number}")
        before = [(m.message_id, m.sequence, m.content) for m in await bob.inbox()]
        shown = await call(bob, "peer_messages", messageId=before[0][0])
        assert len(shown["messages"]) == 1
        await asyncio.sleep(0.3)
        rows = await asyncio.get_running_loop().run_in_executor(None, bob.node.custody.load)
        bob.node.engine.restore(rows, bob.node.now())
        after = [(m.message_id, m.sequence, m.content) for m in await bob.inbox()]
        assert after == before[1:]
        again = await call(bob, "peer_messages", messageId=before[0][0])
        assert again["messages"][0]["sequence"] == before[0][1]
        assert again["messages"][0]["content"] == "n0"


@pytest.mark.clause("O02", "I1", "I11")
async def test_many_senders_at_once_are_all_stored(private_home: Path) -> None:
    """Sixteen senders at a barrier, one message each, three rounds: every acknowledged one is there once."""
    work = private_home / "w"
    work.mkdir()
    home = str(private_home / "h")
    limits = {"inbox_messages": 100}
    roots = [
        await open_root(RootOptions(home=home, workspace=str(work), alias=f"a{n}", host_pid=1, limits=limits))
        for n in range(17)
    ]
    try:
        target = roots[0]
        for turn in range(3):
            receipts = await asyncio.gather(
                *(
                    root.send("a0", f"{turn} from {n}", message_id=f"same-{turn}")
                    for n, root in enumerate(roots[1:])
                )
            )
            assert {receipt["state"] for receipt in receipts} == {"accepted"}
        page = target.node.engine.held(Peer(target.node.instance), unread_only=True, count_max=200)
        assert sorted(item.envelope.content for item in page) == sorted(
            f"{turn} from {n}" for turn in range(3) for n in range(16)
        )
        assert len({item.cursor for item in page}) == 48
    finally:
        for root in roots:
            await root.close()
