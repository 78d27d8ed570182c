"""A record of the pi-peers registry: what is read from any writer, and what we write."""

import contextlib
import hashlib
import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.store.registry.record import (
    FORMER_NAMES_MAX,
    RecordFault,
    Window,
    encode,
    key_name,
    read,
    record_name,
)

FULL = Window(
    pid=4_711,
    session="s-1",
    cwd="/home/me/api",
    project_root="/home/me/api",
    name="api",
    name_source="user",
    former_names=("old", "older"),
    kind="interactive",
    status="busy",
    status_updated_ms=1_767_323_046_000,
    started_ms=1_767_323_000_000,
    process_start="123456",
    pid_domain="linux:m:pid:[1]",
    socket_path="/p/socks/a.sock",
    protocol=1,
    features=frozenset({"notify_idle"}),
    context_percent=42,
    version="0.1.0",
)
LEAST = {"socketPath": "/s"}


def read_of(**fields: Any) -> Window:
    """Return the window of a record with an address and these fields."""
    return read(json.dumps({**LEAST, **fields}).encode(), 7)


@pytest.mark.clause("pi-peers-3", "pi-peers-4", "pi-peers-U5", "pi-peers-U7")
def test_record_written_bears_every_field_of_the_contract_and_no_token() -> None:
    """A reader that was made from the contract alone finds every field under its name."""
    fields = json.loads(encode(FULL))
    assert fields == {
        "version": "0.1.0",
        "pid": 4_711,
        "sessionId": "s-1",
        "cwd": "/home/me/api",
        "projectRoot": "/home/me/api",
        "name": "api",
        "nameSource": "user",
        "formerNames": ["old", "older"],
        "kind": "interactive",
        "status": "busy",
        "statusUpdatedAt": 1_767_323_046_000,
        "startedAt": 1_767_323_000_000,
        "procStart": "123456",
        "pidDomain": "linux:m:pid:[1]",
        "socketPath": "/p/socks/a.sock",
        "peerProtocol": 1,
        "features": ["notify_idle"],
        "contextUsage": 42,
    }


@pytest.mark.clause("pi-peers-3", "pi-peers-U6")
def test_record_written_without_optional_facts_leaves_them_out() -> None:
    """What is not known is absent, never null."""
    fields = json.loads(encode(Window(pid=1, socket_path="/s")))
    assert "projectRoot" not in fields
    assert "contextUsage" not in fields


def test_record_written_and_read_is_equal() -> None:
    """We read of ourselves what we said."""
    assert read(encode(FULL), FULL.pid) == FULL


def test_record_of_directory_without_text_is_written_for_any_reader() -> None:
    """A working directory whose bytes are no text keeps nobody from being listed."""
    window = msgspec.structs.replace(FULL, cwd="/home/\udcff")
    assert json.loads(encode(window))["cwd"] == "/home/?"


def test_record_that_no_reader_could_use_is_not_written() -> None:
    """An address that is no text, or none at all, is told before anything is published."""
    for path in ("relative", "/home/\udcff/s"):
        with pytest.raises(RecordFault):
            encode(msgspec.structs.replace(FULL, socket_path=path))


@pytest.mark.clause("pi-peers-2", "pi-peers-5", "pi-peers-U8")
def test_names_of_files_are_made_of_number_and_literal_address() -> None:
    """The key's name hashes the address exactly as it stands in the record."""
    assert record_name(12) == "12.json"
    for path in ("/p/socks/a.sock", "/p/söcks/ä"):
        assert key_name(12, path) == f"12.{hashlib.sha256(path.encode()).hexdigest()}.key"


@pytest.mark.clause("pi-peers-U23")
def test_ref_is_of_the_session_and_outlasts_a_rename() -> None:
    """Six digits of the session's hash; two windows that name no session still differ."""
    expected = hashlib.sha256(b"s-1").hexdigest()[:6]
    assert FULL.ref == msgspec.structs.replace(FULL, name="new", socket_path="/other").ref == expected
    assert Window(pid=1, socket_path="/a").ref != Window(pid=1, socket_path="/b").ref


@pytest.mark.clause("pi-peers-U3", "pi-peers-U4", "pi-peers-U6", "pi-peers-U7")
def test_record_with_least_is_read() -> None:
    """An address is enough: a number is in the file's name, and the rest is what people see."""
    window = read(b'{"socketPath": "/s"}', 7)
    assert (window.pid, window.protocol, window.context_percent) == (7, 1, None)
    assert window.features == frozenset()
    assert window.is_busy  # a status that nobody told is not idle


@pytest.mark.clause("pi-peers-U4", "pi-peers-14")
@pytest.mark.parametrize(
    ("status", "is_busy"), [("idle", False), ("busy", True), ("waiting", True), ("shell", True), (3, True)]
)
def test_status_unknown_counts_as_busy(status: object, is_busy: bool) -> None:
    """Only `idle` is idle."""
    assert read_of(status=status).is_busy is is_busy


@pytest.mark.clause("pi-peers-U5")
def test_former_names_are_texts_or_objects_and_bounded() -> None:
    """Both shapes give names; the latest ones stay."""
    assert read_of(formerNames=["a", {"name": "b"}, 4.5, None, {"x": 1}]).former_names == ("a", "b")
    many = [str(number) for number in range(100)]
    assert read_of(formerNames=many).former_names == tuple(many[-FORMER_NAMES_MAX:])


@pytest.mark.clause("pi-peers-U6")
@pytest.mark.parametrize(
    ("usage", "percent"),
    [
        (0, 0),
        (41.9, 41),
        (100, 100),
        (101, None),
        (-1, None),
        (True, None),
        ("5", None),
        ({"percent": 7.5, "tokens": 3}, 7),
        ({"percentage": 8}, 8),
        ({"percent": None}, None),
        ([1], None),
    ],
)
def test_context_is_a_number_or_an_object_with_one(usage: object, percent: int | None) -> None:
    """Whole percent, or nothing."""
    assert read_of(contextUsage=usage).context_percent == percent


@pytest.mark.clause("pi-peers-U1")
def test_start_written_as_a_number_is_its_digits() -> None:
    """A writer that leaves out the quotes means the same start."""
    assert read_of(procStart=1_234).process_start == read_of(procStart="1234").process_start == "1234"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not JSON"),
        (b'{"socketPath": "/s"', "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'["/s"]', "not a JSON object"),
        (b"{}", "socketPath"),
        (b'{"socketPath": ""}', "socketPath"),
        (b'{"socketPath": "s"}', "socketPath"),
        (b'{"socketPath": "/s\\u0000"}', "socketPath"),
        (b'{"socketPath": 5}', "socketPath"),
        (b'{"socketPath": "/s", "pid": 8}', "pid"),
        (b'{"socketPath": "/s", "pid": "7"}', "pid"),
        (b'{"socketPath": "/s", "peerProtocol": 0}', "peerProtocol"),
        (b'{"socketPath": "/s", "peerProtocol": "1"}', "peerProtocol"),
        (b'{"socketPath": "/s", "peerProtocol": true}', "peerProtocol"),
    ],
)
def test_record_that_cannot_be_used_is_a_fault_with_its_reason(data: bytes, reason: str) -> None:
    """The doctor can say what is wrong with a file."""
    with pytest.raises(RecordFault, match=re.escape(reason)):
        read(data, 7)


def test_fault_repeats_nothing_of_the_file() -> None:
    """A reason holds no foreign text."""
    with pytest.raises(RecordFault) as caught:
        read_of(socketPath="evil\x1b[31m")
    assert "evil" not in str(caught.value)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=5,
)
FIELDS = [*json.loads(encode(FULL)), "fromTheFuture"]


@pytest.mark.clause("pi-peers-19")
@given(st.dictionaries(st.sampled_from(FIELDS), VALUES))
def test_any_record_is_a_window_or_a_fault(fields: dict[str, Any]) -> None:
    """Whatever stands in a field, nothing but the one typed fault comes out, and a window is writable."""
    try:
        window = read(json.dumps({**LEAST, **fields}).encode(), 7)
    except RecordFault:
        return
    assert read(encode(window), 7) == msgspec.structs.replace(window, status=window.status or "unknown")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_window_or_a_fault(data: bytes) -> None:
    """Any file can lie there."""
    with contextlib.suppress(RecordFault):
        assert read(data, 7).pid == 7
