"""Who is there: scope, aliases, runs, pages; what a name means.

Rule 1: both policies must include the other side; asking for more than the own policy is refused.
Rule 2: an exact peer id wins; a name resolves when exactly one bears it; nothing else ever routes. An end
    of a wire with refs and addresses is also named by `name [ref]`, `[ref]`, its address (with or without
    `uds:`), and, where nobody bears it now, by a name it had before.
Rule 3: what a listing shows is sanitised elsewhere and bounded here; no endpoint, key or path.
Rule 4: presence is a hint; this module never says that somebody is dead.

Rule 5: an end of a wire that knows no policy of scope is visible in its project, and counted elsewhere.

Source: reference/native.md 1C, 2.3, 2.4, 2.6b; reference/reliability.md I43, I48;
reference/pi-peers-and-harness-doors.md rules 39, 46 to 48, U8, U23.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from tieline.config import Scope, is_alias
from tieline.errors import Refusal
from tieline.model.identity import Availability, Descriptor, Peer, is_peer_id, peer_id

__all__ = [
    "Listing",
    "Place",
    "Root",
    "Run",
    "is_in_scope",
    "listing",
    "opaque",
    "others_count",
    "relation",
    "resolve",
]

QUERY_CHARACTERS_MAX = 256
CURSOR_CHARACTERS_MAX = 2_048
TARGET_CHARACTERS_MAX = 256
CANDIDATES_MAX = 8
NATIVE = "native"
ADDRESS_SCHEMES = ("uds:", "pipe:")
RUNS_PER_ROOT_MAX = 256  # child descriptors accepted of one root: reference/native.md 2.4


class Place(msgspec.Struct, frozen=True):
    """Where a root works: canonical workspace, canonical git common directory or "", and its policy."""

    workspace: str
    repository: str
    scope: Scope


class Run(msgspec.Struct, frozen=True):
    """A live child run as its own root told it, checked: its peer id was recomputed."""

    run: str
    alias: str
    activity: str
    capabilities: tuple[str, ...]


class Root(msgspec.Struct, frozen=True):
    """A root as presence shows it, with the runs that it told us."""

    instance: str
    session: str
    alias: str
    project: str
    activity: str
    availability: Availability
    capabilities: tuple[str, ...]
    place: Place
    runs: tuple[Run, ...] = ()
    harness: str = ""
    model: str = ""
    is_busy: bool = False
    context_percent: int | None = None
    age_ms: int = 0
    wire: str = "native"
    ref: str = ""  # short and stable across a rename; "" where the wire has none
    address: str = ""  # what that wire calls it; "" where it has none
    former_names: tuple[str, ...] = ()
    is_other_project: bool = False  # on a wire without scopes: seen when asked for all, counted otherwise


class Listing(msgspec.Struct, frozen=True):
    """One page of descriptors in peer id order, and the cursor of the next page or None."""

    peers: tuple[Descriptor, ...]
    cursor: str | None


def opaque(path: str) -> str:
    """Return an id that equal paths share and that shows nothing of the path; "" for ""."""
    return hashlib.sha256(path.encode()).hexdigest()[:24] if path else ""


def relation(one: Place, other: Place) -> Scope:
    """Return the narrowest scope that holds both places."""
    if one.workspace and one.workspace == other.workspace:
        return Scope.WORKSPACE
    if one.repository and one.repository == other.repository:
        return Scope.REPOSITORY
    return Scope.MACHINE


def is_in_scope(own: Place, other: Place, asked: Scope | None = None) -> bool:
    """Return whether both policies (and what was asked for) include the other side."""
    need = relation(own, other).rank
    return need <= own.scope.rank and need <= other.scope.rank and (asked is None or need <= asked.rank)


def others_count(roots: Iterable[Root]) -> int:
    """Return how many sessions of other projects there are on wires without scopes."""
    return sum(1 for root in roots if root.is_other_project)


def _is_visible(own: Place, root: Root, scope: Scope | None, *, is_crossing: bool) -> bool:
    """Return whether a root is in scope; the ends of a wire without scopes by their project, or all."""
    if root.wire == NATIVE:
        return is_in_scope(own, root.place, scope)
    return is_crossing or not root.is_other_project


def listing(
    own: Place,
    roots: Iterable[Root],
    *,
    scope: Scope,
    query: str,
    cursor: str | None,
    page_size: int,
    is_crossing: bool = False,
) -> Listing | Refusal:
    """Return one page of who can be seen.

    Args:
        own: Our place and policy.
        roots: Everybody known, ourselves left out.
        scope: How far to look, at most the own policy.
        query: Text to find in alias, project or peer id, without regard to case; "" finds all.
        cursor: Where a former page ended; bound to the same scope and query.
        page_size: Descriptors per page.
        is_crossing: Whether to look into every project where a wire has no scopes.
    """
    if scope.rank > own.scope.rank:
        return Refusal("SCOPE_DENIED", f"this root may see {own.scope}, not {scope}")
    if len(query) > QUERY_CHARACTERS_MAX:
        return Refusal("INVALID_PARAMS", f"query is longer than {QUERY_CHARACTERS_MAX} characters")
    after = ""
    if cursor is not None:
        opened = _open_cursor(cursor, scope, query)
        if opened is None:
            return Refusal("INVALID_PARAMS", "the cursor does not belong to this scope and query")
        after = opened
    needle = query.lower()
    found = [
        item
        for root in roots
        if _is_visible(own, root, scope, is_crossing=is_crossing)
        for item in _descriptors(root)
        if item.peer.id > after and _matches(item, needle)
    ]
    found.sort(key=lambda item: item.peer.id)
    page = tuple(found[:page_size])
    more = _seal_cursor(scope, query, page[-1].peer.id) if len(found) > page_size else None
    return Listing(page, more)


class _Wanted(NamedTuple):
    """What a target may mean; "" where it cannot mean that."""

    text: str  # a peer id or a name
    name: str  # with a ref after it
    ref: str
    address: str


def _wanted(target: str) -> _Wanted:
    text = target.removeprefix(":")
    name, bracket, rest = text.rpartition("[")
    if bracket and rest.endswith("]") and (not name or name.endswith(" ")):
        return _Wanted(text, name.rstrip(" "), rest[:-1].lower(), "")
    address = text
    for scheme in ADDRESS_SCHEMES:
        address = address.removeprefix(scheme)
    return _Wanted(text, "", "", address)


def resolve(
    own: Place, roots: Sequence[Root], target: str, asked: Scope | None = None, *, is_crossing: bool = False
) -> Descriptor | Refusal:
    """Return the one peer that `target` names: an exact peer id, or a name that exactly one bears.

    One colon before it is left out: people and texts write `:api`. A number, a path that is nobody's
    address, `*`, a prefix or an empty text is UNKNOWN_TARGET; two bearers are AMBIGUOUS_TARGET with their
    exact ids; a bearer outside scope is SCOPE_DENIED.
    """
    if not target.removeprefix(":") or len(target) > TARGET_CHARACTERS_MAX:
        return Refusal("UNKNOWN_TARGET", "a target is an exact peer id or a name")
    wanted = _wanted(target)
    wide = asked or own.scope
    if wide.rank > own.scope.rank:
        return Refusal("SCOPE_DENIED", f"this root may reach {own.scope}, not {wide}")
    inside, outside = _bearers(own, roots, wanted, wide, is_crossing=is_crossing)
    if not inside and not outside:
        former = [root for root in roots if wanted.text in root.former_names]
        again = [_Wanted(root.alias, root.alias, root.ref, "") for root in former]
        for root, meant in zip(former, again, strict=True):
            found, missed = _bearers(own, [root], meant, wide, is_crossing=is_crossing)
            inside.extend(found)
            outside.extend(missed)
    exact = [item for item in inside if item.peer.id == wanted.text]
    if exact:
        return exact[0]
    able = [item for item in inside if item.availability is Availability.AVAILABLE] or inside
    if len(able) > 1:
        ids = tuple(sorted(item.peer.id for item in able))[:CANDIDATES_MAX]
        text = f"{len(able)} peers bear this name: {', '.join(ids)}"
        return Refusal("AMBIGUOUS_TARGET", text, candidates=ids)
    if able:
        return able[0]
    if any(item.wire != NATIVE for item in outside):
        return Refusal("SCOPE_DENIED", "that session works in another project: ask with scope all")
    if outside:
        return Refusal("SCOPE_DENIED", "the peer of this name is outside the scope of one of the two ends")
    return Refusal("UNKNOWN_TARGET", f"no peer {target[:64]!r} is known here")


def _bearers(
    own: Place, roots: Sequence[Root], wanted: _Wanted, scope: Scope, *, is_crossing: bool
) -> tuple[list[Descriptor], list[Descriptor]]:
    """Return who bears a name now, in scope and outside of it."""
    inside: list[Descriptor] = []
    outside: list[Descriptor] = []
    for root in roots:
        into = inside if _is_visible(own, root, scope, is_crossing=is_crossing) else outside
        if _is_meant(root, wanted):
            into.extend(_descriptors(root, peer_id(root.instance, None)))
        elif root.wire != NATIVE or is_peer_id(wanted.text) or is_alias(wanted.text):
            into.extend(_descriptors(root, wanted.text))
    return inside, outside


def _is_meant(root: Root, wanted: _Wanted) -> bool:
    """Return whether a ref or an address names this root."""
    if wanted.ref:
        return root.ref == wanted.ref and wanted.name in ("", root.alias)
    return bool(root.address) and root.address == wanted.address


def _descriptors(root: Root, target: str | None = None) -> list[Descriptor]:
    """Return the root and its runs as descriptors; with `target`, only those that bear it."""
    # Every send looks its target up: nothing is made of those who do not bear the name.
    has_own = target is None or target in (root.alias, peer_id(root.instance, None))
    runs = [
        run for run in root.runs if target is None or target in (run.alias, peer_id(root.instance, run.run))
    ]
    if not has_own and not runs:
        return []
    shared = {
        "session": root.session,
        "project": root.project,
        "availability": root.availability,
        "workspace": opaque(root.place.workspace),
        "repository": opaque(root.place.repository),
        "scope": root.place.scope,
        "harness": root.harness,
        "model": root.model,
        "wire": root.wire,
    }
    own = Descriptor(
        peer=Peer(root.instance), alias=root.alias, kind="root", activity=root.activity,
        capabilities=root.capabilities, is_busy=root.is_busy, context_percent=root.context_percent,
        ref=root.ref, address=root.address, former_names=root.former_names,
        is_other_project=root.is_other_project, **shared,  # type: ignore[arg-type]
    )  # fmt: skip
    return [own] * has_own + [
        Descriptor(
            peer=Peer(root.instance, run.run), alias=run.alias, kind="run", activity=run.activity,
            capabilities=run.capabilities, is_busy=True, **shared,  # type: ignore[arg-type]
        )
        for run in runs
    ]  # fmt: skip


def _matches(item: Descriptor, needle: str) -> bool:
    return (
        not needle
        or needle in item.alias.lower()
        or needle in item.project.lower()
        or needle in item.peer.id
        or (bool(item.ref) and needle == item.ref)
    )


def _seal_cursor(scope: Scope, query: str, last: str) -> str:
    text = json.dumps([scope.value, query, last], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _open_cursor(cursor: str, scope: Scope, query: str) -> str | None:
    """Return the last peer id of the former page, or None when the cursor is not of this listing."""
    if not cursor or len(cursor) > CURSOR_CHARACTERS_MAX or not cursor.isascii():
        return None
    try:
        parts = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return None
    if not isinstance(parts, list) or len(parts) != 3 or parts[:2] != [scope.value, query]:
        return None
    return parts[2] if isinstance(parts[2], str) and is_peer_id(parts[2]) else None
