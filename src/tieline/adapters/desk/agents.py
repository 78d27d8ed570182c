"""Who is there, as the desk knows it: each peer once, its runs under it, who has gone marked as gone.

Theory. The root's listing is what is there now. The desk remembers who was there: a peer that is missing
from one whole listing has ended or gone stale, as the listing's own threshold decides, and stays as gone as
long as somebody has unfinished business with it.

Rule 1: a peer is its peer id; a name that comes back is another peer.
Rule 2: this module asks nobody; it is told listings and draws rows.

Source: reference/native.md 1C, 2.4; issue "Directory"; DESIGN.md 1 "The same agent on several wires".
"""

from collections.abc import Iterable
from typing import Any

from tieline.adapters.desk.words import Piece, Row, age, fit
from tieline.composer import Binding, Known

__all__ = ["Agents"]

GONE_MAX = 200
_SCOPES = {"workspace": "work", "repository": "repo", "machine": "mach"}
_OWN_INBOX = "message.receive"


class Agents:
    """The directory of the desk."""

    def __init__(self) -> None:
        self.peers: dict[str, dict[str, Any]] = {}
        self.gone: dict[str, dict[str, Any]] = {}
        self.own: dict[str, Any] = {}
        self.others_count = 0
        self.faults_count = 0
        self.filter = ""

    def told(self, own: dict[str, Any], peers: Iterable[dict[str, Any]]) -> bool:
        """Take a whole listing over; return whether anything but ages changed."""
        now = {str(one["peerId"]): one for one in peers}
        before, was_own = self.peers, self.own
        for peer_id, peer in before.items():
            if peer_id not in now:
                self.gone[peer_id] = peer
        for peer_id in now:
            self.gone.pop(peer_id, None)
        while len(self.gone) > GONE_MAX:
            self.gone.pop(next(iter(self.gone)))
        self.peers, self.own = now, own
        return was_own != own or _without_age(before) != _without_age(now)

    def alias(self, peer_id: str, otherwise: str = "") -> str:
        """Return the name that a peer has, or had; never to be routed by."""
        if peer_id == self.own.get("peerId"):
            return str(self.own.get("alias") or "you")
        peer = self.peers.get(peer_id) or self.gone.get(peer_id)
        return str((peer or {}).get("alias") or otherwise or peer_id[:13])

    def is_there(self, peer_id: str) -> bool:
        """Return whether a peer is in the present listing."""
        return peer_id in self.peers

    def known(self) -> list[Known]:
        """Return whom a draft may mean."""
        return [
            Known(
                str(one.get("alias") or ""),
                peer_id,
                str(one.get("instanceId") or ""),
                one.get("runId"),
                _OWN_INBOX in one.get("capabilities", ()) and one.get("availability") == "available",
            )
            for peer_id, one in self.peers.items()
        ]

    def binding(self, peer_id: str) -> Binding | None:
        """Return a peer as it is picked, or None where it was never seen."""
        one = self.peers.get(peer_id) or self.gone.get(peer_id)
        if one is None:
            return None
        name = str(one.get("alias") or "")
        return Binding(name, 0, 0, peer_id, str(one.get("instanceId") or ""), one.get("runId"))

    def picks(self, prefix: str, count: int) -> list[dict[str, Any]]:
        """Return whom a name being typed may mean: those that begin with it, then those that hold it."""
        wanted = prefix.casefold()
        named = [(str(one.get("alias") or ""), one) for one in self.peers.values()]
        found = sorted(
            (
                (not name.casefold().startswith(wanted), name.casefold(), str(one["peerId"]), one)
                for name, one in named
                if name and wanted in name.casefold()
            ),
            key=lambda entry: entry[:3],
        )
        return [one for *_, one in found[:count]]

    def keys(self, kept: frozenset[str] = frozenset()) -> list[str]:
        """Return the peer ids of the rows: roots by name, each with its runs under it; then who has gone.

        Args:
            kept: Who has gone and is shown all the same: there is business with it.
        """
        wanted = self.filter.casefold()
        everybody = {**self.peers, **{one: peer for one, peer in self.gone.items() if one in kept}}
        runs: dict[str, list[str]] = {}
        roots: list[str] = []
        for peer_id, peer in everybody.items():
            (runs.setdefault(str(peer.get("instanceId")), []) if peer.get("runId") else roots).append(peer_id)

        def order(peer_id: str) -> tuple[bool, str, str]:
            return peer_id in self.gone, str(everybody[peer_id].get("alias") or "").casefold(), peer_id

        found: list[str] = []
        for root in sorted(roots, key=order):
            below = sorted(runs.pop(str(everybody[root].get("instanceId")), ()), key=order)
            shown = [one for one in below if _fits(everybody[one], wanted)]
            if shown or _fits(everybody[root], wanted):
                found += [root, *shown]
        for left in runs.values():  # runs of a root that is not shown
            found += sorted((one for one in left if _fits(everybody[one], wanted)), key=order)
        return found

    def row(self, peer_id: str, width: int, business: str = "") -> Row:
        """Return one peer as a row of `width` columns; `business` says what is unfinished with it."""
        is_gone = peer_id in self.gone
        peer = self.peers.get(peer_id) or self.gone.get(peer_id) or {}
        name = ("  " if peer.get("runId") else "") + ":" + str(peer.get("alias") or "?")
        activity, role = _activity(peer, is_gone=is_gone)
        maker = " ".join(str(peer[part]) for part in ("harness", "model") if peer.get(part))
        percent = peer.get("contextPercent")
        seen = peer.get("ageMs")
        spare = max(0, width - 79)
        name_columns, maker_columns = 16 + spare // 3, 17 + spare // 3
        project_columns = 11 + spare // 3
        parts = (
            (name, name_columns, "weak" if is_gone else "strong"),
            (activity, 8, role),
            (maker, maker_columns, ""),
            (peer.get("project") or "", project_columns, ""),
            ("" if percent is None else f"{percent}%", 4, "warn" if (percent or 0) >= 80 else ""),
            (_SCOPES.get(str(peer.get("scope")), ""), 4, "weak"),
            (peer.get("wire") or "native", 8, "weak"),
            ("" if seen is None or is_gone else age(int(seen)), 4, "weak"),
        )
        row: list[Piece] = []
        for text, count, role_name in parts:
            row += [Piece(fit(text, count), role_name), Piece(" ")]
        if business and not is_gone:
            row[2 if len(row) > 2 else 0] = Piece(fit(business, 8), "warn")
        return tuple(row)

    @staticmethod
    def heading(width: int) -> Row:
        """Return the heading of the rows."""
        spare = max(0, width - 79)
        names = (
            ("name", 16 + spare // 3), ("state", 8), ("agent, model", 17 + spare // 3),
            ("project", 11 + spare // 3), ("ctx", 4), ("scope", 5), ("wire", 7), ("seen", 4),
        )  # fmt: skip
        return tuple(Piece(fit(name, count) + " ", "weak") for name, count in names)


def _activity(peer: dict[str, Any], *, is_gone: bool) -> tuple[str, str]:
    if is_gone:
        return "ended", "bad"
    if peer.get("availability") not in (None, "available"):
        return str(peer["availability"]).replace("_", " "), "warn"
    if peer.get("runId"):
        return str(peer.get("activity") or "live"), ""
    return ("busy", "warn") if peer.get("busy") else ("idle", "good")


def _fits(peer: dict[str, Any], wanted: str) -> bool:
    if not wanted:
        return True
    said = ("alias", "project", "harness", "model", "wire", "activity", "peerId")
    words = " ".join(str(peer.get(part) or "") for part in said)
    return wanted in (":" + words + (" busy" if peer.get("busy") else " idle")).casefold()


def _without_age(peers: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        key: {name: value for name, value in one.items() if name != "ageMs"} for key, one in peers.items()
    }
