"""What the machine itself allows: a bare echo of the same bytes, and one bare synced write of them.

Rule 1: nothing of the product takes part; what is measured is sockets, the kernel and the disk.
Rule 2: the file is allocated and written before, so that no sync pays for its growth.
Rule 3: the echo in C needs a compiler; where there is none the one in Python stands in, and that is said.

Source: reference/substrate.md 1, 4, 5 "Theoretical limit".
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

__all__ = ["Echo", "SyncedFile", "compiled_echo", "echo_server", "serve_echo"]

READY_S: Final = 10.0
FILE_BYTES: Final = 4_194_304
CHUNK_BYTES: Final = 262_144
COMPILE_S: Final = 60.0

ECHO_SOURCE: Final = r"""
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Echo every byte of one connection after the other; argv[1] is the socket's path. */
int main(int count, char **words) {
    static char buffer[262144];
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    if (count < 2 || strlen(words[1]) >= sizeof name.sun_path) return 2;
    strcpy(name.sun_path, words[1]);
    int listening = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(listening, (struct sockaddr *)&name, sizeof name) || listen(listening, 8)) return 1;
    for (;;) {
        int link = accept(listening, 0, 0);
        ssize_t got;
        while ((got = read(link, buffer, sizeof buffer)) > 0) {
            ssize_t done = 0;
            while (done < got) {
                ssize_t put = write(link, buffer + done, got - done);
                if (put <= 0) break;
                done += put;
            }
        }
        close(link);
    }
}
"""


def compiled_echo(folder: str) -> str | None:
    """Return the path of the echo server in C, made in `folder`; None where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    source, program = Path(folder, "echo.c"), os.path.join(folder, "echo")
    source.write_text(ECHO_SOURCE, encoding="ascii")
    done = subprocess.run(  # noqa: S603 - our own source, and a compiler that the person installed
        [compiler, "-O2", "-o", program, str(source)], capture_output=True, timeout=COMPILE_S, check=False
    )
    return program if done.returncode == 0 else None


def serve_echo(path: str) -> None:
    """Echo every byte of one connection after the other, in blocking Python, for ever."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(path)
        listening.listen(8)
        while True:
            link, _ = listening.accept()
            with link, contextlib.suppress(ConnectionError):
                while data := link.recv(CHUNK_BYTES):
                    link.sendall(data)


@contextlib.contextmanager
def echo_server(path: str, program: str | None) -> Iterator[int]:
    """Run an echo server at `path` until the end of the block: `program`, or Python where it is None.

    Yields:
        Its process id.
    """
    code = "import sys; from tieline.adapters.bench.limit import serve_echo; serve_echo(sys.argv[1])"
    words = [sys.executable, "-c", code, path] if program is None else [program, path]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603 - ours
    try:
        deadline = time.monotonic() + READY_S
        while not _listens(path):
            if process.poll() is not None or time.monotonic() > deadline:
                raise OSError(f"the echo server does not listen at {path}")
            time.sleep(0.005)
        yield process.pid
    finally:
        process.kill()
        process.wait()


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        return sock.connect_ex(path) == 0


class Echo:
    """A connection to an echo server."""

    def __init__(self, path: str) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.settimeout(READY_S)
        try:
            self._sock.connect(path)
        except OSError:
            self._sock.close()
            raise

    def exchange(self, data: bytes) -> None:
        """Send bytes and wait until all of them are back."""
        self._sock.sendall(data)
        left = len(data)
        while left:
            got = len(self._sock.recv(CHUNK_BYTES))
            if not got:
                raise ConnectionResetError("the echo server went away")
            left -= got

    def close(self) -> None:
        """Hang up."""
        self._sock.close()


class SyncedFile:
    """A file whose blocks are allocated and written, for bare synced writes."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.write(self._fd, bytes(FILE_BYTES))
        os.fsync(self._fd)  # noqa: TID251 - the bare disk is what is measured, not the store
        self._offset = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, data: bytes) -> None:
        """Write bytes and return when they are on the device, as far as the system knows."""
        if self._offset + len(data) > FILE_BYTES:
            self._offset = 0
        os.pwrite(self._fd, data, self._offset)
        if hasattr(os, "fdatasync"):
            os.fdatasync(self._fd)  # noqa: TID251 - as above
        else:
            os.fsync(self._fd)  # noqa: TID251 - as above
        self._offset += len(data)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
