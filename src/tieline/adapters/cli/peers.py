"""`tieline peers`: who is there, and who am I.

Rule 1: where a root is found it is asked; where none is, presence is read, and the windows' registry where
that wire is on; and that is said.
Rule 2: what cannot be seen from here, as in a sandbox or another container, is an error or a note,
never an empty list without a word.

Source: DESIGN.md 2, 4, 8; reference/native.md 1C, 2.4, 2.11.
"""

import os
from argparse import Namespace
from typing import Any, NamedTuple

from tieline.adapters.cli.arguments import Alone, Parser, add_root_options
from tieline.adapters.cli.door import foreign_root, identity, reach, run_of
from tieline.adapters.cli.output import flush, line, note, paint, table, write, write_json
from tieline.errors import Refused
from tieline.runtime.configuration import configuration_path, configuration_text
from tieline.runtime.glance import Sight, look
from tieline.runtime.locate import here, places

__all__ = ["parser", "run"]

PAGES_MAX = 100
SCOPES = ("workspace", "repository", "machine")
EVERYWHERE = "all"
"""Besides the own scope: windows of every project, on a wire that has projects and no scopes."""


class Windows(NamedTuple):
    """The windows that were seen without a root; `unread` says why nobody could look, "" where one could."""

    peers: list[dict[str, Any]]
    others_count: int = 0
    faults_count: int = 0
    unread: str = ""


def parser(sub: Alone) -> Parser:
    """Return the parser of this command."""
    details = "The own alias and peer id come first. A listing is a hint: only a send proves who answers."
    made = sub.add_parser("peers", "Show who is there, and who am I.", details)
    made.add_argument(
        "--scope",
        choices=(*SCOPES, EVERYWHERE),
        default="workspace",
        help="how far to look (default workspace); all: as far as configured, and windows of every project",
    )
    made.add_argument(
        "--query", metavar="Q", default="", help="only peers whose alias, project or id holds this"
    )
    only = "print one alias a line, and nothing else (--json goes before it)"
    made.add_argument("--aliases", action="store_true", help=only)
    add_root_options(made)
    return made


def run(options: Namespace) -> int:
    """List the peers, and return the exit code."""
    try:
        client, found, _ = reach(options, may_change=False)
        with client:
            own, peers, fault_count, others_count = _asked(client.call, options)
        if found.rule == "workspace" and own is not None:
            # It answers for its workspace; whoever runs this command is somebody else.
            peers = [{key: value for key, value in own.items() if key != "isSelf"}, *peers]
            own = None
        body: dict[str, Any] = {"source": "root", "root": identity(found), "self": own, "peers": peers}
        notes = _others(others_count) + foreign_root(found) + _faults(fault_count)
    except Refused as error:
        if (
            error.code not in ("NO_ROOT", "FOREIGN_NAMESPACE", "AMBIGUOUS_TARGET")
            or options.instance
            or options.run
        ):
            raise
        sight = _read(options)
        windows = _windows(options, sight)
        peers = [*sight.peers, *windows.peers]
        if error.code == "FOREIGN_NAMESPACE" and not peers:
            raise
        fault_count, others_count = sight.faults, windows.others_count
        body = {"source": "presence", "root": None, "self": None, "peers": peers}
        notes = _presence_notes(sight, error, is_empty=not peers) + _others(others_count)
        notes += _window_notes(windows)
    if options.aliases and not options.json:
        for alias in sorted({str(peer["alias"]) for peer in peers if peer.get("alias")}):
            write(line(alias, 64))
    elif options.json:
        counts = {"presenceFaults": fault_count, "otherProjects": others_count}
        write_json("peers", {"scope": options.scope, **body, **counts})
    else:
        _show(body["self"], peers)
        for text in notes:
            note(text)
    flush()
    return 0


def _asked(call: Any, options: Namespace) -> tuple[dict[str, Any] | None, list[dict[str, Any]], int, int]:
    """Return what the root says: itself, all pages of peers, unreadable records, windows elsewhere."""
    params: dict[str, Any] = {"scope": options.scope, **run_of(options)}
    if options.query:
        params["query"] = options.query
    peers: list[dict[str, Any]] = []
    own, fault_count, others_count = None, 0, 0
    for _ in range(PAGES_MAX):
        page = call("list_peers", params)
        own, fault_count = page.get("self"), int(page.get("presenceFaults") or 0)
        others_count = int(page.get("otherProjects") or 0)
        peers += [peer for peer in page.get("peers", []) if isinstance(peer, dict)]
        cursor = page.get("cursor")
        if not isinstance(cursor, str):
            break
        params["cursor"] = cursor
    return own if isinstance(own, dict) else None, peers, fault_count, others_count


def _read(options: Namespace) -> Sight:
    where = places(os.environ)
    scope = where.scope if options.scope == EVERYWHERE else options.scope
    if SCOPES.index(scope) > SCOPES.index(where.scope):
        raise Refused("SCOPE_DENIED", f"the configured scope is {where.scope}, not {scope}")
    return look(where.coordination, here(), scope, options.query)


def _windows(options: Namespace, sight: Sight) -> "Windows":
    """Return the windows beside what presence showed; a registry that cannot be read is said, not fatal."""
    workspace = here()
    if not _may_have_windows():
        return Windows([])
    from tieline.runtime.windows.sight import look_for_windows

    try:
        return Windows(
            *look_for_windows(
                os.environ,
                workspace,
                is_crossing=options.scope == EVERYWHERE,
                query=options.query,
                sessions=frozenset(str(peer.get("sessionId")) for peer in sight.peers),
            )
        )
    except Refused as error:
        return Windows([], unread=f"the windows' registry was not read: {error}")


def _may_have_windows() -> bool:
    """Return whether the wire of windows is on; the whole configuration was judged before."""
    home = places(os.environ).home
    text = configuration_text(home)
    if "pi_peers" not in text and "TIELINE_PI_PEERS_ENABLED" not in os.environ:
        return False
    from tieline import config  # its start is paid only by who has windows

    return config.load(text, configuration_path(home), os.environ).wires.pi_peers.enabled


def _window_notes(windows: "Windows") -> list[str]:
    notes = [windows.unread] if windows.unread else []
    if windows.faults_count:
        notes.append(
            f"{windows.faults_count} files of windows could not be used; `tieline doctor` names the cause"
        )
    return notes


def _others(others_count: int) -> list[str]:
    return [f"(+{others_count} sessions in other projects: --scope all)"] if others_count else []


def _faults(fault_count: int) -> list[str]:
    if not fault_count:
        return []
    return [f"{fault_count} presence records could not be read; `tieline doctor` names the cause"]


def _presence_notes(sight: Sight, error: Refused, *, is_empty: bool) -> list[str]:
    why = "several roots fit" if error.code == "AMBIGUOUS_TARGET" else "no root hosts this command"
    notes = [f"{why}: read from presence, nobody was asked"]
    if is_empty:
        notes.append(
            "nobody shows presence in this scope" + ("; --scope reaches further" if sight.outside else "")
        )
    if sight.unseen:
        notes.append(
            f"{sight.unseen} more show presence from a process that cannot be seen from here,"
            " as from another container: use the MCP tool there"
        )
    return notes + _faults(sight.faults)


def _show(own: dict[str, Any] | None, peers: list[dict[str, Any]]) -> None:
    if own is not None:
        head = f"you are :{line(own.get('alias', '?'), 64)}  {line(own.get('peerId', ''), 64)}"
        write(paint(head, "bold") + f"  {line(own.get('project', ''), 64)}")
    names = {one.get("peerId"): one.get("alias") for one in (own or {}, *peers)}
    if own is not None and own.get("waitsFor"):
        write(f"  {_waits(own, names)}")
    rows = [_row(peer, names) for peer in peers]
    if rows:
        write(table(rows))


def _waits(peer: dict[str, Any], names: dict[Any, Any]) -> str:
    """Return for whom a peer waits."""
    found = [f":{line(names[one], 64)}" if names.get(one) else line(one, 64) for one in peer["waitsFor"]]
    return "waits for " + ", ".join(found)


def _row(peer: dict[str, Any], names: dict[Any, Any]) -> tuple[str, ...]:
    name = f":{line(peer['alias'], 64)}" if peer.get("alias") else "(no alias)"
    if peer.get("ref"):
        name += f" [{line(peer['ref'], 16)}]"
    if peer.get("kind") == "run":
        name = "  " + name
    availability = str(peer.get("availability", ""))
    words = [line(peer.get("activity") or ("busy" if peer.get("busy") else "idle"), 32)]
    if availability != "available":
        words.append(line(availability.replace("_", " "), 32))
    if peer.get("contextPercent") is not None:
        words.append(f"context {line(peer['contextPercent'], 8)} %")
    if peer.get("waitsFor"):
        words.append(_waits(peer, names))
    age_ms = peer.get("ageMs")
    if isinstance(age_ms, int) and age_ms >= 10_000:
        words.append(f"seen {age_ms // 1_000} s ago")
    maker = " ".join(line(peer[name], 48) for name in ("harness", "model") if peer.get(name))
    if peer.get("wire", "native") != "native":
        maker = f"{maker} ({line(peer['wire'], 16)})".lstrip()
    return name, line(peer.get("peerId", ""), 64), line(peer.get("project", ""), 48), maker, ", ".join(words)
