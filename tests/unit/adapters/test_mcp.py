"""The command: its options, and what it does without a host."""

import subprocess
import sys

import pytest

from tieline.adapters import mcp


def test_parser_help_says_how_a_host_starts_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The help is complete enough to set a host up."""
    with pytest.raises(SystemExit) as ended:
        mcp.parser().parse_args(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for words in (
        '{"command": "tieline", "args": ["mcp"]}',
        "--alias",
        "--scope",
        "--session",
        "--workspace",
    ):
        assert words in text


def test_parser_unknown_option_is_wrong_usage() -> None:
    """Exit code 2, as everywhere."""
    with pytest.raises(SystemExit) as ended:
        mcp.parser().parse_args(["--port", "1"])
    assert ended.value.code == 2


@pytest.mark.clause("O33")
@pytest.mark.parametrize(
    "said", [b"", b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n', b"half a line"]
)
def test_main_input_that_ends_before_any_question_opens_nothing(said: bytes) -> None:
    """A host that leaves at once leaves nothing behind."""
    code = (
        "import sys; from tieline.adapters import mcp; code = mcp.main([])\n"
        "assert 'tieline.runtime' not in sys.modules; sys.exit(code)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], input=said, capture_output=True, timeout=10, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
