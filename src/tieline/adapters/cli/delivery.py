"""What sending, asking and replying share: the request, the receipts in true words, the exit code.

Rule 1: a message id is chosen before the first byte is sent, so that an outcome that is not known can
be asked for by name.
Rule 2: the words say what the recipient durably stated, and no more; what is not known is said to be so.
Rule 3: several recipients are several messages: one id, one receipt and one line each.
Rule 4: a root of the command's own retries nothing once the command has ended: what is open then is
said to be left, and a repeat would be a second message. An interrupted wait says the same, with the id.

Source: DESIGN.md 1 (states), 4; reference/native.md 1J, 2.8; reference/open-bugs.md O03.
"""

import os
from argparse import Namespace
from time import monotonic
from typing import Any, Final

from tieline.adapters.cli.door import run_of
from tieline.adapters.cli.main import exit_code
from tieline.adapters.cli.output import clock, flush, line, note, paint, write, write_json
from tieline.errors import OutcomeUnknown, Refused, TielineError, UsageError, next_action
from tieline.runtime.client import Client, error_of

__all__ = [
    "WAIT_STEP_S",
    "Outcome",
    "deliver",
    "fields",
    "new_id",
    "report",
    "tell_interrupted",
    "words",
]

ATTACHMENT_BYTES_MAX: Final = 1_048_576
ID_CHARACTERS_MAX: Final = 256
SLACK_S: Final = 10.0
WAIT_STEP_S: Final = 3_000.0
"""The longest single wait; every root takes an hour. Longer ones are several."""
INTERRUPTED_S: Final = 2.0
HELD: Final = "HELD"
LEFT_ACTION: Final = "; then ask the recipient: sending it again would be a second message"
SETTLED: Final = frozenset({"accepted", "consumed", "replied"})
_MEDIA_TYPES: Final = {
    ".md": "text/markdown",
    ".json": "application/json",
    ".diff": "text/x-diff",
    ".patch": "text/x-diff",
    ".html": "text/html",
    ".csv": "text/csv",
}
_WORDS: Final = {
    "pending": "stored here and not yet handed over; the root retries until it expires",
    "unknown": "sent, but no answer came: it may have arrived",
    "consumed": "read at the recipient; that does not say that the work is done",
    "replied": "the recipient replied",
    "rejected": "refused; the recipient stored nothing",
    "expired": "its time was over before it was read",
}
_NOTES: Final = {
    "BROKER_QUEUED": "the broker holds it back for a moment, or until its recipient returns",
    "BROKER_ACCEPTED": "the broker passed it on; that wire does not tell whether it was taken",
    "CHECKPOINTED": "the recipient's program wrote it down; whether a model read it is not known",
    "PLACED": "the recipient's program placed it before its model; whether that read it is not known",
}
"""Beside `unknown`: how far it came. On that wire no stronger answer may ever come."""
_EXPIRED: Final = {
    "NOT_DELIVERED": "never delivered: the recipient ended, or the time was over, before it took it",
    "REPLACED": "never read: its sender replaced it by a later message",
}
_LEFT: Final = {
    "pending": "no answer came, nor is it known whether it left; its root is over, so nothing retries it",
    "unknown": "it may have arrived, but no answer came; its root is over, so nothing retries it",
}
_DURABLE: Final = {
    "synced": "accepted: the recipient has it on stable storage; not read yet",
    "volatile": "accepted: the recipient holds it in memory only; it does not tell when it is read",
}


class Outcome:
    """What came of all recipients: receipts, and errors in the doors' shape.

    `is_own` says that the root that sent them ends with this command.
    """

    def __init__(self, *, is_own: bool = False) -> None:
        self.is_own = is_own
        self.receipts: list[dict[str, Any]] = []
        self.errors: list[dict[str, Any]] = []

    def add(self, answer: dict[str, Any]) -> None:
        """Take the receipts and errors of one answer."""
        for item in answer.get("receipts", []):
            if isinstance(item, dict):
                is_left = self.is_own and item.get("state") in _LEFT
                self.receipts.append({**item, "text": words(item, is_left=True)} if is_left else item)
        self.errors += [item for item in answer.get("errors", []) if isinstance(item, dict)]

    def add_error(self, to: str, error: TielineError) -> None:
        """Take what was raised for one recipient."""
        shape: dict[str, Any] = {"to": to, "code": error.code, "text": str(error), "action": error.action}
        shape["retryable"] = bool(getattr(error, "is_retryable", False))
        if isinstance(error, Refused) and error.candidates:
            shape["candidates"] = error.candidates
        if isinstance(error, OutcomeUnknown) and error.message_id:
            shape["messageId"] = error.message_id
        self.errors.append(shape)

    @property
    def exit_code(self) -> int:
        """Return the gravest of all: 5, then 3, then 1, then any other that is not 0."""
        codes = {exit_code(str(error.get("code"))) for error in self.errors}
        codes |= {
            0 if str(receipt.get("state")) in SETTLED else _exit_of(receipt) for receipt in self.receipts
        }
        return next((code for code in (5, 3, 1, 4, 2, 124) if code in codes), 0)


def _exit_of(receipt: dict[str, Any]) -> int:
    if receipt.get("state") == "unknown" and receipt.get("outcome") in _NOTES:
        return 0
    return 1 if receipt.get("state") in ("rejected", "expired") else 3


def new_id() -> str:
    """Return a fresh message id."""
    return "cli-" + os.urandom(16).hex()


def words(receipt: dict[str, Any], *, is_left: bool = False) -> str:
    """Return one true sentence, without a full stop, about a receipt.

    Args:
        receipt: In the doors' shape.
        is_left: Whether the sender's root ends now, so that what is open stays so.
    """
    state, outcome = str(receipt.get("state")), receipt.get("outcome")
    if outcome == "TARGET_ENDED" and state == "accepted":
        return "stored by the recipient, but that run ended before it read it"
    if state == "accepted":
        default = "accepted: the recipient says that it has it, not how durably; not read yet"
        told = _DURABLE.get(str(receipt.get("durability")), default)
        # A root that is over was told nothing since: the recipient may have read it meanwhile.
        return told.replace("not read yet", "whether it was read since is not known") if is_left else told
    if outcome == HELD and state in ("pending", "unknown"):
        return "the recipient asks its person first; the answer comes by itself (HELD)"
    if state == "unknown" and outcome in _NOTES:
        return f"{_NOTES[str(outcome)]} ({outcome})"
    text = _WORDS.get(state, "in a state that this version does not know")
    if is_left:
        text = _LEFT.get(state, text)
    if state == "expired":
        text = _EXPIRED.get(str(outcome), text)
    return f"{text} ({line(outcome, 64)})" if outcome else text


def fields(options: Namespace, content: str) -> dict[str, Any]:
    """Return the members of a request that the message options ask for.

    Raises:
        UsageError, Refused: an attachment cannot be taken.
    """
    params: dict[str, Any] = {"content": content, **run_of(options)}
    named = {
        "topic": options.topic,
        "delivery": options.delivery,
        "thread": options.thread,
        "expiryMs": options.expires,
        "replyTo": getattr(options, "reply_to", None),
        "messageId": getattr(options, "id", None),
        "scope": getattr(options, "scope", None),
    }
    params.update({name: value for name, value in named.items() if value is not None})
    _require_plain("--id", params.get("messageId"))
    _require_plain("--thread", options.thread)
    if options.replace:
        if options.thread is None:
            raise UsageError("--replace takes the place of a message of its thread: name it with --thread")
        params["replace"] = True
    if options.attach:
        params["attachments"] = [_attachment(path) for path in options.attach]
    return params


def _require_plain(name: str, value: str | None) -> None:
    """Refuse an id that would be invisible, cut or torn where it is printed or typed."""
    if value is None:
        return
    if not 0 < len(value) <= ID_CHARACTERS_MAX or not value.isprintable() or " " in value:
        allowed = f"1 to {ID_CHARACTERS_MAX} printable characters without a space"
        raise UsageError(f"{name} takes {allowed}")


def _attachment(path: str) -> dict[str, str]:
    from pathlib import Path

    file_path = Path(path)
    with file_path.open("rb") as file:
        data = file.read(ATTACHMENT_BYTES_MAX + 1)
    if len(data) > ATTACHMENT_BYTES_MAX:
        raise Refused("MESSAGE_TOO_LARGE", f"{path} holds more than {ATTACHMENT_BYTES_MAX} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text; send its path instead") from None
    media_type = _MEDIA_TYPES.get(file_path.suffix.lower(), "text/plain")
    return {"name": file_path.name, "text": text, "mediaType": media_type}


def deliver(
    client: Client, recipients: list[str], params: dict[str, Any], wait_s: float, *, is_own: bool = False
) -> Outcome:
    """Send to every recipient, and wait until each has spoken or the time is over.

    Each recipient's message is stored before the first is waited for; the same id then asks how it stands.
    An outcome that is not known is kept as that recipient's error; the others go on.

    Args:
        client: Of the root that sends.
        recipients: Names; a message for each.
        params: Of `local.send`, without `to`.
        wait_s: For all of them together.
        is_own: Whether that root ends with this command.
    """
    if len(recipients) > 1 and "messageId" in params:
        raise UsageError("--id names one message; with it, name one recipient")
    outcome = Outcome(is_own=is_own)
    deadline = monotonic() + wait_s
    waiting = [{"messageId": new_id(), **params, "to": to} for to in recipients]
    try:
        if len(waiting) > 1:
            for request in list(waiting):
                if _attempt(client, request, 0.0, outcome, is_last=False):
                    waiting.remove(request)
        while waiting:
            left_s = max(deadline - monotonic(), 0.0)
            is_last = left_s <= WAIT_STEP_S
            if _attempt(client, waiting[0], min(left_s, WAIT_STEP_S), outcome, is_last=is_last):
                del waiting[0]
    except KeyboardInterrupt:
        for request in waiting:
            tell_interrupted(client, request, is_own=is_own)
        raise
    return outcome


def tell_interrupted(client: Client, request: dict[str, Any], *, is_own: bool) -> None:
    """Say on stderr what is known of a message whose sending or waiting a person interrupted."""
    message_id = line(request["messageId"], ID_CHARACTERS_MAX)
    try:
        sent = client.call("local.status", {"messageId": request["messageId"]}, INTERRUPTED_S).get("sent")
        known = words(sent[0].get("receipt") or {}, is_left=is_own) if sent else "nothing of it is stored"
    except Refused as error:
        is_absent = error.code == "UNKNOWN_TARGET"
        known = "nothing of it was stored" if is_absent else "what became of it was not answered"
    except TielineError:
        known = "what became of it was not answered"
    note(f"interrupted: to {line(request['to'], 64)}  id {message_id}: {known}")
    note(f"  next: `tieline status {message_id}`" + (LEFT_ACTION if is_own else ""))


def _attempt(
    client: Client, request: dict[str, Any], wait_s: float, outcome: Outcome, *, is_last: bool
) -> bool:
    """Ask once; return whether that recipient is settled and was noted in `outcome`."""
    try:
        answer = client.call("local.send", {**request, "waitMs": round(wait_s * 1_000)}, wait_s + SLACK_S)
    except TielineError as error:
        outcome.add_error(str(request["to"]), error)
        return True
    receipts = answer.get("receipts") or [{}]
    is_open = receipts[0].get("state") in ("pending", "unknown")
    if not is_last and not answer.get("errors") and is_open:
        return False
    outcome.add(answer)
    return True


def report(command: str, outcome: Outcome, options: Namespace, more: dict[str, Any]) -> int:
    """Print receipts to stdout and errors to stderr; return the exit code.

    Raises:
        TielineError: nothing was sent and there is one reason: it is told as the command's own.
    """
    if not outcome.receipts and len(outcome.errors) == 1:
        error = outcome.errors[0]
        to, text = str(error.get("to")), str(error.get("text"))
        raise error_of(
            str(error.get("code", "")),
            text if text.startswith(to) else f"{to}: {text}",
            is_retryable=error.get("retryable") is True,
            message_id=str(error.get("messageId", "")),
            candidates=error.get("candidates"),
        ).advising(str(error.get("action") or ""))
    if options.json:
        body = {"receipts": outcome.receipts, "errors": outcome.errors, "exitCode": outcome.exit_code}
        write_json(command, {**body, **more})
    else:
        for receipt in outcome.receipts:
            _show(receipt, is_own=outcome.is_own)
    flush()
    for error in outcome.errors:
        note(f"{line(error.get('to'), 64)}: {line(error.get('code'), 64)}: {line(error.get('text'), 400)}")
        if error.get("messageId"):
            note(f"  id {line(error['messageId'], 256)}")
        note(f"  next: {line(error.get('action') or next_action(str(error.get('code'))), 400)}")
    return outcome.exit_code


def _show(receipt: dict[str, Any], *, is_own: bool) -> None:
    target = receipt.get("target")
    name = target.get("alias") if isinstance(target, dict) else ""
    peer = target.get("peerId") if isinstance(target, dict) else receipt.get("to")
    state = str(receipt.get("state"))
    style = "good" if state in SETTLED else "warn"
    expiry = f"  expires {clock(receipt['expiresAt'])}" if receipt.get("expiresAt") else ""
    message_id = line(receipt.get("messageId"), 256)
    who = f":{line(name or '?', 64)}  {line(peer, 64)}"
    write(f"{paint(line(state, 16), style)}  {who}  id {message_id}{expiry}")
    write(f"  {words(receipt, is_left=is_own)}")
    if state in ("pending", "unknown"):
        again = LEFT_ACTION if is_own else "; the same id again is the same message"
        write(f"  next: `tieline status {message_id}`{again}")
    if receipt.get("replyTo"):
        write(f"  answers {line(receipt['replyTo'], 256)}")
