"""What the machine itself allows."""

import shutil
from pathlib import Path

import pytest

from tieline.adapters.bench.limit import FILE_BYTES, Echo, SyncedFile, compiled_echo, echo_server


@pytest.mark.parametrize("is_compiled", [False, True])
def test_echo_server_gives_back_every_byte_and_ends(private_home: Path, is_compiled: bool) -> None:
    """Both echoes return what they got, also more than one buffer of it, one connection after the other."""
    program = compiled_echo(str(private_home)) if is_compiled else None
    assert (program is not None) == (is_compiled and _has_compiler())
    path = str(private_home / "echo.sock")
    with echo_server(path, program):
        for _ in range(2):
            echo = Echo(path)
            for size in (1, 1_024, 300_000):
                echo.exchange(b"x" * size)
            echo.close()
    with pytest.raises(ConnectionRefusedError):
        Echo(path)


def _has_compiler() -> bool:
    return any(shutil.which(name) for name in ("cc", "gcc", "clang"))


def test_echo_without_a_compiler_is_none(private_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing compiles, that is said instead of a figure."""
    monkeypatch.setenv("PATH", "/nowhere")
    assert compiled_echo(str(private_home)) is None


def test_synced_file_never_grows(private_home: Path) -> None:
    """Writes go round in the blocks that exist: a growing file would cost more than a bare write."""
    path = private_home / "file"
    with SyncedFile(str(path)) as file:
        for _ in range(3):
            file.write(b"y" * (FILE_BYTES // 2))
            assert path.stat().st_size == FILE_BYTES
    assert path.read_bytes()[: FILE_BYTES // 2] == b"y" * (FILE_BYTES // 2)
    with pytest.raises(FileExistsError):
        SyncedFile(str(path))
