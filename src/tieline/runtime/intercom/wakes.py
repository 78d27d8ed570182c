"""Wakes of parked children: offered to the host of their main, and answered by it or by its silence.

Rule: a wake is answered once; where no host listens, or none answers in time, it failed and that is said.

Source: specification of the intercom, "Send, ask, and reply"; reference/intercom.md 4.6, case 104.
"""

from typing import TYPE_CHECKING, Final

from tieline.errors import Refused
from tieline.wire.intercom.client import WakeAsked

if TYPE_CHECKING:
    from tieline.runtime.intercom.intercom import Intercom

__all__ = ["WAKE_MS", "Wakes"]

WAKE_MS: Final = 30_000
WAKES_MAX: Final = 64


class Wakes:
    """The wakes that a root was asked for."""

    def __init__(self, intercom: "Intercom") -> None:
        self._intercom = intercom
        self._waiting: dict[str, tuple[str, int]] = {}  # token to broker and deadline

    def asked(self, broker: str, asked: WakeAsked) -> None:
        """Offer a wake to the host."""
        node = self._intercom.node
        if not node.has_host or len(self._waiting) >= WAKES_MAX:
            self._tell(broker, asked.token, is_woken=False, detail="no host of the main can wake it now")
            return
        self._waiting[asked.token] = (broker, node.now().mono_ms + WAKE_MS)
        facts = {"token": asked.token, "sessionId": asked.session_id, "messageId": asked.message_id}
        self._intercom.event("intercom_wake", facts)
        node.world.rearm()

    def answer(self, token: str, *, is_woken: bool, detail: str) -> None:
        """Take the host's word.

        Raises:
            Refused: UNKNOWN_TARGET, no such wake waits.
        """
        found = self._waiting.pop(token, None)
        if found is None:
            raise Refused("UNKNOWN_TARGET", "no such wake waits: it was answered, or 30 seconds are over")
        self._tell(found[0], token, is_woken=is_woken, detail=detail)

    @property
    def deadline_ms(self) -> int | None:
        """When the next one has no time left, monotonic."""
        return min((due for _, due in self._waiting.values()), default=None)

    def tick(self, now_ms: int) -> None:
        """Time passed: what no host answered failed."""
        for token, (broker, due_ms) in list(self._waiting.items()):
            if due_ms <= now_ms:
                del self._waiting[token]
                self._tell(broker, token, is_woken=False, detail="the host of the main did not answer")

    def _tell(self, broker: str, token: str, *, is_woken: bool, detail: str) -> None:
        member = self._intercom.post.members[broker]
        if member.link is not None:
            member.link.answer_wake(token, is_woken=is_woken, detail=detail)
            member.flush()
