"""Who is around a root."""

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tieline.config import Scope, Settings
from tieline.engine.directory import Place, Run
from tieline.keys import PrivateKey
from tieline.model.identity import Availability, Peer
from tieline.model.moment import Moment
from tieline.runtime.neighbours import INDEX_MAX, Neighbours, communication, own_record, repository_of
from tieline.runtime.world import now
from tieline.store.presence import PresenceStore

KEY = PrivateKey.generate(None).public


def around(home: Path, workspace: str = "/w", scope: Scope = Scope.WORKSPACE) -> Neighbours:
    """Return the surroundings of root `self`."""
    return Neighbours(
        PresenceStore(str(home / "active-agents")),
        instance="self",
        place=Place(workspace, "", scope),
        settings=Settings(scope=scope),
    )


def facts(home: Path, instance: str, workspace: str = "/w", **more: Any) -> dict[str, Any]:
    """Return what a root of that instance publishes."""
    place = Place(workspace, "", Scope.WORKSPACE)
    record = own_record(
        session=f"s-{instance}",
        place=place,
        project="p",
        harness="pi",
        model="m",
        mode="rpc",
        is_busy=False,
        activity="idle",
        context_percent=None,
        started_ms=now().wall_ms,
        message_count=0,
        communication=communication(
            instance=instance,
            endpoint=str(home / "peer-runtime" / f"{instance}.sock"),
            public_key=KEY,
            capabilities=("message.receive",),
            alias=instance,
            place=place,
        ),
    )
    return {**record, **more}


def published(home: Path, instance: str, **more: Any) -> Neighbours:
    """Publish a record as that instance does; return its surroundings."""
    there = Neighbours(
        PresenceStore(str(home / "active-agents")),
        instance=instance,
        place=Place("/w", "", Scope.WORKSPACE),
        settings=Settings(),
    )
    there.publish(facts(home, instance, **more), now())
    return there


@pytest.mark.clause("native-33", "native-34", "native-37")
def test_far_end_is_who_a_fresh_record_of_our_protocol_says(private_home: Path) -> None:
    """Pid, key, endpoint and standing come from the record; a stale or withdrawn one is nobody."""
    there = published(private_home, "far-1")
    here = around(private_home)
    far = here.far("far-1")
    assert far is not None
    assert (far.pid, far.advertised.public_key, far.standing.is_in_scope) == (os.getpid(), KEY, True)
    assert far.standing.capabilities == {"message.receive"}
    assert far.endpoint.endswith("far-1.sock")
    there.publish(facts(private_home, "far-1"), Moment(now().wall_ms - 16_000, 0))
    assert here.far("far-1") is None
    there.withdraw()
    assert here.far("far-1") is None
    assert here.place_of("far-1") is None


@pytest.mark.clause("native-84", "I42", "O54")
def test_far_end_of_another_workspace_is_out_of_scope(private_home: Path) -> None:
    """A sibling whose name begins alike, and the folder above, are outside."""
    (private_home / "proj").mkdir()
    (private_home / "proj-evil").mkdir()
    here = around(private_home, str(private_home / "proj"))
    for instance, workspace, is_in_scope in (
        ("same", f"{private_home}/proj", True),
        ("evil", f"{private_home}/proj-evil", False),
        ("above", str(private_home), False),
    ):
        published(private_home, instance, workspaceRoot=workspace).publish(
            facts(private_home, instance, workspace), now()
        )
        far = here.far(instance)
        assert far is not None
        assert far.standing.is_in_scope is is_in_scope, instance


def test_roots_lists_everybody_else_and_keeps_ages(private_home: Path) -> None:
    """Ourselves and the stale are not among them; a record without our protocol is shown as what it is."""
    published(private_home, "self")
    published(private_home, "far-1")
    published(private_home, "far-2").publish(facts(private_home, "far-2"), Moment(now().wall_ms - 20_000, 0))
    plain = facts(private_home, "far-3")
    del plain["communication"]
    file = private_home / "active-agents" / "s-far-3.json"
    file.write_text(json.dumps({**plain, "updatedAt": plain["startedAt"]}))
    file.chmod(0o600)
    here = around(private_home)
    roots = {root.alias: root for root in here.roots(now())}
    assert set(roots) == {"far-1", "p"}
    assert roots["p"].availability is Availability.PRESENCE_ONLY
    assert here.age_ms("far-1") is not None
    assert here.age_ms("far-2") is None
    assert here.owner_of(Peer("far-1").id) == "far-1"
    assert here.owner_of(Peer("far-2").id) is None


@pytest.mark.clause("native-27", "native-28")
def test_runs_of_others_are_kept_for_a_second_and_found_by_id(private_home: Path) -> None:
    """What a root told is fresh for a second; its runs are its own; None forgets them."""
    published(private_home, "far-1")
    here, moment = around(private_home), now()
    run = Run("r-1", "kid", "thinking", ("message.receive",))
    here.runs_told("far-1", (run,), moment)
    assert here.has_fresh_runs("far-1", moment)
    assert not here.has_fresh_runs("far-1", Moment(moment.wall_ms, moment.mono_ms + 1_001))
    assert here.owner_of(Peer("far-1", "r-1").id) == "far-1"
    assert here.roots(now())[0].runs == (run,)
    here.runs_told("far-1", None, moment)
    assert here.roots(now())[0].runs == ()


def test_index_of_peers_is_bounded(private_home: Path) -> None:
    """Names of a crowd are forgotten together, and found again by the next listing."""
    here = around(private_home)
    for number in range(INDEX_MAX + 1):
        here._note(f"peer-{number}", "far-1")
    assert len(here._index) == 1


@pytest.mark.asyncio
@pytest.mark.clause("native-27", "K31")
async def test_refresh_asks_four_at_a_time_within_its_budget(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A root that never answers costs the listing its budget, and nobody their place in it."""
    monkeypatch.setattr("tieline.runtime.neighbours.LISTING_SECONDS_MAX", 0.3)
    for number in range(8):
        published(private_home, f"far-{number}")
    here = around(private_home)
    asked: list[str] = []
    most = running = 0

    async def ask(instance: str) -> None:
        nonlocal most, running
        asked.append(instance)
        running += 1
        most = max(most, running)
        await asyncio.sleep(60 if instance == "far-0" else 0.01)
        running -= 1

    async with asyncio.timeout(2):
        await here.refresh(here.roots(now()), Scope.WORKSPACE, ask)  # type: ignore[arg-type]
    assert len(asked) == 8
    assert most == 4


def test_repository_of_a_workspace_is_its_common_git_directory(private_home: Path) -> None:
    """Worktrees share it; a folder without one has none; a variable of the caller does not decide it."""
    repository = private_home / "repo"
    repository.mkdir()
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    for words in (
        ["init", "-q"],
        ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "x"],
        ["worktree", "add", "-q", str(private_home / "tree")],
    ):
        subprocess.run(["git", "-C", str(repository), *words], check=True, env=plain, capture_output=True)
    found = repository_of(str(repository))
    assert found == os.path.realpath(repository / ".git")
    assert repository_of(str(private_home / "tree")) == found
    assert repository_of(str(private_home)) == ""
    assert repository_of(str(private_home / "absent")) == ""


def test_repository_without_git_is_none(private_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without git has workspaces, and no repositories."""
    monkeypatch.setenv("PATH", "/nowhere")
    assert repository_of(str(private_home)) == ""
    monkeypatch.setenv("GIT_DIR", "/somewhere")
    assert repository_of(str(private_home)) == ""
