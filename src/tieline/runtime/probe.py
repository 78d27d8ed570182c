"""A native link held by blocking calls, so that a measurement sees the recipient and little else.

Theory. A root that sends commits its own intent first and shares its loop with much else. To know what
the recipient alone costs, its peer must cost next to nothing: one socket, one prepared line, one wait.
The link is a real one: it dials what presence names, and both ends prove themselves, with the key of a
root that runs in this process.

Rule 1: it sends what a Tieline end may send, and reads answers without judging them.
Rule 2: it is for measuring: nothing is stored on this side, and nothing is tried again.

Source: DESIGN.md 7; reference/substrate.md 5; reference/native.md 205.
"""

import asyncio
import json
import os
import socket
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from tieline.engine.contract import Box, MessageRow
from tieline.errors import Refused
from tieline.model.identity import Peer
from tieline.runtime.root import Root
from tieline.shell.endpoint import connect
from tieline.shell.switchboard import Far
from tieline.wire.native import mapping
from tieline.wire.native.protocol import (
    Authenticated,
    Closed,
    Connection,
    LookupWanted,
    NativeLimits,
    NonceMemory,
)

__all__ = ["Probe", "is_accepted", "offer_line", "ping_line", "root_peer", "stored_counts"]

ANSWER_S: Final = 10.0
CHUNK_BYTES: Final = 262_144


def offer_line(number: int, message_id: str, to: str, content: str) -> bytes:
    """Return one line that offers a message; `number` names the attempt, `to` is a peer id."""
    params = {"version": 1, "messageId": message_id, "to": to, "content": content}
    return _line(number, "tieline.send", params)


def ping_line(number: int) -> bytes:
    """Return one line that asks for something that no store takes part in."""
    return _line(number, mapping.HELLO, mapping.hello())


def _line(number: int, method: str, params: dict[str, Any]) -> bytes:
    frame = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return json.dumps(frame, separators=(",", ":")).encode() + b"\n"


def is_accepted(line: bytes) -> bool:
    """Return whether an answer says that the message is accepted, on synced storage."""
    result = json.loads(line).get("result")
    return (
        isinstance(result, dict)
        and result.get("state") == "accepted"
        and result.get("durability") == "synced"
    )


def stored_counts(root: Root) -> Counter[str]:
    """Return how often each message id stands in the inbox of a root's store, as its disk has it."""
    rows = root.node.world.load()
    return Counter(
        row.envelope.message_id for row in rows if isinstance(row, MessageRow) and row.box is Box.IN
    )


class Probe:
    """One authenticated link to one root; made by `open`."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._rest = b""

    @classmethod
    def open(cls, root: Root, instance: str, loop: asyncio.AbstractEventLoop) -> "Probe":
        """Return an open link from `root`, which runs on `loop` in another thread, to `instance`.

        Raises:
            Refused: PEER_OFFLINE, UNSAFE_ENDPOINT, or what the far end said.
        """
        far: list[Far | None] = []

        async def look() -> None:
            far.append(root.node.world.lookup(instance, is_fresh=True))

        asyncio.run_coroutine_threadsafe(look(), loop).result(ANSWER_S)
        found = far[0]
        if found is None:
            raise Refused("PEER_OFFLINE", "presence does not show the root that is to be measured")
        sock = connect(found.endpoint)
        sock.settimeout(ANSWER_S)
        try:
            _prove(sock, root, found)
        except BaseException:
            sock.close()
            raise
        return cls(sock)

    def exchange(self, line: bytes) -> bytes:
        """Return the answer to one line; nothing else may be under way."""
        self._sock.sendall(line)
        while not self._rest.endswith(b"\n"):
            self._rest += self._receive()
        answer, self._rest = self._rest, b""
        return answer

    def flood(self, next_line: Callable[[], bytes | None], window: int) -> list[bytes]:
        """Keep `window` requests under way until `next_line` gives None; return all answers."""
        answers: list[bytes] = []
        under_way, is_over = 0, False
        while under_way or not is_over:
            batch = []
            while not is_over and under_way < window:
                line = next_line()
                if line is None:
                    is_over = True
                else:
                    batch.append(line)
                    under_way += 1
            if batch:
                self._sock.sendall(b"".join(batch))
            if under_way:
                *lines, self._rest = (self._rest + self._receive()).split(b"\n")
                answers += lines
                under_way -= len(lines)
        return answers

    def close(self) -> None:
        """Close the link."""
        self._sock.close()

    def _receive(self) -> bytes:
        data = self._sock.recv(CHUNK_BYTES)
        if not data:
            raise Refused("PEER_OFFLINE", "the far end closed the measured link")
        return data


def _prove(sock: socket.socket, root: Root, far: Far) -> None:
    """Do the handshake of a client."""
    node = root.node
    connection = Connection(
        "client",
        instance=node.instance,
        key=node.key,
        capabilities=node.capabilities,
        nonce=os.urandom(32),
        nonces=NonceMemory(),
        limits=NativeLimits(),
        now_ms=_now_ms(),
        expected=far.advertised,
    )
    sock.sendall(connection.data_to_send())
    while True:
        connection.receive_data(sock.recv(CHUNK_BYTES), _now_ms())
        for event in connection.events_received():
            if isinstance(event, Authenticated):
                assert event.instance == far.advertised.instance, "only whom we dialled can prove itself"
                return
            if isinstance(event, Closed):
                raise Refused(event.code or "PEER_OFFLINE", event.text)
            assert not isinstance(event, LookupWanted), "a client knows whom it dials"
        output = connection.data_to_send()
        if output:
            sock.sendall(output)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def root_peer(instance: str) -> str:
    """Return the peer id of an instance's root."""
    return Peer(instance).id
