"""The command `tieline attach`: its options."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tieline.adapters import attach


def started(home: Path, **more: object) -> "subprocess.CompletedProcess[bytes]":
    """Run the door on a home with no input, and return how it ended."""
    environment = {**os.environ, "TIELINE_HOME": str(home)}
    words = [sys.executable, "-m", "tieline.adapters.cli.main", "attach"]
    given = {"stdout": subprocess.PIPE, **more}
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        words,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
        timeout=20,
        check=False,
        **given,
    )


def _closed_home(home: Path) -> None:
    home.chmod(0)


def _home_is_a_file(home: Path) -> None:
    home.rmdir()
    home.write_text("x")


def _configuration_is_a_directory(home: Path) -> None:
    (home / "config.toml").mkdir()


def _configuration_is_no_text(home: Path) -> None:
    (home / "config.toml").write_bytes(b"\xff\xfe")


def _configuration_is_a_pipe(home: Path) -> None:
    os.mkfifo(home / "config.toml")


def _configuration_draws(home: Path) -> None:
    (home / "config.toml").write_text('[communication]\n"sc\\u001b[2Jope" = 1\n')


def _store_place_is_a_file(home: Path) -> None:
    (home / "peer-messages").write_text("x")


def test_parser_help_names_every_option_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """The help is complete enough to start it from another language."""
    with pytest.raises(SystemExit) as ended:
        attach.parser().parse_args(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    told = ("--alias", "--scope", "--session", "--mode", "--model", "--harness", "--workspace")
    for words in (*told, "--parent", "--no-publish", "--idle-behavior", "attached", "Exit codes"):
        assert words in text


@pytest.mark.parametrize("words", [["--scope", "galaxy"], ["--mode", "x"], ["--port", "1"], ["extra"]])
def test_parser_wrong_value_is_wrong_usage(words: list[str]) -> None:
    """Exit code 2, before anything is opened."""
    with pytest.raises(SystemExit) as ended:
        attach.parser().parse_args(words)
    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (_closed_home, 1),
        (_home_is_a_file, 1),
        (_configuration_is_a_directory, 2),
        (_configuration_is_no_text, 2),
        (_configuration_is_a_pipe, 2),
        (_configuration_draws, 2),
        (_store_place_is_a_file, 1),
    ],
)
def test_main_that_finds_no_root_says_so_in_its_first_line(
    tmp_path: Path, spoil: Callable[[Path], None], code: int
) -> None:
    """Whatever is in the way, the host reads one typed error; a log stream gets no control sequence."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    spoil(home)
    ended = started(home)
    (line,) = ended.stdout.splitlines()
    frame = json.loads(line)
    assert (frame["id"], ended.returncode) == (None, code)
    assert frame["error"]["data"]["code"].encode() in ended.stderr
    assert frame["error"]["data"]["action"]
    assert b"\x1b" not in ended.stdout + ended.stderr
    if home.is_dir():
        home.chmod(0o700)


def test_main_whose_output_takes_nothing_does_not_end_well(tmp_path: Path) -> None:
    """A host that could not be told of its root is no host: exit 1, with the reason on the log stream."""
    with open("/dev/full", "wb") as full:
        ended = started(tmp_path, stdout=full)
    assert ended.returncode == 1
    assert os.strerror(errno.ENOSPC).encode() not in ended.stderr
    assert b"took nothing" in ended.stderr
    assert started(tmp_path).returncode == 0
