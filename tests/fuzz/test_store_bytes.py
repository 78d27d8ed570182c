"""Any bytes in the place of a store: rows, or a typed error; never a crash, never a changed file."""

import hashlib
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.faults.rows import message
from tieline.errors import TielineError
from tieline.store.journal.journal import Journal
from tieline.store.recovery import recover

INSTANCE = "ended-1"


def golden(home: Path) -> Path:
    """Return the database of an ended instance with some mail."""
    folder = home / "peer-messages" / INSTANCE
    journal = Journal.open(str(folder), INSTANCE, "s")
    journal.commit([message(cursor, size=300) for cursor in range(1, 9)], admits=True, reserve_bytes=4_096)
    journal.close()
    return folder / "messages.db"


@pytest.mark.clause("K17", "I50")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), head=st.binary(max_size=64))
def test_store_of_any_bytes_is_read_or_refused_and_kept(private_home: Path, seed: int, head: bytes) -> None:
    """Noise, a cut, a zeroed page, another head: what is shown is right, else a typed error; bytes stay."""
    path = private_home / "peer-messages" / INSTANCE / "messages.db"
    if not path.exists():
        path = golden(private_home)
        (private_home / "golden").write_bytes(path.read_bytes())
    whole = (private_home / "golden").read_bytes()
    chance = random.Random(seed)
    at = chance.randrange(len(whole))
    damaged = {
        0: whole[:at],
        1: whole[:at] + head + whole[at + len(head) :],
        2: head + whole[len(head) :],
        3: whole[:at] + bytes(min(4_096, len(whole) - at)) + whole[at + 4_096 :],
        4: chance.randbytes(chance.randrange(1, 9_000)),
    }[seed % 5]
    path.write_bytes(damaged)
    before = hashlib.sha256(damaged).digest()
    try:
        found = recover(str(private_home), INSTANCE)
    except TielineError as error:
        if error.code not in {"RECOVERY_REQUIRED", "VERSION_SKEW"}:
            raise
    else:
        assert {item.envelope.message_id for item in found.unread} <= {
            message(cursor).envelope.message_id for cursor in range(1, 9)
        }
    assert hashlib.sha256(path.read_bytes()).digest() == before
