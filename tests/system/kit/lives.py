"""Roots in forked children of a warm parent: the real node, sockets and journal, killed at any seam.

Rule 1: the parent runs no loop and no thread, so that a fork copies neither.
Rule 2: what a child was told is written to its pipe at once, by one system call.

Source: reference/reliability.md F13, K1, 2.1 "Seams".
"""

import asyncio
import contextlib
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from tieline.engine.contract import Box, MessageRow, MoveRow
from tieline.errors import RecoveryRequired, Refused, TielineError
from tieline.model.receipt import State
from tieline.runtime import seams
from tieline.runtime.options import RootOptions
from tieline.runtime.root import Root, open_root
from tieline.store import recovery
from tieline.store.journal.database import DATABASE
from tieline.store.journal.witness import WITNESS, WITNESS_BYTES, decode_witness

__all__ = ["COUNT", "Child", "Kept", "kept", "recipient", "sender", "steady"]

COUNT = 6
"""Messages of one life."""
PAST_ACCEPTED = frozenset({State.ACCEPTED, State.CONSUMED, State.REPLIED})
LIMITS = {
    "inbox_messages": 1_000_000,
    "storage_bytes": 1 << 30,
    "rate_per_second": 1_000_000,
    "rate_burst": 1_000_000,
    "events_kept": 1_000_000,
}


class Child:
    """One forked root, and the lines to and from it."""

    def __init__(self, work: Callable[["Telling"], Coroutine[Any, Any, None]], *, stop_at: int = 0) -> None:
        """Fork; the child runs `work` and kills itself at the `stop_at`-th passing of a seam (0: never)."""
        commands, self._commands = os.pipe()
        self._told, told = os.pipe()
        self._rest = b""
        self.lines: list[list[str]] = []
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._commands)
            os.close(self._told)
            _live(work, Telling(commands, told), stop_at)
        os.close(commands)
        os.close(told)

    def tell(self, *words: object) -> None:
        """Send one command."""
        os.write(self._commands, (" ".join(map(str, words)) + "\n").encode())

    def line(self, seconds: float = 20.0) -> list[str] | None:
        """Return the next line as words, None at the child's end."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._told], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise AssertionError(f"child {self.pid} says nothing; before: {self.lines[-3:]}")
            data = os.read(self._told, 65_536)
            if not data:
                return None
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\n")
        words = text.decode().split()
        self.lines.append(words)
        return words

    def until(self, word: str) -> list[list[str]]:
        """Return the lines before the one that begins with `word`, or before the end."""
        found = []
        while (words := self.line()) is not None and words[0] != word:
            found.append(words)
        return found

    def discard(self) -> None:
        """Kill it and wait, whatever its state; one that was waited for already is left."""
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def ended(self) -> int:
        """Wait for the end; return the signal that ended it, 0 where it ended in order."""
        _, status = os.waitpid(self.pid, 0)
        os.close(self._commands)
        os.close(self._told)
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


class Telling:
    """The child's end of the lines."""

    def __init__(self, commands: int, told: int) -> None:
        self.commands, self._told = commands, told
        self.passed: list[str] = []

    def say(self, *words: object) -> None:
        """Write one line at once."""
        os.write(self._told, (" ".join(map(str, words)) + "\n").encode())

    async def reader(self) -> asyncio.StreamReader:
        """Return the commands as a stream."""
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self.commands, "rb", 0)
        )
        return reader


def _live(work: Callable[[Telling], Coroutine[Any, Any, None]], telling: Telling, stop_at: int) -> None:
    """Be the child: run `work`, then end without the parent's exit handlers."""
    code = 1
    try:
        passed = telling.passed

        def seam(name: str) -> None:
            passed.append(name)
            if len(passed) == stop_at:
                telling.say("killed", name)
                os.kill(os.getpid(), signal.SIGKILL)

        os.environ["PATH"] = "/nowhere"  # a life needs no git: one process less to start, each time
        seams.of_environment = lambda _environment: seam
        asyncio.run(work(telling))
        telling.say("passed", json.dumps(passed).replace(" ", ""))
        code = 0
    except BaseException:  # noqa: BLE001 - a child must not go on as its parent
        traceback.print_exc(file=sys.stderr)
    finally:
        os._exit(code)


async def _open(home: str, alias: str) -> Root:
    return await open_root(
        RootOptions(home=home, workspace=home, scope="machine", alias=alias, host_pid=1, limits=LIMITS)
    )


def steady(home: str) -> Callable[[Telling], Coroutine[Any, Any, None]]:
    """Return the life that meets every killed one: it sends to them when told to, and reads what they send.

    Commands: `send PEER TAG`, `report TAG`, `end`. Lines: `ready INSTANCE PEER`, `accepted ID`,
    `reported TAG`.
    """

    async def live(telling: Telling) -> None:
        commands = await telling.reader()
        async with await _open(home, "steady") as root:
            sends: dict[str, list[asyncio.Task[None]]] = {}
            loop = asyncio.get_running_loop()
            reading = loop.create_task(_read(root))
            telling.say("ready", root.node.instance, root.who()["peerId"])
            while (words := (await commands.readline()).decode().split()) and words[0] != "end":
                if words[0] == "send":
                    sends[words[2]] = [
                        loop.create_task(_send(root, telling, words[1], f"{words[2]}-{number}"))
                        for number in range(COUNT)
                    ]
                else:
                    await asyncio.sleep(0.01)  # what came before the far end's death is read by then
                    for task in sends.pop(words[1], []):
                        task.cancel()
                    telling.say("reported", words[1])
            reading.cancel()

    return live


async def _send(root: Root, telling: Telling, to: str, message_id: str) -> None:
    """Send one message and say when its recipient has it."""
    try:
        receipt = await root.send(to, f"content of {message_id}", message_id=message_id, wait_s=30)
    except TielineError:
        return
    if receipt["state"] in PAST_ACCEPTED:
        telling.say("accepted", message_id)


async def _read(root: Root) -> None:
    """Consume what comes, and reply to every third."""
    while True:
        for number, message in enumerate(await root.inbox(wait_s=60, consume=True)):
            if number % 3 == 0:
                try:
                    await root.reply(message.message_id, "seen", wait_s=0)
                except Refused:
                    continue  # its sender is dead by now


def recipient(home: str, tag: str) -> Callable[[Telling], Coroutine[Any, Any, None]]:
    """Return the life of a root that is sent `COUNT` messages, reads them, replies, and closes."""

    async def live(telling: Telling) -> None:
        async with await _open(home, tag) as root:
            telling.say("ready", root.node.instance, root.who()["peerId"])
            seen = 0
            while seen < COUNT:
                mail = await root.inbox(wait_s=10, consume=True)
                assert mail, "the steady root sends"
                seen += len(mail)
                await root.reply(mail[0].message_id, "seen", wait_s=0)

    return live


def sender(home: str, tag: str, to: str) -> Callable[[Telling], Coroutine[Any, Any, None]]:
    """Return the life of a root that sends `COUNT` messages, says which were accepted, and closes."""

    async def live(telling: Telling) -> None:
        async with await _open(home, tag) as root:
            telling.say("ready", root.node.instance, root.who()["peerId"])
            await asyncio.gather(*(_send(root, telling, to, f"{tag}-{number}") for number in range(COUNT)))

    return live


class Kept(NamedTuple):
    """What one ended store holds.

    `held`: (sender instance, message id) of every inbox record, in order of arrival. `told`: (recipient
    instance, message id) of every send whose receipt says that the recipient has it. `unread`: ids that
    recovery offers.
    """

    held: list[tuple[str, str]]
    told: set[tuple[str, str]]
    unread: list[str]


def kept(home: str, instance: str, *, is_recovered: bool) -> Kept | None:
    """Return what an ended instance's store holds; None where its making was interrupted.

    With `is_recovered` the product's own recovery must say the same, twice.
    """
    recovered = None
    try:
        if is_recovered:
            recovered = _patient(lambda: recovery.recover(home, instance))
            assert _patient(lambda: recovery.recover(home, instance)) == recovered
        identity, rows = _patient(lambda: _read_store(home, instance))
    except TielineError as error:
        if getattr(error, "code", "") == "UNKNOWN_TARGET" or "missing" in str(error):
            return None
        raise
    messages = {row.cursor: row for row in rows if isinstance(row, MessageRow)}
    held = [
        (row.envelope.sender.instance, row.envelope.message_id)
        for row in messages.values()
        if row.box is Box.IN
    ]
    told = {
        (messages[row.message].envelope.recipient.instance, messages[row.message].envelope.message_id)
        for row in rows
        if isinstance(row, MoveRow) and row.state in PAST_ACCEPTED and messages[row.message].box is Box.OUT
    }
    folded = recovery.folded(identity, rows, 0)
    assert recovered is None or recovered == folded
    return Kept(held, told, [item.envelope.message_id for item in folded.unread])


def _read_store(home: str, instance: str) -> Any:
    """Return identity and rows as `recovery.recover` reads them, which tells of consumed mail only the count.

    The copy that it makes first is left out: nobody else reads a store of these tests.
    """
    with recovery.held(home, instance) as directory:
        identity = recovery.identity_of(directory, instance)
        for name in (DATABASE, WITNESS):
            if name not in directory.names():
                raise RecoveryRequired(f"{name} is missing")
        seen = decode_witness(directory.read(WITNESS, WITNESS_BYTES))
        return identity, recovery._rows_of_copy(
            f"{os.path.realpath(directory.path)}/{DATABASE}", instance, seen
        )


def _patient(read: Callable[[], Any]) -> Any:
    """Read; wait while another root looks whether the store is past its retention."""
    for _ in range(200):
        try:
            return read()
        except Refused as refused:
            if refused.code != "STILL_ALIVE":
                raise
            time.sleep(0.01)
    raise AssertionError("an ended store stays locked")
