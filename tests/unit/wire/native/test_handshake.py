"""What is signed, and which nonces were seen."""

import hashlib

import msgspec
import pytest

from tieline.keys import PrivateKey, encode_base64, verify
from tieline.wire.native.handshake import (
    DOMAIN,
    Hello,
    HelloAnswer,
    NonceMemory,
    Proof,
    ProofAnswer,
    transcript,
)

CLIENT, SERVER = PrivateKey.generate(b"\x01" * 32), PrivateKey.generate(b"\x02" * 32)
FIELDS = (
    "11111111-1111-4111-8111-111111111111",
    "22222222-2222-4222-8222-222222222222",
    CLIENT.public,
    SERVER.public,
    encode_base64(b"\xaa" * 32),
    encode_base64(b"\xbb" * 32),
)
VECTORS = {
    "server": (
        SERVER,
        "76bb5dd6d8204c3e4834654f7a8d4cc498967b83a948c625ed69590ba41d775c",
        "gwZyrGULAbTNd20rYsyZqQz6x69WNciF8YCgMc4rnZt0/jAXFhDSBawkzEVEeQmqUVdXpfrpcpnnR35S5w6jDw==",
    ),
    "client": (
        CLIENT,
        "631ffad05f25bb51b27682ab03b2b9a15bbe6192ea751c7616221a2f27f9253f",
        "Rj6/ww19nswSNV9rqqZMETZFBWIcyqppNgRJRPEaeT8ldH3waUF4QMzy/mlahQuuh/Q3urL5BeSL+Ayipl5mBg==",
    ),
}


@pytest.mark.clause("native-50", "native-51", "native-52")
@pytest.mark.parametrize("role", ["server", "client"])
def test_transcript_of_published_vector_is_the_published_bytes(role: str) -> None:
    """Transcript and signature of the public vectors come out byte for byte."""
    key, digest, proof = VECTORS[role]
    message = transcript(role, *FIELDS)
    assert len(message) == 356
    assert hashlib.sha256(message).hexdigest() == digest
    assert key.sign(message) == proof
    assert verify(key.public, message, proof)


@pytest.mark.clause("native-50", "native-67", "S9")
def test_transcript_begins_with_its_purpose_and_version() -> None:
    """The first two fields say what is signed and for which protocol number."""
    domain = DOMAIN.encode()
    message = transcript("server", *FIELDS)
    assert message.startswith(len(domain).to_bytes(4, "big") + domain + b"\0\0\0\x011\0\0\0\x06server")


@pytest.mark.clause("native-53", "S8", "mutant-11")
@pytest.mark.parametrize("role", ["server", "client"])
def test_transcript_with_any_field_changed_has_no_valid_proof(role: str) -> None:
    """Flipping, dropping, swapping, repeating or re-splitting a field at every byte breaks the proof."""
    key, _, proof = VECTORS[role]
    honest = transcript(role, *FIELDS)
    texts = [DOMAIN, "1", role, *FIELDS]
    changed: list[bytes] = []
    for at, byte in enumerate(honest):
        changed.extend(honest[:at] + bytes([byte ^ 1 << bit]) + honest[at + 1 :] for bit in range(8))
    lists = [texts[:at] + texts[at + 1 :] for at in range(9)]
    lists += [[*texts[:at], texts[at], *texts[at:]] for at in range(9)]
    lists += [[*texts[:at], texts[at + 1], texts[at], *texts[at + 2 :]] for at in range(8)]
    lists += [
        [*texts[:at], (texts[at] + texts[at + 1])[:cut], (texts[at] + texts[at + 1])[cut:], *texts[at + 2 :]]
        for at in range(8)
        for cut in range(len(texts[at] + texts[at + 1]) + 1)
    ]
    for fields in lists:
        coded = [field.encode() for field in fields]
        changed.append(b"".join(len(field).to_bytes(4, "big") + field for field in coded))
    other = [message for message in changed if message != honest]
    assert len(other) >= len(changed) - 8
    assert not any(verify(key.public, message, proof) for message in other)


@pytest.mark.clause("S9", "I46", "mutant-11")
def test_proof_of_one_role_is_none_of_the_other() -> None:
    """A proof cannot be sent back as one's own: the roles sign different bytes."""
    assert not verify(SERVER.public, transcript("client", *FIELDS), VECTORS["server"][2])
    assert not verify(CLIENT.public, transcript("server", *FIELDS), VECTORS["client"][2])


@pytest.mark.clause("native-51")
def test_transcript_of_shifted_fields_differs() -> None:
    """Two lists of fields whose joined text is equal are signed as different bytes."""
    one = transcript("client", "ab", "c", *FIELDS[2:])
    other = transcript("client", "a", "bc", *FIELDS[2:])
    assert one != other
    assert len(one) == len(other)


@pytest.mark.clause("native-55", "I46")
def test_nonce_seen_before_is_refused() -> None:
    """A nonce is taken once while it is remembered."""
    memory = NonceMemory(entries_max=8, keep_ms=100)
    assert memory.take(b"a", 0)
    assert not memory.take(b"a", 99)
    assert memory.take(b"b", 99)
    assert memory.take(b"a", 100)
    assert not memory.take(b"b", 198)
    assert len(memory) == 2
    assert memory.evicted == 0


def test_nonce_memory_when_full_forgets_the_oldest_and_counts() -> None:
    """The memory is bounded; what it forgot early is counted for diagnosis."""
    memory = NonceMemory(entries_max=3, keep_ms=100)
    for name in (b"a", b"b", b"c", b"d"):
        assert memory.take(name, 0)
    assert (len(memory), memory.evicted) == (3, 1)
    assert not memory.take(b"b", 0)
    assert memory.take(b"a", 0)
    assert memory.evicted == 2


def test_nonce_memory_by_default_has_the_published_bounds() -> None:
    """8,192 nonces are remembered for an hour."""
    memory = NonceMemory()
    for number in range(8_193):
        assert memory.take(number.to_bytes(32, "big"), 0)
    assert (len(memory), memory.evicted) == (8_192, 1)
    assert not memory.take((8_192).to_bytes(32, "big"), 3_599_999)
    assert memory.take((8_192).to_bytes(32, "big"), 3_600_000)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Hello, {"version": True, "instanceId": "a", "publicKey": "b", "nonce": "c"}),
        (Hello, {"version": 1.0, "instanceId": "a", "publicKey": "b", "nonce": "c"}),
        (Hello, {"version": 1, "instanceId": "a", "publicKey": "b", "nonce": "c", "token": "d"}),
        (Hello, {"version": 1, "instanceId": "a", "publicKey": "b"}),
        (Hello, {"version": 1, "instanceId": 7, "publicKey": "b", "nonce": "c"}),
        (Proof, {"proof": None}),
        (Proof, {"proof": "a", "instanceId": "b"}),
        (ProofAnswer, {"authenticated": 1, "version": 1}),
        (ProofAnswer, {"authenticated": True}),
        (HelloAnswer, {"version": 1, "instanceId": "a", "publicKey": "b", "nonce": "c", "proof": "d"}),
    ],
)
def test_handshake_frame_outside_its_closed_set_is_refused(kind: type, value: object) -> None:
    """Handshake frames have exact fields with exact types."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(value, kind)
