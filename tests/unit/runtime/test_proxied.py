"""Who belongs to an agent behind the proxy: its own processes, and not those of a session of their own."""

import os
import subprocess
import sys

import pytest

from tieline.runtime.proxied import PROXY_VARIABLE, is_proxied

SAYS = "import os; from tieline.runtime.proxied import is_proxied; print(is_proxied(os.environ))"
STARTS = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SAYS!r}], start_new_session=%s)"


def said(code: str, **variables: str) -> str:
    """Return what an agent says that this process, as its proxy, has started."""
    environment = {**os.environ, PROXY_VARIABLE: str(os.getpid()), **variables}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("code", "variables", "answer"),
    [
        (SAYS, {}, "True"),
        (STARTS % False, {}, "True"),
        (STARTS % True, {}, "False"),
        (SAYS, {"TIELINE_JOIN": "/c"}, "False"),
        (SAYS, {PROXY_VARIABLE: "1"}, "False"),
        (SAYS, {PROXY_VARIABLE: ""}, "False"),
    ],
)
def test_processes_of_the_agents_own_session_are_proxied(
    code: str, variables: dict[str, str], answer: str
) -> None:
    """Not the proxy's own server, nor what has a session of its own, nor where another is named."""
    assert said(code, **variables) == answer


def test_process_that_was_told_nothing_is_not_proxied() -> None:
    """As every other."""
    assert not is_proxied({})
