"""Ed25519: canonical keys, signatures, verification; the one door to cryptography.

Rule 1: a public key has one text form, the standard base64 of its 44-byte SPKI DER. Any other text
for the same point is refused, because the signed transcript carries the text and not the point.
Rule 2: a key or a signature commitment of small order is refused here, not left to the library: with
such a key one fixed signature verifies on messages that nobody signed.
Rule 3: a private key lives in memory only; nothing here writes it or shows it.
Rule 4: this module knows neither peers nor transcripts; it is given bytes.

Source: reference/native.md 1E and 3.2; reference/reliability.md F6 and S8; RFC 8032; RFC 8410.
"""

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from functools import lru_cache
from typing import Any, Final

__all__ = [
    "PROOF_BYTES",
    "PUBLIC_KEY_TEXT_LENGTH",
    "SEED_BYTES",
    "PrivateKey",
    "decode_base64",
    "encode_base64",
    "public_key",
    "verify",
]

SEED_BYTES: Final = 32
"""Length of the secret a key pair is derived from."""
PROOF_BYTES: Final = 64
"""Length of a signature: 32 bytes of commitment R, 32 bytes of scalar S."""
PUBLIC_KEY_TEXT_LENGTH: Final = 60
"""Length of a public key's text."""

SPKI_PREFIX: Final = bytes.fromhex("302a300506032b6570032100")
"""The twelve DER bytes before the 32 bytes of every Ed25519 SPKI (RFC 8410)."""

FIELD_PRIME: Final = 2**255 - 19
GROUP_ORDER: Final = 2**252 + 27742317777372353535851937790883648493
"""L of RFC 8032: a scalar S at or above it is a second signature for the same message."""

_ORDER_EIGHT_Y: Final = int.from_bytes(
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little"
)
SMALL_ORDER_Y: Final = frozenset({0, 1, FIELD_PRIME - 1, _ORDER_EIGHT_Y, FIELD_PRIME - _ORDER_EIGHT_Y})
"""The y coordinates of the eight points whose order divides 8; the sign bit does not matter."""

_KEYS_REMEMBERED_MAX: Final = 1_024
"""Advertised keys are checked again at every reading of the directory; a check costs a scalar
multiplication, and a machine has at most a few hundred agents."""


def _sodium() -> Any:
    """Return libsodium's bindings, loaded with the first key and not with this module.

    A hook and a command pay for every import at every start, and most never see a key.
    """
    import nacl.bindings  # noqa: PLC0415 - the reason is above

    return nacl.bindings


def encode_base64(data: bytes) -> str:
    """Return `data` as standard base64 with padding and without line ends."""
    return b2a_base64(data, newline=False).decode("ascii")


def decode_base64(text: str, length: int) -> bytes:
    """Return the `length` bytes that `text` stands for.

    Raises:
        ValueError: `text` is not the one canonical standard base64 of exactly `length` bytes.
    """
    try:
        data = a2b_base64(text.encode("ascii"), strict_mode=True)
    except (Base64Error, UnicodeEncodeError) as error:
        raise ValueError("not standard base64") from error
    if len(data) != length:
        raise ValueError(f"not {length} bytes")
    # Strict mode still lets unused low bits of the last digit be anything: compare the re-encoding.
    if encode_base64(data) != text:
        raise ValueError("not canonical base64")
    return data


@lru_cache(maxsize=_KEYS_REMEMBERED_MAX)
def public_key(text: str) -> bytes:
    """Return the 32 bytes of the public key that `text` advertises.

    Args:
        text: 60 characters: canonical base64 of the SPKI DER form.

    Raises:
        ValueError: another spelling, another algorithm, a point that is not encoded canonically, is
            of small or mixed order, or is not on the curve.
    """
    der = decode_base64(text, len(SPKI_PREFIX) + 32)
    if not der.startswith(SPKI_PREFIX):
        raise ValueError("not an Ed25519 public key")
    point = der[len(SPKI_PREFIX) :]
    if not _is_acceptable_point(point):
        raise ValueError("not an acceptable Ed25519 point")
    if not _sodium().crypto_core_ed25519_is_valid_point(point):
        raise ValueError("not a point of the prime-order group")
    return point


def verify(public_text: str, message: bytes, proof_text: str) -> bool:
    """Return whether `proof_text` is this key's signature of `message`.

    Args:
        public_text: The signer's key, as `public_key` takes it.
        message: The exact bytes that were signed.
        proof_text: 88 characters: canonical base64 of the 64-byte signature.

    Returns:
        False also for every malformed key or proof: the caller's next step is the same.
    """
    from nacl.exceptions import BadSignatureError  # noqa: PLC0415 - with the first key, as in `_sodium`

    try:
        point = public_key(public_text)
        proof = decode_base64(proof_text, PROOF_BYTES)
    except ValueError:
        return False
    if not _is_acceptable_point(proof[:32]) or int.from_bytes(proof[32:], "little") >= GROUP_ORDER:
        return False
    try:
        _sodium().crypto_sign_open(proof + message, point)
    except BadSignatureError:
        return False
    return True


def _is_acceptable_point(encoded: bytes) -> bool:
    """Return whether 32 bytes encode a y below the field prime that no small-order point has.

    A sign bit set on x = 0 is the remaining non-canonical form; x is 0 at y = 1 and y = -1 only, and
    both are refused as small.
    """
    y = int.from_bytes(encoded, "little") & ((1 << 255) - 1)
    return y < FIELD_PRIME and y not in SMALL_ORDER_Y


class PrivateKey:
    """One incarnation's signing key; kept in memory, never written."""

    __slots__ = ("_secret", "public")

    public: str
    """The public key's text: 60 characters, the form that is advertised and signed."""

    def __init__(self, seed: bytes) -> None:
        """Derive the pair from a 32-byte seed.

        Raises:
            ValueError: `seed` has another length.
        """
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a seed is {SEED_BYTES} bytes")
        point, self._secret = _sodium().crypto_sign_seed_keypair(seed)
        self.public = encode_base64(SPKI_PREFIX + point)

    @classmethod
    def generate(cls, seed: bytes | None = None) -> "PrivateKey":
        """Return a new key: from `seed` where the caller wants the same one again, else a fresh one."""
        if seed is None:
            seed = _sodium().randombytes(SEED_BYTES)
        return cls(seed)

    def sign(self, message: bytes) -> str:
        """Return the signature of `message`: 88 characters of canonical base64."""
        return encode_base64(_sodium().crypto_sign(message, self._secret)[:PROOF_BYTES])

    def __repr__(self) -> str:
        """Return a text that shows the public half only."""
        return f"PrivateKey(public={self.public!r})"
