"""One process of a measurement: a root of its own, told what to do by lines of JSON on standard input.

Theory. Every sender, recipient and bystander is an independent process, as agents are. One that sends
does so through a root's Python API; one that measures a recipient alone holds a native link by blocking
calls, in a thread beside the root's loop, which has nothing to do meanwhile.

Rule 1: one line in, one line out: {"do": NAME, ...} and its result, or {"error": TEXT}.
Rule 2: the end of the input closes the root and ends the process.
Rule 3: what is accepted is told by id, so that it can be counted in the recipient's store afterwards.

Source: DESIGN.md 7; reference/native.md 204, 205, 2.17; reference/substrate.md 5.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tieline.adapters.bench.limit import Echo, SyncedFile
from tieline.adapters.bench.machine import own_resources
from tieline.errors import TielineError
from tieline.runtime.probe import Probe, is_accepted, offer_line, ping_line, root_peer, stored_counts
from tieline.runtime.root import Root, RootOptions, open_root

__all__ = ["COMMANDS", "Worker", "content_of", "main"]

STAMP_CHARACTERS: Final = 20
READ_WAIT_MS: Final = 30_000


def content_of(size_bytes: int, now_ns: int) -> str:
    """Return a text of `size_bytes` bytes (at least 20) that begins with a monotonic instant."""
    return f"{now_ns:0{STAMP_CHARACTERS}d}".ljust(size_bytes, "x")


def micros(begun_ns: int) -> float:
    """Return microseconds since `begun_ns`."""
    return (time.monotonic_ns() - begun_ns) / 1000


class Worker:
    """A root and what it was told to do."""

    def __init__(self, loop: asyncio.AbstractEventLoop, group: asyncio.TaskGroup) -> None:
        self._loop, self._group = loop, group
        self._root: Root | None = None
        self._probe: Probe | None = None
        self._file: SyncedFile | None = None
        self._number = 0
        self._told_us: list[float] = []
        self._read_us: list[float] = []
        self._told_ns: dict[str, int] = {}
        self._reading: asyncio.Task[None] | None = None

    @property
    def root(self) -> Root:
        """The root of this process."""
        assert self._root is not None, "a worker is opened first"
        return self._root

    @property
    def probe(self) -> Probe:
        """The held link."""
        assert self._probe is not None, "a link is opened first"
        return self._probe

    async def open(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Open the root: alias, home, coordination, workspace, limits."""
        self._root = await open_root(
            RootOptions(
                alias=asked["alias"],
                home=asked["home"],
                coordination=asked["coordination"],
                workspace=asked["workspace"],
                limits=asked["limits"],
                scope="workspace",
                mode="rpc",
                harness="bench",
                host_pid=os.getpid(),
            )
        )
        who = self._root.who()
        return {"instance": who["instanceId"], "peerId": who["peerId"], "loop": type(self._loop).__module__}

    async def close(self, _asked: dict[str, Any]) -> dict[str, Any]:
        """Close the root."""
        if self._reading is not None:
            self._reading.cancel()
        if self._probe is not None:
            self._probe.close()
        if self._file is not None:
            self._file.close()
        if self._root is not None:
            await self._root.close()
        self._root = None
        return {}

    # ------------------------------------------------------------ through the Python API

    async def send(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Send `count` messages of `bytes` to `to`, one after the other."""
        return await self._send_all([asked["to"]], asked["bytes"], count=asked["count"])

    async def flood(self, asked: dict[str, Any]) -> dict[str, Any]:
        """For `seconds`, send to each of `targets` one after the other, all targets side by side."""
        until = time.monotonic_ns() + int(asked["seconds"] * 1e9)
        return await self._send_all(asked["targets"], asked["bytes"], until_ns=until)

    async def _send_all(
        self, targets: list[str], size_bytes: int, *, count: int = sys.maxsize, until_ns: int = sys.maxsize
    ) -> dict[str, Any]:
        took_us: list[float] = []
        accepted: list[str] = []
        failures: dict[str, int] = {}

        async def one_route(to: str) -> None:
            for _ in range(count):
                begun = time.monotonic_ns()
                if begun >= until_ns:
                    return
                try:
                    receipt = await self.root.send(to, content_of(size_bytes, begun))
                except TielineError as error:
                    failures[error.code] = failures.get(error.code, 0) + 1
                    continue
                took_us.append(micros(begun))
                if receipt["state"] in ("accepted", "consumed") and receipt.get("durability") == "synced":
                    accepted.append(receipt["messageId"])
                else:
                    failures[receipt["state"]] = failures.get(receipt["state"], 0) + 1

        begun = time.monotonic_ns()
        async with asyncio.TaskGroup() as group:
            for to in targets:
                group.create_task(one_route(to))
        seconds = micros(begun) / 1e6
        return {"tookUs": took_us, "accepted": accepted, "failures": failures, "seconds": seconds}

    async def begin_runs(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Begin `count` child runs; return their peer ids."""
        operations, found = self.root.operations, []
        for number in range(asked["count"]):
            params = {"run": f"bench-{os.getpid()}-{number}"}
            reply = await operations.call(operations.root_actor, "host.run_begin", params)
            found.append(reply.result["peerId"])
        return {"peerIds": found}

    # ------------------------------------------------------------ as a host that reads its mail

    async def read(self, _asked: dict[str, Any]) -> dict[str, Any]:
        """Read mail from now on, as a host that waits for it does."""
        self.root.operations.subscribe(self._tell)
        self._reading = self._group.create_task(self._read_on())
        return {}

    def _tell(self, kind: str, params: dict[str, Any]) -> None:
        if kind == "peer_update" and params["event"]["type"] == "message":
            self._told_ns[params["event"]["messageId"]] = time.monotonic_ns()

    async def _read_on(self) -> None:
        operations = self.root.operations
        while True:
            reply = await operations.call(operations.root_actor, "peer_messages", {"waitMs": READ_WAIT_MS})
            now_ns = time.monotonic_ns()
            for message in reply.result["messages"]:
                stamp = message["content"][:STAMP_CHARACTERS]
                sent_ns = int(stamp) if stamp.isdigit() else now_ns
                told_ns = self._told_ns.pop(message["messageId"], now_ns)
                self._read_us.append((now_ns - sent_ns) / 1000)
                self._told_us.append((told_ns - sent_ns) / 1000)
            if reply.taken is not None:
                await operations.flushed(reply.taken)

    async def arrivals(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return, once `count` messages were read, how long after their sending (or after 30 s, fewer)."""
        deadline = time.monotonic() + READ_WAIT_MS / 1000
        while len(self._read_us) < asked["count"] and time.monotonic() < deadline:  # noqa: ASYNC110 - no hurry
            await asyncio.sleep(0.01)
        told, read, self._told_us, self._read_us = self._told_us, self._read_us, [], []
        return {"toldUs": told, "readUs": read}

    # ------------------------------------------------------------ over a held link

    async def hold(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Open a native link to `instance`, and close the one that was held."""
        if self._probe is not None:
            self._probe.close()
        begun = time.monotonic_ns()
        self._probe = await asyncio.to_thread(Probe.open, self.root, asked["instance"], self._loop)
        return {"tookUs": micros(begun)}

    async def offer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Offer `count` messages over the held link, one after the other; the limit beside it if asked.

        With `echo`, `pythonEcho` and `file`, paths, the same bytes are echoed and written as often.
        """
        return await asyncio.to_thread(self._offer, asked)

    def _offer(self, asked: dict[str, Any]) -> dict[str, Any]:
        lines = self._offers(asked["instance"], asked["bytes"], asked["count"])
        found: dict[str, Any] = {"echoUs": [], "pythonEchoUs": [], "syncUs": []}
        for name, key in (("echoUs", "echo"), ("pythonEchoUs", "pythonEcho")):
            if asked.get(key):
                echo = Echo(asked[key])
                found[name] = [_timed(echo.exchange, line) for _, line in lines]
                echo.close()
        if asked.get("file"):
            if (
                self._file is None
            ):  # once a run: making and removing it would burden the disk of the next sample
                self._file = SyncedFile(asked["file"])
            found["syncUs"] = [_timed(self._file.write, line) for _, line in lines]
        took_us: list[float] = []
        accepted: list[str] = []
        for message_id, line in lines:
            begun = time.monotonic_ns()
            answer = self.probe.exchange(line)
            took_us.append(micros(begun))
            if is_accepted(answer):
                accepted.append(message_id)
        failures = {} if len(accepted) == len(lines) else {"not accepted": len(lines) - len(accepted)}
        return {**found, "tookUs": took_us, "accepted": accepted, "failures": failures}

    def _offers(self, instance: str, size_bytes: int, count: int) -> list[tuple[str, bytes]]:
        to, content = root_peer(instance), content_of(size_bytes, 0)
        lines = []
        for _ in range(count):
            self._number += 1
            message_id = f"{time.time_ns() // 1_000_000:012x}-{os.getpid():08x}{self._number:012x}"
            lines.append((message_id, offer_line(self._number, message_id, to, content)))
        return lines

    async def fill(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Offer `count` messages over the held link with `window` of them under way."""
        return await asyncio.to_thread(self._fill, asked)

    def _fill(self, asked: dict[str, Any]) -> dict[str, Any]:
        offers = self._offers(asked["instance"], asked["bytes"], asked["count"])
        waiting = iter(offers)

        def next_line() -> bytes | None:
            item = next(waiting, None)
            return None if item is None else item[1]

        begun = time.monotonic_ns()
        answers = self.probe.flood(next_line, asked["window"])
        seconds = micros(begun) / 1e6
        numbers = [json.loads(line)["id"] for line in answers if is_accepted(line)]
        first = self._number - len(offers) + 1
        accepted = [offers[number - first][0] for number in numbers]
        lost = len(offers) - len(accepted)
        failures = {"not accepted": lost} if lost else {}
        return {"accepted": accepted, "failures": failures, "seconds": seconds}

    async def ping(self, asked: dict[str, Any]) -> dict[str, Any]:
        """For `seconds`, ask over the held link for what needs no store, with `pauseMs` in between."""

        def run() -> list[float]:
            until, took_us = time.monotonic() + asked["seconds"], []
            while time.monotonic() < until:
                self._number += 1
                took_us.append(_timed(self.probe.exchange, ping_line(self._number)))
                time.sleep(asked["pauseMs"] / 1000)
            return took_us

        return {"tookUs": await asyncio.to_thread(run)}

    async def ping_flood(self, asked: dict[str, Any]) -> dict[str, Any]:
        """For `seconds`, keep `window` requests that need no store under way."""

        def run() -> dict[str, Any]:
            until = time.monotonic() + asked["seconds"]
            begun = time.monotonic_ns()
            line = ping_line(0)[:-1]
            count = 0

            def next_line() -> bytes | None:
                nonlocal count
                count += 1
                fresh = line.replace(b'"id":0', b'"id":%d' % count, 1)
                return fresh + b"\n" if time.monotonic() < until else None

            answers = self.probe.flood(next_line, asked["window"])
            return {"answers": len(answers), "seconds": micros(begun) / 1e6}

        return await asyncio.to_thread(run)

    # ------------------------------------------------------------ what is left

    async def stored(self, _asked: dict[str, Any]) -> dict[str, Any]:
        """Return how often each message id stands in the inbox of the store on disk."""
        return {"counts": dict(await asyncio.to_thread(stored_counts, self.root))}

    async def resources(self, _asked: dict[str, Any]) -> dict[str, Any]:
        """Return memory, CPU time and descriptors of this process, and how many groups its store synced."""
        return {**own_resources(), "groups": self.root.node.counters()["groups"]}


def _timed(call: Callable[[bytes], object], data: bytes) -> float:
    begun = time.monotonic_ns()
    call(data)
    return micros(begun)


COMMANDS: Final[dict[str, Callable[[Worker, dict[str, Any]], Awaitable[dict[str, Any]]]]] = {
    "open": Worker.open,
    "close": Worker.close,
    "send": Worker.send,
    "flood": Worker.flood,
    "begin_runs": Worker.begin_runs,
    "read": Worker.read,
    "arrivals": Worker.arrivals,
    "hold": Worker.hold,
    "offer": Worker.offer,
    "fill": Worker.fill,
    "ping": Worker.ping,
    "ping_flood": Worker.ping_flood,
    "stored": Worker.stored,
    "resources": Worker.resources,
}
"""What a worker can be told, by name."""


async def serve() -> int:
    """Do what the lines say until they end; return 0."""
    async with asyncio.TaskGroup() as group:
        worker = Worker(asyncio.get_running_loop(), group)
        while line := await asyncio.to_thread(sys.stdin.buffer.readline):
            asked = json.loads(line)
            try:
                answer = await COMMANDS[asked.pop("do")](worker, asked)
            except (TielineError, OSError, LookupError, ValueError) as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
            sys.stdout.buffer.flush()
        await worker.close({})
    return 0


def main() -> int:
    """Run a worker on standard input and output."""
    try:
        return asyncio.run(serve())
    except (KeyboardInterrupt, BrokenPipeError):
        return 130


if __name__ == "__main__":
    sys.exit(main())
