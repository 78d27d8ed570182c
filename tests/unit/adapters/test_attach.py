"""The command `tieline attach`: its options."""

import pytest

from tieline.adapters import attach


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
