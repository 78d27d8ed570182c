"""What a command that waits says of a ring of waits that it is in: once, on stderr, with the way out.

Rule 1: the root finds rings; this asks it, over a link of its own, while the command waits.
Rule 2: only a ring over the command's own question or request is told; one that is broken is not.
Rule 3: a root that cannot tell leaves the command as it is: it waits on.

Source: reference/reliability.md I30; docs/howto-ask.md.
"""

import threading
from collections.abc import Callable, Iterable
from typing import Any, Self

from tieline.adapters.cli.output import line, note
from tieline.errors import TielineError
from tieline.runtime.client import Client

__all__ = ["RingWatch", "told"]

QUIET_S = 0.3
"""A wait that is over before that is told nothing."""
WAIT_MS = 10_000
"""What is asked ends at once when something changes: asking anew costs the waiting root its directory."""
SLACK_S = 5.0


class RingWatch:
    """Tells the rings of one wait while the block lasts."""

    def __init__(
        self,
        client: Client,
        command: str,
        subjects: Iterable[str],
        run: str | None,
        tell: Callable[[str], None] = note,
    ) -> None:
        """Name the wait.

        Args:
            client: Of the root that knows of the wait; its link is not used.
            command: What the lines begin with, such as "tieline ask".
            subjects: The question's message id, or the keys of the resources.
            run: The token of the run that waits, if it is one.
            tell: Takes each line.
        """
        self._path, self._command, self._subjects = client.path, command, frozenset(subjects)
        self._params = {} if run is None else {"run": run}
        self._tell = tell
        self._is_over = threading.Event()

    def __enter__(self) -> Self:
        """Begin."""
        threading.Thread(target=self._watch, name="rings", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Say nothing more."""
        self._is_over.set()

    def _watch(self) -> None:
        if self._is_over.wait(QUIET_S):
            return
        shown: set[str] = set()
        after: dict[str, Any] = {}
        try:
            with Client(self._path) as client:
                while not self._is_over.is_set():
                    asked = {"waitMs": WAIT_MS, **after, **self._params}
                    answer = client.call("local.waits", asked, WAIT_MS / 1_000 + SLACK_S)
                    after = {"after": answer.get("generation")}
                    for text in told(answer, self._subjects):
                        if text not in shown and not self._is_over.is_set():
                            shown.add(text)
                            self._tell(f"{self._command}: {text}")
        except TielineError:
            return  # rule 3


def told(answer: dict[str, Any], subjects: frozenset[str]) -> list[str]:
    """Return a line for each ring over one of these subjects in which the asking peer is."""
    found = []
    for cycle in answer.get("cycles", ()):
        ways = [way for way in cycle.get("ways", ()) if way.get("peer") == answer.get("self")]
        if any(way.get("act") in ("give_up", "cancel") and way.get("subject") in subjects for way in ways):
            actions = " or ".join(line(way.get("text", ""), 400) for way in ways)
            found.append(f"WAIT_CYCLE: {line(cycle.get('text', ''), 1_000)}; nobody goes on: {actions}")
    return found
