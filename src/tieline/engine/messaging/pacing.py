"""How fast our own sends may follow each other where a recipient drops what comes too fast.

Theory. A wire that brings no answer cannot say "too fast": what is over the recipient's rate is gone, and
the sender learns it late or never. So we count as the recipient counts, and say no before anything is
stored, while the text can still be merged into one message.

Rule 1: only what a wire's traits number is counted; the others cost one look at the traits.
Rule 2: the same message id is the same send: it is charged once, and never a repeat of itself.
Rule 3: none of it is a record. It outlives a restore, and forgetting it costs a message that is dropped.

Source: spec/pi-peers.md "Anti-abuse"; reference/pi-peers-and-harness-doors.md 1.7 rules 41, 42, 44.
"""

from typing import Any, NamedTuple

from tieline.machine.admission import Bucket, refilled
from tieline.model.message import Envelope, content_sha256
from tieline.model.traits import traits_of

__all__ = ["PACED_MAX", "Pacing", "Wait"]

PACED_MAX = 4_096
"""Recipients, and recent texts, that are remembered; the oldest go first."""
_UNIT = 1_000
"""What one message costs a bucket."""


class Wait(NamedTuple):
    """How long until a send may go, in milliseconds, and whether that is for its text's sake."""

    ms: int = 0
    is_repeat: bool = False


_NOW = Wait()


class Pacing:
    """The buckets and recent texts of all recipients; milliseconds are monotonic."""

    def __init__(self) -> None:
        self._buckets: dict[str, Bucket] = {}
        self._texts: dict[tuple[str, str], tuple[str, int]] = {}  # rising by time

    def __len__(self) -> int:
        return len(self._buckets) + len(self._texts)

    def wait(self, envelope: Envelope, now_ms: int) -> Wait:
        """Return how long this message must wait; it is not charged."""
        instance = envelope.recipient.instance
        traits = traits_of(instance)
        if traits.repeat_window_ms is not None:
            message_id, at_ms = self._texts.get((instance, content_sha256(envelope.content)), ("", 0))
            if message_id == envelope.message_id:
                return _NOW
            left_ms = at_ms + traits.repeat_window_ms - now_ms
            if message_id and left_ms > 0:
                return Wait(left_ms, is_repeat=True)
        if traits.pace_burst is None:
            return _NOW
        bucket = refilled(self._buckets.get(instance), now_ms, traits.pace_per_second, traits.pace_burst)
        missing = _UNIT - bucket.level
        return Wait(-int(-missing // traits.pace_per_second)) if missing > 0 else _NOW

    def charge(self, envelope: Envelope, now_ms: int) -> None:
        """A message was taken into custody: it counts."""
        instance = envelope.recipient.instance
        traits = traits_of(instance)
        if traits.repeat_window_ms is not None:
            name = (instance, content_sha256(envelope.content))
            before = self._texts.pop(name, None)
            self._texts[name] = (envelope.message_id, now_ms)
            _shorten(self._texts)
            if before is not None and before[0] == envelope.message_id:
                return
        if traits.pace_burst is not None:
            bucket = refilled(
                self._buckets.pop(instance, None), now_ms, traits.pace_per_second, traits.pace_burst
            )
            self._buckets[instance] = Bucket(bucket.level - _UNIT, bucket.at_ms)
            _shorten(self._buckets)

    def sweep(self, now_ms: int) -> None:
        """Forget what has no bearing any more."""
        for instance, bucket in list(self._buckets.items()):
            traits = traits_of(instance)
            burst = traits.pace_burst or 0
            if refilled(bucket, now_ms, traits.pace_per_second, burst).level >= burst * _UNIT:
                del self._buckets[instance]
        for name, (_, at_ms) in list(self._texts.items()):
            if at_ms + (traits_of(name[0]).repeat_window_ms or 0) <= now_ms:
                del self._texts[name]


def _shorten(kept: dict[Any, Any]) -> None:
    while len(kept) > PACED_MAX:
        del kept[next(iter(kept))]
