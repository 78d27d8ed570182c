"""Seeing that a directory has changed."""

import os
import threading
import time
from pathlib import Path

from tieline.runtime.resources.watching import DirectoryWatch, FilesWatch, Glance


def put(folder: Path, name: str, text: str) -> None:
    """Replace a file whole, as the store does."""
    (folder / ".new").write_text(text)
    (folder / ".new").rename(folder / name)


def test_glance_names_what_was_put_there_since(private_home: Path) -> None:
    """Only documents that were replaced are named; nothing is named twice."""
    put(private_home, "a.json", "1")
    glance = Glance(str(private_home))
    assert glance.is_changed()
    assert not glance.is_changed()
    assert glance.changed() == {"a.json"}
    assert glance.changed() == frozenset()
    put(private_home, "a.json", "2")
    put(private_home, "b.json", "1")
    put(private_home, "b.lock", "")
    assert glance.is_changed()
    assert glance.changed() == {"a.json", "b.json"}


def test_glance_at_a_missing_directory_sees_nothing_and_then_its_making(private_home: Path) -> None:
    """A directory that comes later is a change."""
    folder = private_home / "later"
    glance = Glance(str(folder))
    assert not glance.is_changed()
    assert glance.changed() == frozenset()
    folder.mkdir()
    assert glance.is_changed()


def test_watch_ends_its_wait_at_once_when_a_file_comes(private_home: Path) -> None:
    """A waiter does not wait for its next look."""
    with DirectoryWatch(str(private_home)) as watch:
        threading.Timer(0.1, put, (private_home, "a.json", "1")).start()
        begun = time.monotonic()
        assert watch.wait(5.0)
        assert time.monotonic() - begun < 3.0
        while watch.wait(0.05):
            continue
        assert not watch.wait(0.05)


def test_watch_that_the_system_does_not_offer_only_waits(private_home: Path) -> None:
    """Without a watch there is the look."""
    watch = DirectoryWatch(str(private_home))
    os.close(watch.descriptor)
    watch.descriptor = -1
    put(private_home, "a.json", "1")
    assert not watch.wait(0.01)
    watch.close()
    watch.close()


def test_files_watch_is_woken_by_its_own_file_and_by_no_other(private_home: Path) -> None:
    """A busy directory costs who waits for one file of it nothing, and that file's change ends the wait."""
    put(private_home, "own.json", "1")
    put(private_home, "other.json", "1")
    with FilesWatch(str(private_home)) as watch:
        watch.follow(["own.json", "not-there-yet.json"])
        for number in range(50):
            put(private_home, "other.json", str(number))
        assert not watch.wait(0.05)
        for text in ("2", "3"):
            threading.Timer(0.1, put, (private_home, "own.json", text)).start()
            begun = time.monotonic()
            assert watch.wait(5.0)
            assert time.monotonic() - begun < 3.0
            while watch.wait(0.05):
                continue
            watch.follow(["own.json"])


def test_glance_knows_a_file_that_came_after_its_last_look(private_home: Path) -> None:
    """What was put there between a look and a watch is not lost."""
    put(private_home, "a.json", "1")
    glance = Glance(str(private_home))
    assert glance.is_newer("a.json")
    glance.changed()
    assert not glance.is_newer("a.json")
    put(private_home, "a.json", "22")
    assert glance.is_newer("a.json")
