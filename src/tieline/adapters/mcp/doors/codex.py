"""Codex: its server where the session runs in one with a socket, else the queue that it keeps for threads.

Theory. A window of Codex runs its threads in its own process, or in a server that it shares with others and
that listens in its folder. That server takes `turn/start`, which wakes, and `turn/steer`, which is in the
running turn's next request. Without it there is the queue: what is put there for a thread by any process
begins a turn in the window within some seconds, once that thread is idle.

Rule 1: only the process that started this server is talked to, which the kernel proves. Beside it only its
own program is started, for one request, to put into the queue; never a server that stays.
Rule 2: nothing is pushed into a run without a window: it ends with its turn, and what is queued then is lost.
Rule 3: to a session at work goes what its running turn takes, or nothing: it must not be woken by that.
Rule 4: a thread without a first prompt has no queue, as its window has written nothing of it yet.
Rule 5: what was pushed is proven by the prompt hook, which comes for all three.

Source: reference/harnesses.md 5; reference/pi-peers-and-harness-doors.md 4.1; docs/harnesses/codex.md.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

from tieline import __version__
from tieline.runtime.ladder import reaching
from tieline.runtime.ladder.reaching import Conversation, Host

__all__ = ["Codex", "lone_thread"]

FOLDER_VARIABLE: Final = "CODEX_HOME"
SOCKET: Final = "app-server-control/app-server-control.sock"
LOCKS: Final = "thread-writer-locks"
WITHOUT_WINDOW: Final = frozenset({"exec", "e", "review"})
QUEUE_EVIDENCE_S: Final = 30.0
"""A window looks into its queue every ten seconds at the latest, as seen on 0.171.0."""
SERVER_EVIDENCE_S: Final = 10.0


class Codex:
    """The way into one session."""

    name = "codex"

    def __init__(
        self, host: Host, folder: str, environment: Mapping[str, str], session: Callable[[], str]
    ) -> None:
        """Name the process and the folder of this Codex, and what tells the session's id."""
        self._host, self._environment, self._session = host, dict(environment), session
        self._socket = os.path.join(folder, SOCKET)
        self._has_server = host.listens_at(self._socket)

    @classmethod
    def of(cls, environment: Mapping[str, str], session: Callable[[], str]) -> Self | None:
        """Return the way to the window that started this process, or None."""
        host = Host.ours()
        if host is None or not _is_codex(host) or not WITHOUT_WINDOW.isdisjoint(host.words[1:]):
            return None
        return cls(host, _folder(environment), environment, session)

    @property
    def wakes_only(self) -> bool:
        """Whether it is no way into a running turn."""
        return not self._has_server

    @property
    def evidence_s(self) -> float:
        """How long an idle window may take until it shows what was pushed."""
        return SERVER_EVIDENCE_S if self._has_server else QUEUE_EVIDENCE_S

    async def push(self, text: str, *, is_busy: bool) -> bool:
        """Put one message before the session; False when it certainly took nothing."""
        thread = self._session()
        if not thread:
            return False
        given = {"threadId": thread, "input": [{"type": "text", "text": text}]}
        if self._has_server:
            talk = _steer if is_busy else _start
            return await reaching.converse_at(self._socket, self._host, lambda one: talk(one, given))
        if is_busy:
            return False
        command = (self._host.program, "app-server")
        return await reaching.converse_with(command, self._environment, lambda one: _queue(one, given))

    def is_busy(self) -> bool | None:
        """Return nothing: the hooks say it."""
        return None


def lone_thread(environment: Mapping[str, str]) -> str | None:
    """Return the only thread of the process that started this one, '' where none is seen, None among several.

    A window that nobody typed into has told no hook yet; it holds a lock for each of its threads.
    """
    host = Host.ours()
    names = host.held_files(os.path.join(_folder(environment), LOCKS)) if host is not None else ()
    threads = [name.removesuffix(".lock") for name in names if name.endswith(".lock")]
    if len(threads) > 1:
        return None
    return threads[0] if threads else ""


def _is_codex(host: Host) -> bool:
    return os.path.basename(host.program).startswith("codex")


def _folder(environment: Mapping[str, str]) -> str:
    return environment.get(FOLDER_VARIABLE) or os.path.expanduser("~/.codex")


def _greet(one: Conversation) -> bool:
    client = {"name": "tieline", "version": __version__}
    answer = one.ask("initialize", {"clientInfo": client, "capabilities": {"experimentalApi": True}})
    if answer is None or "result" not in answer:
        return False
    one.tell("initialized")
    return True


def _took(answer: dict[str, Any] | None) -> bool:
    """Return whether a request may have been carried out: only an error says that it was not."""
    return answer is None or "error" not in answer


def _start(one: Conversation, given: dict[str, Any]) -> bool:
    """Begin a turn; where the session has just begun one itself, Codex puts it into that."""
    return _greet(one) and _took(one.ask("turn/start", given))


def _steer(one: Conversation, given: dict[str, Any]) -> bool:
    """Put it into the running turn, that one or none."""
    if not _greet(one):
        return False
    asked = {"threadId": given["threadId"], "limit": 1, "sortDirection": "desc"}
    answer = one.ask("thread/turns/list", asked)
    try:
        turn = answer["result"]["data"][0] if answer is not None else {}
        running = turn["id"] if turn.get("status") == "inProgress" else None
    except (KeyError, IndexError, TypeError, AttributeError):
        running = None
    return running is not None and _took(one.ask("turn/steer", {**given, "expectedTurnId": running}))


def _queue(one: Conversation, given: dict[str, Any]) -> bool:
    """Put it into the thread's queue."""
    name = f"tieline-{os.urandom(8).hex()}"
    return _greet(one) and _took(one.ask("thread/queue/add", {**given, "clientUserMessageId": name}))
