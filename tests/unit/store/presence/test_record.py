"""Base and extension of a record, judged apart."""

import json
from typing import Any

import pytest

from tieline import keys
from tieline.model.identity import Capability, Scope, is_alias, is_instance, peer_id
from tieline.store.presence import file_name, parse, record

INSTANCE = "11111111-1111-4111-8111-111111111111"
KEY = "MCowBQYDK2VwAyEAiojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w="


def base(**changes: Any) -> dict[str, Any]:
    """Return a whole valid record; a change to None takes the member out."""
    members = {
        "version": 1,
        "pid": 4242,
        "sessionId": "s1",
        "workspaceRoot": "/w/project",
        "projectName": "project",
        "provider": "p",
        "model": "m",
        "mode": "interactive",
        "status": "idle",
        "startedAt": "2026-01-02T03:04:05.678Z",
        "updatedAt": "2026-01-02T03:04:06.789Z",
        "messageCount": 3,
        "contextPercent": 12.5,
        "tokensUsed": 100,
        "activity": {"phase": "thinking"},
        "communication": extension(),
        **changes,
    }
    return {name: value for name, value in members.items() if value is not None}


def extension(**changes: Any) -> dict[str, Any]:
    """Return a whole valid extension; a change to None takes the member out."""
    members = {
        "protocol": 1,
        "instanceId": INSTANCE,
        "endpoint": f"/r/peer-runtime/{INSTANCE}.sock",
        "publicKey": KEY,
        "capabilities": ["message.send", "message.receive"],
        "peerId": peer_id(INSTANCE, None),
        "alias": "reviewer",
        "scope": "machine",
        "workspaceId": "w1",
        "repositoryId": "r1",
        **changes,
    }
    return {name: value for name, value in members.items() if value is not None}


def read(members: dict[str, Any]) -> record.Record:
    """Return the record that these members make."""
    return parse(json.dumps(members).encode(), "f.json")


@pytest.mark.clause("native-18", "native-19")
def test_record_whole_gives_every_field() -> None:
    """A valid record and its extension come out field by field."""
    found = read(base())
    assert (found.pid, found.session, found.project, found.model) == (4242, "s1", "project", "m")
    assert (found.started_ms, found.updated_ms) == (1767323045678, 1767323046789)
    assert (found.activity, found.context_percent, found.file_name) == ("thinking", 12.5, "f.json")
    assert found.communication_fault is None
    communication = found.communication
    assert communication is not None
    assert (communication.protocol, communication.instance, communication.public_key) == (1, INSTANCE, KEY)
    assert communication.endpoint == f"/r/peer-runtime/{INSTANCE}.sock"
    assert communication.capabilities == ("message.send", "message.receive")
    assert (communication.alias, communication.scope) == ("reviewer", "machine")
    assert (communication.workspace_id, communication.repository_id) == ("w1", "r1")
    assert communication.peer_id == peer_id(INSTANCE, None)


@pytest.mark.clause("native-18")
def test_record_without_extension_is_valid() -> None:
    """A record of an older writer stays listed, without messaging and without a fault."""
    found = read(base(communication=None, activity=None, startedAt=None))
    assert (found.communication, found.communication_fault) == (None, None)
    assert (found.activity, found.started_ms) == ("", None)


@pytest.mark.clause("native-19", "K26")
def test_extension_without_optional_members_has_defaults() -> None:
    """Alias, scope and peer id need not be told; unknown members are dropped."""
    found = read(
        base(
            communication=extension(
                alias=None, scope=None, peerId=None, workspaceId=None, repositoryId=None, later={"x": 1}
            )
        )
    ).communication
    assert found is not None
    assert found.alias == "project-111111"
    assert found.scope == "workspace"
    assert found.peer_id == peer_id(INSTANCE, None)
    assert found.workspace_id is None


@pytest.mark.clause("native-12", "I43")
def test_extension_peer_id_is_computed_and_not_taken_over() -> None:
    """A peer id that is not the hash of its instance routes nowhere."""
    found = read(base(communication=extension(peerId="peer-" + "0" * 32))).communication
    assert found is not None
    assert found.peer_id == peer_id(INSTANCE, None)


BAD_EXTENSIONS: list[Any] = [
    "text",
    [],
    extension(protocol=None),
    extension(protocol=0),
    extension(protocol=True),
    extension(protocol="1"),
    extension(instanceId=None),
    extension(instanceId=""),
    extension(instanceId="x" * 129),
    extension(instanceId="a/b"),
    extension(instanceId="a\n"),
    extension(instanceId="é"),
    extension(endpoint=None),
    extension(endpoint=""),
    extension(endpoint="/" + "x" * 512),
    extension(endpoint="/a\0b"),
    extension(publicKey=None),
    extension(publicKey="x" * 257),
    extension(publicKey=KEY[:-1]),
    extension(publicKey=KEY[:-2] + "x="),
    extension(publicKey=KEY + "\n"),
    extension(publicKey="x" * 60),
    extension(capabilities=None),
    extension(capabilities=["message.send", "message.shout"]),
    extension(capabilities=["message.send"] * 17),
    extension(capabilities="message.send"),
    extension(alias=""),
    extension(alias="1a"),
    extension(alias="a" * 65),
    extension(alias="a\n"),
    extension(scope="galaxy"),
    extension(workspaceId="x" * 4097),
    extension(repositoryId=7),
    extension(peerId="x" * 4097),
]


@pytest.mark.clause("native-20", "native-21", "K25")
@pytest.mark.parametrize("bad", BAD_EXTENSIONS, ids=range(len(BAD_EXTENSIONS)))
def test_extension_with_a_violation_is_dropped_alone(bad: Any) -> None:
    """Any violation takes messaging from this record, says why, and leaves the rest listed."""
    found = read(base(communication=bad))
    assert found.communication is None
    assert found.communication_fault is not None
    assert found.communication_fault.startswith("communication: ")
    assert (found.session, found.activity) == ("s1", "thinking")


@pytest.mark.clause("native-48", "S8")
def test_extension_key_of_small_order_or_not_canonical_is_refused() -> None:
    """Each of the 48 keys that verify what nobody signed, or have two spellings, is refused here."""
    assert len(record._REFUSED_KEYS) == 48
    for text in record._REFUSED_KEYS:
        assert read(base(communication=extension(publicKey=text))).communication is None
        with pytest.raises(ValueError, match="Ed25519"):
            keys.public_key(text)


@pytest.mark.clause("native-67")
def test_extension_of_another_protocol_is_listed() -> None:
    """A protocol we do not speak is told as such; its key is not ours to judge."""
    found = read(base(communication=extension(protocol=2, publicKey="other"))).communication
    assert found is not None
    assert found.protocol == 2


BAD_BASES: list[dict[str, Any]] = [
    base(version=None),
    base(version=2),
    base(version=True),
    base(version="1"),
    base(version=1.5),
    base(pid=None),
    base(pid=0),
    base(pid=-1),
    base(pid=2**31),
    base(pid=True),
    base(sessionId=None),
    base(sessionId=""),
    base(sessionId=5),
    base(workspaceRoot=None),
    base(updatedAt=None),
    base(updatedAt="yesterday"),
    base(updatedAt="2026-01-02T03:04:05"),
    base(updatedAt=1767323045678),
    base(startedAt="x"),
    base(projectName=1),
]


@pytest.mark.clause("native-18", "K25", "O34")
@pytest.mark.parametrize("bad", BAD_BASES, ids=range(len(BAD_BASES)))
def test_base_with_a_violation_is_no_record(bad: dict[str, Any]) -> None:
    """A base that is wrong gives no record, with the reason."""
    with pytest.raises(ValueError, match="not a presence record"):
        read(bad)


@pytest.mark.clause("K25", "K31")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"version":1,"pid":1,"sessionId":"\xff"}',
        json.dumps(base()).encode()[:-1],
        json.dumps(base()).encode("utf-16"),
    ],
    ids=range(10),
)
def test_bytes_that_are_no_record_raise_value_error(data: bytes) -> None:
    """Damaged, foreign and hostile bytes are refused by one error."""
    with pytest.raises(ValueError, match="not a presence record"):
        parse(data)


@pytest.mark.parametrize("activity", [7, "x", {}, {"phase": 7}, {"phase": "\x1b[2J"}, []])
def test_activity_that_is_wrong_costs_nothing_else(activity: Any) -> None:
    """A wrong activity shows as none; the record and its messaging stay."""
    found = read(base(activity=activity))
    assert found.activity == ""
    assert found.communication is not None


@pytest.mark.clause("native-22", "native-23")
@pytest.mark.parametrize(
    ("session", "instance", "name"),
    [
        ("s1", INSTANCE, f"s1.{INSTANCE}.json"),
        ("s1", None, "s1.json"),
        ("a/../b c\né", "i", "a_.._b_c__.i.json"),
        ("Ab_9.-", "i", "Ab_9.-.i.json"),
    ],
)
def test_file_name_holds_session_and_instance(session: str, instance: str | None, name: str) -> None:
    """A file is named after its session, made plain, and its instance."""
    assert file_name(session, instance) == name


@pytest.mark.clause("native-23")
def test_file_name_of_a_long_session_still_holds_the_instance() -> None:
    """However long the session is, the name fits and ends with the whole instance."""
    name = file_name("s" * 1000, INSTANCE)
    assert len(name) == 255
    assert name.endswith(f".{INSTANCE}.json")


def test_rules_of_the_decoder_are_those_of_the_model() -> None:
    """What is checked while decoding admits exactly what the model's rules admit."""
    known = {"message.send", "message.receive", "message.wait", "resource.request", "resource.control"}
    assert {capability.value for capability in Capability} == known
    assert {scope.value for scope in Scope} == {"workspace", "repository", "machine"}
    for text in ["a", "A-1", "", "-", "é", "a b", "x" * 128, "x" * 129, "a_", "1", "a\n", "\na", "K"]:
        assert (
            read(base(communication=extension(instanceId=text))).communication is not None
        ) == is_instance(text)
        if text:
            found = read(base(communication=extension(alias=text))).communication
            assert (found is not None) == is_alias(text)
