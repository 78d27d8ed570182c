"""The world of one root's post: its registry, its engine, its tokens, its sockets.

Rule 1: who wrote is decided here, from the connection's proof and the registry; a frame's own word of a
    session or a name decides nothing.
Rule 2: a message of ours that a frame speaks of must be one that we sent to the end that speaks.

Source: reference/pi-peers-and-harness-doors.md rules 23, 26, 28, 35; trust facts after U24.
"""

import os
import uuid
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from tieline.engine.contract import Command, Standing
from tieline.engine.intake import Policy
from tieline.errors import Refusal, TielineError
from tieline.model.identity import Capability, Peer, wire_of
from tieline.model.message import Envelope
from tieline.model.moment import Moment
from tieline.shell import link
from tieline.shell.peers import Line, Target
from tieline.shell.peers.ports import Letterhead, Sender
from tieline.wire.peers.frames import Frame, UserFrame
from tieline.wire.peers.mapping import WIRE
from tieline.wire.peers.protocol import Grade

if TYPE_CHECKING:
    from tieline.runtime.windows.windows import Windows

__all__ = ["Postal"]

WRITTEN_MAX: Final = 4_096
NAME_CHARACTERS_MAX: Final = 64
ABLE: Final = frozenset({Capability.SEND.value, Capability.RECEIVE.value})


class Postal:
    """The ports of one root's post."""

    def __init__(self, windows: "Windows") -> None:
        self._windows, self._node = windows, windows.node
        self._written: OrderedDict[str, str] = OrderedDict()  # message id to where it was written last

    @property
    def letterhead(self) -> Letterhead:
        """Who we are on this wire now."""
        windows = self._windows
        return Letterhead(windows.known_as, os.getpid(), self._node.session, windows.name)

    @property
    def policy(self) -> Policy:
        """What happens to a stranger's message."""
        return cast("Policy", self._node.settings.wires.pi_peers.accept)  # checked where it was read

    @property
    def is_busy(self) -> bool:
        """Whether the host is at work."""
        return self._node.host.is_busy

    def now(self) -> Moment:
        """Return the clocks."""
        return self._node.now()

    def new_id(self) -> str:
        """Return a fresh UUID."""
        return str(uuid.uuid4())

    def verify(self, token: str) -> Grade | None:
        """Return what a token proves."""
        return self._windows.tokens.verify(token)

    def target(self, instance: str) -> Target | Refusal:
        """Return a window to write to, read anew."""
        return self._looked(lambda: self._windows.surroundings.target(instance))

    def is_listed(self, instance: str) -> bool:
        """Return whether a window shows that it is there; where nobody can look, it may."""
        try:
            return instance in self._windows.surroundings.known()
        except (TielineError, OSError):
            return True

    def target_at(self, address: str) -> Target | Refusal:
        """Return the window that listens at an address."""
        return self._looked(lambda: self._windows.surroundings.target_at(address))

    def _looked(self, look: Callable[[], Target | Refusal]) -> Target | Refusal:
        try:
            return look()
        except (TielineError, OSError) as error:
            self._node.log.failure("windows", error)
            return Refusal("PEER_OFFLINE", "the registry of windows cannot be read now", is_retryable=True)

    def dial(self, target: Target, done: Callable[[Line | None, Refusal | None], None]) -> None:
        """Connect to a window."""
        self._node.tasks.start(self._dial(target, done))

    async def _dial(self, target: Target, done: Callable[[Line | None, Refusal | None], None]) -> None:
        try:
            line = await link.dial_window(self._windows.post, target.address)
        except TielineError as error:
            done(None, link.refusal_of(error))
        else:
            done(line, None)

    def sender(self, frame: UserFrame, grade: Grade) -> Sender | None:
        """Return who wrote a message; None where nobody can look it up now."""
        if grade.run is not None:
            run = self._node.engine.run(grade.run)
            names = frozenset(run.capabilities) if run is not None else frozenset[str]()
            alias = run.alias if run is not None else ""
            return Sender(
                Peer(self._node.instance, grade.run), Standing(names, True, alias, self._node.project)
            )
        try:
            instance, window = self._windows.surroundings.instance_at(frame.sender)
        except (TielineError, OSError) as error:
            self._node.log.failure("windows", error)
            return None
        name = (window.name if window is not None else "") or frame.name
        project = os.path.basename(window.project) if window is not None else ""
        return Sender(Peer(instance), Standing(ABLE, True, name[:NAME_CHARACTERS_MAX], project))

    def sent(self, message_id: str, address: str, pid: int | None) -> Envelope | None:
        """Return the message of ours that a frame from `address`, said by process `pid`, speaks of."""
        for item in self._node.engine.sent(message_id, None):
            instance = item.envelope.recipient.instance
            if wire_of(instance) == WIRE and self._is_of(instance, message_id, address, pid):
                return item.envelope
        return None

    def _is_of(self, instance: str, message_id: str, address: str, pid: int | None) -> bool:
        """Return whether who speaks is the window that a message went to; no where nobody can look."""
        around = self._windows.surroundings
        try:
            if not around.speaks(instance, address, pid):
                return False
            is_there = self._written.get(message_id) == address or around.instance_at(address)[0] == instance
        except (TielineError, OSError) as error:
            self._node.log.failure("windows", error)
            return False
        return not address or is_there

    def transmitted(self, envelope: Envelope, target: Target) -> None:
        """A message of ours was written."""
        self._written[envelope.message_id] = target.address
        while len(self._written) > WRITTEN_MAX:
            self._written.popitem(last=False)
        if envelope.notify_when_idle:
            self._windows.await_idle(envelope, target)

    def taken(self, frame: Frame, grade: Grade) -> None:
        """A frame came that is neither a message nor a receipt."""
        self._windows.taken(frame, grade)

    def submit(self, command: Command) -> None:
        """Give a command to the driver."""
        self._node.driver.submit(command)

    def defer(self, callback: Callable[[], None]) -> None:
        """Call back on the loop's next turn."""
        self._node.world.defer(callback)

    def rearm(self) -> None:
        """The next deadline may have changed."""
        self._node.world.rearm()
