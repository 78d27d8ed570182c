"""Records as identities, directory entries and targets."""

import os
from pathlib import Path
from typing import Any

import pytest

from tieline.config import Scope
from tieline.engine.directory import Place, Root
from tieline.errors import Refusal, Refused
from tieline.model.identity import Availability, foreign_instance
from tieline.model.moment import Moment
from tieline.model.process import Life
from tieline.runtime.windows.surroundings import (
    ADDRESSES_MAX,
    LOOKS_BURST,
    Surroundings,
    address_instance,
    identities,
    is_window_name,
)
from tieline.shell.peers import Target
from tieline.store.registry import Listed, Window


def listed(pid: int, session: str = "", life: Life = Life.ALIVE, **fields: Any) -> Listed:
    """Return a window as the registry lists it."""
    has_key, fault = fields.pop("has_key", True), fields.pop("fault", None)
    window = {"cwd": "/p", "name": f"w{pid}", "socket_path": f"/s/{pid}.sock", "started_ms": pid} | fields
    return Listed(Window(pid=pid, session=session, **window), life, has_key, fault)


class FakeRegistry:
    """The registry's questions, answered from a list."""

    def __init__(self, *windows: Listed) -> None:
        self.windows = windows
        self.tokens: dict[int, str | None] = {}
        self.is_unsafe = False
        self.old: tuple[Listed, ...] | None = None  # what the last look showed, while it is asked again
        self.looks_count = 0

    def scan(self, _now_ms: int, *, fresh: bool = False) -> tuple[Listed, ...]:
        self.looks_count += fresh
        return self.windows if fresh or self.old is None else self.old

    def read_record(self, pid: int) -> Listed | None:
        return next((one for one in self.windows if one.window.pid == pid), None)

    def peer_token(self, window: Window) -> str | None:
        if self.is_unsafe:
            raise Refused("UNSAFE_ENDPOINT", "others may write there")
        return self.tokens.get(window.pid, "token")


def surroundings(
    *windows: Listed, parent: tuple[str, str] | None = None
) -> tuple[Surroundings, FakeRegistry]:
    """Return surroundings over a fake registry."""
    registry = FakeRegistry(*windows)
    made = Surroundings(registry, project="/p", parent=parent, now=lambda: Moment(0, 0))  # type: ignore[arg-type]
    return made, registry


def native(instance: str, session: str = "n") -> Root:
    """Return a native root."""
    return Root(
        instance, session, instance, "p", "idle", Availability.AVAILABLE, (), Place("/p", "", Scope.MACHINE)
    )


@pytest.mark.clause("pi-peers-U24")
def test_of_two_windows_of_one_conversation_the_later_bears_the_plain_identity() -> None:
    """The other is told apart by its address; who names no conversation is its address."""
    one, two, bare = listed(1, "s"), listed(2, "s"), listed(3)
    assert identities([one, two, bare]) == {
        foreign_instance("pi-peers", "s", "/s/1.sock"): one,
        foreign_instance("pi-peers", "s"): two,
        address_instance("/s/3.sock"): bare,
    }
    assert identities([one])[foreign_instance("pi-peers", "s")] == one


def test_address_is_whose_record_names_it_and_else_itself() -> None:
    """With or without its scheme; an address without a record is remembered, and so is its mail's way."""
    around, registry = surroundings(listed(1, "s"))
    assert around.instance_at("uds:/s/1.sock")[0] == foreign_instance("pi-peers", "s")
    stranger, window = around.instance_at("/s/9.sock")
    assert (stranger, window) == (address_instance("/s/9.sock"), None)
    assert isinstance(around.target(stranger), Refusal)
    registry.windows = (listed(9, "late", socket_path="/s/9.sock"),)
    assert isinstance(around.target(stranger), Target)
    for place in range(ADDRESSES_MAX + 1):
        around.instance_at(f"/x/{place}")
    registry.windows = ()
    assert isinstance(around.target(stranger), Refusal)


@pytest.mark.clause("pi-peers-13", "pi-peers-17", "pi-peers-23")
def test_target_is_read_anew_and_every_check_is_a_typed_no() -> None:
    """Newer protocol, missing or bad key, unsafe registry, gone: each says which; a good one has all."""
    around, registry = surroundings(listed(1, "s", features=frozenset({"notify_idle"})))
    instance = foreign_instance("pi-peers", "s")
    assert around.target(instance) == Target(instance, "/s/1.sock", "token", 1, can_tell_idle=True)
    for window, tokens, code in (
        (listed(1, "s", protocol=2), {}, "UNSUPPORTED_PROTOCOL"),
        (listed(1, "s", has_key=False), {1: None}, "PEER_OFFLINE"),
        (listed(1, "s", fault="its key file is open to others"), {1: None}, "PEER_OFFLINE"),
        (listed(2, "other"), {}, "PEER_OFFLINE"),
    ):
        registry.windows, registry.tokens = (window,), tokens
        found = around.target(instance)
        assert isinstance(found, Refusal), window
        assert found.code == code
    registry.windows, registry.is_unsafe = (listed(1, "s"),), True
    assert isinstance(found := around.target(instance), Refusal)
    assert found.code == "UNSAFE_ENDPOINT"


@pytest.mark.clause("pi-peers-U1", "pi-peers-U2")
def test_process_of_a_target_counts_only_where_it_is_proven() -> None:
    """In another domain, or another form of start, its number says nothing about who listens."""
    for life, pid in ((Life.ALIVE, 1), (Life.FOREIGN, 0), (Life.UNPROVED, 0)):
        around, _ = surroundings(listed(1, "s", life))
        target = around.target(foreign_instance("pi-peers", "s"))
        assert isinstance(target, Target)
        assert target.pid == pid
    around, _ = surroundings(listed(1, "s", Life.DEAD))
    assert isinstance(around.target(foreign_instance("pi-peers", "s")), Refusal)


@pytest.mark.clause("pi-peers-25")
def test_parent_is_written_to_with_its_child_token_also_without_a_record() -> None:
    """What the environment gave is enough."""
    around, registry = surroundings(listed(1, "s"), parent=("/s/1.sock", "child"))
    registry.tokens = {1: None}
    for target in (around.target(foreign_instance("pi-peers", "s")), around.target_at("/s/1.sock")):
        assert isinstance(target, Target)
        assert target.token == "child"
    registry.windows = ()
    assert isinstance(around.target_at("uds:/s/1.sock"), Target)

    assert around.roots([], {})[0].address == "/s/1.sock"
    assert around.roots([], {})[0].availability is Availability.OFFLINE


@pytest.mark.clause("pi-peers-13", "pi-peers-43")
def test_window_that_came_since_the_last_look_is_known_at_once() -> None:
    """Its first message is its own, its receipt finds it; made-up addresses buy a bounded number of looks."""
    around, registry = surroundings(listed(1, "s"))
    registry.old = ()
    assert around.instance_at("/s/1.sock")[0] == foreign_instance("pi-peers", "s")
    assert isinstance(around.target_at("/s/1.sock"), Target)
    for place in range(2 * LOOKS_BURST):
        around.instance_at(f"/x/{place}")
    assert registry.looks_count == LOOKS_BURST


@pytest.mark.clause("pi-peers-35")
def test_process_speaks_for_its_own_window_only() -> None:
    """Unnamed it must be proven to be that window; named it must not be proven to be another."""
    mine, other = (foreign_instance("pi-peers", session) for session in ("mine", "other"))
    around, _ = surroundings(listed(1, "mine"), listed(2, "other"))
    assert around.speaks(mine, "", 1)
    assert around.speaks(mine, "/s/1.sock", 1)
    assert around.speaks(mine, "/s/1.sock", 77)
    for instance, address, pid in ((mine, "", 2), (mine, "", 77), (mine, "", None), (mine, "/s/1.sock", 2)):
        assert not around.speaks(instance, address, pid)
    assert not around.speaks(other, "", 1)


@pytest.mark.clause("pi-peers-46", "pi-peers-48")
def test_window_is_a_directory_entry_of_its_wire(private_home: Path) -> None:
    """Name or a derived one, ref, state, context, project; who cannot be reached is told apart."""
    here = listed(1, "s", name="", cwd="/p/api", project_root="/p", status="shell", context_percent=9)
    around, registry = surroundings(here)
    (root,) = around.roots([], {})
    assert (root.alias, root.ref, root.wire) == ("api-1", here.window.ref, "pi-peers")
    assert (root.is_busy, root.context_percent, root.is_other_project) == (True, 9, False)
    for window, availability in (
        (listed(1, protocol=2), Availability.UNSUPPORTED),
        (listed(1, has_key=False), Availability.OFFLINE),
        (listed(1, fault="bad key"), Availability.OFFLINE),
        (listed(1, life=Life.FOREIGN, socket_path=str(private_home / "none")), Availability.OFFLINE),
        (listed(1), Availability.AVAILABLE),
        (listed(1, cwd=""), Availability.AVAILABLE),
    ):
        registry.windows = (window,)
        assert around.roots([], {})[0].availability is availability
    assert around.roots([], {})[0].is_other_project


def test_window_that_is_a_native_root_is_shown_once_as_that_root() -> None:
    """By its process; where several share one, by the session as well; a doubtful life joins nothing."""
    around, registry = surroundings(listed(1, "s"))
    (root,) = around.roots([native("one")], {"one": 1})
    assert (root.instance, root.wire, root.address) == ("one", "native", "/s/1.sock")
    assert len(around.roots([native("one"), native("two")], {"one": 1, "two": 1})) == 3
    joined = around.roots([native("one"), native("two", "s")], {"one": 1, "two": 1})
    assert [item.ref != "" for item in joined] == [False, True]
    registry.windows = (listed(1, "s", Life.FOREIGN),)
    assert len(around.roots([native("one")], {"one": 1})) == 2
    assert len(around.roots([native("one")], {"one": os.getpid()})) == 2


def test_name_of_a_window_leaves_out_what_refs_and_wrappers_are_made_of() -> None:
    """Printable, bounded, none of the signs that mean something on this wire."""
    assert is_window_name("api work-1")
    assert not any(is_window_name(text) for text in ("", "x" * 65, "a[b", "a<b", 'a"b', "a/b", "a\nb"))
