"""Which root a short-lived process means, and when that cannot be known.

Rule 1: in this order: `--instance`; the nearest ancestor that hosts a root, the session breaking a tie;
`TIELINE_INSTANCE` where no ancestor hosts one; for what changes nothing, the only root of this workspace.
Rule 2: more than one fits: `AMBIGUOUS_TARGET` and the list. Never a guess.
Rule 3: a capability of one run (`--run`) is shown to no root but the one that the other rules find.
Rule 4: it reads the owner files beside the endpoints as `shell.endpoint` writes them, with the standard
library alone: a person and a hook pay this start every time. It contacts nobody and removes nothing.
Rule 5: what cannot be judged from here, as in another container or a sandbox, is named as that, never
shown as absence.

Source: DESIGN.md 2 "Doors of a root", 8 "Sandboxes and containers"; reference/native.md 3.5; reference/
open-bugs.md O18; reference/reliability.md S1, S15, I47.
"""

import os
import sys
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tieline.errors import Refused, UsageError
from tieline.runtime.configuration import configuration_path, configuration_text
from tieline.runtime.glance import documents

__all__ = [
    "Ambiguous",
    "Found",
    "NoRoot",
    "Places",
    "Root",
    "Survey",
    "ancestors",
    "find_root",
    "here",
    "places",
    "survey",
]

ANCESTORS_MAX: Final = 64
OWNER_SUFFIX: Final = ".owner"
CONTROL_SUFFIX: Final = ".control"
SESSION_VARIABLES: Final = ("TIELINE_SESSION", "CLAUDE_CODE_SESSION_ID", "GEMINI_SESSION_ID", "PI_SESSION_ID")
"""Where hosts tell the commands that they start which saved session is theirs."""
_SEPARATE: Final = frozenset(
    {
        "TIELINE_HOME",
        "TIELINE_COORDINATION_DIRECTORY",
        "TIELINE_SCOPE",
        "TIELINE_INSTANCE",
        "TIELINE_SESSION",
        "TIELINE_LOG",
        "TIELINE_DEBUG",
    }
)
"""Variables of which none needs the whole configuration to be judged."""


class Places(NamedTuple):
    """The directories of this person: `home` is private, `coordination` is what roots share."""

    home: str
    coordination: str
    scope: str  # how far one may see: workspace, repository or machine


class Life(NamedTuple):
    """One life of one process, as far as it can be told apart without a descriptor of it."""

    boot_id: str
    pid_namespace: int
    pid: int
    start_ticks: int


class Root(NamedTuple):
    """A root as its owner file shows it. `life` is "alive", "gone" or "unknown"; only "gone" is proven."""

    instance: str
    control: str
    owner: Life
    host: Life | None
    life: str
    session: str
    workspace: str
    alias: str


class Survey(NamedTuple):
    """All owner files that could be read, and how many could not."""

    roots: list[Root]
    fault_count: int


class Found(NamedTuple):
    """The root that is meant, and by which rule: instance, ancestor, environment or workspace.

    `is_below_host` says that this process runs in the tree of that root's host.
    """

    root: Root
    rule: str
    is_below_host: bool


class Ambiguous(Refused):
    """More than one thing fits; `candidates` are what to choose from."""

    def __init__(self, text: str, candidates: list[dict[str, str]], action: str) -> None:
        super().__init__("AMBIGUOUS_TARGET", text)
        self.candidates = candidates
        self._action = action

    @property
    def action(self) -> str:
        """What to add to the command."""
        return self._action


class NoRoot(Refused):
    """No root hosts this command; `candidates` are those of this directory, at which a person may act."""

    def __init__(self, text: str, candidates: list[dict[str, str]]) -> None:
        super().__init__("NO_ROOT", text)
        self.candidates = candidates

    @property
    def action(self) -> str:
        """How to act all the same."""
        if self.candidates:
            named = self.candidates[0]["instance"] if len(self.candidates) == 1 else "ID"
            return f"start it from the agent, or act at its mailbox yourself with --instance {named}"
        return super().action


def places(environment: Mapping[str, str]) -> Places:
    """Return where this person's roots keep their things.

    The whole configuration is judged, as by a root that starts: half of one would lead elsewhere.

    Raises:
        UsageError: a setting is not what it should be, or config.toml cannot be understood.
        Refused: config.toml may not be read, or others may write it.
    """
    home = os.path.abspath(environment.get("TIELINE_HOME") or os.path.expanduser("~/.tieline"))
    text = configuration_text(home)
    if text or any(name.startswith("TIELINE_") and name not in _SEPARATE for name in environment):
        from tieline import config  # noqa: PLC0415 - most people have nothing to be read

        settings = config.load(text, configuration_path(home), environment)
        return Places(home, os.path.abspath(settings.coordination_directory or home), str(settings.scope))
    coordination = environment.get("TIELINE_COORDINATION_DIRECTORY", home)
    if not coordination.startswith("/") or "\0" in coordination:
        raise UsageError(
            "TIELINE_COORDINATION_DIRECTORY: coordination_directory must be an absolute path, "
            f"not {coordination!r}"
        )
    scope = environment.get("TIELINE_SCOPE", "workspace")
    if scope not in ("workspace", "repository", "machine"):
        raise UsageError(f"TIELINE_SCOPE: scope must be workspace, repository or machine, not {scope!r}")
    return Places(home, os.path.abspath(coordination), scope)


def here() -> str:
    """Return the canonical current directory.

    Raises:
        UsageError: it has been removed.
    """
    try:
        return os.path.realpath(os.getcwd())
    except FileNotFoundError:
        raise UsageError("the current directory no longer exists; change to one that does") from None


def survey(coordination: str) -> Survey:
    """Return every root whose owner file can be read, live or not, in the order of their ids.

    Raises:
        Refused: `UNSAFE_ENDPOINT` or `PERMISSION_DENIED`: the directory is not ours alone, or not readable.
    """
    records, faults = documents(coordination + "/peer-runtime", OWNER_SUFFIX)
    fault_count = len(faults)
    if not records:
        return Survey([], fault_count)
    presence = _presence(coordination)
    roots: list[Root] = []
    for name, record in records:
        root = _root(record, presence)
        if root is None or root.instance + OWNER_SUFFIX != name:
            fault_count += 1
        else:
            roots.append(root)
    return Survey(roots, fault_count)


def _presence(coordination: str) -> dict[str, dict[str, Any]]:
    """Return presence records by instance: where a root works, and which session it has."""
    found: dict[str, dict[str, Any]] = {}
    for _, record in documents(coordination + "/active-agents")[0]:
        extension = record.get("communication")
        if isinstance(extension, dict) and isinstance(extension.get("instanceId"), str):
            found[extension["instanceId"]] = record
    return found


def _root(record: dict[str, Any], presence: dict[str, dict[str, Any]]) -> Root | None:
    instance, sockets = record.get("instance"), record.get("sockets")
    owner = _life(record.get("owner"))
    if record.get("version") != 1 or not isinstance(instance, str) or owner is None:
        return None
    control = sockets.get(CONTROL_SUFFIX, "") if isinstance(sockets, dict) else ""
    shown = presence.get(instance, {})
    extension = shown.get("communication", {})
    return Root(
        instance=instance,
        control=control if isinstance(control, str) else "",
        owner=owner,
        host=_life(record.get("host")),
        life=_state(owner),
        session=str(shown.get("sessionId", "")),
        workspace=str(shown.get("workspaceRoot", "")),
        alias=str(extension.get("alias", "")),
    )


def _life(value: object) -> Life | None:
    if not isinstance(value, dict):
        return None
    boot, namespace = value.get("boot_id"), value.get("pid_namespace")
    pid, ticks = value.get("pid"), value.get("start_ticks")
    if not isinstance(boot, str) or not all(type(number) is int for number in (namespace, pid, ticks)):
        return None
    return Life(boot, int(str(namespace)), int(str(pid)), int(str(ticks)))


_ENDED = (b"Z", b"X", b"x")


def _state(life: Life) -> str:
    """Return "alive", "gone" or "unknown" for one life; the same rules as `shell.process.probe`."""
    boot = _boot_id()
    if not boot or not life.boot_id:
        return "unknown"
    if boot != life.boot_id:
        return "gone"
    if _pid_namespace() != life.pid_namespace:
        return "unknown"
    if not sys.platform.startswith("linux"):
        return "alive" if _exists(life.pid) else "gone"
    status = _status(life.pid)
    if status is None:
        return "gone" if _has_ended(life.pid) or not _exists(life.pid) else "unknown"
    return "alive" if status[1] == life.start_ticks else "gone"


def _has_ended(pid: int) -> bool:
    """Return whether a process ended and only waits to be reaped: it runs nothing any more."""
    fields = _fields(pid)
    return len(fields) >= 20 and fields[0] in _ENDED and int(fields[17]) <= 1


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _boot_id() -> str:
    if not sys.platform.startswith("linux"):
        from tieline.shell.process import self_identity  # noqa: PLC0415 - asks a system tool there

        return self_identity().boot_id
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _pid_namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _status(pid: int) -> tuple[int, int] | None:
    """Return (parent, start ticks) of a process that has not ended, from its line in /proc, or None."""
    fields = _fields(pid)
    if len(fields) < 20 or fields[0] in _ENDED:
        return None
    return int(fields[1]), int(fields[19])


def _fields(pid: int) -> list[bytes]:
    """Return the fields of a process's line in /proc from its state on, none where it cannot be read."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return []
    # The name stands in parentheses and may hold some itself: the fields follow the last one.
    return text[text.rfind(b")") + 2 :].split()


def ancestors() -> list[Life]:
    """Return this process's parent, its parent, and so on; nearest first, at most 64."""
    if not sys.platform.startswith("linux"):
        from tieline.shell.process import ancestors as asked  # noqa: PLC0415 - asks a system tool there

        return [Life(one.boot_id, one.pid_namespace, one.pid, one.start_ticks) for one in asked(os.getpid())]
    boot, namespace, pid = _boot_id(), _pid_namespace(), os.getppid()
    found: list[Life] = []
    while pid > 0 and len(found) < ANCESTORS_MAX:
        status = _status(pid)
        if status is None:
            break
        found.append(Life(boot, namespace, pid, status[1]))
        pid = status[0]
    return found


def find_root(
    home: str,
    coordination: str,
    *,
    environment: Mapping[str, str],
    may_change: bool,
    instance: str | None = None,
    run: str | None = None,
    workspace: str | None = None,
) -> Found:
    """Return the root that a short-lived process means.

    Args:
        home: As `places` gives it; tells an ended instance from one that never was.
        coordination: As `places` gives it.
        environment: Variables of this process.
        may_change: Whether the command sends, consumes or sets something; then a workspace is no reason.
        instance: Of `--instance`.
        run: Of `--run`: a root found by the workspace alone is not shown it.
        workspace: Canonical path; None takes the current directory.

    Raises:
        Refused: `NO_ROOT`, none fits; `FOREIGN_NAMESPACE`, those there are belong to another container;
            `PERMISSION_DENIED`, `UNSAFE_ENDPOINT`.
        Ambiguous: more than one fits.
    """
    seen = survey(coordination).roots
    live = [root for root in seen if root.life != "gone" and root.control]
    above = ancestors() if live else []
    if instance:
        return _named(live, instance, "instance", home, above)
    below = _hosting(live, above)
    if below:
        fitting = _of_session(below, environment)
        root = _only(fitting, "the same host started more than one root")
        return Found(root, "ancestor", is_below_host=True)
    named = environment.get("TIELINE_INSTANCE")
    if named:
        return _named(live, named, "environment", home, above)
    if not may_change and not run:
        place = os.path.realpath(workspace) if workspace else here()
        near = [root for root in live if root.workspace == place]
        if near:
            root = _only(near, "more than one root works in this directory")
            return Found(root, "workspace", is_below_host=False)
    raise _none(live, run, workspace)


def _named(live: list[Root], instance: str, rule: str, home: str, above: list[Life]) -> Found:
    for root in live:
        if root.instance == instance:
            return Found(root, rule, root.host is not None and root.host in above)
    word = "--instance" if rule == "instance" else "TIELINE_INSTANCE"
    shown = instance if instance.isascii() and instance.isprintable() else "that id"
    if "/" not in instance and os.path.isdir(f"{home}/peer-messages/{instance}"):
        text = f"{word}: instance {shown} has ended; `tieline recover {shown}` shows its mail"
        raise Refused("NO_ROOT", text)
    raise Refused("NO_ROOT", f"{word}: no root of instance {shown} runs here")


def _hosting(live: list[Root], above: list[Life]) -> list[Root]:
    """Return the roots whose host, or whose own process, is the nearest ancestor that hosts any."""
    for ancestor in above:
        near = [root for root in live if ancestor in (root.host, root.owner)]
        if near:
            return near
    return []


def _of_session(near: list[Root], environment: Mapping[str, str]) -> list[Root]:
    """Return those of the session that the environment names, or all where it names none of theirs."""
    sessions = {environment[name] for name in SESSION_VARIABLES if environment.get(name)}
    return [root for root in near if root.session in sessions] or near


def _only(fitting: list[Root], text: str) -> Root:
    if len(fitting) == 1:
        return fitting[0]
    raise Ambiguous(text, [_candidate(root) for root in fitting], "name one with --instance")


def _none(live: list[Root], run: str | None, workspace: str | None) -> Refused:
    foreign = [root for root in live if root.life == "unknown"]
    if foreign and len(foreign) == len(live):
        text = f"{len(foreign)} roots belong to processes that cannot be seen from here"
        return Refused("FOREIGN_NAMESPACE", text)
    if run:
        return Refused("NO_ROOT", "no ancestor of this command hosts a root for which --run could count")
    near = []
    if live:
        place = os.path.realpath(workspace) if workspace else here()
        near = [root for root in live if root.workspace == place]
    if near:
        count = "one root works" if len(near) == 1 else f"{len(near)} roots work"
        text = f"no agent hosts this command; {count} in this directory, and each acts for its own agent"
        return NoRoot(text, [_candidate(root) for root in near])
    count = f"{len(live)} run in other directories" if live else "none runs here"
    return NoRoot(f"no agent hosts this command; of roots, {count}", [])


def _candidate(root: Root) -> dict[str, str]:
    return {"instance": root.instance, "alias": root.alias, "workspace": root.workspace}
