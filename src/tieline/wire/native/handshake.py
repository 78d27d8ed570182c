"""What the native handshake is made of: its closed frames, the bytes that are signed, the nonces seen.

Rule 1: keys and nonces are signed as texts, so each has exactly one text; any other is refused.
Rule 2: frames of the handshake are closed sets with exact types; version is the integer 1 and not `true`.
Rule 3: this module knows no order and no link; `protocol` does.

Source: reference/native.md 1E, 2.5, 3.2, 3.4; reference/reliability.md S8, S9, S12, I46.
"""

from typing import Final

import msgspec

__all__ = [
    "DOMAIN",
    "NONCE_BYTES",
    "PROTOCOL",
    "Advertised",
    "Hello",
    "HelloAnswer",
    "NonceMemory",
    "Proof",
    "ProofAnswer",
    "transcript",
]

DOMAIN: Final = "autohand.local-peers.handshake.v1"
"""First signed field: no signature made for another purpose verifies here."""
PROTOCOL: Final = 1
"""Version of the peer protocol; JSON-RPC's "2.0" is another number."""
NONCE_BYTES: Final = 32

NONCES_MAX: Final = 8_192
NONCE_KEEP_MS: Final = 3_600_000


class Advertised(msgspec.Struct, frozen=True):
    """What the presence record of a live instance says of it."""

    instance: str
    public_key: str
    capabilities: tuple[str, ...] = ()


class Hello(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an end says of itself; in a request the client, which has proved nothing yet."""

    version: int
    instance: str = msgspec.field(name="instanceId")
    public_key: str = msgspec.field(name="publicKey")
    nonce: str


class HelloAnswer(Hello, frozen=True, forbid_unknown_fields=True):
    """The server says who it is and proves it. Its capabilities are for show and grant nothing."""

    proof: str
    capabilities: tuple[str, ...]


class Proof(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The client proves itself."""

    proof: str


class ProofAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The server took the proof."""

    authenticated: bool
    version: int


class NonceMemory:
    """The nonces seen lately by one root, its own and foreign ones, over all its links.

    Replay already fails because each end's nonce is fresh; this refuses it one step earlier.
    """

    def __init__(self, entries_max: int = NONCES_MAX, keep_ms: int = NONCE_KEEP_MS) -> None:
        """Remember at most `entries_max` nonces for `keep_ms` milliseconds."""
        self.evicted = 0
        """How many were forgotten early because the memory was full."""
        self._entries_max = entries_max
        self._keep_ms = keep_ms
        # Insertion order is time order, because `now_ms` is monotonic.
        self._taken_ms: dict[bytes, int] = {}

    def __len__(self) -> int:
        """Return how many nonces are remembered."""
        return len(self._taken_ms)

    def take(self, nonce: bytes, now_ms: int) -> bool:
        """Remember `nonce`; return False where it was seen before and is still remembered."""
        while self._taken_ms:
            oldest = next(iter(self._taken_ms))
            if now_ms - self._taken_ms[oldest] < self._keep_ms:
                break
            del self._taken_ms[oldest]
        if nonce in self._taken_ms:
            return False
        if len(self._taken_ms) >= self._entries_max:
            del self._taken_ms[next(iter(self._taken_ms))]
            self.evicted += 1
        self._taken_ms[nonce] = now_ms
        return True


def transcript(
    role: str,
    client_instance: str,
    server_instance: str,
    client_key: str,
    server_key: str,
    client_nonce: str,
    server_nonce: str,
) -> bytes:
    """Return the bytes that `role` ("client" or "server") signs.

    Nine UTF-8 texts, each after its byte length as four big-endian bytes, so that no two different
    lists of fields give the same bytes. Keys and nonces are their canonical base64 texts.
    """
    fields = (
        DOMAIN,
        str(PROTOCOL),
        role,
        client_instance,
        server_instance,
        client_key,
        server_key,
        client_nonce,
        server_nonce,
    )
    encoded = [field.encode() for field in fields]
    return b"".join(len(field).to_bytes(4, "big") + field for field in encoded)
