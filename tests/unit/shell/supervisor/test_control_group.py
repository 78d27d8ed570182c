"""A control group for a launch, where one can be had."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.faults.launches import wait_until
from tieline.shell.supervisor import control_group
from tieline.shell.supervisor.control_group import end_group, make_group, remove_group, remove_left_group
from tieline.shell.tree import cgroup_state

NONCE = "0123456789abcdef0123456789abcdef"


def test_group_where_none_can_be_made_is_an_empty_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No delegation, a name that exists, or a system that takes no process: the launch goes without."""
    monkeypatch.setattr(control_group, "_own_group", lambda: "")
    assert make_group(NONCE, os.getpid()) == ""
    monkeypatch.setattr(control_group, "_own_group", lambda: str(tmp_path / "absent"))
    assert make_group(NONCE, os.getpid()) == ""
    monkeypatch.setattr(control_group, "_own_group", lambda: str(tmp_path))
    assert make_group("../../x", os.getpid()) == ""
    (tmp_path / f"tieline-{NONCE[:24]}").mkdir()
    assert make_group(NONCE, os.getpid()) == ""


def test_group_takes_the_process_by_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is written into the group that is named after the nonce."""
    monkeypatch.setattr(control_group, "_own_group", lambda: str(tmp_path))
    directory = make_group(NONCE, 4711)
    assert directory == str(tmp_path / f"tieline-{NONCE[:24]}")
    assert Path(directory, "cgroup.procs").read_text() == "4711"
    assert end_group(directory)
    assert not end_group(str(tmp_path / "absent"))
    remove_group(directory)  # it is in use, as an ordinary folder with files is: it stays
    assert Path(directory).exists()


@pytest.mark.clause("I37")
def test_left_group_is_removed_when_it_is_the_launchs_and_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its recorded place, or by its name where none was recorded; no other folder is touched."""
    monkeypatch.setattr(control_group, "_own_group", lambda: str(tmp_path))
    group, other = tmp_path / f"tieline-{NONCE[:24]}", tmp_path / "other"
    group.mkdir()
    other.mkdir()
    remove_left_group(NONCE, str(group))
    assert group.exists()  # what is above it is no control group
    (tmp_path / "cgroup.procs").touch()
    remove_left_group(NONCE, str(other))
    remove_left_group("f" * 32, str(group))
    assert group.exists()
    assert other.exists()
    remove_left_group(NONCE, str(group))
    assert not group.exists()
    group.mkdir()
    (group / "in-use").mkdir()
    remove_left_group(NONCE, "")
    assert group.exists()
    (group / "in-use").rmdir()
    remove_left_group(NONCE, "")
    assert not group.exists()


def test_own_group_is_read_from_the_kernels_tables() -> None:
    """Where control groups of version 2 are mounted, our own is a folder of that mount."""
    own = control_group._own_group()
    assert own == "" or os.path.exists(f"{own}/cgroup.procs")


def test_group_of_this_system_holds_until_its_last_process_ends() -> None:
    """With a delegated control group the kernel itself says when a launch is over."""
    process = subprocess.Popen(["sleep", "60"])
    directory = make_group(NONCE, process.pid)
    try:
        if not directory:
            pytest.skip("this user has no control group to make one in: nothing is delegated here")
        assert cgroup_state(directory) == "populated"
        assert end_group(directory)
        process.wait()
        wait_until(lambda: cgroup_state(directory) == "empty")
        remove_group(directory)
        assert not os.path.exists(directory)
        assert cgroup_state(directory) == "empty"
    finally:
        process.kill()
        process.wait()
