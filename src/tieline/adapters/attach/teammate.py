"""The teammate channel: what a child process of the host may ask its parent's root, and when.

Rule 1: every frame carries taskId, runId, targetRunId and requestId; the first three are bound together
once and stay so. A frame of another execution of the task, or of another run, is TARGET_ENDED, the
same as one of a task that never was.
Rule 2: once the task has ended only clean-up is served.
Rule 3: at most `PENDING_MAX` requests are open on each side; a request has `REQUEST_MS`, the record of a
context `COMMIT_MS`; one context names at most `SELECTIONS_MAX` messages.
Rule 4: a child gets no key, no endpoint and no token: it has this channel and nothing else.
Rule 5: this module is pure; the time comes in.

Source: reference/native.md 141 to 144, 2.15.
"""

from typing import Any, Final, NamedTuple

from tieline.errors import Refusal

__all__ = [
    "CLEAN_UP",
    "COMMIT_MS",
    "OPERATIONS",
    "PENDING_MAX",
    "REQUEST_MS",
    "SELECTIONS_MAX",
    "Address",
    "Request",
    "Teammates",
    "read_address",
    "read_request",
    "time_ms",
]

PENDING_MAX: Final = 32
REQUEST_MS: Final = 35_000
COMMIT_MS: Final = 30_000
SELECTIONS_MAX: Final = 128
GRANT_WAIT_MS_MAX: Final = 300_000
GRANT_WAIT_MS: Final = 30_000
GRANT_ANSWER_MS: Final = 5_000
"""A wait for a grant has its own time, and so much more for its answer."""
ID_CHARACTERS_MAX: Final = 256

MESSAGE_OPERATIONS: Final = frozenset(
    {"list", "resolve", "send", "messages", "status", "record", "consume", "bind", "end"}
)
RESOURCE_OPERATIONS: Final = frozenset(
    "resource." + name
    for name in (
        "coordinate",
        "requirements",
        "claim",
        "wait",
        "beforeSpawn",
        "beginLaunch",
        "recordSpawn",
        "publishLaunch",
        "complete",
        "finishLaunch",
        "failed",
    )
)
OPERATIONS: Final = MESSAGE_OPERATIONS | RESOURCE_OPERATIONS
CLEAN_UP: Final = frozenset(
    {
        "end",
        "resource.recordSpawn",
        "resource.complete",
        "resource.failed",
        "resource.publishLaunch",
        "resource.finishLaunch",
    }
)
"""Served also when the task is no longer active."""


class Address(NamedTuple):
    """Which request of which run of which execution of which task."""

    task: str
    run: str
    target_run: str
    request: str

    def members(self) -> dict[str, str]:
        """Return the members that every frame carries."""
        return {
            "taskId": self.task,
            "runId": self.run,
            "targetRunId": self.target_run,
            "requestId": self.request,
        }


class Request(NamedTuple):
    """One admitted request of a child; `deadline_ms` is monotonic."""

    address: Address
    operation: str
    params: dict[str, Any]
    deadline_ms: int


def read_address(params: dict[str, Any]) -> Address | Refusal:
    """Return the four ids of a frame, or why it has none that may be answered."""
    ids = [params.get(name) for name in ("taskId", "runId", "targetRunId", "requestId")]
    if not all(isinstance(value, str) and _is_id(value) for value in ids):
        return Refusal(
            "INVALID_PARAMS",
            "a team frame carries taskId, runId, targetRunId and requestId: 1 to 256 characters",
        )
    return Address(*ids)  # type: ignore[arg-type]  # all four are texts, as just shown


def read_request(params: dict[str, Any]) -> tuple[str, dict[str, Any]] | Refusal:
    """Return the operation of a `team.peerRequest` and its params."""
    unknown = set(params) - {"taskId", "runId", "targetRunId", "requestId", "operation", "params"}
    operation, asked = params.get("operation"), params.get("params", {})
    if unknown:
        return Refusal("INVALID_PARAMS", "team.peerRequest takes its four ids, operation and params")
    if not isinstance(operation, str) or operation not in OPERATIONS:
        return Refusal("METHOD_NOT_FOUND", "the channel has no such operation")
    if not isinstance(asked, dict):
        return Refusal("INVALID_PARAMS", "params must be an object")
    return operation, asked


def time_ms(operation: str, params: dict[str, Any]) -> int:
    """Return how long a request may take, in milliseconds: a wait for a grant names its own time."""
    if operation != "resource.wait":
        return REQUEST_MS
    asked = params.get("waitMs", GRANT_WAIT_MS)
    is_number = isinstance(asked, int) and not isinstance(asked, bool)
    return min(max(0, asked if is_number else 0), GRANT_WAIT_MS_MAX) + GRANT_ANSWER_MS


def _is_id(value: str) -> bool:
    return 0 < len(value) <= ID_CHARACTERS_MAX and value.isprintable()


class Teammates:
    """What is bound, and what is open on either side."""

    def __init__(self) -> None:
        self._bound: dict[str, tuple[str, str]] = {}
        self._asked: dict[Address, Request] = {}
        self._offered: dict[Address, int] = {}

    def admit(
        self, address: Address, operation: str, params: dict[str, Any], now_ms: int
    ) -> Request | Refusal:
        """Open a request of a child, or say why not.

        Args:
            address: Its ids.
            operation: One of `OPERATIONS`.
            params: Its own params.
            now_ms: Monotonic milliseconds.
        """
        if address in self._asked:
            return Refusal("REQUEST_ID_CONFLICT", "a request with this requestId is still open")
        if len(self._asked) >= PENDING_MAX:
            return Refusal(
                "RESOURCE_BUSY", f"{PENDING_MAX} requests of teammates are open", is_retryable=True
            )
        if operation == "bind":
            refusal = self._bind(address)
            if refusal is not None:
                return refusal
        elif not self.is_active(address) and operation not in CLEAN_UP:
            return Refusal("TARGET_ENDED", "this execution of the task is not active")
        if operation == "end":
            self._bound.pop(address.task, None) if self.is_active(address) else None
        request = Request(address, operation, params, now_ms + time_ms(operation, params))
        self._asked[address] = request
        return request

    def is_active(self, address: Address) -> bool:
        """Return whether exactly this execution and run of the task is bound now."""
        return self._bound.get(address.task) == (address.run, address.target_run)

    def settle(self, address: Address) -> None:
        """Close a request: it was answered."""
        self._asked.pop(address, None)

    def unbind(self, address: Address) -> None:
        """Take back a binding whose run did not begin."""
        if self.is_active(address):
            del self._bound[address.task]

    def open_requests(self, address: Address) -> tuple[Request, ...]:
        """Return the open requests of the same execution, this one left out."""
        return tuple(
            request
            for key, request in self._asked.items()
            if key[:3] == address[:3] and key.request != address.request
        )

    def operation(self, address: Address) -> str:
        """Return what an open request asks for, or ''."""
        request = self._asked.get(address)
        return "" if request is None else request.operation

    def active(self) -> tuple[tuple[str, str, str], ...]:
        """Return what is bound, as (task, execution, target run)."""
        return tuple((task, run, target_run) for task, (run, target_run) in self._bound.items())

    def offer(self, address: Address, message_count: int, now_ms: int) -> Refusal | None:
        """Open a context for the child to record, or say why not."""
        if message_count > SELECTIONS_MAX:
            return Refusal("MESSAGE_TOO_LARGE", f"one context names at most {SELECTIONS_MAX} messages")
        if len(self._offered) >= PENDING_MAX:
            return Refusal("RESOURCE_BUSY", f"{PENDING_MAX} contexts are unrecorded", is_retryable=True)
        self._offered[address] = now_ms + COMMIT_MS
        return None

    def commit(self, address: Address, now_ms: int) -> bool:
        """Close a context: the child says that it recorded it. False where it is late, or for another."""
        deadline_ms = self._offered.pop(address, None)
        return deadline_ms is not None and now_ms <= deadline_ms and self.is_active(address)

    def withdraw(self, address: Address) -> None:
        """Close a context that was not recorded."""
        self._offered.pop(address, None)

    def _bind(self, address: Address) -> Refusal | None:
        held = self._bound.get(address.task)
        if held is not None and held != (address.run, address.target_run):
            return Refusal("RESOURCE_BUSY", "the task is bound to another execution; end that first")
        if any(
            held_run == address.target_run
            for task, (_run, held_run) in self._bound.items()
            if task != address.task
        ):
            return Refusal("REQUEST_ID_CONFLICT", "the target run belongs to another task")
        self._bound[address.task] = (address.run, address.target_run)
        return None
