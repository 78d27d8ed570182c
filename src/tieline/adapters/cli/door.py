"""How a command reaches the root that it means, or opens one of its own for one message.

Rule 1: which root is meant is decided in `runtime.locate`, never here.
Rule 2: while the host above this command has live runs, a command that sends or consumes must show the
capability of its run; without it nobody could tell whose act it is.
Rule 3: an own root lives in this process, is asked through its control endpoint as any other, and is
closed before the command ends.

Source: DESIGN.md 2 "Doors of a root"; reference/open-bugs.md O18; reference/reliability.md I47, S15.
"""

import os
from argparse import Namespace
from typing import Any

from tieline.adapters.cli.output import line
from tieline.errors import Refused
from tieline.runtime.client import Client
from tieline.runtime.locate import Ambiguous, Found, Places, find_root, here, places

__all__ = ["OWN", "OwnRoot", "foreign_root", "identity", "reach", "reach_or_none", "run_of"]

OPEN_S_MAX = 60.0
CLOSE_S_MAX = 10.0
OWN = {"instanceId": None, "alias": None, "foundBy": "own"}
"""How a root of the command's own is shown in a JSON shape."""


def reach(options: Namespace, *, may_change: bool, is_personal: bool = False) -> tuple[Client, Found, Places]:
    """Return a client of the root that this command means.

    Args:
        options: With `instance` and `run`, as `arguments.add_root_options` offers them.
        may_change: Whether the command sends, consumes or sets something.
        is_personal: Whether it is about one mailbox, the root's or a run's, also when it only looks.

    Raises:
        Refused: as `locate.find_root` and `Client.call`.
        Ambiguous: the host above has live runs and no `--run` was given.
    """
    where = places(os.environ)
    found = find_root(
        where.home,
        where.coordination,
        environment=os.environ,
        may_change=may_change,
        instance=options.instance,
        run=options.run,
    )
    if (may_change or is_personal) and found.is_below_host and not options.run:
        with Client(found.root.control) as asking:
            runs = asking.call("local.who").get("runs")
        if isinstance(runs, list) and runs:
            raise Ambiguous(
                "the agent above this command has live runs; whose act this is cannot be told",
                [_candidate(run) for run in runs],
                "pass --run TOKEN as the run's own hook gives it, or use the MCP tool",
            )
    return Client(found.root.control), found, where


def reach_or_none(options: Namespace) -> tuple[Client, Found, Places] | None:
    """Return as `reach` for a command that sends, or None where a root of its own may speak instead.

    That is where no root is found and the person named none.

    Raises:
        Refused, Ambiguous: as `reach`.
    """
    try:
        return reach(options, may_change=True)
    except Refused as error:
        if error.code != "NO_ROOT" or options.instance or options.run or os.environ.get("TIELINE_INSTANCE"):
            raise
        return None


def _candidate(run: object) -> dict[str, str]:
    if isinstance(run, dict):
        return {name: str(run[name]) for name in ("run", "runId", "alias", "peerId") if name in run}
    return {"run": str(run)}


def run_of(options: Namespace) -> dict[str, Any]:
    """Return the member `run` for a request, or none where no capability was given."""
    return {} if options.run is None else {"run": options.run}  # an empty one proves nothing, and is told so


def identity(found: Found) -> dict[str, Any]:
    """Return how the root was found, for a JSON shape."""
    return {"instanceId": found.root.instance, "alias": found.root.alias, "foundBy": found.rule}


def foreign_root(found: Found) -> list[str]:
    """Return a line for a person where the root that answers is not the one of this command's own agent."""
    if found.rule != "workspace":
        return []
    name = line(found.root.alias or found.root.instance, 128)
    return [f"no root hosts this command: :{name} answers, the only root of this workspace"]


class OwnRoot:
    """A root in this process, for one message: opened on entry, closed on exit.

    It publishes itself, so that the recipient can tell who sends; nobody can answer once it has ended.
    `expiry_ms` is the life of a message that names none, known once it is open.
    """

    def __init__(self, where: Places) -> None:
        """Use a person's directories; the workspace is the current directory."""
        self._where = where
        self.expiry_ms = 0
        self._control = ""
        self._failure: BaseException | None = None
        self._loop: Any = None
        self._is_over: Any = None

    def __enter__(self) -> Client:
        """Return a client of the new root's control endpoint.

        Raises:
            TielineError: as `runtime.root.open_root`.
        """
        import threading

        self._is_open = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="own root", daemon=True)
        self._thread.start()
        if not self._is_open.wait(OPEN_S_MAX):
            refused = Refused("NO_ROOT", f"no root could be opened here within {OPEN_S_MAX:g} s")
            raise refused.advising("the machine is busy, or a disk does not answer: try again")
        if self._failure is not None:
            raise self._failure
        self._client = Client(self._control)
        return self._client

    def __exit__(self, *_: object) -> None:
        """Close the link and the root, and wait until it has ended."""
        self._client.close()
        if self._loop is not None and self._is_over is not None:
            self._loop.call_soon_threadsafe(self._is_over.set)
        self._thread.join(CLOSE_S_MAX)

    def _serve(self) -> None:
        import asyncio

        try:
            asyncio.run(self._live())
        except BaseException as error:  # noqa: BLE001 - carried to the thread that waits for it
            self._failure = error
        finally:
            self._is_open.set()

    async def _live(self) -> None:
        import asyncio

        from tieline.runtime.root import RootOptions, open_root

        self._loop, self._is_over = asyncio.get_running_loop(), asyncio.Event()
        root = await open_root(
            RootOptions(
                home=self._where.home,
                coordination=self._where.coordination,
                session=f"command-{os.getpid()}-{os.urandom(6).hex()}",
                workspace=here(),
                mode="command",
                # Its own host: were it our shell, that shell's next command would take it for its root.
                host_pid=os.getpid(),
            )
        )
        try:
            self._control = str(root.who()["control"])
            self.expiry_ms = root.node.settings.limits.expiry_ms
            self._is_open.set()
            await self._is_over.wait()
            await asyncio.to_thread(self._tidy, root)
        finally:
            await root.close()

    @staticmethod
    def _tidy(root: Any) -> None:
        """Sweep as a root does that lives for longer: where only commands run, nobody else does."""
        from tieline.errors import TielineError
        from tieline.runtime.tidying import tidy

        node = root.node
        try:
            tidy(node.places, node.custody, node.settings.limits.retention_ms)
        except (TielineError, OSError) as error:
            node.log.failure("tidy", error)
