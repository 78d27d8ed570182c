"""One root at one broker: join it, stay there, come back after a loss.

Theory. A connection is kept for as long as the root is published. What ends it, whoever did, starts the
chain of pauses; a connection that was registered sets the chain back to its begin.

Rule 1: at most one connection, and at most one attempt to make one.
Rule 2: a foreground call may hurry a waiting attempt; where that fails the chain goes on from where it was.
Rule 3: the roster is what the broker last listed, less who left since; it routes nothing by itself.
Rule 4: this module knows no event loop and no socket.

Source: reference/intercom.md 2 "Reconnect", 1.3, case 129.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tieline.errors import Refusal, Refused
from tieline.shell.intercom.ports import Line, World
from tieline.wire.intercom.client import ClientLink, Closed, Event, Left, Listed, Registered, TimedOut

__all__ = ["PAUSES_MS", "Member"]

PAUSES_MS: Final = (1_000, 2_000, 5_000, 10_000, 30_000)
ROSTER_MAX: Final = 16_384
ANSWERS_WAITING_MAX: Final = 256


class Member:
    """A root's place at one broker."""

    def __init__(
        self,
        world: World,
        broker: str,
        number: int,
        adopt: Callable[["Member"], int],
        heard: Callable[["Member", Event], None],
    ) -> None:
        """Be nowhere yet.

        Args:
            world: The ports.
            broker: What the world calls it.
            number: Under which offers of its sessions are answered.
            adopt: Returns the number of a new line.
            heard: Is told what the broker says.
        """
        self.broker, self.number = broker, number
        self.roster: dict[str, dict[str, Any]] = {}
        self.listed_ms: int | None = None
        self.refusal: Refusal | None = None
        self.back_ms: int | None = None  # when we came back after a loss; None at the first time
        self._was_there = False
        self._world, self._adopt, self._heard = world, adopt, heard
        self._line: Line | None = None
        self._link: ClientLink | None = None
        self._is_wanted = self._is_dialling = False
        self._failure_count = 0
        self._retry_at_ms: int | None = None
        self._listeners: list[Callable[[], None]] = []

    # ------------------------------------------------------------ joining and leaving

    @property
    def link(self) -> ClientLink | None:
        """The registered connection, or None."""
        return self._link if self._link is not None and self._link.is_registered else None

    @property
    def session_id(self) -> str:
        """Our id there; "" while we are not."""
        return self.link.session_id if self.link is not None else ""

    def join(self) -> None:
        """Be there from now on."""
        self._is_wanted = True
        self.hurry()

    def hurry(self) -> None:
        """Try now, where an attempt waits for its time."""
        if self._is_wanted and self._line is None and not self._is_dialling:
            self._is_dialling, self._retry_at_ms = True, None
            self._world.dial(self.broker, self._dialled)

    def leave(self, *, is_parked: bool = False) -> None:
        """Be there no more, in order."""
        self._is_wanted, self._retry_at_ms = False, None
        if self._link is not None:
            self._link.leave(is_parked=is_parked)
            self.flush()
            self._link.close("we left")
        self._drain()

    def join_again(self) -> None:
        """Register anew: we are another session now."""
        if self._is_wanted:
            self.leave()
            self._failure_count = 0
            self.join()

    def _dialled(self, line: Line | None, refusal: Refusal | None) -> None:
        self._is_dialling = False
        if line is None:
            self._failed(refusal)
        elif not self._is_wanted:
            line.close()
        else:
            registration = self._world.registration()
            self._line = line
            line.number = self._adopt(self)
            now_ms = self._world.now().mono_ms
            self._link = ClientLink(registration.session, registration.requested_id, now_ms)
            self.flush()

    def _failed(self, refusal: Refusal | None) -> None:
        if refusal is not None:
            self.refusal = refusal
        if self._is_wanted:
            pause_ms = PAUSES_MS[min(self._failure_count, len(PAUSES_MS) - 1)]
            self._failure_count += 1
            self._retry_at_ms = self._world.now().mono_ms + pause_ms
        self._settle_listeners()
        self._world.rearm()

    # ------------------------------------------------------------ what the socket tells

    def received(self, number: int, data: bytes) -> None:
        """Bytes came in over a line; one that was given up says nothing any more."""
        if self._link is not None and self._line is not None and self._line.number == number:
            self._link.receive_data(data)
            self._drain()

    def lost(self, number: int) -> None:
        """The socket of a line is closed."""
        if self._link is not None and self._line is not None and self._line.number == number:
            self._link.receive_eof()
            self._drain()

    def flush(self) -> None:
        """Write what was said."""
        if self._link is not None and self._line is not None:
            data = self._link.data_to_send()
            if data:
                self._line.write(data)
        self._world.rearm()

    def _drain(self) -> None:
        link = self._link
        if link is None:
            return
        for event in link.events_received():
            self._take(event)
            self._heard(self, event)
        self.flush()

    def _take(self, event: Event) -> None:
        """Keep what concerns the connection itself."""
        match event:
            case Registered():
                self._failure_count, self.refusal = 0, None
                self.back_ms = self._world.now().mono_ms if self._was_there else None
                self._was_there = True
                self.roster.clear()
                self.look()
            case Listed():
                self.roster = {row["id"]: row for row in event.rows[:ROSTER_MAX]}
                self.listed_ms = self._world.now().mono_ms
                self._settle_listeners()
            case TimedOut(kind="list"):
                self._settle_listeners()
            case Left():
                self.roster.pop(event.session_id, None)
            case Closed():
                if self._line is not None:
                    self._line.close()
                self._line = self._link = None
                self.roster.clear()
                self.listed_ms = None
                self._failed(Refusal("PEER_OFFLINE", event.reason, is_retryable=True))
            case _:
                return

    # ------------------------------------------------------------ the roster

    def look(self, done: Callable[[], None] | None = None) -> None:
        """List anew; `done` is called once the roster is as fresh as it gets."""
        link = self.link
        if done is not None and (link is None or len(self._listeners) >= ANSWERS_WAITING_MAX):
            done()
            return
        if done is not None:
            self._listeners.append(done)
        if link is not None and (done is None or len(self._listeners) == 1):
            try:
                link.list(self._world.new_id(), self._world.now().mono_ms)
            except Refused:  # the connection is as busy as it may be: what is known has to do
                self._settle_listeners()
            self.flush()

    def know(self, row: Mapping[str, Any]) -> None:
        """A session showed itself by a message: it is there, whatever was listed."""
        if len(self.roster) < ROSTER_MAX:
            self.roster[row["id"]] = dict(row)

    def _settle_listeners(self) -> None:
        waiting, self._listeners = self._listeners, []
        for done in waiting:
            done()

    # ------------------------------------------------------------ time

    @property
    def deadline_ms(self) -> int | None:
        """When something here is due, monotonic."""
        if self._link is not None:
            return self._link.deadline_ms
        return self._retry_at_ms

    def tick(self, now_ms: int) -> None:
        """Time passed."""
        if self._link is not None:
            self._link.expire(now_ms)
            self._drain()
        elif self._retry_at_ms is not None and self._retry_at_ms <= now_ms:
            self.hurry()
