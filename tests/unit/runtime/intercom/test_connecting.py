"""A client that no model drives: what it takes, what it never does, and how each operation ends."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.intercom.kit import intercom_of, station, until
from tieline import Client, connect
from tieline.errors import OutcomeUnknown, Refused, UsageError
from tieline.runtime.intercom.connecting import CLOSE_SECONDS

pytestmark = pytest.mark.asyncio
HINT = {"tool": "publish", "commandId": "01234567-89ab-cdef-0123-456789abcdef"}
SESSION = {"name": "c", "cwd": "/", "model": "none", "rootSessionId": "c", "incarnation": "c-1"}
GUARD = {"rootSessionId": "r", "peerId": "pi-x", "incarnation": "i", "applicationGuard": "g"}


@pytest.mark.parametrize(
    "fields",
    [
        {"spawn": True},
        {"session": {**SESSION, "name": ""}},
        {"session": {**SESSION, "other": "x"}},
        {"session": None},
        {"session": {**SESSION, "cwd": 5}},
        {"requested_id": 5},
        {"send_timeout_s": "8"},
        {"send_timeout_s": 0},
        {"list_timeout_s": float("nan")},
        {"environment": {"PI_INTERCOM_RUNTIME_DIR": "relative"}},
    ],
)
async def test_wrong_arguments_are_refused_before_a_socket(
    private_home: Path, fields: dict[str, Any]
) -> None:
    """No broker is looked for, none is started."""
    given: dict[str, Any] = {"spawn": False, "session": SESSION, **fields}
    with pytest.raises(UsageError):
        await connect(**given)
    assert not (private_home / "i").exists()


async def test_missing_broker_is_an_error_and_is_not_started(private_home: Path) -> None:
    """Connection failure rejects; there is no second place and no second try."""
    with pytest.raises(Refused) as caught:
        await connect(spawn=False, session=SESSION)
    assert caught.value.code == "PEER_OFFLINE"
    assert not (private_home / "i").exists()


async def test_client_lists_and_leaves(private_home: Path) -> None:
    """Only the returned id says who it is; after leaving nothing is asked, and leaving twice is once."""
    async with station(private_home) as at:
        await at.root("api")
        errors: list[Exception] = []
        client: Client = await connect(
            spawn=False, session=SESSION, requested_id="wanted-id-1", environment=at.environment,
            on_error=errors.append,
        )  # fmt: skip
        assert (client.session_id, client.is_connected) == ("wanted-id-1", True)
        assert sorted(str(row["name"]) for row in await client.list_sessions()) == ["api", "c"]
        for _ in range(2):
            await client.disconnect()
        assert (client.is_connected, errors) == (False, [])
        with pytest.raises(Refused):
            await client.list_sessions()


async def test_send_without_its_whole_guard_is_never_made(private_home: Path) -> None:
    """Missing or foreign guard, an odd hint, a question: each is the caller's to correct, and none left."""
    async with station(private_home) as at:
        client = await connect(spawn=False, session=SESSION, environment=at.environment)
        async with client:
            good: dict[str, Any] = {"message_id": "m", "text": "t", "delivery": "steer", "guard": GUARD}
            for fields in (
                {"guard": {}}, {"guard": {**GUARD, "peerId": "pi-y"}},
                {"guard": {**GUARD, "incarnation": ""}},
                {"reply_hint": {"tool": "no spaces", "commandId": "x"}}, {"expects_reply": True},
                {"delivery": "later"}, {"message_id": ""}, {"guard": None}, {"reply_hint": "x"}, {"text": 5},
                {"reply_hint": {**HINT, "more": "x"}}, {"reply_hint": HINT, "delivery": "passive"},
            ):  # fmt: skip
                with pytest.raises(UsageError):
                    await client.send("pi-x", **{**good, **fields})
            with pytest.raises(UsageError, match="its commandId must be a UUID"):
                await client.send("pi-x", **good, reply_hint={**HINT, "commandId": "build-7"})
            told = await client.send("pi-x", **good)
            assert (told["accepted"], told["reason"]) == (False, "Session not found")
            with pytest.raises(UsageError):
                await client.last("pi-x", limit=0)
            assert await client.last("pi-x") == {"error": "not_found"}


async def test_read_with_a_wrong_argument_costs_no_connection(private_home: Path) -> None:
    """A broker closes the socket that asks so; it is refused before it is said, and the client goes on."""
    async with station(private_home) as at:
        client: Any = await connect(spawn=False, session=SESSION, environment=at.environment)
        async with client:
            for wrong in ({"offset": 1.5}, {"limit": "5"}, {"limit": True}, {"offset": -1}, {"entry_id": 5}):
                with pytest.raises(UsageError):
                    await client.last("pi-x", **wrong)
            with pytest.raises(UsageError):
                await client.last(5)
            for root, message in ((5, "m"), ("", "m"), ("r", None), ("r", "a\nb")):
                with pytest.raises(UsageError):
                    await client.receipt("pi-x", root_session_id=root, message_id=message)
            assert client.is_connected
            assert await client.last("pi-x") == {"error": "not_found"}


async def test_loss_rejects_what_waits_and_a_send_may_have_been_taken(private_home: Path) -> None:
    """A send is `OutcomeUnknown`, anything else PEER_OFFLINE; whoever wants to know is told once."""
    errors: list[Exception] = []
    folder = private_home / "i"
    folder.mkdir(mode=0o700)
    writers: list[asyncio.StreamWriter] = []

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.readexactly(4)
        body = b'{"type":"registered","sessionId":"c","guardedDelivery":1}'
        writer.write(len(body).to_bytes(4, "big") + body)
        await reader.read(-1)

    server = await asyncio.start_unix_server(mute, str(folder / "broker.sock"))
    client = await connect(spawn=False, session=SESSION, on_error=errors.append, list_timeout_s=0.2)
    guard = {**GUARD, "peerId": "pi-x"}
    sending = asyncio.create_task(
        client.send("pi-x", message_id="m", text="t", delivery="steer", guard=guard)
    )
    await asyncio.sleep(0)
    with pytest.raises(Refused) as busy:
        await client.send("pi-x", message_id="m", text="t", delivery="steer", guard=guard)
    assert busy.value.code == "RESOURCE_BUSY"
    with pytest.raises(Refused, match="in time"):
        await client.list_sessions()
    with pytest.raises(Refused) as old:
        await client.receipt("pi-x", root_session_id="r", message_id="m")
    assert old.value.code == "CAPABILITY_DENIED"
    writers[0].close()
    with pytest.raises(OutcomeUnknown) as unknown:
        await sending
    assert unknown.value.message_id == "m"
    await until(lambda: errors)
    assert not client.is_connected
    await client.disconnect()
    server.close()


async def test_client_answers_nobody(private_home: Path) -> None:
    """Who reads it is told that there is nothing; it holds no answer and no journal."""
    async with station(private_home) as at:
        root = await at.root("api")
        async with await connect(spawn=False, session=SESSION, environment=at.environment) as client:
            roster = intercom_of(root).roster
            await roster.look()
            with pytest.raises(Refused, match="no such entry"):
                await roster.read("last", client.session_id, {"offset": 0})
            with pytest.raises(Refused, match="publication_unavailable"):
                await roster.read("receipt", client.session_id, {"rootSessionId": "c", "messageId": "m"})


async def test_connecting_that_is_cancelled_leaves_no_session(private_home: Path) -> None:
    """The socket is closed, so that the broker lists nobody whom no program holds."""
    folder = private_home / "i"
    folder.mkdir(mode=0o700)
    ended = asyncio.Event()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()
        ended.set()

    server = await asyncio.start_unix_server(mute, str(folder / "broker.sock"))
    connecting = asyncio.create_task(connect(spawn=False, session=SESSION))
    await asyncio.sleep(0.1)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    async with asyncio.timeout(2):
        await ended.wait()
    server.close()


async def test_callback_of_the_caller_that_raises_leaves_nothing_open(private_home: Path) -> None:
    """What waited is told, the socket is closed, and leaving waits for nothing; the error is the loop's."""
    async with station(private_home) as at:
        told: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: told.append(context["exception"]))

        def raising(_error: Exception) -> None:
            raise ValueError

        client = await connect(spawn=False, session=SESSION, environment=at.environment, on_error=raising)
        assert client._line is not None
        assert client._line._transport is not None
        client._line._transport.abort()
        await until(lambda: told)
        assert isinstance(told[0], ValueError)
        begun = loop.time()
        await client.disconnect()
        assert loop.time() - begun < CLOSE_SECONDS / 2
        loop.set_exception_handler(None)
