"""Which revision of the extension ships a script."""

import json
import os
from pathlib import Path

import pytest

from tieline.shell.hub.place import Paths
from tieline.shell.hub.revision import paths_of_script


def shipped(folder: Path, package: object, **sources: str) -> str:
    """Lay out an extension; return its broker's path."""
    broker = folder / "dist" / "broker"
    broker.mkdir(parents=True)
    (folder / "package.json").write_text(package if isinstance(package, str) else json.dumps(package))
    for name, text in sources.items():
        (broker.parent / f"{name}.mjs").write_text(text)
    (broker / "broker.js").write_text("// the broker")
    return str(broker / "broker.js")


@pytest.mark.clause("intercom-132")
def test_newest_revision_is_known_by_the_variable_it_reads(tmp_path: Path) -> None:
    """Anywhere beside the script or one folder above it."""
    script = shipped(tmp_path, {"name": "x"}, paths="process.env.PI_INTERCOM_RUNTIME_DIR ?? base")
    assert paths_of_script(script) is Paths.SHARED


@pytest.mark.clause("intercom-132")
def test_ancestor_is_known_by_its_package(tmp_path: Path) -> None:
    """Also where its sources mention the variable."""
    script = shipped(tmp_path, {"name": "pi-intercom"}, paths="PI_INTERCOM_RUNTIME_DIR")
    assert paths_of_script(script) is Paths.FOLDER


@pytest.mark.clause("intercom-132")
@pytest.mark.parametrize("package", [{"name": "x"}, {"name": 1}, [], "{", "[" * 100_000])
def test_what_says_nothing_is_the_middle_revision(tmp_path: Path, package: object) -> None:
    """One broker for each agent directory: what such a command was made for."""
    assert paths_of_script(shipped(tmp_path, package)) is Paths.AGENT


def test_script_that_is_not_there_or_not_readable_is_the_middle_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pipes and folders that look like sources are passed over, never waited for."""
    assert paths_of_script("/nowhere/at/all/broker.js") is Paths.AGENT
    script = shipped(tmp_path, {"name": "x"})
    os.mkfifo(tmp_path / "dist" / "pipe.js")
    (tmp_path / "dist" / "folder.ts").mkdir()
    (tmp_path / "dist" / "shut.js").touch(mode=0o000)
    assert paths_of_script(script) is Paths.AGENT

    def failing(descriptor: int, size: int) -> bytes:
        raise OSError

    monkeypatch.setattr(os, "read", failing)
    assert paths_of_script(script) is Paths.AGENT
