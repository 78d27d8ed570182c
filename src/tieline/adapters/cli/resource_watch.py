"""`tieline resource watch`: what happens to resources, as it happens, until the reader has seen enough.

Rule 1: it reads the files where the directory changed, takes no lock and changes nothing.
Rule 2: who may not see a resource's events is told free or busy, when that changes.
Rule 3: a gap in a history is said, never passed over.

Source: reference/native.md 2.13 "Events", 3.5 "watch", "status visibility"; DESIGN.md 4.
"""

import os
from argparse import Namespace
from typing import Any

from tieline.adapters.cli.door import reach, run_of
from tieline.adapters.cli.output import flush, line, note, write, write_json_line
from tieline.adapters.cli.resource import write_event
from tieline.errors import Refused, UsageError

__all__ = ["watch"]

LOOK_S = 1.0


def watch(options: Namespace) -> int:
    """Follow one resource or all of them; returns when the reader went away or interrupted it."""
    if options.after is not None and not options.subject:
        raise UsageError("--after is a place in the history of one resource: give KEY as well")
    from tieline.runtime.locate import here
    from tieline.runtime.resources.claims import full_key
    from tieline.runtime.resources.coordinator import Coordinator
    from tieline.runtime.resources.watching import DirectoryWatch, Glance

    viewer, coordination = _viewer(options)
    key = full_key(options.subject, here()) if options.subject else None
    coordinator = Coordinator(coordination)
    follower = _Follower(coordinator, viewer, key, options.after, as_json=options.json)
    try:
        glance = Glance(coordinator.store.path)
        with DirectoryWatch(coordinator.store.path) as changes:
            glance.is_changed()
            follower.look(is_first=True)
            while True:
                if changes.wait(LOOK_S) or glance.is_changed():
                    glance.is_changed()
                    follower.look(is_first=False)
    finally:
        coordinator.close()


def _viewer(options: Namespace) -> tuple[Any, str]:
    """Return who looks, as its root proves it, or this OS user; and the coordination directory."""
    from tieline.runtime.locate import places
    from tieline.runtime.resources.claims import claimant_of
    from tieline.runtime.resources.viewing import local_viewer

    try:
        client, found, _ = reach(options, may_change=False)
    except Refused as error:
        if error.code not in ("NO_ROOT", "AMBIGUOUS_TARGET") or options.instance or options.run:
            raise
        return local_viewer(), places(os.environ).coordination
    with client:
        if found.rule == "workspace":
            return local_viewer(), places(os.environ).coordination
        who = client.call("local.who", run_of(options))
    directory = str(who["coordinationDirectory"])
    principal, _ = claimant_of(who, directory + "/peer-runtime")
    return principal, directory


class _Follower:
    """What was shown of each resource already."""

    def __init__(self, coordinator: Any, viewer: Any, key: Any, after: int | None, *, as_json: bool) -> None:
        self._coordinator, self._viewer, self._key = coordinator, viewer, key
        self._as_json = as_json
        self._after = after
        self._sequences: dict[Any, int] = {}
        self._states: dict[Any, str] = {}

    def look(self, *, is_first: bool) -> None:
        """Show what is new since the last look."""
        from tieline.runtime.resources.viewing import events, glimpse

        keys = self._coordinator.known_keys() if self._key is None else (self._key,)
        store = self._coordinator.store
        documents = self._coordinator.readable(keys) if self._key is None else [store.read(keys[0])]
        for document in documents:
            key = document.resource
            since = self._sequences.get(key)
            if since is None:
                since = (
                    self._after if self._after is not None else (document.event_sequence if is_first else 0)
                )
            ids = frozenset({self._viewer.peer.id, self._viewer.peer.root.id})
            found, has_gap = events(document, ids, since, self._viewer)
            self._sequences[key] = document.event_sequence
            if has_gap:
                note(
                    f"tieline resource: events of {line(key, 256)} before {document.events_dropped} are gone"
                )
            for event in found:
                write_event(event, as_json=self._as_json)
            shape = glimpse(self._coordinator, key, self._viewer)
            if self._states.get(key) != shape["state"]:
                self._states[key] = shape["state"]
                self._show_state(shape)
        flush()

    def _show_state(self, shape: dict[str, Any]) -> None:
        if self._as_json:
            body = {"resource": shape["resource"], "state": shape["state"]}
            write_json_line({"version": 1, "command": "resource", "action": "watch", **body})
        else:
            write(f"{line(shape['resource'], 256)} is {line(shape['state'], 16)}")
