"""The sessions of one broker, by id and by link, in the order of their registration.

Rule 1: an id belongs to one live session; who holds it keeps it unless its own kind says otherwise.
Rule 2: the group, scope and capabilities of a session are what its registration said, for its whole life.
Rule 3: what a session tells of itself is kept as it came; the id and the times are the hub's.

Source: reference/intercom.md 1.2, 1.5, 2, 3.
"""

from collections.abc import Iterator
from typing import Any, Final

from tieline.engine.brokering.contract import Extension, Fields, Join, Lineage, Row
from tieline.engine.brokering.features import Features
from tieline.engine.brokering.records import Place
from tieline.engine.brokering.topology import Placed, is_child, is_visible

__all__ = ["BOUNDED_SESSIONS_MAX", "Session", "Sessions"]

BOUNDED_SESSIONS_MAX: Final = 128
"""Sessions of the kind that is bounded. Source: reference/intercom.md 1.5 "Limits"."""


class Session:
    """One registration, while it is live."""

    __slots__ = (
        "_fields",
        "_row",
        "application_guard",
        "epoch",
        "extensions",
        "features",
        "incarnation",
        "joined_ms",
        "lineage",
        "link",
        "process_id",
        "scope",
        "told_ms",
        "wanted_id",
    )

    def __init__(self, join: Join, session_id: str, process_id: int, now_ms: int) -> None:
        """Begin with what a registration says; `now_ms` is wall time."""
        self.link = join.link
        self.wanted_id = join.wanted_id
        self.features: Features = join.features
        self.scope: str | None = join.scope
        self.lineage: Lineage | None = join.lineage
        self.incarnation = join.incarnation
        self.application_guard = join.application_guard
        self.extensions: tuple[Extension, ...] = join.extensions
        self.epoch = join.epoch
        self.process_id = process_id
        self.joined_ms = now_ms
        self._fields: dict[str, Any] = {
            **join.fields,
            "id": session_id,
            "lastSeen": join.fields.get("lastSeen", now_ms),
        }
        self.told_ms = 0  # monotonic; when others were last told what it says of itself
        self._row: Row | None = None

    @property
    def id(self) -> str:
        """Its id at this broker."""
        return str(self._fields["id"])

    @property
    def place(self) -> Place:
        """Where it stands: the same id in another scope is somebody else."""
        return Place(self.scope, self.id)

    @property
    def name(self) -> str | None:
        """What it calls itself now; None for nothing."""
        name = self._fields.get("name")
        return name if isinstance(name, str) else None

    @property
    def is_guarded(self) -> bool:
        """Whether it may be the target of a guarded send: a main that announced it and says who it is."""
        return (
            self.features.guarded_delivery
            and self.lineage is not None
            and self.incarnation is not None
            and not is_child(self)
        )

    @property
    def is_idle(self) -> bool:
        """Whether it says that it is idle, and does not say that it takes no asks."""
        status = self._fields.get("status")
        says_idle = isinstance(status, str) and (status == "idle" or status.startswith("idle "))
        return says_idle and self._fields.get("acceptsAsks") is not False

    def get(self, name: str) -> Any:
        """Return what it told of itself under a name, or None."""
        return self._fields.get(name)

    def change(self, changes: Fields) -> bool:
        """Take what a session tells of itself, None for nothing more; return whether it differs."""
        before, after = self._fields, dict(self._fields)
        for name, value in changes.items():
            if value is None:
                after.pop(name, None)
            else:
                after[name] = value
        self._fields, self._row = after, None
        return after != before

    def bind(self, application_guard: str | None) -> None:
        """Take the revision that guarded sends must name, or None to take no more of them."""
        self.application_guard = application_guard
        self._row = None

    def row(self) -> Row:
        """Return it as others see it now."""
        if self._row is None:
            fields = dict(self._fields)
            if self.is_guarded:
                fields["guardedDelivery"] = 1
                if self.application_guard is not None:
                    fields["applicationGuard"] = self.application_guard
            self._row = Row(
                fields=fields,
                features=self.features,
                epoch=self.epoch,
                process_id=self.process_id,
                joined_ms=self.joined_ms,
            )
        return self._row


class Sessions:
    """Who is registered."""

    def __init__(self) -> None:
        self._by_id: dict[str, Session] = {}
        self._by_link: dict[int, Session] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._by_id.values())

    def of_link(self, link: int) -> Session | None:
        """Return the session that speaks over a link, or None."""
        return self._by_link.get(link)

    def of_id(self, session_id: str) -> Session | None:
        """Return the session with exactly this id, or None."""
        return self._by_id.get(session_id)

    def add(self, session: Session) -> None:
        """Take a session in; its id and link are free."""
        assert session.id not in self._by_id, "two live sessions share an id"
        assert session.link not in self._by_link, "one link speaks for two sessions"
        self._by_id[session.id] = session
        self._by_link[session.link] = session

    def remove(self, session: Session) -> None:
        """Let a session go."""
        del self._by_id[session.id]
        del self._by_link[session.link]

    def bounded_count(self) -> int:
        """Return how many sessions count towards `BOUNDED_SESSIONS_MAX`."""
        return sum(session.features.is_bounded for session in self)

    def seen_by(self, one: Placed) -> Iterator[Session]:
        """Yield who `one` can see, in the order of registration; itself too, where it is registered."""
        return (session for session in self if is_visible(one, session))
