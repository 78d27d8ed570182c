"""`tieline inbox`: what has arrived. A preview, unless `--consume` says that it is read now.

Rule 1: at least one read happens, however short the wait.
Rule 2: with `--consume` the mail counts as read only after stdout took every byte of it.
Rule 3: what a window of another kind wrote may wait for the person's word: it is shown apart, and has not
arrived. `--accept` and `--deny` are that word, from a shell that no agent has.
Rule 4: a root answers in pages: a person is shown all of them, a program one and how many more wait.

Source: DESIGN.md 3, 4; reference/open-bugs.md O07; reference/reliability.md K33, I9.
"""

from argparse import Namespace
from time import monotonic
from typing import Any

from tieline.adapters.cli.arguments import Alone, Parser, add_root_options, milliseconds
from tieline.adapters.cli.delivery import SLACK_S
from tieline.adapters.cli.door import foreign_root, identity, reach, run_of
from tieline.adapters.cli.letters import show
from tieline.adapters.cli.output import block, flush, line, note, write, write_json
from tieline.adapters.cli.taking import settle
from tieline.errors import UsageError
from tieline.runtime.client import Client

__all__ = ["parser", "run"]

WAIT_STEP_S = 30.0
"""The longest single wait that every root takes."""
TIMED_OUT = 124


def parser(sub: Alone) -> Parser:
    """Return the parser of this command."""
    details = (
        "Without --consume nothing changes: the same messages are there for the agent to read.\n"
        'What waits for your word, as a window\'s mail does under accept = "ask", is shown apart:\n'
        "--accept lets it in, --deny sends it away, and so do five minutes."
    )
    made = sub.add_parser("inbox", "Show what has arrived and was not read yet.", details)
    made.add_argument("--after", metavar="CURSOR", help="only what came after this cursor")
    made.add_argument("--wait", metavar="S", type=milliseconds, help="seconds to wait for mail (0 to 86400)")
    made.add_argument("--consume", action="store_true", help="count what was printed as read")
    made.add_argument("--asks", action="store_true", help="only questions that wait for a reply")
    made.add_argument("--accept", metavar="ID", help="let this held message in")
    made.add_argument("--deny", metavar="ID", help="send this held message away; its sender is told")
    add_root_options(made)
    return made


def run(options: Namespace) -> int:
    """Show the inbox, and return the exit code."""
    if options.accept is not None or options.deny is not None:
        return _decide(options)
    if options.after is not None and not (options.after.isascii() and options.after.isdigit()):
        raise UsageError("--after takes a cursor: a decimal number as `tieline inbox` prints it")
    client, found, _ = reach(options, may_change=options.consume, is_personal=True)
    shown_count = 0
    with client:
        answer = _read(client, options, options.after, options.wait or 0)
        while True:
            with settle(client, answer.get("token") if options.consume else None):
                _show(answer, options, identity(found))
                flush()
            page_count = len(answer.get("messages") or ())
            shown_count += page_count
            if options.json or not page_count or not answer.get("remaining"):
                break
            answer = _read(client, options, str(answer.get("cursor")), 0)
    if not options.json:
        for text in foreign_root(found):
            note(text)
        _tell(answer, options, shown_count)
        _tell_held(answer)
    return TIMED_OUT if options.wait is not None and not shown_count else 0


def _decide(options: Namespace) -> int:
    """Say the person's word on one held message, and return the exit code."""
    if options.accept is not None and options.deny is not None:
        raise UsageError("--accept or --deny, not both")
    is_accepted = options.accept is not None
    message_id = options.accept if is_accepted else options.deny
    client, found, _ = reach(options, may_change=True, is_personal=True)
    with client:
        params = {"messageId": message_id, "accept": is_accepted, **run_of(options)}
        answer = client.call("local.consent", params)
    if options.json:
        body = {
            "messages": [],
            "messageId": message_id,
            "accepted": is_accepted,
            "receipt": answer["receipt"],
        }
        write_json("inbox", {**body, "root": identity(found)})
    else:
        word = "let in: it is unread mail now" if is_accepted else "sent away; its sender is told"
        write(f"{line(message_id, 64)} is {word}")
    flush()
    return 0


def _read(client: Client, options: Namespace, after: str | None, wait_ms: int) -> dict[str, Any]:
    """Return the first answer that holds mail, or the last one when the time is over."""
    params: dict[str, Any] = {**run_of(options)}
    if after is not None:
        params["after"] = after
    params.update({name: True for name in ("consume", "asks") if getattr(options, name)})
    deadline = monotonic() + wait_ms / 1_000
    while True:
        wait_s = min(max(deadline - monotonic(), 0.0), WAIT_STEP_S)
        answer = client.call("local.inbox", {**params, "waitMs": round(wait_s * 1_000)}, wait_s + SLACK_S)
        if answer.get("messages") or deadline - monotonic() <= 0.001:
            return answer
        if "after" in params and isinstance(answer.get("cursor"), str):
            params["after"] = answer["cursor"]  # what was only a receipt is not waited for again


def _show(answer: dict[str, Any], options: Namespace, root: dict[str, Any]) -> None:
    messages = [item for item in answer.get("messages", []) if isinstance(item, dict)]
    if options.json:
        named = ("cursor", "oldestCursor", "gap", "unread", "prepared", "remaining", "held")
        body = {"messages": messages, **{name: answer[name] for name in named if name in answer}}
        write_json("inbox", {**body, "consume": bool(options.consume), "root": root})
        return
    for message in messages:
        show(message)


def _tell_held(answer: dict[str, Any]) -> None:
    """Tell a person what waits for a word; its text stands behind bars, as all foreign text does."""
    for item in answer.get("held") or ():
        name = line(item.get("fromAlias") or item.get("from", "?"), 64)
        note(f"waits for your word: {line(item.get('messageId', ''), 64)} from {name}")
        if item.get("content"):
            note(block(item["content"]))
        note(f"  --accept {line(item.get('messageId', ''), 64)} lets it in, --deny sends it away")


def _tell(answer: dict[str, Any], options: Namespace, shown_count: int) -> None:
    """Tell a person on stderr what was shown and what became of it."""
    if answer.get("gap"):
        note(f"some history before cursor {line(answer.get('oldestCursor', ''), 20)} is no longer kept")
    prepared_count = answer.get("prepared")
    if options.consume and isinstance(prepared_count, int) and prepared_count > 0:
        note(f"{prepared_count} unread on the way to the model now: not shown here")
    if not shown_count:
        note(
            "no unread mail"
            + (" within the time" if options.wait else "")
            + (" to read here" if prepared_count else "")
        )
        return
    done = "marked as read" if options.consume else "a preview: nothing was marked as read (--consume does)"
    note(f"{shown_count} shown, {done}; cursor {line(answer.get('cursor', ''), 20)}")
