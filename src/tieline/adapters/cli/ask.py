"""`tieline ask`: send a question, and print the reply that answers it.

Rule: the reply is consumed only after its text was flushed; a timeout is not an answer.

Source: DESIGN.md 4; reference/reliability.md K33; reference/native.md 1K.
"""

import os
from argparse import Namespace
from typing import Any

from tieline.adapters.cli.arguments import (
    Alone,
    Parser,
    add_message_options,
    add_root_options,
    milliseconds,
    recipients_and_text,
)
from tieline.adapters.cli.delivery import SLACK_S, fields, new_id, tell_interrupted, words
from tieline.adapters.cli.door import OWN, OwnRoot, identity, reach_or_none
from tieline.adapters.cli.output import block, clock, flush, line, note, write, write_json
from tieline.adapters.cli.ringed import RingWatch
from tieline.adapters.cli.taking import settle
from tieline.errors import UsageError
from tieline.runtime.client import Client
from tieline.runtime.locate import places

__all__ = ["parser", "run"]

TIMEOUT_MS = 300_000
TIMEOUT_MS_MAX = 3_600_000
"""What every root takes."""
TIMED_OUT = 124
USAGE = "tieline ask [options] TO TEXT"


def parser(sub: Alone) -> Parser:
    """Return the parser of this command."""
    details = "Only the reply's text goes to stdout. TEXT is the last word; - reads stdin."
    made = sub.add_parser("ask", "Send a question, and wait for the reply that answers it.", details, USAGE)
    made.add_argument("words", nargs="+", metavar="TO TEXT", help="whom to ask, and what")
    waiting = "seconds to wait for the reply, at most 3600 (default 300)"
    made.add_argument("--timeout", metavar="S", type=milliseconds, default=TIMEOUT_MS, help=waiting)
    made.add_argument("--reply-to", metavar="ID", help="the received message that this question answers")
    add_message_options(made)
    add_root_options(made)
    return made


def run(options: Namespace) -> int:
    """Ask, and return the exit code."""
    recipients, text = recipients_and_text(options.words, "tieline ask")
    if len(recipients) > 1:
        raise UsageError("a question has one recipient; a text of several words needs quotes")
    if options.timeout > TIMEOUT_MS_MAX:
        raise UsageError(f"--timeout takes at most {TIMEOUT_MS_MAX // 1_000} seconds")
    params = {
        "messageId": new_id(),
        **fields(options, text),
        "to": recipients[0],
        "timeoutMs": options.timeout,
    }
    reached = reach_or_none(options)
    if reached is not None:
        client, found, _ = reached
        with client:
            return _ask(client, params, options, identity(found))
    with OwnRoot(places(os.environ)) as own:
        note("no agent hosts this command: a root of its own asks, and ends with it; a later answer is lost")
        return _ask(own, params, options, OWN)


def _ask(client: Client, params: dict[str, Any], options: Namespace, root: dict[str, Any]) -> int:
    try:
        with RingWatch(client, "tieline ask", [params["messageId"]], options.run):
            answer = client.call("local.ask", params, options.timeout / 1_000 + SLACK_S)
    except KeyboardInterrupt:
        tell_interrupted(client, params, is_own=root is OWN)
        raise
    with settle(client, answer.get("taken") or answer.get("token")):
        code = _show(answer, params, options, root)
        flush()
    return code


def _show(answer: dict[str, Any], params: dict[str, Any], options: Namespace, root: dict[str, Any]) -> int:
    receipt, reply = answer.get("receipt") or {}, answer.get("reply")
    if options.json:
        write_json("ask", {"receipt": receipt, "reply": reply, "timedOut": reply is None, "root": root})
    if not isinstance(reply, dict):
        known = words(receipt, is_left=root is OWN)
        note(f"tieline ask: WAIT_TIMEOUT: no reply within {options.timeout / 1_000:g} s; {known}")
        note(f"  next: `tieline status {line(params['messageId'], 256)}`; a timeout is not an answer")
        return TIMED_OUT
    sender = line(reply.get("fromAlias") or reply.get("from") or "?", 64)
    when, message_id = clock(reply.get("receivedAt", "")), line(reply.get("messageId", ""), 256)
    note(f":{sender} replied at {when}, id {message_id}")
    if not options.json:
        write(block(reply.get("content", ""), ""))
        for part in reply.get("attachments") or ():
            if isinstance(part, dict):
                note(f"  attached: {line(part.get('name', ''), 128)}; --json shows its text")
    return 0
