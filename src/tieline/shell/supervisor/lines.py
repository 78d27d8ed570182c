"""What a front end and its supervisor say to each other, over one pair of sockets.

Rule 1: the front end says `Go` once; without it the supervisor ends and has started nothing.
Rule 2: the end of the line says that the other process has ended: no process but these two holds an end.
Rule 3: `Started` may bring one descriptor, the master of the command's terminal.

Source: DESIGN.md 2 "supervisor"; reference/native.md 5 "process-tree ownership".
"""

import os
import socket

import msgspec

from tieline.shell.tree import LaunchEvidence, LaunchSpec

__all__ = [
    "Ended",
    "Failed",
    "Foreground",
    "Go",
    "Gone",
    "Line",
    "Signal",
    "Started",
    "Stopped",
    "Word",
]

READ_BYTES = 65_536
DESCRIPTORS_MAX = 1


class Go(msgspec.Struct, frozen=True, tag="go"):
    """To the supervisor: start this. The command's words are bytes, because a word need not be UTF-8.

    Attributes:
        is_foreground: Whether keys on the person's terminal are the command's.
    """

    spec: LaunchSpec
    command: tuple[bytes, ...]
    is_foreground: bool = True


class Foreground(msgspec.Struct, frozen=True, tag="foreground"):
    """To the supervisor: whether keys on the person's terminal are the command's from now on.

    Attributes:
        settings: What the person's terminal had before the front end changed it; None while it has not.
    """

    is_foreground: bool
    settings: tuple[int, ...] | None = None


class Signal(msgspec.Struct, frozen=True, tag="signal"):
    """To the supervisor: hand this signal on."""

    number: int


class Started(msgspec.Struct, frozen=True, tag="started"):
    """To the front end: the command runs."""

    evidence: LaunchEvidence


class Stopped(msgspec.Struct, frozen=True, tag="stopped"):
    """To the front end: the command was stopped by this signal, as by Ctrl-Z."""

    number: int


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """To the front end: the command has ended; `has_survivors` when processes of its tree have not."""

    exit_code: int
    has_survivors: bool


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """To the front end: it is proven that the command never ran."""

    exit_code: int
    code: str
    text: str


class Gone(msgspec.Struct, frozen=True, tag="gone"):
    """To the front end: the tree is gone, and the ledger knows it."""


Word = Go | Foreground | Signal | Started | Stopped | Ended | Failed | Gone

_DECODER: msgspec.json.Decoder[Word] = msgspec.json.Decoder(Word)


def go(spec: LaunchSpec, *, is_foreground: bool = True) -> Go:
    """Return the word that starts a launch."""
    words = tuple(os.fsencode(word) for word in spec.command)
    return Go(msgspec.structs.replace(spec, command=()), words, is_foreground)


def spec_of(word: Go) -> LaunchSpec:
    """Return the launch that a word starts."""
    return msgspec.structs.replace(word.spec, command=tuple(os.fsdecode(one) for one in word.command))


class Line:
    """One end of the pair.

    Attributes:
        is_open: Whether the other end was there at the last look.
        descriptor: What came with a word and was not yet taken.
        waiting: Words that were read and not yet taken.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.is_open = True
        self.descriptor: int | None = None
        self.waiting: list[Word] = []
        self._socket = sock
        self._rest = b""

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._socket.fileno()

    def send(self, word: Word, descriptor: int | None = None) -> None:
        """Say one word; nothing happens when the other end is not there any more."""
        data = msgspec.json.encode(word) + b"\n"
        try:
            if descriptor is None:
                self._socket.sendall(data)
            else:
                sent = socket.send_fds(self._socket, [data], [descriptor])
                self._socket.sendall(data[sent:])
        except (BrokenPipeError, ConnectionResetError):
            self.is_open = False

    def receive(self) -> list[Word]:
        """Return the words that have come; wait when there are none. At the end `is_open` is False."""
        if self.waiting:
            words, self.waiting = self.waiting, []
            return words
        try:
            data, descriptors, _, _ = socket.recv_fds(self._socket, READ_BYTES, DESCRIPTORS_MAX)
        except ConnectionResetError:
            data, descriptors = b"", []
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
            self.descriptor = descriptor
        if not data:
            self.is_open = False
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [_DECODER.decode(line) for line in whole]

    def close(self) -> None:
        """Leave; the other end reads the end of the line."""
        self.is_open = False
        self._socket.close()
