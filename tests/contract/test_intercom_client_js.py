"""The JavaScript client that is shipped, at a broker whose every frame a test writes and reads.

Each test names the numbered behaviours of reference/intercom.md 8 that it shows.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.contract.js.intercom import Failed, JsEnd
from tieline.shims import INTERCOM_CLIENT

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(60)]

QUIET_S = 0.2
SESSION = {
    "name": "companion",
    "cwd": "/srv",
    "model": "none",
    "rootSessionId": "root-c",
    "incarnation": "life-c",
}
GUARD = {"rootSessionId": "root-a", "peerId": "peer-a", "incarnation": "life-a", "applicationGuard": "rev-1"}
ALL = {"guardedDelivery": 1, "receiptReads": 1, "lastReads": 1}
COMMAND = "6f0f2a8e-6f43-4d51-9b57-0a4b5a2f9e11"
MESSAGE = {"messageId": "m-1", "text": "x", "expectsReply": False, "delivery": "steer", "guard": GUARD}


class Scripted:
    """A broker that says what a test tells it to say; it speaks with one client at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.links = 0
        self._heard: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._writer: asyncio.StreamWriter | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        """Listen."""
        os.makedirs(self.path.parent, mode=0o700, exist_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, str(self.path))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.links += 1
        self._writer = writer
        self._writers.append(writer)
        try:
            while True:
                length = int.from_bytes(await reader.readexactly(4), "big")
                await self._heard.put(json.loads(await reader.readexactly(length)))
        except (asyncio.IncompleteReadError, ConnectionError):
            await self._heard.put(None)

    async def heard(self) -> dict[str, Any]:
        """Return the next frame of the client."""
        async with asyncio.timeout(10):
            found = await self._heard.get()
        assert found is not None, "the client closed"
        return found

    async def closed(self) -> None:
        """Return once the client closed, having said nothing more."""
        async with asyncio.timeout(10):
            assert await self._heard.get() is None

    async def is_quiet(self) -> bool:
        """Return whether the client says nothing for a moment."""
        await asyncio.sleep(QUIET_S)
        return self._heard.empty()

    def say(self, *frames: dict[str, Any] | bytes) -> None:
        """Write frames, in one write; bytes are a payload as they are."""
        assert self._writer is not None
        payloads = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in frames]
        self._writer.write(b"".join(struct.pack(">I", len(one)) + one for one in payloads))

    def cut(self) -> None:
        """Close the client's socket."""
        assert self._writer is not None
        self._writer.close()

    async def stop(self) -> None:
        """End."""
        self._server.close()
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        await self._server.wait_closed()


@pytest_asyncio.fixture
async def script(private_home: Path) -> AsyncIterator[Scripted]:
    """Give a listening scripted broker at the place that the environment names."""
    made = Scripted(private_home / "i" / "broker.sock")
    await made.start()
    yield made
    await made.stop()


@pytest_asyncio.fixture
async def companion() -> AsyncIterator[JsEnd]:
    """Give a process with the client loaded, not connected."""
    made = await JsEnd.begin("intercom-companion.mjs", f"--shim={INTERCOM_CLIENT}")
    yield made
    await made.discard()


async def joined(script: Scripted, companion: JsEnd, features: dict[str, Any] = ALL, **options: Any) -> Any:
    """Return the registration frame of the client, once it is connected."""
    asked = {"spawn": False, "session": SESSION, **options}
    waiting = asyncio.ensure_future(companion.call("connect", options=asked))
    frame = await script.heard()
    script.say({"type": "registered", "sessionId": "companion-1", **features})
    told = await waiting
    assert told["sessionId"] == "companion-1"
    return frame


async def code(companion: JsEnd, word: str, **params: Any) -> str:
    """Return the code with which the client refuses; `?` behind it says that the outcome is unknown."""
    with pytest.raises(Failed) as caught:
        await companion.call(word, **params)
    return caught.value.code


# ---------------------------------------------------------------- joining


async def test_module_offers_the_specified_surface_and_nothing_else(
    script: Scripted, companion: JsEnd
) -> None:
    """One function, one error, seven names on the client; the registration says what it can and no more."""
    assert await companion.call("offers") == ["IntercomError", "connectIntercom"]
    asked = {"spawn": False, "session": SESSION, "requestedId": "wanted-id-1"}
    waiting = asyncio.ensure_future(companion.call("connect", options=asked))
    assert await script.heard() == {
        "type": "register",
        "session": {**SESSION, "acceptsAsks": False},
        "requestedId": "wanted-id-1",
        **ALL,
    }
    script.say({"type": "registered", "sessionId": "companion-1"})
    methods = ["disconnect", "isConnected", "last", "listSessions", "receipt", "send", "sessionId"]
    assert await waiting == {"sessionId": "companion-1", "methods": methods}
    assert await companion.call("who") == {"sessionId": "companion-1", "isConnected": True}


@pytest.mark.parametrize("spawn", [..., True, None, 0, "false", ""])
async def test_connect_without_literally_no_spawn_is_refused(
    script: Scripted, companion: JsEnd, spawn: Any
) -> None:
    """Only `false` itself: nothing is connected to."""
    asked = {"session": SESSION} | ({} if spawn is ... else {"spawn": spawn})
    assert await code(companion, "connect", options=asked) == "invalid_input"
    assert script.links == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"session": None},
        {"session": {**SESSION, "cwd": ""}},
        {"session": {**SESSION, "model": "a\nb"}},
        {"session": {**SESSION, "name": ""}},
        {"session": {**SESSION, "incarnation": None}},
        {"session": {name: SESSION[name] for name in SESSION if name != "rootSessionId"}},
        {"session": {**SESSION, "parentSessionId": "root-c"}},
        {"requestedId": "seven-7"},
        {"requestedId": "with-newline\n"},
        {"sendTimeoutMs": 0},
        {"listTimeoutMs": 1.5},
        {"listTimeoutMs": 2**31},
        {"sendTimeoutMS": 8_000},
    ],
)
async def test_connect_with_invalid_options_is_refused(
    script: Scripted, companion: JsEnd, changes: dict[str, Any]
) -> None:
    """A missing, malformed or misspelt option is named, and nothing is connected to."""
    asked = {"spawn": False, "session": SESSION, **changes}
    assert await code(companion, "connect", options=asked) == "invalid_input"
    assert script.links == 0


@pytest.mark.clause("intercom-131", "intercom-124")
@pytest.mark.parametrize(
    "case", ["relative", "empty", "long", "linked", "loose", "file", "linked_socket", "none"]
)
async def test_cases_124_131_unfit_place_fails_without_a_second_choice(private_home: Path, case: str) -> None:
    """A place that is invalid or not this user's own is refused; no other one is tried."""
    folder = private_home / "j"
    folder.mkdir(mode=0o700)
    named = str(folder)
    if case in ("relative", "empty", "long"):
        named = {"relative": "i", "empty": "", "long": "/" + "d" * 90}[case]
    elif case == "linked":
        named = str(private_home / "k")
        os.symlink(folder, named)
    elif case == "loose":
        folder.chmod(0o750)
    elif case == "file":
        (folder / "broker.sock").write_text("")
    elif case == "linked_socket":
        (folder / "broker.sock").symlink_to(private_home / "i" / "broker.sock")
    script = Scripted(private_home / "i" / "broker.sock")
    await script.start()
    made = await JsEnd.begin(
        "intercom-companion.mjs", f"--shim={INTERCOM_CLIENT}", PI_INTERCOM_RUNTIME_DIR=named
    )
    expected = {
        "relative": "invalid_runtime_directory",
        "empty": "invalid_runtime_directory",
        "long": "invalid_runtime_directory",
        "none": "no_broker",
    }.get(case, "unsafe_runtime_directory")
    assert await code(made, "connect", options={"spawn": False, "session": SESSION}) == expected
    assert script.links == 0
    await made.discard()
    await script.stop()


async def test_socket_that_nobody_answers_is_no_broker(private_home: Path, companion: JsEnd) -> None:
    """What a dead broker left behind is not connected to, and stays where it is."""
    script = Scripted(private_home / "i" / "broker.sock")
    await script.start()
    await script.stop()
    assert script.path.is_socket()
    assert await code(companion, "connect", options={"spawn": False, "session": SESSION}) == "no_broker"
    assert script.path.is_socket()


async def test_refused_registration_rejects_once(script: Scripted, companion: JsEnd) -> None:
    """A socket that closes before the answer, or answers something else, is no connection."""
    for answer in (None, {"type": "sessions", "requestId": "r", "sessions": []}, {"type": "registered"}):
        waiting = asyncio.ensure_future(
            code(companion, "connect", options={"spawn": False, "session": SESSION})
        )
        await script.heard()
        if answer is None:
            script.cut()
        else:
            script.say(answer)
        assert await waiting == "registration_failed"
        await script.closed()
    assert script.links == 3


async def test_registration_that_is_never_answered_ends(script: Scripted, companion: JsEnd) -> None:
    """After ten seconds the wait is over and the socket closed."""
    asked = {"spawn": False, "session": SESSION}
    assert await code(companion, "connect", options=asked) == "registration_failed"
    await script.heard()
    await script.closed()


# ---------------------------------------------------------------- sending


@pytest.mark.clause("intercom-135")
async def test_case_135_send_bears_its_whole_guard_exactly(script: Scripted, companion: JsEnd) -> None:
    """The frame is the caller's message, guard and hint, and nothing else; the answer is the broker's."""
    await joined(script, companion)
    hint = {"tool": "my_tool", "commandId": COMMAND, "commandFingerprint": "a" * 64}
    message = {**MESSAGE, "replyHint": hint}
    answers = {
        "m-1": ({"type": "delivered"}, (True, True, False, None)),
        "m-2": ({"type": "delivery_queued", "reason": "later"}, (True, False, True, "later")),
        "m-3": ({"type": "delivery_failed", "reason": "no"}, (False, False, False, "no")),
    }
    for identity, (answer, told) in answers.items():
        asked = {**message, "messageId": identity}
        waiting = asyncio.ensure_future(companion.call("send", to="peer-a", message=asked))
        frame = await script.heard()
        assert isinstance(frame["message"].pop("timestamp"), int)
        assert frame == {
            "type": "send",
            "to": "peer-a",
            "message": {
                "id": identity,
                "content": {"text": "x"},
                "expectsReply": False,
                "delivery": "steer",
                "guard": GUARD,
                "replyHint": hint,
            },
        }
        script.say({**answer, "messageId": identity})
        got = await waiting
        assert (got["accepted"], got["delivered"], got["queued"], got.get("reason")) == told
        assert got["messageId"] == identity


INVALID: dict[str, dict[str, Any]] = {
    "no id": {"messageId": ...},
    "empty id": {"messageId": ""},
    "no text": {"text": ...},
    "control in text": {"text": "\x1b"},
    "no delivery": {"delivery": ...},
    "unknown delivery": {"delivery": "later"},
    "no expectsReply": {"expectsReply": ...},
    "an ask": {"expectsReply": True},
    "no guard": {"guard": ...},
    "null guard": {"guard": None},
    "guard without application": {"guard": {name: GUARD[name] for name in list(GUARD)[:3]}},
    "guard with null": {"guard": {**GUARD, "applicationGuard": None}},
    "guard with more": {"guard": {**GUARD, "any": 1}},
    "guard of another peer": {"guard": {**GUARD, "peerId": "peer-b"}},
    "hint without command": {"replyHint": {"tool": "t"}},
    "hint with bad tool": {"replyHint": {"tool": "my tool", "commandId": COMMAND}},
    "hint with bad command": {"replyHint": {"tool": "t", "commandId": COMMAND + "\n"}},
    "hint with bad fingerprint": {
        "replyHint": {"tool": "t", "commandId": COMMAND, "commandFingerprint": "A" * 64}
    },
    "a reply": {"replyTo": "m-0"},
    "a timestamp": {"timestamp": 1},
}


@pytest.mark.clause("intercom-135")
async def test_case_135_incomplete_send_is_refused_before_it_is_written(
    script: Scripted, companion: JsEnd
) -> None:
    """Whatever is missing, malformed or more than asked for: never an ordinary send instead."""
    await joined(script, companion)
    for case, changes in INVALID.items():
        message = {name: value for name, value in {**MESSAGE, **changes}.items() if value is not ...}
        assert await code(companion, "send", to="peer-a", message=message) == "invalid_input", case
    assert await code(companion, "send", to="", message=MESSAGE) == "invalid_input"
    with pytest.raises(Failed, match="commandId is invalid: it must be a UUID"):
        await companion.call("send", to="peer-a", message={**MESSAGE, **INVALID["hint with bad command"]})
    large = {**MESSAGE, "text": "\u00e9" * 524_288}
    assert await code(companion, "send", to="peer-a", message=large) == "too_large"
    assert await script.is_quiet()
    assert (await companion.call("who"))["isConnected"]


@pytest.mark.clause("intercom-31")
async def test_case_31_what_the_broker_did_not_echo_is_not_used(script: Scripted, companion: JsEnd) -> None:
    """Without the echo, or with another version, each request is refused unsent; a list still works."""
    await joined(script, companion, {"guardedDelivery": True, "receiptReads": 2})
    wanted = {"rootSessionId": "root-a", "messageId": "m-1"}
    assert await code(companion, "send", to="peer-a", message=MESSAGE) == "unsupported"
    assert await code(companion, "receipt", to="peer-a", wanted=wanted) == "unsupported"
    assert await code(companion, "last", to="peer-a") == "unsupported"
    assert await script.is_quiet()
    waiting = asyncio.ensure_future(companion.call("list"))
    frame = await script.heard()
    script.say({"type": "sessions", "requestId": frame["requestId"], "sessions": []})
    assert await waiting == []


async def test_second_send_with_a_pending_id_is_refused(script: Scripted, companion: JsEnd) -> None:
    """The first keeps its answer; after that the id is the caller's to use again."""
    await joined(script, companion)
    first = asyncio.ensure_future(companion.call("send", to="peer-a", message=MESSAGE))
    await script.heard()
    assert await code(companion, "send", to="peer-a", message=MESSAGE) == "duplicate_pending"
    assert await script.is_quiet()
    script.say({"type": "delivered", "messageId": "m-1"})
    assert (await first)["delivered"]
    again = asyncio.ensure_future(companion.call("send", to="peer-a", message=MESSAGE))
    assert (await script.heard())["message"]["id"] == "m-1"
    script.say({"type": "delivered", "messageId": "m-1"})
    assert (await again)["delivered"]


async def test_unanswered_requests_end_in_their_time(script: Scripted, companion: JsEnd) -> None:
    """A send's outcome is unknown then, a list's or read's is nothing; late answers change nothing."""
    await joined(script, companion, sendTimeoutMs=150, listTimeoutMs=100)
    assert await code(companion, "send", to="peer-a", message=MESSAGE) == "timeout?"
    assert await code(companion, "list") == "timeout"
    wanted = {"rootSessionId": "root-a", "messageId": "m-1"}
    assert await code(companion, "receipt", to="peer-a", wanted=wanted) == "timeout"
    assert await code(companion, "last", to="peer-a") == "timeout"
    frames = [await script.heard() for _ in range(4)]
    script.say(
        {"type": "delivered", "messageId": "m-1"},
        {"type": "sessions", "requestId": frames[1]["requestId"], "sessions": []},
        {"type": "receipt_response", "requestId": frames[2]["requestId"], "error": "timeout"},
        {"type": "last_response", "requestId": frames[3]["requestId"], "error": "timeout"},
    )
    assert await script.is_quiet()
    assert (await companion.call("who"))["isConnected"]


# ---------------------------------------------------------------- losing and leaving


async def test_loss_ends_everything_that_waits_and_nothing_comes_back(
    script: Scripted, companion: JsEnd
) -> None:
    """Each request is rejected, the observer told once, the identity gone; nobody connects or sends again."""
    await joined(script, companion)
    wanted = {"rootSessionId": "root-a", "messageId": "m-1"}
    waiting = [
        asyncio.ensure_future(code(companion, "send", to="peer-a", message=MESSAGE)),
        asyncio.ensure_future(code(companion, "list")),
        asyncio.ensure_future(code(companion, "receipt", to="peer-a", wanted=wanted)),
        asyncio.ensure_future(code(companion, "last", to="peer-a")),
    ]
    for _ in waiting:
        await script.heard()
    script.cut()
    assert await asyncio.gather(*waiting) == ["disconnected?", *["disconnected"] * 3]
    await companion.event("lost")
    assert await companion.call("who") == {"sessionId": None, "isConnected": False}
    assert await code(companion, "send", to="peer-a", message=MESSAGE) == "disconnected"
    assert await code(companion, "list") == "disconnected"
    await asyncio.sleep(1.2)
    assert (script.links, companion.count("lost")) == (1, 1)
    await companion.call("disconnect")


BROKEN: list[dict[str, Any] | bytes] = [
    {"type": "wave"},
    {"type": "constructor"},
    {"type": "registered", "sessionId": "again"},
    {"type": "session_joined", "session": {}},
    {"type": "wake_request", "token": "t", "sessionId": "s", "messageId": "m"},
    {"type": "delivered"},
    {"type": "delivery_failed", "messageId": "m-1"},
    {"type": "sessions", "requestId": "r"},
    {"type": "message", "from": {"id": "x"}, "message": {}},
    {"type": "session_left"},
    {"no": "type"},
    b"null",
    b"[]",
    b"not json",
    b"",
]


@pytest.mark.clause("intercom-14", "intercom-7", "intercom-8", "intercom-9")
@pytest.mark.parametrize("frame", BROKEN)
async def test_case_14_unknown_or_malformed_frame_ends_the_connection(
    script: Scripted, companion: JsEnd, frame: dict[str, Any] | bytes
) -> None:
    """It closes, says why to its observer, and takes nothing that stands behind that frame."""
    await joined(script, companion)
    waiting = asyncio.ensure_future(code(companion, "send", to="peer-a", message=MESSAGE))
    await script.heard()
    script.say(frame, {"type": "delivered", "messageId": "m-1"})
    assert await waiting == "disconnected?"
    assert (await companion.event("lost"))["reason"] == "protocol"
    await script.closed()


@pytest.mark.clause("intercom-5")
async def test_case_5_announced_frame_over_the_bound_ends_the_connection(
    script: Scripted, companion: JsEnd
) -> None:
    """Its length is enough: nothing of it is waited for."""
    await joined(script, companion)
    assert script._writer is not None
    script._writer.write(struct.pack(">I", 1_048_577))
    assert (await companion.event("lost"))["reason"] == "protocol"
    await script.closed()


@pytest.mark.clause("intercom-1", "intercom-3")
async def test_cases_1_3_frames_in_pieces_are_taken_in_order(script: Scripted, companion: JsEnd) -> None:
    """Bytes that come one by one, and frames of different sizes cut behind a header, are the same frames."""
    await joined(script, companion)
    waiting = asyncio.ensure_future(companion.call("list"))
    frame = await script.heard()
    rows = [{"id": "peer-a", "cwd": "/a", "model": "m", "name": "n" * 300}]
    frames = [
        {"type": "session_left", "sessionId": "gone"},
        {"type": "sessions", "requestId": frame["requestId"], "sessions": rows},
    ]
    data = b"".join(struct.pack(">I", len(one)) + one for one in (json.dumps(f).encode() for f in frames))
    assert script._writer is not None
    for byte in data[:80]:
        script._writer.write(bytes([byte]))
        await script._writer.drain()
        await asyncio.sleep(0.001)
    script._writer.write(data[80:])
    assert await waiting == rows


async def test_disconnect_says_so_joins_and_leaves_nothing_behind(script: Scripted, companion: JsEnd) -> None:
    """It unregisters and closes; what waited is told; once more is the same; no timer stays."""
    await joined(script, companion)
    waiting = asyncio.ensure_future(code(companion, "send", to="peer-a", message=MESSAGE))
    await script.heard()
    left = asyncio.ensure_future(companion.call("disconnect"))
    assert await script.heard() == {"type": "unregister"}
    assert await waiting == "disconnected?"
    await script.closed()
    script.cut()
    await left
    await companion.call("disconnect")
    assert await companion.call("who") == {"sessionId": None, "isConnected": False}
    assert companion.count("lost") == 0
    assert await companion.call("timers") == 0
    assert script.links == 1


async def test_disconnect_from_a_broker_that_never_closes_ends(script: Scripted, companion: JsEnd) -> None:
    """After two seconds the socket is destroyed."""
    await joined(script, companion)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await companion.call("disconnect")
    assert 1.5 < loop.time() - begun < 5


# ---------------------------------------------------------------- finding and reading


@pytest.mark.clause("intercom-37")
async def test_case_37_invalid_rows_are_dropped_and_a_bad_project_alone_is_not(
    script: Scripted, companion: JsEnd
) -> None:
    """A malformed row is nobody; a malformed project costs only itself; the rest stays as it came."""
    await joined(script, companion)
    good = {
        "id": "peer-a",
        "cwd": "/a",
        "model": "m",
        "guardedDelivery": 1,
        **{k: GUARD[k] for k in list(GUARD)[:1]},
    }
    rows = [
        good,
        {**good, "projectId": "x"},
        {**good, "projectId": "0" * 64},
        {**good, "cwd": ""},
        {**good, "pendingAsks": -1},
        {**good, "name": None},
        {"id": "x"},
        None,
        7,
    ]
    waiting = asyncio.ensure_future(companion.call("list"))
    frame = await script.heard()
    assert set(frame) == {"type", "requestId"}
    script.say({"type": "sessions", "requestId": frame["requestId"], "sessions": rows})
    assert await waiting == [good, good, {**good, "projectId": "0" * 64}]


@pytest.mark.clause("intercom-137")
async def test_case_137_receipt_is_of_exactly_what_was_asked(script: Scripted, companion: JsEnd) -> None:
    """The owner's facts pass whole; those of another root or message, or without their digest, do not."""
    await joined(script, companion)
    wanted = {"rootSessionId": "root-a", "messageId": "m-1"}
    digest = hashlib.sha256(b"x").hexdigest()
    good = {
        "version": 1,
        **wanted,
        "textSha256": digest,
        "checkpointEntryId": "e-1",
        "placementEntryId": None,
    }
    cases: list[tuple[dict[str, Any], str | None]] = [
        ({"receipt": good}, None),
        ({"receipt": {**good, "rootSessionId": "root-b"}}, "invalid_answer"),
        ({"receipt": {**good, "messageId": "m-2"}}, "invalid_answer"),
        ({"receipt": {**good, "version": 2}}, "invalid_answer"),
        ({"receipt": {**good, "textSha256": digest.upper()}}, "invalid_answer"),
        ({}, "invalid_answer"),
        ({"error": "receipt_not_found"}, "receipt_not_found"),
        ({"error": "publication_unavailable"}, "publication_unavailable"),
        ({"error": "unsupported"}, "unsupported"),
    ]
    for body, refused in cases:
        call = companion.call("receipt", to="peer-a", wanted=wanted)
        waiting = asyncio.ensure_future(call)
        frame = await script.heard()
        identity = frame.pop("requestId")
        assert frame == {"type": "receipt_request", "to": "peer-a", **wanted}
        script.say({"type": "receipt_response", "requestId": identity, **body})
        if refused is None:
            assert await waiting == good
            continue
        with pytest.raises(Failed) as caught:
            await waiting
        assert caught.value.code == refused
    for bad in ({}, {"rootSessionId": "root-a"}, {**wanted, "messageId": ""}, {**wanted, "more": 1}):
        assert await code(companion, "receipt", to="peer-a", wanted=bad) == "invalid_input"
    assert await script.is_quiet()


@pytest.mark.clause("intercom-136")
async def test_case_136_page_is_of_the_entry_and_place_that_were_asked(
    script: Scripted, companion: JsEnd
) -> None:
    """Pages are bounded and pinned; an empty history says so; anything else is no answer."""
    await joined(script, companion)
    first = {"entryId": "e-1", "text": "\U0001f680a", "offset": 0, "nextOffset": 3}
    empty = {"entryId": None, "text": "", "offset": 0, "nextOffset": None, "empty": True}
    pinned = {"entryId": "e-1", "offset": 3, "limit": 2}
    cases: list[tuple[dict[str, Any], dict[str, Any], str | None]] = [
        ({}, first, None),
        ({}, empty, None),
        (pinned, {"entryId": "e-1", "text": "bc", "offset": 3, "nextOffset": None}, None),
        (pinned, {"entryId": "e-2", "text": "bc", "offset": 3, "nextOffset": None}, "invalid_answer"),
        (pinned, {"entryId": "e-1", "text": "bcd", "offset": 3, "nextOffset": None}, "invalid_answer"),
        (pinned, {"entryId": "e-1", "text": "bc", "offset": 0, "nextOffset": None}, "invalid_answer"),
        (pinned, {"entryId": "e-1", "text": "bc", "offset": 3, "nextOffset": 9}, "invalid_answer"),
        (pinned, {"entryId": "e-1", "text": "", "offset": 3, "nextOffset": 3}, "invalid_answer"),
        (pinned, empty, "invalid_answer"),
        (pinned, {"error": "entry_not_found"}, "entry_not_found"),
    ]
    for wanted, body, refused in cases:
        waiting = asyncio.ensure_future(companion.call("last", to="peer-a", wanted=wanted))
        frame = await script.heard()
        identity = frame.pop("requestId")
        assert frame == {"type": "last_request", "to": "peer-a", "offset": 0, "limit": 16_384, **wanted}
        script.say({"type": "last_response", "requestId": identity, **body})
        if refused is None:
            assert await waiting == {"empty": False, **body}
            continue
        with pytest.raises(Failed) as caught:
            await waiting
        assert caught.value.code == refused
    for bad in ({"limit": 16_385}, {"limit": 0}, {"offset": -1}, {"offset": 1}, {"entryId": ""}, {"at": 1}):
        assert await code(companion, "last", to="peer-a", wanted=bad) == "invalid_input"
    assert await script.is_quiet()


async def test_client_that_is_asked_for_reads_says_that_it_has_none(
    script: Scripted, companion: JsEnd
) -> None:
    """It has no history and publishes nothing: whoever asks is answered, and mail to it changes nothing."""
    await joined(script, companion)
    peer = {"id": "peer-a", "cwd": "/a", "model": "m"}
    message = {"id": "m-9", "timestamp": 1, "content": {"text": "hello"}}
    script.say(
        {"type": "message", "from": peer, "message": message},
        {"type": "last_read", "token": "t-1", "from": peer, "offset": 0, "limit": 1},
        {"type": "receipt_read", "token": "t-2", "from": peer, "rootSessionId": "root-c", "messageId": "m"},
    )
    assert await script.heard() == {"type": "last_page", "token": "t-1", "error": "unsupported"}
    assert await script.heard() == {
        "type": "receipt_facts", "token": "t-2", "error": "publication_unavailable",
    }  # fmt: skip
    assert await script.is_quiet()
