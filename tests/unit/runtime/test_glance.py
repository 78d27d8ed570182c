"""Presence read without a root: what is shown, what is counted, what is left alone."""

import json
import os
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tieline.errors import Refused
from tieline.model.identity import peer_id
from tieline.runtime.glance import epoch_ms, look, repository_of

WORKSPACE = "/somewhere/shop"


def iso(age_s: float = 0.0) -> str:
    """Return the moment `age_s` seconds ago as records write it."""
    return datetime.fromtimestamp(time.time() - age_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def record(instance: str = "i-1", **changes: Any) -> dict[str, Any]:
    """Return a presence record of this process."""
    extension = {
        "protocol": 1,
        "instanceId": instance,
        "endpoint": f"/e/{instance}.sock",
        "publicKey": "k",
        "capabilities": ["message.send", "message.receive"],
        "alias": "shop-" + instance.replace("-", ""),
        "scope": "machine",
    }
    return {
        "version": 1,
        "pid": os.getpid(),
        "sessionId": "s-" + instance,
        "workspaceRoot": WORKSPACE,
        "projectName": "shop",
        "provider": "codex",
        "model": "m",
        "status": "working",
        "updatedAt": iso(),
        "contextPercent": 41.6,
        "activity": {"phase": "editing", "instruction": "secret words", "command": "rm x"},
        "communication": extension,
        **changes,
    }


@pytest.fixture
def home(private_home: Path) -> Path:
    """A coordination directory."""
    for name in ("active-agents", "peer-runtime"):
        (private_home / name).mkdir(mode=0o700)
    return private_home


def put(home: Path, document: object, name: str = "one.json") -> Path:
    """Write a private record."""
    path = home / "active-agents" / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    path.chmod(0o600)
    return path


@pytest.mark.clause("native-36", "native-37", "native-38")
def test_look_shows_a_descriptor_without_words_or_paths(home: Path) -> None:
    """A listing shows sanitised facts, and neither instruction, command, endpoint, key nor path."""
    put(home, record())
    (peer,) = look(str(home), WORKSPACE).peers
    assert peer["peerId"] == peer_id("i-1", None)
    assert (peer["alias"], peer["project"], peer["activity"], peer["busy"]) == (
        "shop-i1",
        "shop",
        "editing",
        True,
    )
    assert (peer["harness"], peer["contextPercent"], peer["availability"]) == ("codex", 42, "available")
    shown = json.dumps(peer)
    for hidden in ("secret words", "rm x", "/e/", "publicKey", WORKSPACE):
        assert hidden not in shown


@pytest.mark.clause("native-21")
@pytest.mark.parametrize(
    "changes",
    [
        {"protocol": "1"},
        {"instanceId": "a/b"},
        {"capabilities": ["message.send", "root"]},
        {"alias": "9x"},
        {"alias": "x\x1b"},
        {"scope": "galaxy"},
        {"peerId": "peer-" + "0" * 32},
        {"endpoint": "a\0b"},
    ],
)
def test_look_malformed_extension_leaves_the_legacy_presence(home: Path, changes: dict[str, Any]) -> None:
    """One violation drops the extension, and only it."""
    whole = record()
    put(home, {**whole, "communication": {**whole["communication"], **changes}})
    (peer,) = look(str(home), WORKSPACE).peers
    assert peer["availability"] == "presence_only"
    assert "peerId" not in peer


def test_look_other_protocol_is_unsupported(home: Path) -> None:
    """A later protocol is listed as one that cannot be addressed."""
    whole = record()
    put(home, {**whole, "communication": {**whole["communication"], "protocol": 2}})
    assert look(str(home), WORKSPACE).peers[0]["availability"] == "unsupported"


@pytest.mark.clause("native-34")
def test_look_counts_stale_faulty_and_distant_records(home: Path) -> None:
    """What is not shown is counted: stale, unreadable, out of scope."""
    put(home, record("i-1"), "a.json")
    put(home, record("i-2", updatedAt=iso(16)), "b.json")
    put(home, record("i-3", workspaceRoot="/other"), "c.json")
    put(home, "{", "d.json")
    put(home, {**record("i-4"), "version": 2}, "e.json")
    put(home, record("i-5"), "f.json").chmod(0o644)
    (home / "active-agents" / "g.json").symlink_to(home / "active-agents" / "a.json")
    sight = look(str(home), WORKSPACE)
    assert [peer["instanceId"] for peer in sight.peers] == ["i-1"]
    assert sight[1:5] == (4, 1, 0, 1)
    assert sight.fault_texts == (
        "d.json: it is not JSON",
        "f.json: it is open to others (mode 0644)",
        "g.json: it is a link",
        "e.json: it is no presence record of version 1",
    )
    assert len(look(str(home), WORKSPACE, "machine").peers) == 2


def test_look_at_copied_records_shows_each_peer_once(home: Path) -> None:
    """A record that was copied, by a backup or a person, makes no second peer; the latest is shown."""
    put(home, record(updatedAt=iso(9), model="old"), "a.json")
    put(home, record(model="new"), "b.json")
    put(home, record(updatedAt=iso(5), model="older"), "c.json")
    put(home, {**record(), "communication": None}, "d.json")
    put(home, {**record(), "communication": None}, "e.json")
    peers = look(str(home), WORKSPACE).peers
    assert [peer["model"] for peer in peers if "peerId" in peer] == ["new"]
    assert len(peers) == 3


@pytest.mark.clause("native-31")
def test_look_peers_policy_binds_as_ours_does(home: Path) -> None:
    """A peer whose own scope does not reach us is not shown, however far we look."""
    whole = record(workspaceRoot="/other")
    put(home, {**whole, "communication": {**whole["communication"], "scope": "workspace"}})
    assert look(str(home), WORKSPACE, "machine").peers == []


@pytest.mark.clause("K12")
def test_look_process_of_another_container_is_counted_as_unseen(home: Path) -> None:
    """A fresh record of a process that counts in another container is unseen; one that ended is stale."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    put(home, record("i-1", pid=ended.pid))
    assert look(str(home), WORKSPACE)[2:4] == (1, 0)
    owner = home / "peer-runtime" / "i-1.owner"
    owner.write_text(json.dumps({"instance": "i-1", "owner": {"pid_namespace": 1}}))
    owner.chmod(0o600)
    assert look(str(home), WORKSPACE)[2:4] == (0, 1)


def test_look_reads_only_and_removes_nothing(home: Path) -> None:
    """Stale and broken records stay as they are: pruning is a root's."""
    put(home, record(updatedAt=iso(3_600)), "a.json")
    put(home, "{", "b.json")
    look(str(home), WORKSPACE)
    assert sorted(os.listdir(home / "active-agents")) == ["a.json", "b.json"]


@pytest.mark.clause("S1")
def test_look_shared_directory_is_refused(home: Path) -> None:
    """A directory that others may read is not believed; one that is missing holds nobody."""
    (home / "active-agents").chmod(0o750)
    with pytest.raises(Refused) as caught:
        look(str(home), WORKSPACE)
    assert caught.value.code == "UNSAFE_ENDPOINT"
    assert look(str(home) + "/none", WORKSPACE).peers == []


def test_look_forbidden_directory_names_the_permission(home: Path) -> None:
    """A directory that may not be read, as in a sandbox, is not an empty one."""
    (home / "active-agents").chmod(0o000)
    with pytest.raises(Refused) as caught:
        look(str(home), WORKSPACE)
    (home / "active-agents").chmod(0o700)
    assert caught.value.code == "PERMISSION_DENIED"


def test_look_query_finds_alias_project_or_id(home: Path) -> None:
    """The query is found without regard to case in alias, project or peer id."""
    put(home, record())
    for query in ("SHOP", "-i1", peer_id("i-1", None)[8:20]):
        assert len(look(str(home), WORKSPACE, query=query).peers) == 1
    assert look(str(home), WORKSPACE, query="editing").peers == []


def test_repository_of_worktrees_is_the_directory_they_share(private_home: Path) -> None:
    """Linked worktrees share a repository; a clone and a plain directory do not."""
    main, other, plain = private_home / "m", private_home / "w", private_home / "p"
    (main / ".git" / "worktrees" / "w").mkdir(parents=True)
    (main / ".git" / "worktrees" / "w" / "commondir").write_text("../..\n")
    (main / "deep").mkdir()
    other.mkdir()
    (other / ".git").write_text(f"gitdir: {main}/.git/worktrees/w\n")
    plain.mkdir()
    shared = os.path.realpath(main / ".git")
    assert repository_of(str(main / "deep")) == repository_of(str(other)) == shared
    assert repository_of(str(plain)) == ""


def test_look_repository_scope_reaches_worktrees(home: Path) -> None:
    """Repository scope shows a linked worktree's agent, and workspace scope does not."""
    one, two = home / "m", home / "w"
    (one / ".git" / "worktrees" / "w").mkdir(parents=True)
    (one / ".git" / "worktrees" / "w" / "commondir").write_text("../..")
    two.mkdir()
    (two / ".git").write_text(f"gitdir: {one}/.git/worktrees/w")
    put(home, record(workspaceRoot=str(two)))
    assert len(look(str(home), str(one), "repository").peers) == 1
    assert look(str(home), str(one)).peers == []


@pytest.mark.parametrize(
    "text",
    [
        "1970-01-01T00:00:00Z",
        "2024-02-29T23:59:59.5Z",
        "2026-11-30T19:30:01.250Z",
        "2100-03-01T00:00:00.001Z",
    ],
)
def test_epoch_ms_agrees_with_the_calendar(text: str) -> None:
    """The small reader of times gives what the library's calendar gives."""
    assert epoch_ms(text) == round(datetime.fromisoformat(text).timestamp() * 1_000)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-13-01T00:00:00Z",
        "2026-11-30T19:30:01",
        "2026-11-30 19:30:01Z",
        "٢026-11-30T19:30:01Z",
    ],
)
def test_epoch_ms_of_other_text_is_none(text: str) -> None:
    """Any other text is no time."""
    assert epoch_ms(text) is None
