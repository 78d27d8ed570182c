"""What every test gets: an ordinary user, private folders, and the same generated examples each time.

Rule 1: no test runs as root, because permission checks are empty there.
Rule 2: no test sees or touches a person's directories: every variable that names one is set anew.

Source: DESIGN.md 8, "Test machines"; reference/reliability.md F14.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

NOT_AS_ROOT = (
    "tests run as an ordinary user, because permission checks are empty for root; "
    "start them with tests/run.py PATH (or make test SUITE=PATH), with the same arguments"
)
# Names that begin so configure Tieline or a program it talks to; a test sets those it needs.
FOREIGN_PREFIXES = ("TIELINE_", "PI_", "CLAUDE", "CODEX_", "OPENCODE", "GEMINI_", "AUTOHAND_", "XDG_")
KEPT = ("TIELINE_TEST_PROFILE",)

# `change` is the same on every run; `long` looks for what nobody has seen yet and prints how to repeat it.
settings.register_profile(
    "change",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", deadline=None, database=None, max_examples=10_000, print_blob=True)
settings.load_profile(os.environ.get("TIELINE_TEST_PROFILE", "change"))


def pytest_configure() -> None:
    """Refuse to run as root.

    Raises:
        pytest.UsageError: The effective user is root.
    """
    if os.geteuid() == 0:
        raise pytest.UsageError(NOT_AS_ROOT)


@pytest.fixture(scope="session", autouse=True)
def base_of_temporary_folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the base of every `tmp_path` before a test of its own sets where temporary files go."""
    return tmp_path_factory.getbasetemp()


@pytest.fixture
def private_home() -> Iterator[Path]:
    """Give an empty folder of this test alone: mode 0700, its path at most 30 bytes where /tmp is used.

    A socket's path has 107 bytes, which `tmp_path` often uses up.
    """
    base = tempfile.gettempdir()
    home = Path(tempfile.mkdtemp(prefix="p", dir=base if len(os.fsencode(base)) <= 20 else "/tmp"))
    yield home
    shutil.rmtree(home)


@pytest.fixture(autouse=True)
def private_environment(private_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point every variable that names a person's directory into `private_home`, and drop the others."""
    for name in list(os.environ):
        if name.startswith(FOREIGN_PREFIXES) and name not in KEPT:
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(private_home))
    monkeypatch.setenv("TIELINE_HOME", str(private_home / "t"))
    monkeypatch.setenv("PI_PEERS_DIR", str(private_home / "p"))
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(private_home / "a"))
    monkeypatch.setenv("PI_INTERCOM_RUNTIME_DIR", str(private_home / "i"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(private_home))
