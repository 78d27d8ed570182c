"""What a harness's hook runs when mail waits: hands the hook to the root, and the answer to the harness.

    python -I -S hook.py DOOR HARNESS EVENT

DOOR is a file that holds the path of the root's control endpoint.

Rule 1: it starts in the time of a bare interpreter: no `site`, and no module that has to be read from disk
but the socket's. What the hook says goes to the root as it came, and what comes back is printed as it is.
Rule 2: a harness reads stdout as JSON and takes other endings for a refusal: nothing but the answer is ever
printed, and the exit code is 0.
Rule 3: that an answer with mail was written is said to the root behind it; without that word the root gives
the mail back.
Rule 4: where no root answers at the door, the whole command finds the root, or finds that there is none.
Rule 5: the event `Wait` is the command that a harness runs in the background: it waits for its answer as long
as the root lives, and wakes the session by code 2 with that answer on stderr. Such a hook is begun before the
root is, so it looks for the door for a while.
Rule 6: the event `pre-tool` asks whether a shell command may start. Where the root does not say that it
judged, the whole command does, with the same input; an end that says nothing is code 2, a refusal.

Source: reference/harnesses.md 10; DESIGN.md 6 "command line"; tieline.wire.control.protocol.
"""

import _socket
import posix
import sys
import time

__all__ = ["main"]

INPUT_BYTES_MAX = 3_000_000
"""Twice this, as hexadecimal digits, fits one frame of the control endpoint. What is longer is left out."""
KEPT_BYTES_MAX = 8_388_608
"""More than the whole command reads: what is cut here it would cut, too."""
ANSWER_BYTES_MAX = 8 * 1024 * 1024
PATH_BYTES_MAX = 4_096
ANSWER_S = 5.0
CHUNK_BYTES = 65_536
WAIT = "Wait"
JUDGED = "pre-tool"
REFUSED = 2
APPEAR_S = 30.0
"""A root that did not open by then opens no more."""
LOOK_S = 0.25
HELLO = b'{"jsonrpc":"2.0","id":1,"method":"control.hello","params":{"version":1}}\n'


def main(words: list[str]) -> None:
    """Carry out one hook: the words are DOOR, HARNESS and EVENT."""
    door, harness, event = words
    if event == WAIT:
        _wait(door, harness)
        return
    if event == JUDGED:
        _judge(door, harness)
        return
    link = _connected(door)
    if link is None:
        _whole(harness, event)
        return
    told = (harness.encode(), event.encode(), _input())
    link.sendall(HELLO + _frame(2, b"host.hook", b'"harness":"%b","event":"%b","input":"%b"' % told))
    _line(link, 1)
    answer = _line(link, 2)
    output, token = bytes.fromhex(_member(answer, b"output").decode()), _member(answer, b"token")
    _write(1, output)
    if token:
        link.sendall(_frame(3, b"host.carried", b'"token":"' + token + b'"'))
        _line(link, 3)


def _wait(door: str, harness: str) -> None:
    """Wait for mail; end the process with code 2 and the mail on stderr."""
    give_up = time.monotonic() + APPEAR_S
    while (link := _connected(door)) is None:
        if time.monotonic() > give_up:
            return
        time.sleep(LOOK_S)
    link.sendall(HELLO + _frame(2, b"host.hook", b'"harness":"%b","event":"Wait"' % harness.encode()))
    _line(link, 1)
    link.settimeout(None)  # the root's end ends it
    output = bytes.fromhex(_member(_line(link, 2), b"output").decode())
    if output:
        _write(2, output)
        sys.exit(2)


def _judge(door: str, harness: str) -> None:
    """Print what the root says of a command; where it says nothing, become the whole command."""
    told = _all_input()
    try:
        output = _judged(door, told)
    except (OSError, ValueError):
        output = None
    if output is not None:
        _write(1, output)
        return
    reading, writing = posix.pipe()
    if posix.fork() == 0:
        posix.close(reading)
        try:
            _write(writing, told)
        finally:
            posix._exit(0)  # noqa: SLF001 - the name of it
    posix.close(writing)
    posix.dup2(reading, 0)
    _whole(harness, JUDGED)


def _judged(door: str, told: bytes) -> "bytes | None":
    """Return what the root orders to print; None where it did not judge."""
    link = _connected(door) if len(told) <= INPUT_BYTES_MAX else None
    if link is None:
        return None
    link.sendall(HELLO + _frame(2, b"host.judge", b'"input":"%b"' % told.hex().encode()))
    _line(link, 1)
    answer = _line(link, 2)
    return bytes.fromhex(_member(answer, b"output").decode()) if b'"judged":true' in answer else None


def _whole(harness: str, event: str) -> None:
    words = ["-I", "-m", "tieline.adapters.cli.main", "hook", harness, event]
    posix.execv(sys.executable, [sys.executable, *words])


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[posix.write(file, data) :]


def _connected(door: str) -> "_socket.socket | None":
    """Return a link to the root whose endpoint the file names, or None where no root of ours listens."""
    try:
        file = posix.open(door, posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NOFOLLOW)
        path = posix.read(file, PATH_BYTES_MAX)
        posix.close(file)
        link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        link.settimeout(ANSWER_S)
        link.connect(path)
        option = getattr(_socket, "SO_PEERCRED", None)
        if option is not None:
            credentials = link.getsockopt(_socket.SOL_SOCKET, option, 12)
            if int.from_bytes(credentials[4:8], sys.byteorder) != posix.geteuid():
                return None
    except OSError:
        return None
    return link


def _input() -> bytes:
    """Return what the harness says, in hexadecimal digits; nothing where it is too long."""
    told = _all_input()
    return told.hex().encode() if len(told) <= INPUT_BYTES_MAX else b""


def _all_input() -> bytes:
    """Return what the harness says; of what is too long, enough for the whole command to see that."""
    parts, size = [], 0
    while chunk := posix.read(0, CHUNK_BYTES):
        size += len(chunk)
        if size <= KEPT_BYTES_MAX:
            parts.append(chunk)
    return b"".join(parts)


def _frame(number: int, method: bytes, params: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":{%b}}\n' % (number, method, params)


_rest = bytearray()


def _line(link: "_socket.socket", number: int) -> bytes:
    """Return the root's answer to a request.

    Raises:
        OSError: there is none, or it is a refusal.
    """
    while True:
        end = _rest.find(b"\n")
        if end >= 0:
            line = bytes(_rest[:end])
            del _rest[: end + 1]
            if b'"error":' in line[:64] or b'"result":' not in line:
                raise OSError
            if b'"id":%d' % number in line[:64]:
                return line
            continue
        data = link.recv(CHUNK_BYTES)
        if not data or len(_rest) > ANSWER_BYTES_MAX:
            raise OSError
        _rest.extend(data)


def _member(line: bytes, name: bytes) -> bytes:
    """Return a member of the answer; both that are asked for are hexadecimal digits."""
    _, _, value = line.partition(b'"' + name + b'":"')
    return value[: value.find(b'"')]


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OSError:
        # The mail waits at the root; the harness goes on as if there were none.
        sys.exit(REFUSED if JUDGED in sys.argv else 0)
