"""What works on this machine and what does not, judged without a root.

Rule 1: nothing is repaired, and nothing is made that stays: whether a root could write is tried, with a
private file that is synced and removed again. Looking at modes alone would miss a full disk.
Rule 2: every check says what is so; one that is not well says what to do.
Rule 3: what cannot be seen from here is said to be unseen, never to be absent.

Source: DESIGN.md 4 "doctor", 8; reference/native.md 1D, 1T; reference/reliability.md S1, K12.
"""

import _socket
import errno
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from tieline import __version__
from tieline.errors import RecoveryRequired, Refused, TielineError, UsageError, next_action
from tieline.runtime.client import Client
from tieline.runtime.configuration import configuration_path, configuration_text
from tieline.runtime.glance import look
from tieline.runtime.locate import Places, Root, here, places, survey
from tieline.store.files import open_directory
from tieline.store.files.checks import check_ancestor, system_refusal

__all__ = ["Check", "Checkup", "checkup"]

ASK_S = 2.0
SQLITE_MIN = (3, 51, 3)
CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")
PROBE_NAME = "doctor.probe"
"""Has a dot, so that it is no instance, and no suffix that a reader of these directories looks for."""
PROBE_BYTES = 65_536
FAULTS_SHOWN_MAX = 8
SPACE_BYTES_MIN = 4_194_304
"""A root that takes its first message has its log and its spare pages grown by 1 MiB each, and copies."""
JOINED = ("window", "intercom")
CONFIGURATION_ACTION = "correct it; roots read it when they start"
HOME_PARTS = ("peer-messages", "logs")
COORDINATION_PARTS = ("active-agents", "peer-runtime")


class Check(NamedTuple):
    """One finding; `action` is empty where all is well."""

    name: str
    ok: bool
    text: str
    action: str = ""


class Checkup(NamedTuple):
    """All findings, the roots with what each says of itself, and what was counted."""

    checks: list[Check]
    roots: list[dict[str, Any]]
    counters: dict[str, int]


def checkup(environment: Mapping[str, str]) -> Checkup:
    """Return what holds for the person whose environment this is."""
    checks = [_platform(), _python(), *_libraries(), _sockets(), _container()]
    counters: dict[str, int] = {}
    roots: list[dict[str, Any]] = []
    try:
        where = places(environment)
    except UsageError as error:
        checks.append(Check("configuration", False, str(error), CONFIGURATION_ACTION))
        return Checkup(checks, roots, counters)
    except TielineError as error:
        return Checkup([*checks, _refusal("configuration", error)], roots, counters)
    checks.append(_configuration(where, environment))
    checks.append(_directory("home", where.home, HOME_PARTS))
    checks.append(_directory("coordination directory", where.coordination, COORDINATION_PARTS))
    checks.append(_presence(where, counters))
    checks += _windows(where, environment, counters)
    checks += _roots(where, roots, counters)
    checks += _stores(where, counters)
    checks += _resources(where, counters)
    return Checkup(checks, roots, counters)


def _refusal(name: str, error: TielineError) -> Check:
    return Check(name, False, f"{error.code}: {error}", error.action)


def _platform() -> Check:
    # A variable, so that a type checker for one system still reads the branches of the others.
    here: str = sys.platform
    if here in ("linux", "darwin"):
        return Check("platform", True, here)
    return Check("platform", False, f"{here} is not supported", next_action("UNSUPPORTED_PLATFORM"))


def _python() -> Check:
    text = f"Python {'.'.join(map(str, sys.version_info[:3]))}, tieline {__version__}"
    if sys.flags.optimize:
        return Check("interpreter", False, text + ", with -O", "start it without -O and PYTHONOPTIMIZE")
    return Check("interpreter", True, text)


def _libraries() -> list[Check]:
    checks: list[Check] = []
    try:
        import apsw  # noqa: PLC0415 - only this command needs all of them

        version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
        text = f"SQLite {apsw.sqlite_lib_version()} of apsw {apsw.apsw_version()}"
        is_new = version >= SQLITE_MIN
        action = "" if is_new else "update apsw: earlier ones may lose pages"
        checks.append(Check("store library", is_new, text, action))
    except ImportError as error:
        checks.append(
            Check("store library", False, f"apsw cannot be loaded: {error}", "install tieline anew")
        )
    for name, module in (("message library", "msgspec"), ("signature library", "nacl")):
        try:
            loaded = import_module(module)
            checks.append(Check(name, True, f"{module} {getattr(loaded, '__version__', '')}".strip()))
        except ImportError as error:
            checks.append(Check(name, False, f"{module} cannot be loaded: {error}", "install tieline anew"))
    return checks


def _sockets() -> Check:
    try:
        _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM).close()
    except OSError as error:
        text = f"this process may not make Unix sockets ({errno.errorcode.get(error.errno or 0, '?')})"
        return Check("sandbox", False, text, next_action("PERMISSION_DENIED"))
    return Check("sandbox", True, "Unix sockets can be made")


def _container() -> Check:
    mark = next((path for path in CONTAINER_MARKS if Path(path).exists()), "")
    if not mark:
        return Check("container", True, "none is marked")
    return Check("container", True, f"inside one ({mark}): only agents in the same one can be reached")


def _configuration(where: Places, environment: Mapping[str, str]) -> Check:
    from tieline import config  # noqa: PLC0415 - only this command reads the whole of it

    path = configuration_path(where.home)
    try:
        text = configuration_text(where.home)
        settings = config.load(text, path, environment)
    except UsageError as error:
        return Check("configuration", False, str(error), CONFIGURATION_ACTION)
    except TielineError as error:
        return _refusal("configuration", error)
    if not settings.enabled:
        return Check(
            "configuration", False, "communication is switched off", next_action("COMMUNICATION_DISABLED")
        )
    held = f"scope {settings.scope}, idle_behavior {settings.idle_behavior}"
    return Check("configuration", True, f"{path if text else 'defaults'}: {held}")


def _directory(name: str, path: str, parts: Sequence[str]) -> Check:
    """Try what a root that starts does below `path`, in each of its private parts."""
    is_there = True
    for part in parts:
        try:
            is_there = _write_into(path, f"{path}/{part}") and is_there
        except TielineError as error:
            action = "free some space" if error.code == "QUEUE_FULL" else error.action
            return Check(name, False, f"{error.code}: {error}", action)
    free_bytes = _free_bytes(path)
    if free_bytes < SPACE_BYTES_MIN:
        text = f"{path}: {free_bytes} bytes are free; an agent needs up to {SPACE_BYTES_MIN} for its store"
        return Check(name, False, text, "free some space")
    state = "written to, synced" if is_there else "not all made yet; it can be"
    return Check(name, True, f"{path}: {state}; {free_bytes // 1_048_576} MiB free")


def _write_into(top: str, path: str) -> bool:
    """Return whether the private directory `path` is there, after it, or what it would be made in, was tried.

    Raises:
        TielineError: a root could not store anything there.
    """
    try:
        with open_directory(path, create=False) as directory:
            directory.write_atomic(PROBE_NAME, bytes(PROBE_BYTES), sync=True)
            directory.remove(PROBE_NAME)
    except FileNotFoundError:
        _require_makeable(top, path)
        return False
    return True


def _require_makeable(top: str, path: str) -> None:
    """Return where a root could make the missing directory `path`; raise as `open_directory` else."""
    if os.path.lexists(top):
        probe = f"{top}/{PROBE_NAME}-{os.getpid()}"
        with open_directory(probe, create=True) as directory:
            try:
                directory.write_atomic(PROBE_NAME, bytes(PROBE_BYTES), sync=True)
            finally:
                directory.remove(PROBE_NAME)
                os.rmdir(probe)
        return
    at = os.path.dirname(top)
    while not os.path.lexists(at):
        at = os.path.dirname(at)
    # Somebody else's directory: nothing is put there, not even for an instant.
    try:
        for part in [real := Path(at).resolve(), *real.parents]:
            check_ancestor(part.stat(), path)
    except OSError as error:
        raise system_refusal(error, at) from error
    if not real.is_dir():
        raise Refused("UNSAFE_ENDPOINT", f"{at} is not a directory: move it away, or choose another path")
    if not os.access(real, os.W_OK | os.X_OK):
        raise Refused("PERMISSION_DENIED", f"{top} cannot be made in {at}: no write permission")


def _free_bytes(path: str) -> int:
    """Return how many bytes an ordinary user may still fill where `path` is, or will be."""
    at = path
    while not os.path.exists(at):
        at = os.path.dirname(at)
    status = os.statvfs(at)
    return status.f_bavail * status.f_frsize


def _presence(where: Places, counters: dict[str, int]) -> Check:
    try:
        sight = look(where.coordination, here(), "machine")
    except Refused as error:
        return _refusal("presence", error)
    counters["presenceFresh"] = len(sight.peers) + sight.outside
    counters["presenceStale"], counters["presenceFaults"] = sight.stale, sight.faults
    counters["presenceUnseen"] = sight.unseen
    fresh = counters["presenceFresh"]
    text = (
        f"{fresh} fresh, {sight.stale} stale, {sight.faults} unreadable, {sight.unseen} of unseen processes"
    )
    if sight.unseen:
        return Check("presence", False, text, next_action("FOREIGN_NAMESPACE"))
    if sight.faults:
        text += f" ({'; '.join(sight.fault_texts[:FAULTS_SHOWN_MAX])})"
        action = f"remove them from {where.coordination}/active-agents, or end the program that writes them"
        return Check("presence", False, text, action)
    return Check("presence", True, text)


def _windows(where: Places, environment: Mapping[str, str], counters: dict[str, int]) -> list[Check]:
    """Look into the registry of windows where that wire is on; where it is off nobody asks."""
    from tieline import config  # noqa: PLC0415 - only this command reads the whole of it
    from tieline.runtime.windows_check import look_at_windows  # noqa: PLC0415 - most have no windows

    try:
        path = configuration_path(where.home)
        settings = config.load(configuration_text(where.home), path, environment).wires.pi_peers
        found = look_at_windows(settings) if settings.enabled else None
    except Refused as error:
        return [_refusal("windows", error)]
    except UsageError:
        return []  # the configuration says it already
    if found is None:
        return []
    counters.update(found.counts)
    if not found.faults:
        return [Check("windows", True, found.text)]
    text = f"{found.text} ({'; '.join(found.faults)})"
    action = "end the program that writes them, or remove these files; they are left alone until then"
    return [Check("windows", False, text, action)]


def _roots(where: Places, roots: list[dict[str, Any]], counters: dict[str, int]) -> list[Check]:
    """Ask every root that is not proven gone; fill `roots` and `counters`."""
    try:
        seen = survey(where.coordination)
    except Refused as error:
        return [_refusal("roots", error)]
    live = [root for root in seen.roots if root.life != "gone"]
    counters["roots"], counters["rootsEnded"] = len(live), len(seen.roots) - len(live)
    counters["ownerFaults"] = seen.fault_count
    text = f"{len(live)} running, {counters['rootsEnded']} ended ones not yet swept"
    checks = [Check("roots", True, text)]
    if seen.fault_count:
        text += f", {seen.fault_count} owner files unreadable"
        checks = [Check("roots", False, text, "keep them, and start a new agent")]
    return checks + [_root(root, roots) for root in live]


def _root(root: Root, roots: list[dict[str, Any]]) -> Check:
    name = f"root {root.alias or root.instance}"
    shape: dict[str, Any] = {
        "instanceId": root.instance,
        "pid": root.owner.pid,
        "life": root.life,
        "answers": False,
    }
    roots.append(shape)
    if not root.control:
        return Check(name, False, "it has no control endpoint", "restart it with this version")
    try:
        with Client(root.control) as client:
            answer = client.call("local.doctor", {}, ASK_S)
    except TielineError as error:
        if root.life == "unknown":
            text = f"process {root.owner.pid} is not visible from here, and it does not answer"
            return Check(name, False, text, next_action("FOREIGN_NAMESPACE"))
        return _refusal(name, error)
    shape["answers"] = True
    shape.update({key: answer[key] for key in ("version", "checks", "counters", "limits") if key in answer})
    if answer.get("version") != __version__:
        text = f"it is of version {answer.get('version')}, this command of {__version__}"
        return Check(name, False, text, next_action("VERSION_SKEW"))
    bad = [
        check
        for check in answer.get("checks", [])
        # Presence is the same for all roots: it is judged above, once, with the names of the files.
        if isinstance(check, dict) and check.get("ok") is False and check.get("name") != "directory"
    ]
    if bad:
        return Check(
            name, False, "; ".join(str(check.get("text")) for check in bad), str(bad[0].get("action") or "")
        )
    text = f"answers, version {__version__}, process {root.owner.pid}"
    # Which sessions of other programs reach it, a person cannot see elsewhere.
    told = [check for check in answer.get("checks", []) if isinstance(check, dict)]
    joined = [f"; {one['name']}: {one.get('text')}" for one in told if one.get("name") in JOINED]
    return Check(name, True, text + "".join(joined))


def _stores(where: Places, counters: dict[str, int]) -> list[Check]:
    from tieline.runtime.ended import DAMAGED_ACTION, ended_instances  # noqa: PLC0415 - reads journals

    try:
        ended = ended_instances(where.home)
    except TielineError as error:
        return [_refusal("stores", error)]
    counters["endedStores"] = len(ended)
    counters["endedUnread"] = sum(item.unread_count or 0 for item in ended)
    counters["endedDamaged"] = sum(bool(item.fault) for item in ended)
    text = f"{len(ended)} of ended instances, {counters['endedUnread']} unread messages in them"
    if counters["endedDamaged"]:
        text += f", and what {counters['endedDamaged']} damaged ones hold"
    checks = [Check("stores", True, text)]
    for item in ended:
        if item.fault:
            checks.append(Check(f"store {item.instance}", False, item.fault, DAMAGED_ACTION))
        elif item.unread_count:
            text = f"{item.unread_count} unread messages of an ended instance"
            checks.append(Check(f"store {item.instance}", False, text, f"`tieline recover {item.instance}`"))
    return checks


def _resources(where: Places, counters: dict[str, int]) -> list[Check]:
    """Judge the records of shared resources; every damaged one is named with what ends it."""
    from tieline.store.resources import ResourceStore  # noqa: PLC0415 - only where there may be some

    store = ResourceStore(where.coordination)
    checks: list[Check] = []
    try:
        try:
            store.read_ledger()
        except RecoveryRequired as error:
            checks.append(_refusal("launch ledger", error))
        keys, damages = store.keys(), store.damages()
    except TielineError as error:
        return [_refusal("resources", error)]
    finally:
        store.close()
    counters["resources"], counters["resourcesDamaged"] = len(keys), len(damages)
    checks += [Check(f"resource {one.resource}", False, one.text, one.action) for one in damages]
    return [Check("resources", True, f"{len(keys)} known, {len(damages)} damaged"), *checks]
