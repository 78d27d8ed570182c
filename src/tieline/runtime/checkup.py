"""What works on this machine and what does not, judged without a root.

Rule 1: it only looks: nothing is made, repaired or removed.
Rule 2: every check says what is so; one that is not well says what to do.
Rule 3: what cannot be seen from here is said to be unseen, never to be absent.

Source: DESIGN.md 4 "doctor", 8; reference/native.md 1D, 1T; reference/reliability.md S1, K12.
"""

import _socket
import errno
import os
import stat
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from tieline import __version__
from tieline.errors import Refused, TielineError, UsageError, next_action
from tieline.runtime.client import Client
from tieline.runtime.glance import look
from tieline.runtime.locate import Places, Root, here, places, survey

__all__ = ["Check", "Checkup", "checkup"]

ASK_S = 2.0
SQLITE_MIN = (3, 51, 3)
CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")


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
        checks.append(Check("configuration", False, str(error), "correct it"))
        return Checkup(checks, roots, counters)
    checks.append(_configuration(where, environment))
    checks += [_directory("home", where.home), _directory("coordination directory", where.coordination)]
    checks.append(_presence(where, counters))
    checks += _roots(where, roots, counters)
    checks += _stores(where, counters)
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

    path = f"{where.home}/config.toml"
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        text = ""
    except (OSError, ValueError) as error:
        return Check("configuration", False, f"{path}: {error}", "make it readable UTF-8 text")
    try:
        settings = config.load(text, path, environment)
    except UsageError as error:
        return Check("configuration", False, str(error), "correct it; roots read it at start")
    if not settings.enabled:
        return Check(
            "configuration", False, "communication is switched off", next_action("COMMUNICATION_DISABLED")
        )
    held = f"scope {settings.scope}, idle_behavior {settings.idle_behavior}"
    return Check("configuration", True, f"{path if text else 'defaults'}: {held}")


def _directory(name: str, path: str) -> Check:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return Check(name, True, f"{path}: not made yet")
    except OSError as error:
        return Check(name, False, f"{path}: {error.strerror}", next_action("PERMISSION_DENIED"))
    if not stat.S_ISDIR(status.st_mode):
        return Check(name, False, f"{path} is no plain directory", next_action("UNSAFE_ENDPOINT"))
    if status.st_uid != os.geteuid():
        return Check(name, False, f"{path} belongs to user {status.st_uid}", next_action("UNSAFE_ENDPOINT"))
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        return Check(name, False, f"{path} has mode {mode:04o}", f"chmod 700 {path}")
    return Check(name, True, f"{path}, mode {mode:04o}")


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
        action = f"look at {where.coordination}/active-agents: a record must be a private regular file"
        return Check("presence", False, text, action)
    return Check("presence", True, text)


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
        check for check in answer.get("checks", []) if isinstance(check, dict) and check.get("ok") is False
    ]
    if bad:
        return Check(
            name, False, "; ".join(str(check.get("text")) for check in bad), str(bad[0].get("action") or "")
        )
    return Check(name, True, f"answers, version {__version__}, process {root.owner.pid}")


def _stores(where: Places, counters: dict[str, int]) -> list[Check]:
    from tieline.runtime.ended import ended_instances  # noqa: PLC0415 - reads journals

    try:
        ended = ended_instances(where.home)
    except TielineError as error:
        return [_refusal("stores", error)]
    counters["endedStores"] = len(ended)
    counters["endedUnread"] = sum(item.unread_count for item in ended)
    text = f"{len(ended)} of ended instances, {counters['endedUnread']} unread messages in them"
    checks = [Check("stores", True, text)]
    for item in ended:
        if item.fault:
            checks.append(
                Check(f"store {item.instance}", False, item.fault, next_action("RECOVERY_REQUIRED"))
            )
        elif item.unread_count:
            text = f"{item.unread_count} unread messages of an ended instance"
            checks.append(Check(f"store {item.instance}", False, text, f"`tieline recover {item.instance}`"))
    return checks
