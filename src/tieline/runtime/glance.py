"""Who is there, read from presence alone, for a short-lived process that has no root to ask.

Rule 1: it only reads; nothing stale or broken is pruned, and no endpoint is contacted.
Rule 2: a record is a hint: fresh or stale, never proof of life or death. What cannot be judged from
here, as a process in another container, is counted and told, never shown as absence.
Rule 3: standard library without `re`, `typing`-heavy or hashing frameworks: a person pays this start.
Rule 4: the listing follows `engine.directory`; what a root answers goes before what is read here.

Source: reference/native.md 1C, 2.1, 2.3, 2.4; reference/reliability.md S1; reference/substrate.md 6.
"""

import errno
import json
import os
import stat
import time
from typing import Any, Final, NamedTuple

from tieline.errors import Refused

__all__ = ["Sight", "documents", "epoch_ms", "look", "repository_of"]

RECORD_BYTES_MAX: Final = 131_072
STALE_MS: Final = 15_000
ID_CHARACTERS_MAX: Final = 128
_ALNUM: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_CAPABILITIES: Final = frozenset(
    {"message.send", "message.receive", "message.wait", "resource.request", "resource.control"}
)
_RANKS: Final = {"workspace": 0, "repository": 1, "machine": 2}
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_HOLD: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Sight(NamedTuple):
    """What one look at presence showed.

    `peers` are descriptors in the doors' shape, in peer id order, one for each peer id; `faults` counts
    records that could not be read, and `fault_texts` names the file and the cause of each; `stale` those
    without a heartbeat for 15 s, or of a process that ended; `unseen` fresh ones of a process in another
    container; `outside` fresh ones beyond the scope that was asked for.
    """

    peers: list[dict[str, Any]]
    faults: int
    stale: int
    unseen: int
    outside: int
    fault_texts: tuple[str, ...] = ()


def documents(directory: str, suffix: str = ".json") -> tuple[list[tuple[str, dict[str, Any]]], list[str]]:
    """Return the JSON objects of a private directory as (file name, object), and the others' faults.

    A fault is a sentence with the file's name and why it could not be read. A directory that does not
    exist holds none.

    Raises:
        Refused: `UNSAFE_ENDPOINT`, it is not ours alone; `PERMISSION_DENIED`, we may not read it.
    """
    try:
        held = os.open(directory, _HOLD)
    except FileNotFoundError:
        return [], []
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            raise Refused("PERMISSION_DENIED", f"this process may not read {directory}") from None
        raise Refused("UNSAFE_ENDPOINT", f"{directory} is not a plain directory") from None
    try:
        status = os.fstat(held)
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise Refused("UNSAFE_ENDPOINT", f"{directory} is not yours alone (mode 0700)")
        found: list[tuple[str, dict[str, Any]]] = []
        faults: list[str] = []
        for name in sorted(os.listdir(held)):
            if not name.endswith(suffix) or name.startswith("."):
                continue
            document = _document(held, name)
            if isinstance(document, dict):
                found.append((name, document))
            elif _is_there(held, name):
                faults.append(f"{name}: {document}")
        return found, faults
    finally:
        os.close(held)


def _is_there(held: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=held, follow_symlinks=False)
    except OSError:
        return False  # it ended while we looked
    return True


def _document(held: int, name: str) -> dict[str, Any] | str:
    """Return a record, or why it is not a private regular file with one JSON object."""
    try:
        file = os.open(name, _READ, dir_fd=held)
    except OSError as error:
        return "it is a link" if error.errno == errno.ELOOP else str(error.strerror)
    try:
        cause = _cause(os.fstat(file))
        if cause:
            return cause
        data = b""
        while chunk := os.read(file, RECORD_BYTES_MAX + 1 - len(data)):
            data += chunk
        document = json.loads(data) if len(data) <= RECORD_BYTES_MAX else None
    except OSError as error:
        return str(error.strerror)
    except (ValueError, RecursionError):
        return "it is not JSON"
    finally:
        os.close(file)
    return document if isinstance(document, dict) else "it holds no JSON object"


def _cause(status: os.stat_result) -> str:
    """Return why a file is not to be believed, "" when it is."""
    if not stat.S_ISREG(status.st_mode):
        return "it is no regular file"
    if status.st_uid != os.geteuid():
        return f"it belongs to uid {status.st_uid}"
    if status.st_nlink != 1:
        return "it has more than one name"
    if status.st_mode & 0o077:
        return f"it is open to others (mode {stat.S_IMODE(status.st_mode):04o})"
    return f"it is larger than {RECORD_BYTES_MAX} bytes" if status.st_size > RECORD_BYTES_MAX else ""


def look(coordination: str, workspace: str, scope: str = "workspace", query: str = "") -> Sight:
    """Return who shows presence within a scope of `workspace`.

    Args:
        coordination: The directory that roots share.
        workspace: A canonical path.
        scope: `workspace`, `repository` or `machine`.
        query: Text to find in alias, project or peer id, without regard to case.

    Raises:
        Refused: as `documents`.
    """
    records, faults = documents(coordination + "/active-agents")
    now_ms = time.time_ns() // 1_000_000
    own_repository = repository_of(workspace) if scope == "repository" or records else ""
    peers: dict[str, dict[str, Any]] = {}
    stale_count = unseen_count = outside_count = 0
    namespaces: dict[str, int] | None = None
    for name, record in records:
        age_ms = _age_ms(record, now_ms)
        if age_ms is None:
            faults.append(f"{name}: it is no presence record of version 1")
            continue
        if age_ms > STALE_MS:
            stale_count += 1
            continue
        if not _is_visible(record["pid"]):
            if namespaces is None:
                namespaces = _namespaces(coordination)
            if _is_elsewhere(record, namespaces):
                unseen_count += 1
            else:
                stale_count += 1  # it ended; its record is swept by the next root
            continue
        descriptor = _descriptor(record, age_ms)
        if not _is_in_scope(record, descriptor, workspace, own_repository, scope):
            outside_count += 1
        elif _matches(descriptor, query.lower()):
            # One instance has one record: of several, as after a copy, the latest is shown.
            key = str(descriptor.get("peerId") or f"~{name}")
            if key not in peers or age_ms < peers[key]["ageMs"]:
                peers[key] = descriptor
    listed = [peers[key] for key in sorted(peers)]
    return Sight(listed, len(faults), stale_count, unseen_count, outside_count, tuple(faults))


def _age_ms(record: dict[str, Any], now_ms: int) -> int | None:
    """Return the age of a record's heartbeat, or None where the record is not of the published form."""
    texts = ("sessionId", "workspaceRoot", "projectName", "updatedAt")
    if record.get("version") != 1 or type(record.get("pid")) is not int:
        return None
    if not all(isinstance(record.get(name), str) for name in texts):
        return None
    updated_ms = epoch_ms(record["updatedAt"])
    return None if updated_ms is None else max(now_ms - updated_ms, 0)


def _is_visible(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return pid > 0


def _namespaces(coordination: str) -> dict[str, int]:
    """Return, by instance, the process namespace in which each root's owner file counts."""
    found: dict[str, int] = {}
    for _, record in documents(coordination + "/peer-runtime", ".owner")[0]:
        owner, instance = record.get("owner"), record.get("instance")
        if isinstance(owner, dict) and type(owner.get("pid_namespace")) is int and isinstance(instance, str):
            found[instance] = owner["pid_namespace"]
    return found


def _is_elsewhere(record: dict[str, Any], namespaces: dict[str, int]) -> bool:
    """Return whether a record's process counts in another container, where we cannot see it."""
    extension = record.get("communication")
    instance = extension.get("instanceId") if isinstance(extension, dict) else None
    try:
        own = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        own = 0
    return isinstance(instance, str) and namespaces.get(instance, own) != own


def _descriptor(record: dict[str, Any], age_ms: int) -> dict[str, Any]:
    activity = record.get("activity")
    phase = activity.get("phase") if isinstance(activity, dict) else None
    shape: dict[str, Any] = {
        "sessionId": record["sessionId"],
        "alias": "",
        "project": record["projectName"],
        "kind": "root",
        "activity": phase if isinstance(phase, str) else str(record.get("status", "")),
        "availability": "presence_only",
        "capabilities": [],
        "scope": "machine",
        "wire": "native",
        "harness": record.get("provider") or "",
        "model": record.get("model") or "",
        "busy": record.get("status") == "working",
        "ageMs": age_ms,
    }
    percent = record.get("contextPercent")
    if isinstance(percent, int | float) and not isinstance(percent, bool) and percent:  # 0: not told
        shape["contextPercent"] = round(percent)
    extension = record.get("communication")
    if not isinstance(extension, dict) or not _is_sound(extension):
        return shape
    shape["instanceId"] = extension["instanceId"]
    shape["peerId"] = _peer_id(extension["instanceId"])
    shape["alias"] = extension.get("alias", "")
    shape["scope"] = extension.get("scope", "workspace")
    shape["capabilities"] = extension["capabilities"]
    shape["availability"] = "available" if extension["protocol"] == 1 else "unsupported"
    return shape


def _is_sound(extension: dict[str, Any]) -> bool:
    """Return whether an extension holds; one violation drops the whole of it, and only it."""
    instance, capabilities = extension.get("instanceId"), extension.get("capabilities")
    protocol = extension.get("protocol")
    if type(protocol) is not int or protocol < 1:
        return False
    if not isinstance(instance, str) or not 0 < len(instance) <= ID_CHARACTERS_MAX:
        return False
    if not (_ALNUM | {"-"}).issuperset(instance):
        return False
    if not isinstance(extension.get("endpoint"), str) or not isinstance(extension.get("publicKey"), str):
        return False
    if not isinstance(capabilities, list) or len(capabilities) > 16:
        return False
    if not all(isinstance(name, str) and name in _CAPABILITIES for name in capabilities):
        return False
    if extension.get("scope", "workspace") not in _RANKS or "\0" in extension["endpoint"]:
        return False
    alias = extension.get("alias", "a")
    return (
        isinstance(alias, str)
        and 0 < len(alias) <= 64
        and (_ALNUM | {"-", "_"}).issuperset(alias)
        and alias[0].isalpha()
        and extension.get("peerId", _peer_id(instance)) == _peer_id(instance)
    )


def _peer_id(instance: str) -> str:
    # The hash alone: hashlib with its OpenSSL half costs more than the rest of this module.
    try:
        from _sha256 import sha256  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415
    except ImportError:
        from hashlib import sha256  # noqa: PLC0415
    text = json.dumps([instance, None], separators=(",", ":"))
    return "peer-" + str(sha256(text.encode()).hexdigest())[:32]


def _is_in_scope(
    record: dict[str, Any], descriptor: dict[str, Any], workspace: str, own_repository: str, scope: str
) -> bool:
    """Return whether both sides' policies include the other."""
    their_workspace = record["workspaceRoot"]
    if their_workspace == workspace:
        need = 0
    elif own_repository and repository_of(their_workspace) == own_repository:
        need = 1
    else:
        need = 2
    return need <= _RANKS[scope] and need <= _RANKS[descriptor["scope"]]


def _matches(descriptor: dict[str, Any], needle: str) -> bool:
    names = (descriptor["alias"], descriptor["project"], descriptor.get("peerId", ""))
    return not needle or any(needle in str(name).lower() for name in names)


def repository_of(workspace: str) -> str:
    """Return the canonical git common directory that holds a path, or "" where none does.

    Reads the files that git keeps for this; no process is started.
    """
    at = workspace
    while at.startswith("/"):
        entry = at.rstrip("/") + "/.git"
        try:
            mode = os.stat(entry).st_mode
        except OSError:
            mode = 0
        if stat.S_ISDIR(mode):
            return os.path.realpath(entry)
        if stat.S_ISREG(mode):
            return _common_directory(entry)
        if at == "/":
            return ""
        at = os.path.dirname(at)
    return ""


def _common_directory(entry: str) -> str:
    """Return where a linked worktree's `.git` file leads: the directory that all worktrees share."""
    try:
        with open(entry, encoding="utf-8") as file:
            text = file.read(4_096)
        if not text.startswith("gitdir:"):
            return ""
        directory = os.path.join(os.path.dirname(entry), text[7:].strip())
        try:
            with open(directory + "/commondir", encoding="utf-8") as file:
                directory = os.path.join(directory, file.read(4_096).strip())
        except FileNotFoundError:
            pass  # a submodule: its own directory is the common one
    except (OSError, ValueError):
        return ""
    return os.path.realpath(directory)


def epoch_ms(text: str) -> int | None:
    """Return milliseconds since 1970 for `YYYY-MM-DDTHH:MM:SS[.fff]Z`, or None for any other text."""
    if not 20 <= len(text) <= 32 or text[10] != "T" or text[-1] != "Z" or not text.isascii():
        return None
    whole, _, fraction = text[:-1].partition(".")
    parts = (whole[:4], whole[5:7], whole[8:10], whole[11:13], whole[14:16], whole[17:19])
    if len(whole) != 19 or not all(part.isdigit() for part in parts) or (fraction and not fraction.isdigit()):
        return None
    year, month, day, hour, minute, second = map(int, parts)
    if year < 1970 or not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    if hour > 23 or minute > 59 or second > 60:
        return None
    # Days from the civil calendar, years counted from March so that the leap day comes last.
    shifted = year - (month < 3)
    day_of_year = (153 * (month + (9 if month < 3 else -3)) + 2) // 5 + day - 1
    days = shifted * 365 + shifted // 4 - shifted // 100 + shifted // 400 + day_of_year - 719_468
    seconds = days * 86_400 + hour * 3_600 + minute * 60 + second
    return seconds * 1_000 + int((fraction + "000")[:3])
