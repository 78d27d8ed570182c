"""Identities: the public hash, aliases, and what may stand for whom."""

import pytest

from tieline.config import Scope
from tieline.model.identity import (
    Capability,
    Peer,
    Principal,
    foreign_instance,
    generated_alias,
    is_alias,
    is_instance,
    is_peer_id,
    is_plain_id,
    peer_id,
    wire_of,
)

CLIENT = "11111111-1111-4111-8111-111111111111"


@pytest.mark.clause("native-12", "native-10", "native-11")
@pytest.mark.parametrize(
    ("instance", "run", "expected"),
    [
        (CLIENT, None, "peer-5d11045a08dce56a5217aa180287a414"),
        (CLIENT, "run-1", "peer-493cf86dc47380e30f9930743bc3547f"),
        ("a", "\u00e9\u2028", "peer-db8f6274e7c577a92ff5b6bcc2fbed16"),
    ],
)
def test_peer_id_of_published_vectors_is_the_published_hash(
    instance: str, run: str | None, expected: str
) -> None:
    """The public vectors hold, non-ASCII unescaped."""
    assert peer_id(instance, run) == expected
    assert Peer(instance, run).id == expected


@pytest.mark.clause("native-13", "native-14", "native-15", "native-16")
@pytest.mark.parametrize(
    "text", ["reviewer", "4711", "/run/x.sock", "session-1", "peer-XYZ", "peer-" + "A" * 32, ""]
)
def test_peer_id_of_anything_else_is_not_one(text: str) -> None:
    """An alias, a process id, a path and a session never have the form of a peer id."""
    assert not is_peer_id(text)


@pytest.mark.clause("native-148")
@pytest.mark.parametrize(("text", "is_one"), [
    ("a", True), ("Rev_1-x", True), ("a" * 64, True), ("a" * 65, False), ("1a", False), ("_a", False),
    ("", False), ("a b", False), ("\u00e4", False), ("a\u200b", False),
])  # fmt: skip
def test_alias_rule_takes_letters_then_letters_digits_marks(text: str, is_one: bool) -> None:
    """A readable alias starts with an ASCII letter and stays ASCII; at most 64."""
    assert is_alias(text) is is_one


@pytest.mark.parametrize(("project", "expected"), [
    ("My Project!", "my-project-"), ("42", "agent-42-"), ("", "agent-"), ("\u00fc\u00fc", "agent-"),
    ("x" * 90, "x" * 40 + "-"),
])  # fmt: skip
@pytest.mark.clause("native-148", "K24")
def test_generated_alias_of_any_project_is_a_valid_alias(project: str, expected: str) -> None:
    """A slug of at most 40 characters, a dash, six alphanumerics of the instance; always valid."""
    alias = generated_alias(project, "abcd-ef01-2345")
    assert alias == expected + "abcdef"
    assert is_alias(alias)


def test_plain_id_with_control_or_surrogate_is_refused() -> None:
    """Ids have 1 to 256 characters and no control characters."""
    assert is_plain_id("a" * 256)
    assert is_plain_id("\u00e9 x")
    for text in ("", "a" * 257, "a\n", "\x00", "\x7f", "\x85", "\ud800"):
        assert not is_plain_id(text)


def test_instance_of_other_characters_is_refused() -> None:
    """An instance names files and sockets: letters, digits, dashes."""
    assert is_instance(CLIENT)
    assert is_instance("a" * 128)
    for text in ("", "a" * 129, "../x", "a.b", "a/b", "a b"):
        assert not is_instance(text)


@pytest.mark.clause("native-17", "O20")
def test_peers_of_two_instances_of_one_session_differ() -> None:
    """A session is no part of a peer: two processes of one saved session are two peers."""
    assert Peer("i-1").id != Peer("i-2").id
    assert Peer("i-1", "r").root == Peer("i-1")
    assert Peer("i-1").root == Peer("i-1")


def test_principal_may_only_what_it_holds() -> None:
    """A principal without a capability may not use it."""
    principal = Principal(Peer("i"), frozenset({"message.send"}))
    assert principal.may(Capability.SEND)
    assert not principal.may(Capability.CONTROL)


def test_scope_ranks_grow_with_reach() -> None:
    """Workspace is the narrowest, machine the widest."""
    assert [scope.rank for scope in (Scope.WORKSPACE, Scope.REPOSITORY, Scope.MACHINE)] == [0, 1, 2]


def test_foreign_instance_of_same_parts_is_the_same_and_no_native_one() -> None:
    """A window keeps its identity in every process, and no native peer can claim it."""
    window = foreign_instance("pi-peers", "", "/run/socks/1.sock")
    assert window == foreign_instance("pi-peers", "", "/run/socks/1.sock")
    assert window != foreign_instance("pi-peers", "", "/run/socks/2.sock")
    assert window != foreign_instance("intercom", "", "/run/socks/1.sock")
    assert not is_instance(window)
    assert len(window) == len("pi-peers:") + 32


def test_foreign_instance_of_parts_is_told_apart_from_their_join() -> None:
    """Two parts are never taken for one."""
    assert foreign_instance("pi-peers", "a", "b") != foreign_instance("pi-peers", "ab")
    assert foreign_instance("pi-peers", "session") != foreign_instance("pi-peers", "session", "")


@pytest.mark.parametrize(
    ("instance", "wire"),
    [
        ("0f0e", "native"),
        ("pi-peers:00", "pi-peers"),
        ("intercom:00", "intercom"),
        ("pi-peers", "native"),
        ("other:00", "native"),
        ("native:00", "native"),
    ],
)
def test_wire_of_instance_is_its_known_prefix(instance: str, wire: str) -> None:
    """Only the prefixes of the wires that exist say a wire."""
    assert wire_of(instance) == wire
    assert Peer(instance).wire == wire
