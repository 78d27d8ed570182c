"""The broker as a process: one owner of its place, from its start line to its end.

Rule 1: it answers when it says that it started; where another one answers already, that is no failure.
Rule 2: it leaves five seconds after the last session, also when none ever came; not while it holds mail.
Rule 3: asked to end, it lets go of its names, closes every session's socket, and ends with 0. Held mail is in
    its journal.
Rule 4: this module reads the clock and draws chance; the hub does neither.

Source: reference/intercom.md 6.3; specification of the intercom, "Shared broker and migration"; DESIGN.md 2.
"""

import asyncio
import hashlib
import os
import resource
import signal
import uuid
from collections.abc import Callable, Mapping

import msgspec

from tieline.engine.brokering.contract import Drop, Put
from tieline.engine.brokering.hub import Hub
from tieline.errors import TielineError
from tieline.runtime.broker.sessions import Sessions
from tieline.runtime.logs import Log
from tieline.runtime.loops import run
from tieline.runtime.options import home_directory
from tieline.runtime.seams import of_environment
from tieline.runtime.world import now
from tieline.shell.hub import (
    AGENT_VARIABLE,
    BLANK,
    Claim,
    Paths,
    Place,
    agent_directory,
    claim,
    paths_of_script,
    place_of,
    serve,
)
from tieline.shell.process import require_supported_platform
from tieline.store.mail import MailJournal, ShownRows
from tieline.wire.intercom.saying import FrameCodec

__all__ = ["Started", "paths_of", "run_broker"]

DESCRIPTORS_MAX = 65_536
"""One for each session, and a few more; a machine that allows fewer sets the bound."""
LOOK_SECONDS = 5.0
"""How often a broker looks whether its socket's name is still there."""


class Started(msgspec.Struct, frozen=True):
    """What came of a start: `is_ours` is False where another broker answers already."""

    socket: str
    is_ours: bool


def paths_of(script: str, wanted: str) -> Paths:
    """Return whose rules say where the broker is: those asked for, else those of who ships `script`."""
    if wanted:
        return Paths(wanted)
    return paths_of_script(script) if script else Paths.SHARED


def run_broker(
    environment: Mapping[str, str],
    paths: Paths,
    started: Callable[[Started], None],
    *,
    is_extensions: bool = False,
) -> None:
    """Be the broker of a place until nobody needs one any more.

    Args:
        environment: Names the place.
        paths: Whose rules say where it is.
        started: Called once, when a broker answers.
        is_extensions: Whether an extension started it: then it shows rows in the agent directory.

    Raises:
        UsageError: the named directory is no place for a broker.
        Refused: UNSAFE_ENDPOINT, RESOURCE_BUSY, PERMISSION_DENIED as `shell.hub.claim`; VERSION_SKEW;
            QUEUE_FULL, mail could not be kept.
        RecoveryRequired: the mail journal is damaged, or mail could not be kept; it is left as it is.
    """
    require_supported_platform()
    place = place_of(environment, paths)
    seam = of_environment(environment)
    held = claim(place, seam=seam)
    if held is None:
        started(Started(place.socket, is_ours=False))
        return
    try:
        _raise_descriptor_limit()
        journal = MailJournal.open(held.runtime, seam=seam)
        try:
            log = _log(place, environment)
            shown = ShownRows(
                _shown_folder(environment, is_extensions=is_extensions),
                lambda error: log.failure("shown", error),
            )
            run(_serve(_Broker(place, held, journal, shown, log), started))
        finally:
            journal.close()
    finally:
        held.release()


class _Broker(msgspec.Struct, frozen=True):
    """What one broker has."""

    place: Place
    claim: Claim
    journal: MailJournal
    shown: ShownRows
    log: Log

    def commit(self, rows: list[Put | Drop]) -> None:
        """Keep and drop these, synced; then show what is shown of them."""
        self.journal.commit(rows)
        self.shown.follow(rows)


async def _serve(broker: _Broker, started: Callable[[Started], None]) -> None:
    codec = FrameCodec()
    hub = Hub(codec, now())
    sessions = Sessions(hub, codec, broker, _mint, now)
    rows = broker.journal.load()
    broker.shown.follow(rows)
    sessions.begin(hub.restore(rows, now()))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, sessions.is_over.set)
    door = _Door(broker, sessions)
    broker.log.note("broker started", rows=len(rows))
    try:
        started(Started(broker.place.socket, is_ours=True))
        await _until_over(sessions, door)
    finally:
        door.close()
        await sessions.close()
        broker.log.note("broker ended")
        broker.log.close()
    if sessions.failure is not None:
        raise sessions.failure


class _Door:
    """The socket that sessions come in by; open from the start, and again where its name was taken away."""

    def __init__(self, broker: _Broker, sessions: Sessions) -> None:
        self._broker, self._sessions = broker, sessions
        self._open()

    def _open(self) -> None:
        self._endpoint = self._broker.claim.listen()
        self._listener = serve(self._sessions, self._endpoint.sock, self._failed)

    def _failed(self, error: BaseException) -> None:
        self._broker.log.failure("accept", error)

    def close(self) -> None:
        """Take the names away and accept no more."""
        self._listener.stop()
        self._endpoint.close()

    def is_kept(self) -> bool:
        """Return whether sessions can come in: through the name that was taken away, made anew, too."""
        if not self._endpoint.is_missing():
            return True
        self.close()
        try:
            self._open()
        except (TielineError, OSError) as error:
            # The directory went, or another broker listens there: sessions that come now go to that one.
            self._broker.log.failure("name", error)
            return False
        self._broker.log.note("name made anew")
        return True


async def _until_over(sessions: Sessions, door: _Door) -> None:
    """Return when the broker is to end; one that cannot be reached any more ends, so that a next may come."""
    while True:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await sessions.is_over.wait()
        except TimeoutError:
            if door.is_kept():
                continue
        return


def _mint() -> str:
    return str(uuid.uuid4())


def _raise_descriptor_limit() -> None:
    """Let this process open as many sockets as the machine allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _log(place: Place, environment: Mapping[str, str]) -> Log:
    mark = hashlib.sha256(os.fsencode(place.socket)).hexdigest()[:12]
    return Log(os.path.join(home_directory("", environment), "logs"), f"broker-{mark}")


def _shown_folder(environment: Mapping[str, str], *, is_extensions: bool) -> str:
    """Return where rows are shown: in the agent directory of an extension, or of whoever names one."""
    if is_extensions or environment.get(AGENT_VARIABLE, "").strip(BLANK):
        base = agent_directory(environment)
    else:
        base = home_directory("", environment)
    return os.path.join(os.path.abspath(base), "intercom")
