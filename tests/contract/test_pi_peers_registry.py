"""What another's window meets on the wire and in the registry where something is wrong: both ways."""

import asyncio
import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.contract.js.meeting import mail, meeting, settled, until
from tests.contract.js.peer import Failed
from tests.contract.test_pi_peers_js import AUTH, ID, user
from tests.system.kit.attached import refusal_code

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(120)]

LINE_BYTES_MAX = 1_048_576
BUDGET_S = 30


@pytest.mark.clause("pi-peers-21", "pi-peers-23", "pi-peers-U20")
async def test_wrong_token_is_met_with_silence_and_nothing_is_stored(private_home: Path) -> None:
    """The connection is closed at once, without a byte, before whatever came behind the token."""
    async with meeting(private_home) as place:
        js, alice = await place.window("js"), await place.root("alice")
        await js.call("remember", msg_id=ID.format(1))
        for number, first in enumerate(
            (
                {"text": '{"type":"auth","token":"' + "0" * 32 + '"}\n'},
                {"text": '{"type":"auth"}\n'},
                {"text": '{"type":"auth","token":17}\n'},
                {"text": "no json\n"},
                {"text": "\n"},
                user(ID.format(2), "before the token"),
            )
        ):
            done = await js.call(
                "raw", to="alice", parts=[first, user(ID.format(1), f"{number}")], stays=True
            )
            assert (done["isClosed"], done["said"]) == (True, 0), first
            assert done["ms"] < 2_000, first
        assert await mail(alice, wait_ms=0) == []
        assert js.count("frame") == 0


@pytest.mark.clause("pi-peers-23", "pi-peers-49")
async def test_window_that_takes_no_token_of_ours_has_accepted_nothing(private_home: Path) -> None:
    """Where the key on disk is a wrong one, what was written is unknown, and stays so; it is not repeated."""
    async with meeting(private_home) as place:
        js, alice = await place.window("js"), await place.root("alice")
        path = place.key_path(place.record(js.who["pid"]))
        path.write_text(json.dumps({**json.loads(path.read_text()), "peerToken": "f" * 32}))
        sent = await alice.call("send_peer_message", to="js", content="x")
        await js.event("closed", lambda one: one["why"] == "authentication failed")
        assert sent["state"] == "unknown"
        await asyncio.sleep(1.5)
        await settled(alice, sent["messageId"], "unknown")
        assert (js.count("message"), js.count("closed")) == (0, 1)


@pytest.mark.clause("pi-peers-22", "pi-peers-U20")
async def test_line_that_is_too_long_closes_and_one_that_just_fits_arrives(private_home: Path) -> None:
    """1 MiB is the line; one byte more closes while it is read, and the root goes on."""
    async with meeting(private_home) as place:
        js, alice = await place.window("js"), await place.root("alice")
        around = len(user(ID.format(1), "")["text"]) - len("$FROM") + len(js.who["socketPath"]) - 1
        for number, size in enumerate((LINE_BYTES_MAX - around, LINE_BYTES_MAX - around + 1)):
            await js.call("remember", msg_id=ID.format(number))
            part = user(ID.format(number), "")
            head, tail = part["text"].split('"content": ""')
            parts = [
                AUTH,
                {"text": head + '"content": "'},
                {"text": "y", "repeat": size},
                {"text": '"' + tail},
            ]
            done = await js.call("raw", to="alice", parts=parts)
            assert done["isClosed"]
        await js.receipt(ID.format(0), "delivered")
        endless = await js.call("raw", to="alice", parts=[AUTH, {"text": "y", "repeat": 3 << 20}], stays=True)
        assert endless["isClosed"]
        assert [len(one["content"]) for one in await mail(alice)] == [LINE_BYTES_MAX - around]
        assert js.count("status") == 1


@pytest.mark.clause("pi-peers-22")
async def test_text_that_no_window_could_read_is_refused_before_it_is_written(private_home: Path) -> None:
    """A line of ours never grows over what the other end takes; nothing is stored."""
    async with meeting(private_home) as place:
        js, alice = await place.window("js"), await place.root("alice", TIELINE_FRAME_BYTES="4194304")
        for text in ("y" * LINE_BYTES_MAX, "\u0001" * 300_000):
            refused = await alice.call("send_peer_message", to="js", content=text)
            assert refusal_code(refused) == "MESSAGE_TOO_LARGE"
        assert (js.count("frame"), js.count("closed")) == (0, 0)


@pytest.mark.clause("pi-peers-22")
async def test_frames_split_and_coalesced_arrive_whole_and_in_order(private_home: Path) -> None:
    """Byte by byte, through the middle of a character, or all at once: the same messages."""
    async with meeting(private_home) as place:
        js, alice = await place.window("js"), await place.root("alice")
        first, second = user(ID.format(1), "one"), user(ID.format(2), "two")
        for part in (first, second):
            await js.call("remember", msg_id=json.loads(part["text"])["msg_id"])
        together = {"text": AUTH["text"] + first["text"] + second["text"]}
        await js.call("raw", to="alice", parts=[together])
        await js.receipt(ID.format(2), "delivered")
        apart = user(ID.format(3), "three")["text"]
        await js.call("remember", msg_id=ID.format(3))
        parts = [AUTH, *({"text": apart[at : at + 7], "delayMs": 1} for at in range(0, len(apart), 7))]
        # "$FROM" must come in one piece: it is filled in before a part is written.
        at = apart.index("$FROM")
        parts = [AUTH, *_pieces(apart[:at]), {"text": "$FROM"}, *_pieces(apart[at + 5 :])]
        await js.call("raw", to="alice", parts=parts)
        await js.receipt(ID.format(3), "delivered")
        assert [one["content"] for one in await mail(alice)] == ["one", "two", "three"]


def _pieces(text: str) -> list[dict[str, Any]]:
    return [{"text": text[at : at + 5], "delayMs": 1} for at in range(0, len(text), 5)]


@pytest.mark.clause("pi-peers-22", "pi-peers-24")
async def test_line_that_trickles_is_closed_by_the_whole_budget(private_home: Path) -> None:
    """Thirty seconds for a line, the first and every later one, however it drips; nothing stays open."""
    async with meeting(private_home) as place:
        js, alice = await place.window("js"), await place.root("alice")
        drip = [{"text": " ", "delayMs": 1_000}] * (BUDGET_S + 5)
        dripping = [[{"text": "{"}, *drip], [AUTH, {"text": '{"type":'}, *drip]]
        started = asyncio.get_running_loop().time()
        windows = [js, await place.window("js2")]
        asked = [
            window.call("raw", to="alice", parts=parts, stays=True, wait=(BUDGET_S + 10) * 1_000, seconds=60)
            for window, parts in zip(windows, dripping, strict=True)
        ]
        for done in await asyncio.gather(*asked):
            assert (done["isClosed"], done["said"]) == (True, 0)
            assert (BUDGET_S - 2) * 1_000 < done["ms"] < (BUDGET_S + 4) * 1_000
        assert asyncio.get_running_loop().time() - started < BUDGET_S + 8
        await js.call("send", to="alice", text="still here")
        assert [one["content"] for one in await mail(alice)] == ["still here"]


@pytest.mark.parametrize(
    "bad",
    [
        {"text": "no json\n"},
        {"text": "[1, 2]\n"},
        {"text": '{"type":"auth","token":"$TOKEN"}\n'},
        {"text": '{"msgV":1,"msg_id":"not-a-uuid","type":"user","from":"$FROM","content":"x"}\n'},
        {"text": "[" * 100_000 + "\n"},
    ],
)
@pytest.mark.clause("pi-peers-U20")
async def test_malformed_frame_closes_and_what_came_before_it_stays(
    private_home: Path, bad: dict[str, str]
) -> None:
    """No JSON, a second token, no id: closed; what came before it is kept, what is behind is not."""
    async with meeting(private_home) as place:
        js, alice = await place.window("js"), await place.root("alice")
        await js.call("remember", msg_id=ID.format(1))
        parts = [AUTH, user(ID.format(1), "before"), bad, user(ID.format(2), "behind")]
        done = await js.call("raw", to="alice", parts=parts, stays=True)
        assert done["isClosed"]
        await js.receipt(ID.format(1), "delivered")
        assert [one["content"] for one in await mail(alice)] == ["before"]


@pytest.mark.clause("pi-peers-19")
async def test_what_is_not_known_is_ignored(private_home: Path) -> None:
    """Actions, types, statuses and fields of the future change nothing, and the link goes on."""
    async with meeting(private_home) as place:
        js, alice = await place.window("js"), await place.root("alice")
        await js.call("remember", msg_id=ID.format(9))
        future = [
            {"msgV": 1, "msg_id": ID.format(1), "type": "control", "action": "from_the_future", "zzz": [1]},
            {"msgV": 1, "msg_id": ID.format(2), "type": "hologram"},
            {"msgV": 1, "msg_id": ID.format(3), "type": "control"},
        ]
        parts = [{"text": json.dumps(frame) + "\n"} for frame in future]
        await js.call("raw", to="alice", parts=[AUTH, *parts, user(ID.format(9), "now", zzz={"a": 1})])
        await js.receipt(ID.format(9), "delivered")
        assert [one["content"] for one in await mail(alice)] == ["now"]


# ---------------------------------------------------------------- registry


@pytest.mark.clause("pi-peers-17")
async def test_newer_protocol_is_refused_before_connecting(private_home: Path) -> None:
    """The sender says protocol_version; the other end sees no connection; both ways."""
    async with meeting(private_home) as place:
        js, alice = await place.window("js"), await place.root("alice")
        await js.call("protocol", version=2)
        await asyncio.sleep(0.6)  # what was scanned before is as old as it may be
        refused = await alice.call("send_peer_message", to="js", content="x")
        assert refusal_code(refused) == "UNSUPPORTED_PROTOCOL"
        assert "protocol_version" in json.dumps(refused)
        assert (js.count("frame"), js.count("closed")) == (0, 0)
        await js.call("protocol", version=1)
        record = place.record(alice.process.pid)
        place.record_path(alice.process.pid).write_text(json.dumps({**record, "peerProtocol": 2}))
        with pytest.raises(Failed) as caught:
            await js.call("send", to="alice", text="x")
        assert caught.value.code == "protocol_version"


@pytest.mark.clause("pi-peers-12")
async def test_window_without_its_key_is_swept_and_comes_back_by_itself(private_home: Path) -> None:
    """Who could authenticate nobody is gone from the list, on both sides; a live root shows itself again."""
    async with meeting(private_home) as place:
        js, alice = await place.window("js"), await place.root("alice")
        pid = alice.process.pid
        place.key_path(place.record(pid)).unlink()
        assert (await js.call("list"))["peers"] == []
        assert not place.record_path(pid).exists()
        place.key_path(place.record(js.who["pid"])).unlink()

        async def is_swept() -> bool:  # not at the first look: a newborn's key may be on its way
            await alice.call("list_peers", scope="machine")
            return not _is_there(place.record_path(js.who["pid"]))

        assert await until(is_swept)
        refused = await alice.call("send_peer_message", to="js", content="x")
        assert refusal_code(refused) == "UNKNOWN_TARGET"
        assert js.count("frame") == 0

        async def is_back() -> bool:
            return [one["name"] for one in (await js.call("list"))["peers"]] == ["alice"]

        assert await until(is_back)


def _is_there(path: str | Path) -> bool:
    return os.path.lexists(path)


@pytest.mark.clause("pi-peers-11", "pi-peers-12")
async def test_reused_pid_and_dead_pid_are_swept_and_reached_by_nobody(private_home: Path) -> None:
    """A record whose process is another one now is no window: removed with its key, by proof alone."""
    async with meeting(private_home) as place:
        js, alice = await place.window("js"), await place.root("alice")
        model = {**place.record(js.who["pid"]), "socketPath": js.who["socketPath"] + ".gone"}
        reused = {**model, "pid": os.getpid(), "name": "reused", "sessionId": "r", "procStart": "1"}
        dead = {**model, "pid": 4_194_303, "name": "dead", "sessionId": "d"}
        for record in (reused, dead):
            place.put(record)
        await asyncio.sleep(0.6)
        listed = (await alice.call("list_peers", scope="all"))["peers"]
        assert [one["alias"] for one in listed] == ["js"]
        for record in (reused, dead):
            assert not place.record_path(record["pid"]).exists()
            assert not place.key_path(record).exists()
            refused = await alice.call("send_peer_message", to=record["name"], content="x")
            assert refusal_code(refused) in ("UNKNOWN_TARGET", "PEER_OFFLINE")


@pytest.mark.clause("pi-peers-U2")
async def test_foreign_domain_is_never_swept_and_never_taken_for_reached(private_home: Path) -> None:
    """Another container's window stays on disk, whatever its process id means here; nothing is claimed."""
    async with meeting(private_home) as place:
        js, alice = await place.window("js"), await place.root("alice")
        model = {**place.record(js.who["pid"]), "pidDomain": "linux:elsewhere:pid:[1]", "procStart": "1"}
        model["socketPath"] += ".elsewhere"
        foreign = {**model, "pid": 4_194_302, "name": "foreign", "sessionId": "f"}
        keyless = {**model, "pid": 4_194_301, "name": "keyless", "sessionId": "k"}
        place.put(foreign)
        place.put(keyless, None)
        await asyncio.sleep(0.6)
        await alice.call("list_peers", scope="all")
        for name in ("foreign", "keyless"):
            told = await alice.call("send_peer_message", to=name, content="x")
            assert told.get("state", "pending") == "pending", told  # refused, or kept here: not one byte left
        await js.call("list", scope="all")
        await asyncio.sleep(6)  # a beat of the root
        for record in (foreign, keyless):
            assert place.record_path(record["pid"]).exists()
        assert place.key_path(foreign).exists()
        assert js.count("frame") == 0


@pytest.mark.clause("pi-peers-1", "pi-peers-2", "pi-peers-5", "pi-peers-8")
async def test_registry_that_was_cleaned_away_is_put_back_under_a_live_window(private_home: Path) -> None:
    """Record, key and socket, or the whole directory: within a beat the root is listed and reached again."""
    async with meeting(private_home) as place:
        js, alice = await place.window("js"), await place.root("alice")
        pid = alice.process.pid
        first = place.record(pid)
        os.unlink(first["socketPath"])
        place.record_path(pid).unlink()
        place.key_path(first).unlink()

        async def is_reached() -> bool:
            try:
                await js.call("send", to="alice", text="are you there?")
            except Failed:
                return False
            return True

        assert await until(is_reached)
        assert [one["content"] for one in await mail(alice)] == ["are you there?"]
        second = place.record(pid)
        assert stat.S_ISSOCK(os.stat(second["socketPath"]).st_mode)
        shutil.rmtree(place.registry)

        async def is_back() -> bool:
            return place.record_path(pid).exists()

        assert await until(is_back, seconds=20)
        other = await place.window("other")
        await other.call("send", to="alice", text="and now?")
        assert [one["content"] for one in await mail(alice)] == ["and now?"]
        assert place.registry.stat().st_mode & 0o777 == 0o700


@pytest.mark.clause("pi-peers-8", "pi-peers-16")
async def test_root_that_leaves_withdraws_its_window(private_home: Path) -> None:
    """Record, key and socket are gone when it ended; the others' stay."""
    async with meeting(private_home) as place:
        js, alice = await place.window("js"), await place.root("alice")
        record = place.record(alice.process.pid)
        await alice.leave()
        left = [path.name for path in place.registry.iterdir() if path.is_file()]
        assert sorted(left) == sorted(
            [f"{js.who['pid']}.json", place.key_path(place.record(js.who["pid"])).name]
        )
        assert not _is_there(record["socketPath"])
        assert (await js.call("list"))["peers"] == []


@pytest.mark.clause("pi-peers-12")
async def test_damaged_record_is_left_alone_and_hides_nobody(private_home: Path) -> None:
    """A file that is no record is never deleted on doubt; the windows beside it are listed."""
    async with meeting(private_home) as place:
        js, alice = await place.window("js"), await place.root("alice")
        damaged = {"7.json": "{", "8.json": "[]", "9.json": '{"pid": 10}', "0x1.json": "{}", "11.json": ""}
        for name, text in damaged.items():
            (place.registry / name).write_text(text)
        await asyncio.sleep(0.6)
        listed = (await alice.call("list_peers", scope="all"))["peers"]
        assert [one["alias"] for one in listed] == ["js"]
        assert all((place.registry / name).exists() for name in damaged)
        assert js.who["name"] == "js"
