"""Who is around a root: presence as far ends and directory entries, its own record, the runs it was told of.

Rule 1: presence is read through `store.presence`; what it says becomes values here and nothing is believed.
Rule 2: an exact route reads its owner's record anew; a listing reads what changed.
Rule 3: the runs of another root are asked of that root alone, four roots at a time, within one budget.

Source: reference/native.md 1C, 2.1, 2.3, 2.4, 27 to 29; reference/substrate.md 8.
"""

import asyncio
import os
import subprocess
from collections.abc import Awaitable, Callable
from typing import Any

from tieline.config import Scope, Settings
from tieline.engine import directory
from tieline.engine.contract import Standing
from tieline.engine.directory import Place, Root, Run
from tieline.model.identity import Availability, Peer, peer_id
from tieline.model.moment import Moment, to_iso
from tieline.shell.switchboard import Far
from tieline.store.presence import PresenceStore, Record
from tieline.wire.native.protocol import Advertised

__all__ = ["Neighbours", "git_answer", "repository_of"]

GIT_SECONDS_MAX = 2
ROOTS_AT_ONCE = 4
ROOTS_ASKED_MAX = 64
LISTING_SECONDS_MAX = 1.5
RUNS_FRESH_MS = 1_000
INDEX_MAX = 16_384

AskRuns = Callable[[str], Awaitable[tuple[Run, ...] | None]]


def git_answer(workspace: str, *asked: str) -> str:
    """Return the absolute path that `git rev-parse` answers in a workspace, or "" where there is none."""
    command = ["git", "-C", workspace, "rev-parse", "--path-format=absolute", *asked]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(  # noqa: S603 - a fixed program, our own workspace as its argument
            command, capture_output=True, text=True, timeout=GIT_SECONDS_MAX, env=environment, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def repository_of(workspace: str) -> str:
    """Return the canonical git common directory of a workspace, or "" where there is none.

    Source: reference/native.md 2.3.
    """
    found = git_answer(workspace, "--git-common-dir")
    return os.path.realpath(found) if found else ""


class Neighbours:
    """The surroundings of one root."""

    def __init__(self, store: PresenceStore, *, instance: str, place: Place, settings: Settings) -> None:
        self.place = place
        self.faults = 0
        self._store, self._instance, self._settings = store, instance, settings
        self._runs: dict[str, tuple[tuple[Run, ...], int]] = {}
        self._index: dict[str, str] = {}  # peer id -> instance, from what was listed
        self._places: dict[tuple[str, str | None, str | None, str], Place] = {}
        self._ages: dict[str, int] = {}
        self.pids: dict[str, int] = {}
        """Process of each listed instance."""

    # ------------------------------------------------------------ one far end

    def far(self, instance: str) -> Far | None:
        """Return what presence says of a live instance that speaks our protocol, or None."""
        record = self._store.read_instance(instance)
        if record is None or record.freshness != "fresh":
            return None
        said = record.communication
        if said is None or said.protocol != 1:
            return None
        standing = Standing(
            capabilities=frozenset(said.capabilities),
            is_in_scope=directory.is_in_scope(self.place, self._place(record)),
            alias=said.alias,
            project=record.project[:256],
        )
        advertised = Advertised(said.instance, said.public_key, said.capabilities)
        return Far(advertised, said.endpoint, record.pid, standing)

    def place_of(self, instance: str) -> Place | None:
        """Return where an instance works, as it says."""
        record = self._store.read_instance(instance)
        return None if record is None else self._place(record)

    def _place(self, record: Record) -> Place:
        said = record.communication
        scope = said.scope if said is not None else Scope.WORKSPACE.value
        workspace_id = said.workspace_id if said is not None else None
        repository_id = said.repository_id if said is not None else None
        key = (record.workspace_root, workspace_id, repository_id, scope)
        place = self._places.get(key)
        if place is None:
            if len(self._places) >= INDEX_MAX:
                self._places.clear()
            workspace = workspace_id or os.path.realpath(record.workspace_root)
            place = self._places[key] = Place(workspace, repository_id or "", Scope(scope))
        return place

    # ------------------------------------------------------------ everybody

    def roots(self, now: Moment) -> list[Root]:
        """Return everybody else that presence shows and that is not stale."""
        found: list[Root] = []
        self._ages.clear()
        self.pids.clear()
        for record in self._store.scan(now.wall_ms):
            if record.freshness != "fresh":
                continue
            root = self._root(record)
            if root.instance == self._instance:
                continue
            self.pids[root.instance] = record.pid
            self._ages[root.instance] = max(0, now.wall_ms - record.updated_ms)
            self._note(peer_id(root.instance, None), root.instance)
            for run in root.runs:
                self._note(peer_id(root.instance, run.run), root.instance)
            found.append(root)
        self.faults = len(self._store.faults)
        return found

    def root(self, instance: str) -> Root | None:
        """Return one root as its own record shows it now, or None when it is not there any more."""
        record = self._store.read_instance(instance)
        return None if record is None or record.freshness != "fresh" else self._root(record)

    def _root(self, record: Record) -> Root:
        said = record.communication
        if said is None:
            availability, instance, alias = (
                Availability.PRESENCE_ONLY,
                "presence-" + str(record.pid),
                record.project,
            )
        else:
            availability = Availability.AVAILABLE if said.protocol == 1 else Availability.UNSUPPORTED
            instance, alias = said.instance, said.alias
        told = self._runs.get(instance)
        percent = record.context_percent
        return Root(
            instance=instance,
            session=record.session,
            alias=alias,
            project=record.project,
            activity=record.activity or record.status,
            availability=availability,
            capabilities=said.capabilities if said is not None else (),
            place=self._place(record),
            runs=told[0] if told is not None else (),
            harness=record.provider,
            model=record.model,
            is_busy=record.status == "working",
            context_percent=None if not percent else min(100, max(0, round(percent))),  # 0: not told
        )

    def age_ms(self, instance: str) -> int | None:
        """Return how long ago the instance wrote its record, when it was last listed."""
        return self._ages.get(instance)

    def owner_of(self, target: str) -> str | None:
        """Return the instance that a listed peer id belongs to."""
        return self._index.get(target)

    def _note(self, target: str, instance: str) -> None:
        if len(self._index) >= INDEX_MAX:
            self._index.clear()
        self._index[target] = instance

    # ------------------------------------------------------------ runs of others

    def runs_told(self, instance: str, runs: tuple[Run, ...] | None, now: Moment) -> None:
        """Keep what a root said of its runs; None forgets them."""
        if runs is None:
            self._runs.pop(instance, None)
            return
        if len(self._runs) >= INDEX_MAX:
            self._runs.clear()
        self._runs[instance] = (runs, now.mono_ms)
        for run in runs:
            self._note(peer_id(instance, run.run), instance)

    def has_fresh_runs(self, instance: str, now: Moment) -> bool:
        """Return whether a root was asked within the last second."""
        told = self._runs.get(instance)
        return told is not None and now.mono_ms - told[1] <= RUNS_FRESH_MS

    async def refresh(self, roots: list[Root], scope: Scope, ask: AskRuns) -> None:
        """Ask the roots in scope for their runs; one that does not answer in time stays listed without."""
        wanted = [
            root.instance
            for root in roots
            if root.availability is Availability.AVAILABLE
            and directory.is_in_scope(self.place, root.place, scope)
        ][:ROOTS_ASKED_MAX]
        gate = asyncio.Semaphore(ROOTS_AT_ONCE)

        async def one(instance: str) -> None:
            async with gate:
                await ask(instance)

        try:
            async with asyncio.timeout(LISTING_SECONDS_MAX):
                await asyncio.gather(*(one(instance) for instance in wanted))
        except TimeoutError:
            return  # who answered in time is listed with its runs

    # ------------------------------------------------------------ our own record

    def publish(self, facts: dict[str, Any], now: Moment) -> None:
        """Write our own record; `facts` as `own_record` makes them, the time is put in here."""
        record = {**facts, "updatedAt": to_iso(now.wall_ms)}
        self._store.publish(record, facts["sessionId"], self._instance)

    def withdraw(self) -> None:
        """Remove exactly our own record."""
        self._store.withdraw()


def own_record(
    *,
    session: str,
    place: Place,
    project: str,
    harness: str,
    model: str,
    mode: str,
    is_busy: bool,
    activity: str,
    context_percent: int | None,
    started_ms: int,
    message_count: int,
    communication: dict[str, Any],
) -> dict[str, Any]:
    """Return a version 1 presence record without its time. Source: reference/native.md 2.1."""
    return {
        "version": 1,
        "pid": os.getpid(),
        "sessionId": session,
        "workspaceRoot": place.workspace,
        "projectName": project,
        "provider": harness,
        "model": model,
        "mode": mode,
        "status": "working" if is_busy else "idle",
        "startedAt": to_iso(started_ms),
        "messageCount": message_count,
        "contextPercent": context_percent or 0,
        "tokensUsed": 0,
        "activity": {"phase": activity, "pathsWritten": []},
        "communication": communication,
    }


def communication(
    *, instance: str, endpoint: str, public_key: str, capabilities: tuple[str, ...], alias: str, place: Place
) -> dict[str, Any]:
    """Return the extension of our own record. Source: reference/native.md 2.1."""
    shape: dict[str, Any] = {
        "protocol": 1,
        "instanceId": instance,
        "endpoint": endpoint,
        "publicKey": public_key,
        "capabilities": list(capabilities),
        "peerId": Peer(instance).id,
        "alias": alias,
        "scope": str(place.scope),
        "workspaceId": place.workspace,
    }
    if place.repository:
        shape["repositoryId"] = place.repository
    return shape
