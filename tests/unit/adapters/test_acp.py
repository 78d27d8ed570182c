"""`tieline acp` as it is called."""

import pytest

from tieline.adapters.acp import parser


def test_words_behind_the_dashes_are_the_agents() -> None:
    """Also where they look like options of ours."""
    given = parser().parse_args(["--alias", "web", "--", "gemini", "--acp"])
    assert (given.alias, given.agent) == ("web", ["gemini", "--acp"])


def test_call_without_an_agent_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """There is nothing to start."""
    with pytest.raises(SystemExit) as left:
        parser().parse_args(["--"])
    assert left.value.code == 2
    assert "AGENT" in capsys.readouterr().err
