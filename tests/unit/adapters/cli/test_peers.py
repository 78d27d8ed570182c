"""`tieline peers`: asked of a root, or read from presence, and said which."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.adapters.cli.fake import (
    ESCAPE,
    INSTANCE,
    ErrorAnswer,
    FakeRoot,
    Result,
    own_life,
    write_owner,
)
from tests.unit.runtime.test_glance import record
from tieline.shell.process_start import pid_domain, process_start_text

Run = Callable[..., Result]
Make = Callable[..., FakeRoot]
SELF = {"peerId": "peer-1", "alias": "me", "project": "shop", "isSelf": True}
OTHER = {
    "peerId": "peer-2",
    "alias": "api",
    "project": "shop",
    "kind": "root",
    "availability": "available",
    "activity": "editing",
    "harness": "codex",
    "model": "m",
    "contextPercent": 12,
    "ageMs": 11_000,
}


def put(place: Path, document: dict[str, Any]) -> None:
    """Write a presence record."""
    path = place / "active-agents" / f"{document['sessionId']}.json"
    path.write_text(json.dumps(document))
    path.chmod(0o600)


def test_peers_of_root_shows_self_first(run: Run, fake_root: Make) -> None:
    """The own alias and id come first, then the others with what is known of them."""
    root = fake_root({"list_peers": {"self": SELF, "peers": [OTHER], "presenceFaults": 2}})
    result = run("peers", "--scope", "machine", "--query", "a")
    assert result.code == 0
    first, second = result.out.splitlines()
    assert "you are :me  peer-1" in first
    assert " ".join(second.split()) == ":api peer-2 shop codex m editing, context 12 %, seen 11 s ago"
    assert root.params("list_peers") == {"scope": "machine", "query": "a"}
    assert "2 presence records" in result.err


def test_peers_many_pages_are_one_list(run: Run, fake_root: Make) -> None:
    """All pages of a listing are fetched."""

    def page(params: dict[str, Any]) -> dict[str, Any]:
        number = int(params.get("cursor", "0"))
        more = {"cursor": str(number + 1)} if number < 2 else {}
        return {"self": SELF, "peers": [{**OTHER, "alias": f"p{number}"}], **more}

    fake_root({"list_peers": page})
    assert [peer["alias"] for peer in run("peers", "--json").json["peers"]] == ["p0", "p1", "p2"]
    assert run("peers", "--aliases").out == "p0\np1\np2\n"


def test_peers_without_root_reads_presence_and_says_so(run: Run, place: Path) -> None:
    """Without a root the listing comes from presence, and nobody is told to be oneself."""
    put(place, record("i-1", workspaceRoot=os.getcwd()))
    result = run("peers")
    assert result.code == 0
    assert ":shop-i1" in result.out
    assert "you are" not in result.out
    assert "read from presence" in result.err
    shape = run("peers", "--json").json
    assert (shape["source"], shape["self"], shape["root"]) == ("presence", None, None)
    assert shape["peers"][0]["alias"] == "shop-i1"


def test_peers_nobody_there_is_said_in_words(run: Run, place: Path) -> None:
    """An empty listing is never shown without a word."""
    put(place, record("i-1", workspaceRoot="/other"))
    result = run("peers")
    assert (result.code, result.out) == (0, "")
    assert "--scope reaches further" in result.err


def test_peers_root_of_the_workspace_is_listed_as_another(run: Run, fake_root: Make, place: Path) -> None:
    """A root that merely works here is a peer like the others, and not who asks."""
    fake_root({"list_peers": {"self": SELF, "peers": [OTHER]}}, is_host=False)
    shown = {"sessionId": "s", "workspaceRoot": os.getcwd(), "communication": {"instanceId": INSTANCE}}
    put(place, shown)
    result = run("peers")
    assert "you are" not in result.out
    assert "no root hosts this command" in result.err
    assert run("peers", "--aliases").out == "api\nme\n"
    assert run("peers", "--json").json["self"] is None


@pytest.mark.clause("K12")
def test_peers_in_a_foreign_namespace_is_an_error_not_an_empty_list(run: Run, place: Path) -> None:
    """Roots that cannot be seen from this container are named as that, with the next action."""
    write_owner(place, INSTANCE, owner={**own_life(), "pid_namespace": 1})
    result = run("peers", "--json")
    assert result.code == 1
    assert result.json["error"]["code"] == "FOREIGN_NAMESPACE"
    assert "MCP tool" in result.json["error"]["action"]


@pytest.mark.clause("K12")
def test_peers_in_a_sandbox_is_an_error_not_an_empty_list(run: Run, fake_root: Make) -> None:
    """A socket that may not be opened is named as that, with the next action."""
    root = fake_root({"list_peers": {"self": SELF, "peers": []}})
    root.path.chmod(0o000)
    result = run("peers")
    assert (result.code, result.out) == (1, "")
    assert "PERMISSION_DENIED" in result.err
    assert "MCP tool" in result.err
    root.path.chmod(0o600)


def test_peers_beyond_the_configured_scope_is_refused(run: Run, place: Path) -> None:
    """Reading presence obeys the same policy as asking a root."""
    result = run("peers", "--scope", "machine", "--json")
    assert result.code == 1
    assert result.json["error"]["code"] == "SCOPE_DENIED"


def test_peers_named_root_that_refuses_is_not_replaced_by_presence(run: Run, fake_root: Make) -> None:
    """A named root's refusal is the answer."""

    def refuse(params: dict[str, Any]) -> dict[str, Any]:
        raise ErrorAnswer("SCOPE_DENIED", "no")

    fake_root({"list_peers": refuse})
    assert run("peers", "--json").json["error"]["code"] == "SCOPE_DENIED"
    assert run("peers", "--instance", "other").code == 4


def test_peers_foreign_names_are_shown_escaped(run: Run, fake_root: Make) -> None:
    """No field of a peer steers the terminal."""
    names = ("peerId", "alias", "project", "activity", "harness", "model", "availability")
    hostile = dict.fromkeys(names, ESCAPE + "\n")
    fake_root({"list_peers": {"self": {**SELF, "alias": ESCAPE}, "peers": [hostile]}})
    for words in (["peers"], ["peers", "--aliases"], ["peers", "--json"]):
        out = run(*words).out
        assert not set(out) & {"\x1b", "\x07", "\u202e"}
    assert len(run("peers").out.splitlines()) == 2


def test_peers_aliases_as_json_is_the_whole_shape(run: Run, fake_root: Make) -> None:
    """--json always prints one versioned object."""
    fake_root({"list_peers": {"self": None, "peers": [{"alias": "api"}]}})
    assert run("peers", "--aliases").out == "api\n"
    assert run("peers", "--aliases", "--json").json["peers"] == [{"alias": "api"}]


@pytest.mark.parametrize("text", ["scope = = 1", "[communication]\nalais = 'x'\n", "[limits]\nunknown = 1\n"])
def test_peers_with_a_broken_configuration_is_an_error_and_no_empty_list(
    run: Run, place: Path, text: str
) -> None:
    """A file that every agent refuses is never shown as nobody being there."""
    (place / "config.toml").write_text(text)
    result = run("peers", "--json")
    assert (result.code, result.json["error"]["code"]) == (2, "USAGE")
    assert "config.toml" in result.json["error"]["text"]
    assert "COMMAND" not in result.json["error"]["action"]


def test_peers_show_a_window_with_its_wire_and_ref_and_count_the_rest(run: Run, fake_root: Make) -> None:
    """A window of another kind is told from the others, and who is not shown is counted."""
    window = {**OTHER, "alias": "pi-work", "wire": "pi-peers", "ref": "a1b2c3", "harness": "pi", "model": ""}
    root = fake_root({"list_peers": {"self": SELF, "peers": [window], "otherProjects": 3}})
    result = run("peers", "--scope", "all")
    assert " ".join(result.out.splitlines()[1].split()).startswith(
        ":pi-work [a1b2c3] peer-2 shop pi (pi-peers) editing"
    )
    assert "(+3 sessions in other projects: --scope all)" in result.err
    assert root.params("list_peers")["scope"] == "all"
    assert run("peers", "--json").json["otherProjects"] == 3


def test_peers_of_all_without_root_reads_as_far_as_is_configured(run: Run, place: Path) -> None:
    """On the native wire the configured scope holds, whatever is asked for."""
    put(place, record("i-1", workspaceRoot=os.getcwd()))
    assert len(run("peers", "--scope", "all", "--json").json["peers"]) == 1


@pytest.mark.clause("pi-peers-46", "pi-peers-47")
def test_peers_without_root_shows_windows_counts_the_rest_and_sweeps_nobody(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a root would list is listed, of one's own project or of all; what cannot be used is said."""
    registry = place / "p"
    registry.mkdir(mode=0o700)
    monkeypatch.setenv("TIELINE_PI_PEERS_ENABLED", "true")
    monkeypatch.setenv("PI_PEERS_DIR", str(registry))
    put_window(registry, os.getpid(), "here", os.getcwd())
    put_window(registry, 2_147_483_000, "ended", os.getcwd())
    put_window(registry, os.getppid(), "there", "/elsewhere")
    (registry / "7.json").write_text("{")
    before = sorted(os.listdir(registry))
    result = run("peers")
    assert ":here [" in result.out
    assert "(pi-peers)" in result.out
    assert "there" not in result.out
    assert "ended" not in result.out
    assert "(+1 sessions in other projects: --scope all)" in result.err
    assert "1 files of windows could not be used" in result.err
    shape = run("peers", "--scope", "all", "--json").json
    assert {peer["alias"]: peer["wire"] for peer in shape["peers"]} == {
        "here": "pi-peers",
        "there": "pi-peers",
    }
    assert sorted(os.listdir(registry)) == before
    registry.chmod(0o755)
    unread = run("peers")
    assert (unread.code, "the windows' registry was not read" in unread.err) == (0, True)
    monkeypatch.setenv("TIELINE_PI_PEERS_ENABLED", "false")
    assert "registry" not in run("peers").err


def put_window(registry: Path, pid: int, name: str, project: str) -> None:
    """Write a window's record and key."""
    path = str(registry / "socks" / f"{name}.sock")
    start = process_start_text(pid) if pid < 2_000_000_000 else "1"
    fields = {
        "pid": pid, "sessionId": f"s-{name}", "cwd": project, "projectRoot": project, "name": name,
        "procStart": start, "pidDomain": pid_domain(), "socketPath": path, "status": "idle",
    }  # fmt: skip
    key = registry / f"{pid}.{hashlib.sha256(path.encode()).hexdigest()}.key"
    for file, document in ((registry / f"{pid}.json", fields), (key, {"peerToken": "0" * 32})):
        file.write_text(json.dumps(document))
        file.chmod(0o600)


def test_peers_shows_for_whom_one_waits(run: Run, fake_root: Make) -> None:
    """By name where it is listed, else by id; for oneself, too."""
    waiting = {**OTHER, "waitsFor": ["peer-1", "peer-9"]}
    fake_root({"list_peers": {"self": {**SELF, "waitsFor": ["peer-2"]}, "peers": [waiting]}})
    result = run("peers")
    assert "  waits for :api" in result.out.splitlines()
    assert "waits for :me, peer-9" in result.out
