"""What can go wrong, and what the caller does next.

Rule 1: the branch of the tree says what to do; the code says what would help.
Rule 2: a code is stable and is sent to peers and scripts; the text is for a person.
Rule 3: the core returns `Refusal` values; only `runtime` raises them as `Refused`.
Rule 4: to a peer go only the codes of `WIRE_CODES`; a public reader takes any other
code as "outcome not known".

Source: specification, "Troubleshooting"; reference/native.md 1T, 2.6b, 2.7.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

__all__ = [
    "CODES",
    "LOCAL_CODES",
    "WIRE_CODES",
    "OutcomeUnknown",
    "ProtocolError",
    "RecoveryRequired",
    "Refusal",
    "Refused",
    "TielineError",
    "UsageError",
    "next_action",
]

WIRE_CODES: dict[str, str] = {
    "PEER_OFFLINE": (
        "list the peers again and choose the current one; ask for the status of the old message "
        "before sending again"
    ),
    "TARGET_ENDED": (
        "list the peers again and choose the current run; ask for the status of the old message "
        "before sending again"
    ),
    "UNKNOWN_TARGET": "list the peers and use an exact peer id or alias from the list",
    "AMBIGUOUS_TARGET": "use the exact peer id instead of the alias",
    "SCOPE_DENIED": (
        "compare the scope of both ends, the workspace and the coordination directory; raise the "
        "narrower scope in config.toml and restart"
    ),
    "CAPABILITY_DENIED": "choose a peer that has the capability, or leave out the option that needs it",
    "UNSUPPORTED_PROTOCOL": "update the older of the two ends",
    "QUEUE_FULL": (
        "let the recipient read its mail or free its disk, as its `tieline doctor` says, then send the "
        "same message id again; nothing that was accepted is dropped"
    ),
    "MESSAGE_TOO_LARGE": "shorten the text, or write it to a file and send the path",
    "DELIVERY_UNKNOWN": (
        "ask for the status of this message id, or send the same id again; a new id would be a second message"
    ),
    "CONTROLLER_UNAVAILABLE": "look at the resource's status, and install a controller that is running",
    "RESOURCE_BUSY": "wait for the present holder or reader to finish, then try again",
    "RECOVERY_REQUIRED": "keep the files as they are; `tieline doctor` names what is damaged, and what to do",
    "INVALID_PARAMS": "correct the named field",
    "INVALID_RPC": "send one JSON-RPC 2.0 object a line",
    "PARSE_ERROR": "send UTF-8 JSON without duplicate keys, NaN or lone surrogates",
    "FRAME_TOO_LARGE": "send a smaller frame",
    "AUTHENTICATION_FAILED": "restart the end whose presence record is out of date",
    "UNSAFE_ENDPOINT": "make the directory yours with mode 0700, without links in its path",
    "COMMUNICATION_DISABLED": (
        "set `enabled = true` under [communication] in config.toml at each end and restart"
    ),
    "MESSAGE_ID_CONFLICT": "use a new message id for a new text",
    "INVALID_REPLY": "reply to a message received from exactly this peer, with its original id",
    "RATE_LIMITED": "wait a second, then send the same message id again",
    "STALE_POLICY": "read the resource's status and request again under the current epoch",
    "REQUEST_ID_CONFLICT": "use a new request id",
    "RESERVATION_EXPIRED": "request the resource again",
    "RESOURCE_WAIT_TIMEOUT": (
        "look at the controller and the queue with `tieline resource status`; nothing was started"
    ),
    "METHOD_NOT_FOUND": "use a method that this end announces",
    "AUTOMATIC_REPLY_LIMIT": "let a person continue this conversation",
    "UNSUPPORTED_PLATFORM": "leave communication off on this platform",
}
"""The thirty codes of the native profile, each with the caller's next action."""

LOCAL_CODES: dict[str, str] = {
    "NO_ROOT": "start an agent with a Tieline door here, or name one with --instance",
    "OUTCOME_PENDING": "ask again with `tieline status`",
    "UNREAD_MAIL": "read it with `tieline recover`, then repeat with --unread",
    "STILL_ALIVE": "end that agent first",
    "WAIT_TIMEOUT": "wait again, or look at `tieline status`; a timeout is not an answer",
    "PERMISSION_DENIED": (
        "this process may not reach the file or socket: run it outside the sandbox, or use the MCP tool"
    ),
    "FOREIGN_NAMESPACE": "this process is in another container: use the MCP tool of the agent's own door",
    "VERSION_SKEW": "restart the older program so that both are of the same version",
    "USAGE": "correct what the text names; every command explains itself with --help",
    "DENIED": "its person said no: ask that person, not the agent",
    "REFUSED": "that window takes no messages: ask its person to set accept to ask or accept",
    "DUPLICATE": "nothing: the recipient has these very words already; say what is new in another text",
    "HOP_LIMIT": "end this chain: the message went through too many agents",
    "MALFORMED_WRAPPER": "send the text without a message tag of another's making in it",
    "DROPPED": "send one message again later, under a new id, and only if it still matters",
}
"""Codes that never leave this machine's own doors."""

CODES: dict[str, str] = {**WIRE_CODES, **LOCAL_CODES}


def next_action(code: str) -> str:
    """Return the next action for `code`, a sentence fragment without a full stop."""
    return CODES.get(code, "see `tieline doctor`")


class Refusal(NamedTuple):
    """A no, as a value: nothing was taken.

    `code` is a key of `CODES`; `text` one sentence for a person, free of foreign
    content; `is_retryable` says that the same message id may be sent again; `candidates`
    are the exact peer ids of which one may have been meant.
    """

    code: str
    text: str
    is_retryable: bool = False
    candidates: tuple[str, ...] = ()


class TielineError(Exception):
    """The base of all errors that this package raises on purpose."""

    code = "RECOVERY_REQUIRED"
    advice = ""
    """What helps here, where that is more than the code says; the same form as `next_action`."""

    @property
    def action(self) -> str:
        """The caller's next action."""
        return self.advice or next_action(self.code)

    def advising(self, advice: str) -> Self:
        """Return this error, with what helps here instead of what the code says in general."""
        self.advice = advice
        return self


class UsageError(TielineError):
    """The call is wrong; fix the call. Nothing happened."""

    code = "USAGE"

    def __init__(self, text: str, code: str = "USAGE") -> None:
        super().__init__(text)
        self.code = code


class ProtocolError(TielineError):
    """The far end broke the grammar; answer once where the wire allows it, close the link."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Refused(TielineError):
    """Nothing was taken; `code` tells what would help, `candidates` what else may have been meant."""

    def __init__(
        self,
        code: str,
        text: str,
        *,
        is_retryable: bool = False,
        candidates: Iterable[Mapping[str, str]] = (),
    ) -> None:
        super().__init__(text)
        self.code = code
        self.is_retryable = is_retryable
        self.candidates = [dict(one) for one in candidates]

    @classmethod
    def of(cls, refusal: Refusal) -> "Refused":
        """Return the exception for a refusal value."""
        named = [{"peerId": one} for one in refusal.candidates]
        return cls(refusal.code, refusal.text, is_retryable=refusal.is_retryable, candidates=named)


class OutcomeUnknown(TielineError):
    """Whether it happened is not known; only the same message id may ask again."""

    code = "DELIVERY_UNKNOWN"

    def __init__(self, text: str, message_id: str = "") -> None:
        super().__init__(text)
        self.message_id = message_id


class RecoveryRequired(TielineError):
    """The store is in doubt; acknowledge nothing until it was reopened. No file was changed."""

    code = "RECOVERY_REQUIRED"
