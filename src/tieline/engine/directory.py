"""Who is there: scope, aliases, runs, pages; what a name means.

Rule 1: both policies must include the other side; asking for more than the own policy is refused.
Rule 2: an exact peer id wins; an alias resolves when exactly one fits; nothing else ever routes.
Rule 3: what a listing shows is sanitised elsewhere and bounded here; no endpoint, key or path.
Rule 4: presence is a hint; this module never says that somebody is dead.

Source: reference/native.md 1C, 2.3, 2.4, 2.6b; reference/reliability.md I43, I48.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Sequence

import msgspec

from tieline.config import Scope, is_alias
from tieline.errors import Refusal
from tieline.model.identity import Availability, Descriptor, Peer, is_peer_id, peer_id

__all__ = ["Listing", "Place", "Root", "Run", "is_in_scope", "listing", "opaque", "relation", "resolve"]

QUERY_CHARACTERS_MAX = 256
CURSOR_CHARACTERS_MAX = 2_048
TARGET_CHARACTERS_MAX = 256
CANDIDATES_MAX = 8
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


def listing(
    own: Place, roots: Iterable[Root], *, scope: Scope, query: str, cursor: str | None, page_size: int
) -> Listing | Refusal:
    """Return one page of who can be seen.

    Args:
        own: Our place and policy.
        roots: Everybody known, ourselves left out.
        scope: How far to look, at most the own policy.
        query: Text to find in alias, project or peer id, without regard to case; "" finds all.
        cursor: Where a former page ended; bound to the same scope and query.
        page_size: Descriptors per page.
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
        if is_in_scope(own, root.place, scope)
        for item in _descriptors(root)
        if item.peer.id > after and _matches(item, needle)
    ]
    found.sort(key=lambda item: item.peer.id)
    page = tuple(found[:page_size])
    more = _seal_cursor(scope, query, page[-1].peer.id) if len(found) > page_size else None
    return Listing(page, more)


def resolve(
    own: Place, roots: Sequence[Root], target: str, asked: Scope | None = None
) -> Descriptor | Refusal:
    """Return the one peer that `target` names: an exact peer id, or an alias that exactly one bears.

    One colon before it is left out: people and texts write `:api`. A number, a path, `*`, a prefix or an
    empty text is UNKNOWN_TARGET; two bearers are AMBIGUOUS_TARGET with their exact ids; a bearer outside
    scope is SCOPE_DENIED.
    """
    target = target.removeprefix(":")
    if not target or len(target) > TARGET_CHARACTERS_MAX or not (is_peer_id(target) or is_alias(target)):
        return Refusal("UNKNOWN_TARGET", "a target is an exact peer id or an alias")
    wide = asked or own.scope
    if wide.rank > own.scope.rank:
        return Refusal("SCOPE_DENIED", f"this root may reach {own.scope}, not {wide}")
    inside: list[Descriptor] = []
    outside = False
    for root in roots:
        for item in _descriptors(root, target):
            if is_in_scope(own, root.place, wide):
                inside.append(item)
            else:
                outside = True
    exact = [item for item in inside if item.peer.id == target]
    if exact:
        return exact[0]
    able = [item for item in inside if item.availability is Availability.AVAILABLE] or inside
    if len(able) > 1:
        ids = tuple(sorted(item.peer.id for item in able))[:CANDIDATES_MAX]
        text = f"{len(able)} peers bear this alias: {', '.join(ids)}"
        return Refusal("AMBIGUOUS_TARGET", text, candidates=ids)
    if able:
        return able[0]
    if outside:
        return Refusal("SCOPE_DENIED", "the peer of this name is outside the scope of one of the two ends")
    return Refusal("UNKNOWN_TARGET", "no peer of this name is known here")


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
    }
    own = Descriptor(
        peer=Peer(root.instance), alias=root.alias, kind="root", activity=root.activity,
        capabilities=root.capabilities, is_busy=root.is_busy, context_percent=root.context_percent, **shared,  # type: ignore[arg-type]
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
        not needle or needle in item.alias.lower() or needle in item.project.lower() or needle in item.peer.id
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
