"""A root of a plain Python program beside the harnesses, and how results of our tools are read.

Source: DESIGN.md 3, 4; docs/json-shapes.md.
"""

import asyncio
import json
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Self, TypeVar

from tieline import Message, Root

__all__ = ["Neighbour", "document", "peer_named"]

OPEN_SECONDS_MAX = 30.0
CALL_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.5
SLACK_SECONDS = 10.0
TOOLS_SECONDS = 2.0

_Result = TypeVar("_Result")


class Neighbour:
    """A root in a thread of its own; use it by `with`."""

    def __init__(self, shared: Path, work: Path, alias: str) -> None:
        self._shared, self._work, self._alias = shared, work, alias
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=alias, daemon=True)
        self._root: Root | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._work.mkdir(parents=True, exist_ok=True)
        self._root = self._do(self._open(), OPEN_SECONDS_MAX)
        return self

    def __exit__(self, *_error: object) -> None:
        self._do(self.root.close(), OPEN_SECONDS_MAX)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _open(self) -> Root:
        return await Root.open(
            alias=self._alias, home=str(self._shared), workspace=str(self._work), scope="machine"
        )

    def _do(self, what: Coroutine[Any, Any, _Result], seconds: float = CALL_SECONDS_MAX) -> _Result:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(seconds)

    @property
    def root(self) -> Root:
        """Return the open root."""
        assert self._root is not None, "use it by `with`"
        return self._root

    def peers(self) -> list[dict[str, Any]]:
        """Return whom it sees."""
        return self._do(self.root.peers(scope="machine"))

    def until_listed(self, project: str, seconds: float = CALL_SECONDS_MAX) -> dict[str, Any]:
        """Return the peer of the working directory `project`, once its tools can be used.

        A window of Claude Code takes prompts before its servers are connected, and its model then has none
        of our tools. The peer is listed at the connection; its tools are asked for right behind it.

        Raises:
            AssertionError: it was not listed in time.
        """
        give_up = time.monotonic() + seconds
        while time.monotonic() < give_up:
            found = [peer for peer in self.peers() if peer.get("project") == project]
            if found:
                time.sleep(TOOLS_SECONDS)
                return found[0]
            time.sleep(LOOK_SECONDS)
        raise AssertionError(f"no peer of {project} within {seconds} s")

    def send(
        self, to: str, content: str, *, delivery: str | None = None, topic: str | None = None
    ) -> dict[str, Any]:
        """Send a message; return its receipt."""
        return self._do(self.root.send(to, content, delivery=delivery, topic=topic))

    def recover(self, instance: str) -> Any:
        """Return what an ended instance left."""
        return self._do(self.root.recover(instance))

    def last(self, to: str) -> dict[str, Any]:
        """Return the last finished answer of a peer."""
        return self._do(self.root.last(to))

    def next_message(self, seconds: float = CALL_SECONDS_MAX) -> Message:
        """Return the oldest unread message, consumed.

        Raises:
            AssertionError: none came in time.
        """
        found = self._do(self.root.inbox(wait_s=seconds, consume=True), seconds + SLACK_SECONDS)
        assert found, f"{self._alias} got no message within {seconds} s"
        return found[0]

    def reply(self, message_id: str, content: str) -> dict[str, Any]:
        """Answer a message; return the reply's receipt."""
        return self._do(self.root.reply(message_id, content))

    def status(self, message_id: str) -> dict[str, Any]:
        """Return what it knows of a message."""
        return self._do(self.root.status(message_id))


def document(text: str) -> dict[str, Any]:
    """Return the first JSON object in what a harness made of a tool's result.

    Harnesses put words before it, wrap it, or hold it as a text inside an object of their own.

    Raises:
        AssertionError: there is none.
    """
    for place, character in enumerate(text):
        if character != "{":
            continue
        try:
            found, _end = json.JSONDecoder().raw_decode(text, place)
        except ValueError:
            continue
        inner = [value for value in found.values() if isinstance(value, str) and "{" in value]
        return document(inner[0]) if len(found) == len(inner) == 1 else found
    raise AssertionError(f"no JSON object in {text!r}")


def peer_named(text: str, alias: str) -> str:
    """Return the peer id of `alias` in the result of `list_peers`.

    Raises:
        AssertionError: it is not listed.
    """
    peers = document(text)["peers"]
    found = [peer["peerId"] for peer in peers if peer["alias"] == alias]
    assert found, f"{alias} is not among {[peer['alias'] for peer in peers]}"
    peer_id: str = found[0]
    return peer_id
