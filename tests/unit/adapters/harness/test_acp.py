"""An editor's line is printed, and no file of it is touched."""

import json
from collections.abc import Callable

from tieline.adapters.harness.acp import HARNESS, line_for_editor
from tieline.adapters.harness.base import Place


def test_line_starts_the_proxy_before_the_agent(place: Callable[..., Place]) -> None:
    """The agent's own words follow."""
    assert json.loads(line_for_editor(place())) == {"command": "/opt/tieline", "args": ["acp", "--", "AGENT"]}
    assert HARNESS.files(place()) == []
    assert HARNESS.folder(place()) == ""
