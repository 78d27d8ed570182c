"""The official client of the protocol speaks with our door, in both protocol families."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

mcp = pytest.importorskip("mcp", reason="the official client is a test dependency: run make setup")
from mcp import Client, StdioServerParameters  # noqa: E402
from mcp.shared.exceptions import MCPError  # noqa: E402

from tieline.adapters.mcp.constants import INSTRUCTIONS, TOOL_FIELDS  # noqa: E402

START = "import sys; from tieline.adapters import mcp; sys.exit(mcp.main(sys.argv[1:]))"
SOURCES = str(Path(__file__).resolve().parents[2] / "src")
FAMILIES = ["legacy", "auto", "2026-07-28"]


def door(home: Path, *options: str) -> StdioServerParameters:
    """Return how the client starts our door."""
    work = home / "work"
    work.mkdir(exist_ok=True)
    environment = {"PYTHONPATH": SOURCES, "TIELINE_HOME": str(home / "t"), "HOME": str(home)}
    return StdioServerParameters(
        command=sys.executable, args=["-c", START, *options], env=environment, cwd=str(work)
    )


@asynccontextmanager
async def connected(home: Path, family: str, *options: str) -> AsyncIterator[Any]:
    """Give a client of one family that is connected to a door of its own."""
    async with asyncio.timeout(40), Client(door(home, *options), mode=family) as client:
        yield client


def play(story: Callable[[], Awaitable[None]]) -> None:
    """Run `story` in a loop of its own."""
    asyncio.run(story())


async def until_listed(client: Any, alias: str) -> dict[str, Any]:
    """Return the peer with this alias once the client sees it."""
    for _ in range(100):
        listing = (await client.call_tool("list_peers", {})).structured_content
        for peer in listing["peers"]:
            if peer["alias"] == alias:
                found: dict[str, Any] = peer
                return found
        await asyncio.sleep(0.1)
    raise AssertionError(f"{alias} was never listed")


@pytest.mark.parametrize("family", FAMILIES)
def test_client_of_either_family_gets_tools_and_instructions(private_home: Path, family: str) -> None:
    """The official client accepts our first answers as they are."""

    async def story() -> None:
        async with connected(private_home, family) as client:
            tools = (await client.list_tools()).tools
            assert {tool.name for tool in tools} == set(TOOL_FIELDS) - {"intercom"}  # that wire is off
            assert all(tool.input_schema["additionalProperties"] is False for tool in tools)
            if family != "2026-07-28":  # a client that adopts a version asks for no instructions
                assert client.instructions == INSTRUCTIONS

    play(story)


@pytest.mark.clause("native-132", "native-133", "native-134", "native-137")
@pytest.mark.parametrize("family", FAMILIES)
def test_two_clients_ask_reply_and_read_the_receipt(private_home: Path, family: str) -> None:
    """A question goes over, is read once, is answered, and the answer is found by its replyTo."""

    async def story() -> None:
        async with (
            connected(private_home, family, "--alias", "asker") as asker,
            connected(private_home, family, "--alias", "teller") as teller,
        ):
            await asker.call_tool("list_peers", {})  # a client that adopts a version says nothing before
            await until_listed(teller, "asker")
            peer = await until_listed(asker, "teller")
            sent = await asker.call_tool(
                "send_peer_message", {"to": peer["peerId"], "content": "Which port?"}
            )
            assert not sent.is_error, sent.content[0].text
            receipt = sent.structured_content
            assert receipt["state"] == "accepted"
            read = await teller.call_tool("peer_messages", {"waitMs": 5000})
            (message,) = read.structured_content["messages"]
            assert message["content"] == "Which port?"
            assert message["authority"] == "external"
            assert "Which port?" in read.content[0].text
            again = await teller.call_tool("peer_messages", {})
            assert again.structured_content["messages"] == []
            answer = {"to": message["from"], "content": "8080", "replyTo": message["messageId"]}
            assert not (await teller.call_tool("send_peer_message", answer)).is_error
            waited = await asker.call_tool("peer_messages", {"replyTo": receipt["messageId"], "waitMs": 5000})
            assert [item["content"] for item in waited.structured_content["messages"]] == ["8080"]

    play(story)


@pytest.mark.clause("native-133", "O07")
def test_client_reads_typed_failures_and_bounds(private_home: Path) -> None:
    """A refusal is a tool error with code and next action; a wait out of range is INVALID_PARAMS."""

    async def story() -> None:
        async with connected(private_home, "auto") as client:
            for arguments, tool, code in (
                ({"to": "nobody", "content": "x"}, "send_peer_message", "UNKNOWN_TARGET"),
                ({"waitMs": 30_001}, "peer_messages", "INVALID_PARAMS"),
                ({"waitMs": -1}, "peer_messages", "INVALID_PARAMS"),
                ({"waitMs": True}, "peer_messages", "INVALID_PARAMS"),
                ({"consume": False}, "peer_messages", "INVALID_PARAMS"),
            ):
                result = await client.call_tool(tool, arguments)
                assert result.is_error, arguments
                assert result.structured_content["code"] == code
                assert "Next: " in result.content[0].text
            waited = await client.call_tool("peer_messages", {"waitMs": 100})
            assert waited.structured_content["timedOut"] is True
            with pytest.raises(MCPError):
                await client.call_tool("no_such_tool", {})

    play(story)


@pytest.mark.clause("native-135")
def test_client_that_gives_a_wait_up_still_finds_its_mail(private_home: Path) -> None:
    """A cancelled wait consumes nothing, and the next read has the message."""

    async def story() -> None:
        async with (
            connected(private_home, "auto", "--alias", "reader") as reader,
            connected(private_home, "auto", "--alias", "writer") as writer,
        ):
            await reader.call_tool("list_peers", {})
            peer = await until_listed(writer, "reader")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await reader.call_tool("peer_messages", {"waitMs": 20_000})
            await writer.call_tool("send_peer_message", {"to": peer["peerId"], "content": "still there"})
            read = await reader.call_tool("peer_messages", {"waitMs": 5000})
            assert [item["content"] for item in read.structured_content["messages"]] == ["still there"]

    play(story)


def test_client_that_leaves_leaves_no_process_and_no_presence(private_home: Path) -> None:
    """After the client closed its pipes the door is gone and withdrawn."""

    async def story() -> None:
        async with connected(private_home, "auto", "--session", "s1") as client:
            await client.call_tool("list_peers", {})
            assert os.listdir(private_home / "t" / "active-agents")

    play(story)
    assert os.listdir(private_home / "t" / "active-agents") == []
    ended = subprocess.run(["pgrep", "-f", str(private_home)], capture_output=True, check=False)
    assert ended.stdout == b""
