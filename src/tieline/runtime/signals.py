"""Waiting for something to change without missing what changed just before the wait.

Rule: take the watch, then look, then wait: a change after the taking ends the wait.

Source: reference/native.md 135, 3.4 "waits"; reference/open-bugs.md O06, O07.
"""

import asyncio

__all__ = ["Signal", "Watch"]


class Signal:
    """Something that changes, and who waits for it."""

    __slots__ = ("__weakref__", "generation", "waiters")

    def __init__(self) -> None:
        self.generation = 0
        self.waiters: set[asyncio.Future[None]] = set()

    def tell(self) -> None:
        """It changed: every wait ends."""
        self.generation += 1
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)
        self.waiters.clear()


class Watch:
    """A wait for a change of one or more signals since the watch was taken."""

    def __init__(self, *signals: Signal, seen: list[int] | None = None) -> None:
        self.signals = signals
        self.seen = [signal.generation for signal in signals] if seen is None else seen

    @property
    def has_changed(self) -> bool:
        """Whether any of the signals changed since the watch was taken."""
        return any(signal.generation != seen for signal, seen in zip(self.signals, self.seen, strict=True))

    async def wait(self, seconds: float) -> bool:
        """Return True on a change, False after `seconds`."""
        if self.has_changed:
            return True
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(seconds, lambda: None if waiter.done() else waiter.set_result(None))
        for signal in self.signals:
            signal.waiters.add(waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            for signal in self.signals:
                signal.waiters.discard(waiter)
        return self.has_changed

    def joined(self, other: "Watch") -> "Watch":
        """Return a watch over the signals of both, as old as each was."""
        return Watch(*self.signals, *other.signals, seen=[*self.seen, *other.seen])
