"""The flag of waiting mail: up while a hook has something to do, and gone with its root."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.runtime.roots import call, two
from tieline.runtime.ladder import Flags
from tieline.runtime.ladder.flags import is_file_name

pytestmark = pytest.mark.asyncio


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110 - nothing tells this but a look
            await asyncio.sleep(0.01)


async def test_flag_is_up_while_mail_waits_and_goes_with_the_root(private_home: Path) -> None:
    """Mail raises it, its reading takes it down, and the end of the root takes both files."""
    folder = private_home / "h" / "mail"
    async with two(private_home) as (alice, bob):
        flags = Flags(bob.node)
        flags.open("s-1")
        assert (folder / "s-1.door").read_text() == bob.who()["control"]
        assert not (folder / "s-1").exists()
        await alice.send("bob", "x")
        await until((folder / "s-1").exists)
        shown = await call(bob, "host.boundary", kind="tool")
        flags.look()
        assert not (folder / "s-1").exists()
        flags.is_owed = True
        flags.look()
        assert (folder / "s-1").exists()
        await call(bob, "host.taken", token=shown["token"])
        flags.open("s-2")
        assert not (folder / "s-1.door").exists()
        assert (folder / "s-2").exists()
    assert list(folder.iterdir()) == []


async def test_flags_of_a_root_that_was_killed_go_with_the_next_one(private_home: Path) -> None:
    """Its endpoint is gone; those of one that lives stay."""
    folder = private_home / "h" / "mail"
    async with two(private_home) as (alice, bob):
        Flags(alice.node).open("s-1")
        (folder / "old.door").write_text(str(private_home / "gone"))
        (folder / "old").write_text("")
        (folder / "old.client").write_text("")
        for name in ("old.door", "old", "old.client"):
            (folder / name).chmod(0o600)
        Flags(bob.node).open("s-2")
        await asyncio.sleep(0)
        left = {f"{name}.{suffix}" for name in ("s-1", "s-2") for suffix in ("door", "client")}
        assert {one.name for one in folder.iterdir()} == left


async def test_session_that_is_no_file_name_has_no_files(private_home: Path) -> None:
    """Nothing is written outside the folder."""
    assert not any(map(is_file_name, ("", "../x", "a/b", "a.b", "x" * 129, "a\n")))
    async with two(private_home) as (_alice, bob):
        Flags(bob.node).open("../x")
        assert not (private_home / "h" / "mail").exists()


async def test_door_of_the_harness_stands_whatever_its_session_and_goes_with_the_root(
    private_home: Path,
) -> None:
    """A session changes, the harness's process does not."""
    folder = private_home / "h" / "mail"
    async with two(private_home) as (_alice, bob):
        flags = Flags(bob.node)
        flags.open_host(4711)
        flags.open("s-1")
        flags.open("s-2")
        assert (folder / "host-4711.door").read_text() == bob.who()["control"]
        left = {"host-4711.door", "host-4711.client", "s-2.door", "s-2.client"}
        assert {one.name for one in folder.iterdir()} == left
    assert list(folder.iterdir()) == []


async def test_files_of_a_successor_stay_when_the_root_before_it_ends(private_home: Path) -> None:
    """A harness starts a server anew before the old one is gone: the session and the process are the same."""
    folder = private_home / "h" / "mail"
    async with two(private_home) as (alice, bob):
        for root in (alice, bob):
            flags = Flags(root.node)
            flags.open("s-1")
            flags.open_host(4711)
        await alice.close()
        for name in ("s-1.door", "host-4711.door"):
            assert (folder / name).read_text() == bob.who()["control"]
        assert (folder / "s-1.client").exists()
