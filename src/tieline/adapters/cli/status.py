"""`tieline status`: what is known of one message.

Rule 1: what the sender's or the recipient's own root says goes first; without one that knows the message,
the outboxes of ended instances are read.
Rule 2: a message whose sender ended is shown as it is: nothing retries it, so an outcome that was not
known stays so, and only the recipient can tell.

Source: DESIGN.md 2, 4; reference/native.md 210, 2.8; reference/open-bugs.md O03.
"""

from argparse import Namespace
from typing import Any

from tieline.adapters.cli.arguments import Alone, Parser, add_root_options
from tieline.adapters.cli.delivery import words
from tieline.adapters.cli.door import identity, reach, run_of
from tieline.adapters.cli.letters import show, show_event
from tieline.adapters.cli.output import block, clock, flush, line, note, paint, write, write_json
from tieline.errors import Refused, TielineError

__all__ = ["parser", "run"]

EXPIRED_TEXT = "its time is over: the recipient took it before that, or never will"
ENDED_TEXT = "the sender has ended: nothing retries it; ask the recipient"


class NotKnown(Refused):
    """No store at hand holds this message id."""

    def __init__(self, message_id: str) -> None:
        is_plain = message_id.isascii() and message_id.isprintable() and message_id
        shown = f"message {message_id}" if is_plain else "a message of that id"
        text = f"neither the root that was asked nor an ended one knows {shown}"
        super().__init__("UNKNOWN_TARGET", text)

    @property
    def action(self) -> str:
        """Where an id that exists is shown."""
        return "use an id as `tieline log` or a receipt shows it, at the root that sent or received it"


def parser(sub: Alone) -> Parser:
    """Return the parser of this command."""
    details = "Also finds messages whose sender has ended, in what that sender left on disk."
    made = sub.add_parser("status", "Show what is known of one message.", details)
    made.add_argument("id", metavar="ID", help="its message id")
    add_root_options(made)
    return made


def run(options: Namespace) -> int:
    """Show the message's status, and return the exit code."""
    answer, root, reason = _asked(options)
    ended: list[dict[str, Any]] = []
    if not answer.get("sent") and not answer.get("received"):
        ended = _ended(options)
        if not ended and reason is not None and reason.code != "UNKNOWN_TARGET":
            raise reason
        if not ended:
            raise NotKnown(options.id)
    if options.json:
        body = {"sent": answer.get("sent", []), "received": answer.get("received", []), "ended": ended}
        write_json("status", {"messageId": options.id, **body, "root": root})
    else:
        _show(answer, ended)
    flush()
    is_unknown = any(str(item.get("receipt", {}).get("state")) in ("pending", "unknown") for item in ended)
    if ended and is_unknown:
        note(f"tieline status: DELIVERY_UNKNOWN: {ENDED_TEXT}")
        return 3
    return 0


def _asked(options: Namespace) -> tuple[dict[str, Any], dict[str, Any] | None, TielineError | None]:
    """Return what a root says, how it was found, and why nothing was learned where nothing was."""
    try:
        client, found, _ = reach(options, may_change=False)
    except Refused as error:
        return {}, None, error
    with client:
        try:
            answer = client.call("local.status", {"messageId": options.id, **run_of(options)})
        except Refused as error:
            if error.code != "UNKNOWN_TARGET":
                raise
            return {}, identity(found), error
        return answer, identity(found), None


def _ended(options: Namespace) -> list[dict[str, Any]]:
    import os

    from tieline.runtime.ended import outbox_of_ended
    from tieline.runtime.locate import places

    where = places(os.environ)
    return outbox_of_ended(where.home, options.id)


def _show(answer: dict[str, Any], ended: list[dict[str, Any]]) -> None:
    for item in answer.get("sent", []):
        _show_sent(item)
    for item in answer.get("received", []):
        write(paint("received", "bold"))
        show(item.get("message") or {})
        for event in item.get("history") or ():
            show_event(event)
    for item in ended:
        _show_sent(item, is_left=True)
        write(f"  sent by instance {line(item.get('instanceId', ''), 128)}; {ENDED_TEXT}")
        if item.get("expired"):
            write(f"  {EXPIRED_TEXT}")


def _show_sent(item: dict[str, Any], *, is_left: bool = False) -> None:
    receipt, message = item.get("receipt") or {}, item.get("message") or {}
    state = line(receipt.get("state", "?"), 16)
    to, message_id = line(receipt.get("to", ""), 64), line(receipt.get("messageId", ""), 256)
    write(f"{paint('sent', 'bold')}  {state}  to {to}  id {message_id}")
    write(f"  {words(receipt, is_left=is_left)}")
    moments = {"acceptedAt": "accepted", "consumedAt": "read", "repliedAt": "replied", "expiresAt": "expires"}
    told = [f"{word} {clock(receipt[name])}" for name, word in moments.items() if receipt.get(name)]
    if item.get("attempts") is not None:
        told.append(f"attempts {line(item['attempts'], 8)}")
    refusal = item.get("lastRefusal")
    if isinstance(refusal, dict):
        told.append(f"last refusal {line(refusal.get('code', ''), 64)}: {line(refusal.get('text', ''), 200)}")
    if told:
        write("  " + "  ".join(told))
    if message.get("content") is not None:
        write(block(message["content"]))
    for event in item.get("history") or ():
        show_event(event)
