"""What a companion sees of a context, and when its guard stands."""

from itertools import count
from typing import Any

import pytest

from tieline.runtime.intercom.context import Context
from tieline.runtime.intercom.lineage import Lineage


def context(parent: str = "") -> Context:
    """Return a context with lives that are numbers."""
    lives = count(1)
    return Context(Lineage(parent), "s", lambda: str(next(lives)))


def seen(of: Context, peer: str = "pi-1") -> dict[str, Any]:
    """Return a target as a companion has it from a snapshot."""
    shape = of.snapshot(peer, is_guarded=True)
    return {name: shape[name] for name in ("rootSessionId", "peerId", "incarnation")}


def test_snapshot_names_the_exact_context() -> None:
    """What is not there is null; a child names its main."""
    assert context().snapshot("pi-1", is_guarded=True) == {
        "version": 1, "rootSessionId": "s", "peerId": "pi-1", "incarnation": "1", "connected": True,
        "guardedDelivery": 1,
    }  # fmt: skip
    offline = context().snapshot("", is_guarded=True)
    assert (offline["peerId"], offline["connected"], offline["guardedDelivery"]) == (None, False, None)
    child = context("main").snapshot("pi-1", is_guarded=False)
    assert (child["rootSessionId"], child["parentSessionId"]) == ("main", "main")


@pytest.mark.clause("intercom-135")
def test_guard_stands_for_the_seen_context_and_ends_with_it() -> None:
    """Stale, offline or a child: nothing is set. Another session is another life without a guard."""
    one = context()
    target = seen(one)
    assert one.set_guard(target, "g", "pi-1") is None
    assert (one.guard, one.fields()["applicationGuard"]) == ("g", "g")
    assert one.snapshot("pi-1", is_guarded=True)["applicationGuard"] == "g"
    assert one.set_guard({**target, "incarnation": "0"}, "h", "pi-1") == "context_changed"
    assert one.set_guard(target, "h", "pi-2") == "context_changed"
    assert one.set_guard(target, "", "pi-1") == "invalid_revision"
    assert one.guard == "g"
    one.replace("t")
    assert (one.guard, one.incarnation, one.root) == (None, "2", "t")
    assert one.set_guard(target, "h", "pi-1") == "context_changed"
    assert one.set_guard(seen(one), "h", "pi-1") is None
    assert one.set_guard(seen(one), None, "pi-1") is None
    assert one.guard is None
    child = context("main")
    assert child.set_guard(seen(child), "g", "pi-1") == "context_changed"
