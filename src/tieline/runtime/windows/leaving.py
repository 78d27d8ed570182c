"""Requests that this root may end: kept until its host answers, denied where nobody can.

Rule 1: a request ends in one answer: the host's, or a denial after `ANSWER_MS`.
Rule 2: at most `OPEN_MAX` wait; a further one is denied at once.

Source: reference/pi-peers-and-harness-doors.md rules 26, 38; specification of the pi-peers wire, "Frames".
"""

from collections import OrderedDict
from typing import Final, NamedTuple

__all__ = ["ANSWER_MS", "Request", "Requests"]

ANSWER_MS: Final = 30_000
OPEN_MAX: Final = 8


class Request(NamedTuple):
    """One request; `number` names it to the host, `asked` to who asked."""

    number: str
    asked: str
    address: str
    text: str
    until_ms: int


class Requests:
    """What waits for the host's word."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, Request] = OrderedDict()

    def add(self, request: Request) -> bool:
        """Keep a request; return False where no more may wait, or it waits already."""
        if len(self._open) >= OPEN_MAX or any(one.asked == request.asked for one in self._open.values()):
            return False
        self._open[request.number] = request
        return True

    def take(self, number: str) -> Request | None:
        """Return the request that the host answers, which then waits no longer; None: there is none."""
        return self._open.pop(number, None)

    def overdue(self, now_ms: int) -> list[Request]:
        """Return what waited too long, which then waits no longer."""
        late = [one for one in self._open.values() if one.until_ms <= now_ms]
        for one in late:
            del self._open[one.number]
        return late

    @property
    def deadline_ms(self) -> int | None:
        """When the first of them has waited too long."""
        return min((one.until_ms for one in self._open.values()), default=None)
