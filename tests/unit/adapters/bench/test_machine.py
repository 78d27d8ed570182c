"""What a measurement ran on."""

import os
from pathlib import Path

import pytest

from tieline.adapters.bench.machine import file_system, kib_of, machine, own_resources


@pytest.mark.clause("native-206", "native-207")
def test_machine_of_a_run_is_named(private_home: Path) -> None:
    """Host, kernel, runtime, processors, placement, file system and load stand beside every figure."""
    found = machine(str(private_home))
    assert set(found) == {
        "tieline", "host", "system", "python", "processors", "placement", "fileSystem", "load",
    }  # fmt: skip
    assert found["host"] == os.uname().nodename
    assert os.uname().release in found["system"]
    assert found["processors"] == os.cpu_count()
    assert len(found["load"]) == 3


def test_file_system_of_a_folder_is_that_of_its_nearest_mount() -> None:
    """The longest mount point above the folder counts, not the root's."""
    assert file_system("/proc/self").startswith("proc on")


def test_kib_of_a_text_without_the_name_is_none() -> None:
    """A quantity that the system does not tell is not invented."""
    text = "00400000-7ff 00 [rollup]\nRss:    2048 kB\nPss:    1024 kB\nPss_Dirty: 7 kB\n"
    assert (kib_of(text, "Pss"), kib_of(text, "Rss"), kib_of(text, "Swap")) == (1024, 2048, None)


@pytest.mark.clause("native-205")
def test_own_resources_grow_with_what_is_held() -> None:
    """Memory and descriptors are this process's own."""
    before = own_resources()
    held = bytearray(os.urandom(1)) * 30_000_000
    descriptors = [os.open("/dev/null", os.O_RDONLY) for _ in range(5)]
    after = own_resources()
    for one in descriptors:
        os.close(one)
    assert after["pssKib"] - before["pssKib"] > 25_000
    assert after["descriptors"] - before["descriptors"] == 5
    assert after["cpuS"] >= before["cpuS"]
    assert len(held) == 30_000_000
