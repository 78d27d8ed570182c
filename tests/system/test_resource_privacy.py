"""Shared files show that a command runs, not what it is."""

import subprocess
import sys
from pathlib import Path

import pytest

SECRET = "token-4f1c9a"
TIELINE = (sys.executable, "-m", "tieline.adapters.cli.main")


@pytest.mark.clause("native-3.6.12")
def test_shared_files_hold_no_argument_of_a_command(private_home: Path) -> None:
    """While a command runs with a secret in its arguments, no shared file holds it; its digest is there."""
    work = private_home / "w"
    work.mkdir()
    folder = str(private_home / "h" / "peer-resources")
    look = f"import pathlib; print(*[p.read_text() for p in pathlib.Path({folder!r}).glob('*.json')])"
    done = subprocess.run(
        [*TIELINE, "run", "--resource", "machine/build", "--", sys.executable, "-c", look, SECRET],
        cwd=work,
        env={"PATH": "/usr/bin:/bin", "TIELINE_HOME": str(private_home / "h"), "HOME": str(private_home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "machine/build" in done.stdout
    assert "digest" in done.stdout
    for text in (SECRET, "pathlib"):
        assert text not in done.stdout
