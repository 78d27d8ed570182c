"""Keys and signatures: one text for one key, and nothing that verifies for free."""

import subprocess
import sys
from base64 import b64decode, b64encode

import pytest

from tieline import keys
from tieline.keys import FIELD_PRIME, GROUP_ORDER, SPKI_PREFIX, PrivateKey, decode_base64, public_key, verify

CLIENT_PUBLIC = "MCowBQYDK2VwAyEAiojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w="
SERVER_PUBLIC = "MCowBQYDK2VwAyEAgTl3Dqh9F19Wo1Rmw0x+zMuNipG07jeiXfYPW4/Js5Q="
MESSAGE = b"the fence is 7"

CURVE_D = -121665 * pow(121666, -1, FIELD_PRIME) % FIELD_PRIME
EIGHTH_Y = int.from_bytes(
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little"
)


def encoded(y: int, sign: int) -> bytes:
    """Return 32 bytes that encode y and a sign bit, canonical or not."""
    return (y | sign << 255).to_bytes(32, "little")


def as_text(point: bytes) -> str:
    """Return the advertised text of 32 bytes, checked or not."""
    return b64encode(SPKI_PREFIX + point).decode()


# Eight points have an order that divides 8; the other six encode the same points in a second way.
SMALL_ORDER = [encoded(y, s) for y in (0, EIGHTH_Y, FIELD_PRIME - EIGHTH_Y) for s in (0, 1)]
SMALL_ORDER += [encoded(1, 0), encoded(FIELD_PRIME - 1, 0)]
SECOND_FORMS = [encoded(1, 1), encoded(FIELD_PRIME - 1, 1)]
SECOND_FORMS += [encoded(y, s) for y in (FIELD_PRIME, FIELD_PRIME + 1) for s in (0, 1)]


def x_squared(y: int) -> int:
    """Return the square of the x that belongs to y on the curve."""
    return (y * y - 1) * pow(CURVE_D * y * y + 1, -1, FIELD_PRIME) % FIELD_PRIME


def added(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """Return the sum of two points of the curve."""
    (x1, y1), (x2, y2) = one, other
    product = CURVE_D * x1 * x2 * y1 * y2 % FIELD_PRIME
    x3 = (x1 * y2 + x2 * y1) * pow(1 + product, -1, FIELD_PRIME) % FIELD_PRIME
    y3 = (y1 * y2 + x1 * x2) * pow(1 - product, -1, FIELD_PRIME) % FIELD_PRIME
    return x3, y3


def point_of(data: bytes) -> tuple[int, int]:
    """Return the affine point that 32 bytes encode, read without strictness."""
    number = int.from_bytes(data, "little")
    y, sign = number % 2**255 % FIELD_PRIME, number >> 255
    square = x_squared(y)
    x = pow(square, (FIELD_PRIME + 3) // 8, FIELD_PRIME)
    if x * x % FIELD_PRIME != square:
        x = x * pow(2, (FIELD_PRIME - 1) // 4, FIELD_PRIME) % FIELD_PRIME
    assert x * x % FIELD_PRIME == square, "not a point of the curve"
    return (FIELD_PRIME - x if x % 2 != sign else x) % FIELD_PRIME, y


@pytest.mark.clause("native-48")
@pytest.mark.parametrize(("seed", "public"), [(1, CLIENT_PUBLIC), (2, SERVER_PUBLIC)])
def test_key_from_public_seed_has_published_text(seed: int, public: str) -> None:
    """The advertised text of a key is the published one for the same seed."""
    key = PrivateKey.generate(bytes([seed]) * 32)
    assert key.public == public
    assert public_key(public) == b64decode(public)[12:]


@pytest.mark.clause("native-47")
def test_keys_generated_without_seed_differ_each_time() -> None:
    """Two incarnations have two keys, and no key shows its secret."""
    one, other = PrivateKey.generate(), PrivateKey.generate()
    assert one.public != other.public
    assert repr(one) == f"PrivateKey(public={one.public!r})"


def test_key_from_short_seed_is_refused() -> None:
    """A seed of another length is refused."""
    with pytest.raises(ValueError, match="32 bytes"):
        PrivateKey(b"\x01" * 31)


def test_signature_of_message_verifies_with_its_key_alone() -> None:
    """A proof verifies for its key and its message, and for no other."""
    key, other = PrivateKey.generate(b"\x01" * 32), PrivateKey.generate(b"\x02" * 32)
    proof = key.sign(MESSAGE)
    assert len(proof) == 88
    assert verify(key.public, MESSAGE, proof)
    assert not verify(key.public, MESSAGE + b" ", proof)
    assert not verify(other.public, MESSAGE, proof)


def test_signature_with_any_bit_flipped_is_refused() -> None:
    """No single changed bit of a proof verifies."""
    key = PrivateKey.generate(b"\x01" * 32)
    proof = b64decode(key.sign(MESSAGE))
    for bit in range(512):
        changed = bytearray(proof)
        changed[bit // 8] ^= 1 << bit % 8
        assert not verify(key.public, MESSAGE, b64encode(bytes(changed)).decode())


@pytest.mark.clause("S8")
def test_signature_with_scalar_raised_by_order_is_refused() -> None:
    """The second scalar that satisfies the same equation is not taken."""
    key = PrivateKey.generate(b"\x01" * 32)
    proof = b64decode(key.sign(MESSAGE))
    raised = int.from_bytes(proof[32:], "little") + GROUP_ORDER
    assert not verify(key.public, MESSAGE, b64encode(proof[:32] + raised.to_bytes(32, "little")).decode())


@pytest.mark.parametrize("point", SMALL_ORDER + SECOND_FORMS)
def test_listed_small_point_times_eight_is_identity(point: bytes) -> None:
    """The points tested below are really those whose order divides 8."""
    multiple = point_of(point)
    for _ in range(3):
        multiple = added(multiple, multiple)
    assert multiple == (0, 1)


@pytest.mark.clause("S8", "mutant-12")
@pytest.mark.parametrize("point", SMALL_ORDER + SECOND_FORMS)
def test_public_key_of_small_order_is_refused(point: bytes) -> None:
    """A key under which a fixed signature would verify is refused before any signature is read."""
    with pytest.raises(ValueError, match="acceptable"):
        public_key(as_text(point))
    forged = b64encode(encoded(1, 0) + bytes(32)).decode()
    assert not verify(as_text(point), MESSAGE, forged)


class Lenient:
    """A library that takes every signature, so that what is refused is refused here."""

    @staticmethod
    def crypto_sign_open(signed: bytes, _key: bytes) -> bytes:
        """Take it."""
        return signed[64:]


@pytest.mark.clause("S8")
@pytest.mark.parametrize("point", SMALL_ORDER + SECOND_FORMS)
def test_signature_with_small_commitment_is_refused(point: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small-order R is refused here, whatever the library would say of it."""
    key = PrivateKey.generate(b"\x01" * 32)
    public_key(key.public)
    honest = b64decode(key.sign(MESSAGE))
    monkeypatch.setattr(keys, "_sodium", lambda: Lenient)
    assert verify(key.public, MESSAGE, b64encode(honest).decode())
    assert not verify(key.public, MESSAGE, b64encode(point + honest[32:]).decode())


@pytest.mark.clause("S8")
def test_signature_with_scalar_of_the_order_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scalar at or past the group's order is refused here, whatever the library would say of it."""
    key = PrivateKey.generate(b"\x01" * 32)
    public_key(key.public)
    commitment = b64decode(key.sign(MESSAGE))[:32]
    monkeypatch.setattr(keys, "_sodium", lambda: Lenient)
    for scalar, is_taken in ((GROUP_ORDER - 1, True), (GROUP_ORDER, False), (2**256 - 1, False)):
        proof = b64encode(commitment + scalar.to_bytes(32, "little")).decode()
        assert verify(key.public, MESSAGE, proof) == is_taken


@pytest.mark.parametrize("y", range(FIELD_PRIME, 2**255))
@pytest.mark.parametrize("sign", [0, 1])
def test_public_key_with_y_past_prime_is_refused(y: int, sign: int) -> None:
    """Each of the nineteen y that wrap around has another, canonical encoding."""
    with pytest.raises(ValueError, match="acceptable"):
        public_key(as_text(encoded(y, sign)))


def test_public_key_off_the_curve_is_refused() -> None:
    """A y that no point has is no key."""
    off = next(y for y in range(2, 99) if pow(x_squared(y), (FIELD_PRIME - 1) // 2, FIELD_PRIME) != 1)
    with pytest.raises(ValueError, match="prime-order"):
        public_key(as_text(encoded(off, 0)))


def test_public_key_of_mixed_order_is_refused() -> None:
    """An honest key shifted by a small point is another text for what some checks take as the same."""
    x, y = added(point_of(b64decode(CLIENT_PUBLIC)[12:]), (0, FIELD_PRIME - 1))
    with pytest.raises(ValueError, match="prime-order"):
        public_key(as_text(encoded(y, x % 2)))


@pytest.mark.clause("native-48")
@pytest.mark.parametrize(
    "text",
    [
        "",
        CLIENT_PUBLIC[:-1],
        CLIENT_PUBLIC + "=",
        CLIENT_PUBLIC + "\n",
        " " + CLIENT_PUBLIC,
        CLIENT_PUBLIC.replace("w=", "x="),  # unused low bits set
        SERVER_PUBLIC.replace("+", "-").replace("/", "_"),
        CLIENT_PUBLIC[:30] + "\n" + CLIENT_PUBLIC[30:],
        CLIENT_PUBLIC[:-1] + "\uff1d",
        b64encode(b64decode(CLIENT_PUBLIC)[12:]).decode(),
        b64encode(bytes.fromhex("302a300506032b656e032100") + b64decode(CLIENT_PUBLIC)[12:]).decode(),
        b64encode(b64decode(CLIENT_PUBLIC) + b"\0").decode(),
    ],
)
def test_public_key_in_another_spelling_is_refused(text: str) -> None:
    """Only the one canonical text of a key is a key, because the text is what is signed."""
    with pytest.raises(ValueError, match=r"base64|bytes|Ed25519"):
        public_key(text)
    assert not verify(text, MESSAGE, PrivateKey.generate(b"\x01" * 32).sign(MESSAGE))


@pytest.mark.parametrize("text", ["qqo", "qqo==", "qqp=", "qq o=", "qqo=\n", "qqo=qqo="])
def test_base64_in_another_spelling_is_refused(text: str) -> None:
    """Two bytes have one base64 text."""
    assert decode_base64("qqo=", 2) == b"\xaa\xaa"
    with pytest.raises(ValueError, match=r"base64|bytes"):
        decode_base64(text, 2)


def test_import_of_keys_alone_loads_no_library() -> None:
    """Importing this module costs a hook nothing of the cryptography."""
    code = "import sys, tieline.keys; sys.exit('nacl' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], check=False, env={"PYTHONPATH": ":".join(sys.path)}
        ).returncode
        == 0
    )
