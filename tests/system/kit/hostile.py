"""A peer with a valid key that owes nobody anything: the native wire written from its reference alone.

Rule: nothing of the product is used here, so that what is agreed on is the wire, not the code.

Source: reference/native.md 2.1, 2.5, 2.6, 3.1, 3.2.
"""

import asyncio
import base64
import contextlib
import datetime as dt
import hashlib
import json
import os
import struct
import uuid
from pathlib import Path
from typing import Any, Self

from nacl.signing import SigningKey

__all__ = ["HostileLink", "HostilePeer", "peer_id_of"]

SPKI = bytes.fromhex("302a300506032b6570032100")
DOMAIN = "autohand.local-peers.handshake.v1"
CAPABILITIES = ["message.receive", "message.send"]


def peer_id_of(instance: str, run: str | None = None) -> str:
    """Return the id of a peer."""
    text = json.dumps([instance, run], separators=(",", ":"), ensure_ascii=False)
    return "peer-" + hashlib.sha256(text.encode()).hexdigest()[:32]


def text_of(data: bytes) -> str:
    """Return bytes as the wire writes them."""
    return base64.b64encode(data).decode()


def signed_fields(*fields: str) -> bytes:
    """Return the bytes that a proof signs."""
    return b"".join(struct.pack(">I", len(field.encode())) + field.encode() for field in fields)


class HostilePeer:
    """One presence record, one key, any number of links."""

    def __init__(self, home: Path, alias: str) -> None:
        self.home, self.alias = home, alias
        self.instance = str(uuid.uuid4())
        self.key = SigningKey.generate()
        self.public = text_of(SPKI + bytes(self.key.verify_key))
        self.record = home / "active-agents" / f"s-{alias}.{self.instance}.json"
        self.links: list[HostileLink] = []
        self._beat: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, home: Path, alias: str, **facts: Any) -> Self:
        """Publish a record; `facts` replace its members. It is kept fresh until `close`."""
        made = cls(home, alias)
        made.publish(**facts)
        made._beat = asyncio.get_running_loop().create_task(made._keep_fresh(facts))
        return made

    async def _keep_fresh(self, facts: dict[str, Any]) -> None:
        while True:
            await asyncio.sleep(3)
            self.publish(**facts)

    def publish(self, **facts: Any) -> None:
        """Write the presence record."""
        stamp = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        told = {
            "protocol": 1,
            "instanceId": self.instance,
            "endpoint": str(self.home / "peer-runtime" / f"{self.instance}.sock"),
            "publicKey": self.public,
            "capabilities": CAPABILITIES,
            "peerId": peer_id_of(self.instance),
            "alias": self.alias,
            "scope": facts.pop("scope", "machine"),
        }
        body = {
            "version": 1, "pid": os.getpid(), "sessionId": f"s-{self.alias}",
            "workspaceRoot": os.path.realpath(self.home), "projectName": "hostile", "provider": "other",
            "model": "other", "mode": "interactive", "status": "idle", "startedAt": stamp, "updatedAt": stamp,
            "messageCount": 0, "contextPercent": 0, "tokensUsed": 0, "communication": told, **facts,
        }  # fmt: skip
        draft = self.record.with_suffix(".draft")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(body, file)
        draft.replace(self.record)

    def find(self, alias: str) -> dict[str, Any]:
        """Return what the record of an alias says of its communication."""
        for path in (self.home / "active-agents").glob("*.json"):
            told: dict[str, Any] | None = json.loads(path.read_text()).get("communication")
            if told is not None and told["alias"] == alias:
                return told
        raise LookupError(alias)

    async def connect(self, alias: str) -> "HostileLink":
        """Connect to a root and prove nothing."""
        told = self.find(alias)
        reader, writer = await asyncio.open_unix_connection(told["endpoint"], limit=1 << 20)
        link = HostileLink(self, told, reader, writer)
        self.links.append(link)
        return link

    async def dial(self, alias: str) -> "HostileLink":
        """Connect to a root and prove who we are.

        Raises:
            PermissionError: it refused, with its code.
            ConnectionError: it hung up.
        """
        link = await self.connect(alias)
        await link.prove()
        return link

    async def close(self) -> None:
        """Take everything away."""
        if self._beat is not None:
            self._beat.cancel()
        for link in self.links:
            link.writer.transport.abort()
        self.record.unlink()
        await asyncio.sleep(0.01)  # until each socket is closed


class HostileLink:
    """One connection."""

    def __init__(
        self,
        me: HostilePeer,
        told: dict[str, Any],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.me, self.told, self.reader, self.writer = me, told, reader, writer
        self._number = 0

    def write(self, method: str, params: dict[str, Any]) -> str:
        """Write a request without waiting."""
        self._number += 1
        name = f"x{self._number}"
        self.writer.write(
            json.dumps({"jsonrpc": "2.0", "id": name, "method": method, "params": params}).encode() + b"\n"
        )
        return name

    async def read(self) -> dict[str, Any]:
        """Return the next frame.

        Raises:
            ConnectionError: the far end hung up.
        """
        async with asyncio.timeout(10):
            line = await self.reader.readline()
        if not line:
            raise ConnectionResetError
        frame: dict[str, Any] = json.loads(line)
        return frame

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request."""
        name = self.write(method, params)
        while (frame := await self.read()).get("id") != name or "method" in frame:
            continue
        return frame

    async def code(self, method: str, params: dict[str, Any]) -> str:
        """Return the typed code of a refusal, "" for a result."""
        frame = await self.request(method, params)
        return str(frame["error"]["data"]["code"]) if "error" in frame else ""

    async def send(self, content: str, message_id: str = "", **more: Any) -> dict[str, Any]:
        """Send one message to the root at the other end."""
        params = {
            "version": 1,
            "messageId": message_id or str(uuid.uuid4()),
            "to": self.told["peerId"],
            "content": content,
            **more,
        }
        return await self.request("peer.send", params)

    async def prove(self) -> None:
        """Go through the handshake."""
        me, nonce = self.me, text_of(os.urandom(32))
        hello = {"version": 1, "instanceId": me.instance, "publicKey": me.public, "nonce": nonce}
        answer = await self.request("peer.hello", hello)
        if "error" in answer:
            raise PermissionError(answer["error"]["data"]["code"])
        theirs = answer["result"]
        assert theirs["publicKey"] == self.told["publicKey"]
        fields = signed_fields(
            DOMAIN, "1", "client", me.instance, theirs["instanceId"], me.public, theirs["publicKey"], nonce,
            theirs["nonce"],
        )  # fmt: skip
        answer = await self.request("peer.authenticate", {"proof": text_of(me.key.sign(fields).signature)})
        if "error" in answer:
            raise PermissionError(answer["error"]["data"]["code"])
        assert answer["result"] == {"authenticated": True, "version": 1}

    async def is_closed_within(self, seconds: float) -> bool:
        """Return whether the far end hangs up in that time, whatever it says before."""
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(seconds):
                while await self.reader.read(65_536):
                    continue
            return True
        return self.reader.at_eof() or self.reader.exception() is not None
