"""What is shipped is what was built from these sources, twice the same, and nothing else.

Source: reference/reliability.md 3.8; reference/open-bugs.md O58.
"""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]


def build(target: Path) -> Path:
    """Return a wheel built from the checkout into `target`."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(target)]
    subprocess.run(command, cwd=CHECKOUT, env=environment, check=True, capture_output=True, timeout=50)
    (wheel,) = target.glob("*.whl")
    return wheel


def install(wheel: Path, digest: str, target: Path) -> "subprocess.CompletedProcess[str]":
    """Return what came of installing `wheel` with the hash `digest`."""
    requirements = target.with_suffix(".txt")
    requirements.write_text(f"tieline @ {wheel.as_uri()} --hash=sha256:{digest}\n")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--isolated",
        "--no-index",
        "--no-deps",
        "--require-hashes",
    ]
    command += ["--disable-pip-version-check", "--target", str(target), "-r", str(requirements)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=50)


def digest_of(path: Path) -> str:
    """Return the sha256 of a file in hexadecimal, as sha256sum counts it."""
    counted = subprocess.run(["sha256sum", str(path)], check=True, capture_output=True, text=True)
    return counted.stdout.split()[0]


@pytest.mark.clause("O58")
def test_wheel_built_twice_is_the_same_and_runs_nothing_by_itself(tmp_path: Path) -> None:
    """Two builds are equal byte for byte, and the wheel holds the package and no start-up file."""
    first, second = build(tmp_path / "1"), build(tmp_path / "2")
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as wheel:
        names = wheel.namelist()
    assert [name for name in names if name.endswith((".pth", ".so", "sitecustomize.py"))] == []
    assert {name.split("/")[0] for name in names} == {"tieline", "tieline-0.1.0.dist-info"}
    shims = ("intercom-client.mjs", "pi/tieline.js", "opencode/tieline.js")
    assert {f"tieline/shims/{name}" for name in shims} <= set(names)


@pytest.mark.clause("O58")
def test_package_with_altered_hash_is_not_installed(tmp_path: Path) -> None:
    """A package whose hash is not the locked one is refused, and the locked one is taken."""
    wheel = build(tmp_path / "built")
    digest = digest_of(wheel)
    altered = ("0" if digest[0] != "0" else "1") + digest[1:]
    refused = install(wheel, altered, tmp_path / "refused")
    assert refused.returncode != 0
    assert "HASHES" in refused.stderr
    assert not (tmp_path / "refused" / "tieline").exists()
    taken = install(wheel, digest, tmp_path / "taken")
    assert taken.returncode == 0, taken.stderr
    assert (tmp_path / "taken" / "tieline").is_dir()
