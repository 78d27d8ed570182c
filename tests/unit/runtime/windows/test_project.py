"""The project of a directory, as windows know it."""

import subprocess
from pathlib import Path

import pytest

from tieline.runtime.windows.project import project_of


@pytest.mark.clause("pi-peers-47")
def test_project_is_the_top_of_the_work_tree_or_the_directory(private_home: Path) -> None:
    """Below a work tree its top; elsewhere the directory itself; both without links."""
    plain, below = private_home / "plain", private_home / "tree" / "a" / "b"
    plain.mkdir()
    below.mkdir(parents=True)
    assert project_of(str(plain)) == str(plain.resolve())
    subprocess.run(["git", "init", "-q", str(private_home / "tree")], check=True)
    (private_home / "link").symlink_to(below)
    assert project_of(str(private_home / "link")) == str((private_home / "tree").resolve())
