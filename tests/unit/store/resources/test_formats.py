"""Show that a shared record is read as it was written, or not at all."""

import hashlib
import subprocess
import sys

import msgspec
import pytest

from tieline.errors import RecoveryRequired, Refused
from tieline.model.resource import Document, Ledger, Mark, ResourceKey
from tieline.store.resources.formats import Index, Witness, decode, encode, is_ours

KEY = ResourceKey("machine/tests")
RECORDS = [Document(KEY, revision=3), Mark(fence=2), Ledger(revision=1), Index((KEY,), 4),
           Witness(KEY, Mark(fence=2))]  # fmt: skip


def sealed(content: bytes, marker: str = "tieline-resource", version: object = 1) -> bytes:
    digest = hashlib.sha256(content).hexdigest()
    record = {"marker": marker, "version": version, "sha256": digest, "content": msgspec.Raw(content)}
    return msgspec.json.encode(record)


@pytest.mark.parametrize("record", RECORDS, ids=lambda one: type(one).__name__)
def test_record_written_and_read_is_equal(record: Document | Mark | Ledger | Index | Witness) -> None:
    """Every kind of record gives back what was put in, and is known as ours."""
    data = encode(record)
    assert decode(data, type(record), "x") == record
    assert is_ours(data)


@pytest.mark.clause("native-180", "I50", "O47")
def test_record_with_any_byte_changed_is_refused() -> None:
    """No damage of one byte goes unseen."""
    data = encode(Document(KEY, fence=7))
    for place in range(len(data)):
        broken = data[:place] + bytes([data[place] ^ 0x01]) + data[place + 1 :]
        try:
            found = decode(broken, Document, "x")
        except (RecoveryRequired, Refused):
            continue
        raise AssertionError(f"byte {place}: {found}")


@pytest.mark.parametrize("length", [0, 1, 10, 100])
def test_record_cut_short_is_refused(length: int) -> None:
    """A part of a record is none."""
    with pytest.raises(RecoveryRequired):
        decode(encode(Document(KEY))[:length], Document, "x")


@pytest.mark.clause("O47")
@pytest.mark.parametrize("value", [b"NaN", b"Infinity", b"-1", b"1e308", b"true", b'"10"'])
def test_record_with_a_number_that_is_none_is_refused_by_name(value: bytes) -> None:
    """A well-sealed record with an impossible number is damaged, and its file is named."""
    content = b'{"resource":"machine/tests","fence":' + value + b"}"
    record = {"marker": "tieline-resource", "version": 1, "sha256": hashlib.sha256(content).hexdigest()}
    data = msgspec.json.encode(record)[:-1] + b',"content":' + content + b"}"
    with pytest.raises(RecoveryRequired, match="the-file"):
        decode(data, Document, "the-file")


def test_record_of_another_kind_is_refused() -> None:
    """A mark is no document, whatever its name says."""
    with pytest.raises(RecoveryRequired, match="not a record of this kind"):
        decode(encode(Mark()), Document, "x")


def test_record_of_a_newer_program_is_refused_as_that() -> None:
    """An older program says that it is older, and reads no further."""
    with pytest.raises(Refused, match="newer version") as caught:
        decode(sealed(b'{"whatever":1}', version=2), Document, "x")
    assert caught.value.code == "VERSION_SKEW"


def test_record_of_an_impossible_version_is_refused() -> None:
    """Version 0 was never written."""
    with pytest.raises(RecoveryRequired):
        decode(sealed(b'{"resource":"machine/tests"}', version=0), Document, "x")


@pytest.mark.parametrize("data", [b"", b"[]", b'{"marker":"x"}', b'{"tickets":[]}', b"\xff", b'{"marker":5}'])
def test_file_without_our_marker_is_another_programs(data: bytes) -> None:
    """Only what bears our marker is ours."""
    assert not is_ours(data)


def test_damaged_record_of_ours_is_still_ours() -> None:
    """Damage is told as damage, not as another program's directory."""
    assert is_ours(b'{"marker":"tieline-resource","version":1,"sha256":"","content":{}}')


FIRST_READERS = """
import sys, threading
from tieline.model.resource import Mark, ResourceKey
from tieline.store.resources.formats import Witness, decode, encode
sys.setswitchinterval(1e-7)
data = encode(Witness(ResourceKey("machine/x"), Mark(fence=2)))
gate, read = threading.Barrier(8), []
def work():
    gate.wait()
    read.append(decode(data, Witness, "x"))
threads = [threading.Thread(target=work) for _ in range(8)]
[one.start() for one in threads]
[one.join() for one in threads]
sys.exit(len(read) != 8)
"""


def test_first_readers_of_a_record_in_several_threads_do_not_end_the_process() -> None:
    """A command and the root beside it in one process read the same records at the same instant."""
    for _ in range(6):
        ended = subprocess.run([sys.executable, "-c", FIRST_READERS], env={"PYTHONPATH": "src"}, check=False)
        assert ended.returncode == 0
