"""How received messages are shown to a person: whose they are, what is known of them, their text.

Rule 1: the sender shown is the authenticated one; what a message says of itself stays inside its frame.
Rule 2: every line of a peer's text stands behind a bar, so that none can pose as a line of ours.

Source: DESIGN.md 4; reference/reliability.md 3.6, S22.
"""

from typing import Any

from tieline.adapters.cli.output import block, clock, line, paint, write

__all__ = ["show", "show_event"]


def show(message: dict[str, Any]) -> None:
    """Print one message: a head line, a line of facts, its text, its attachments."""
    sender = line(message.get("fromAlias") or "?", 64)
    project = line(message.get("fromProject") or "", 64)
    head = f"{line(message.get('sequence', ''), 20)}  :{sender}" + (f"  {project}" if project else "")
    kind = "  asks" if message.get("ask") else ""
    state = line(message.get("state", ""), 16)
    when = clock(message.get("receivedAt") or message.get("createdAt") or "")
    write(f"{paint(head, 'bold')}  {line(message.get('from', ''), 64)}  {state}{kind}  {when}")
    facts = [f"id {line(message.get('messageId', ''), 256)}"]
    names = {"topic": "topic", "replyTo": "answers", "thread": "thread", "delivery": "delivery"}
    facts += [f"{word} {line(message[name], 256)}" for name, word in names.items() if message.get(name)]
    if message.get("expiresAt"):
        facts.append(f"expires {clock(message['expiresAt'])}")
    exposure_count = message.get("exposureCount")
    if isinstance(exposure_count, int) and exposure_count > 1:
        facts.append(f"exposed {exposure_count} times")
    write("  " + "  ".join(facts))
    content = message.get("content")
    write(block(content) if content is not None else "  (its text is only in the journal)")
    for part in message.get("attachments") or ():
        if isinstance(part, dict):
            write(f"  attached: {line(part.get('name', ''), 128)} ({line(part.get('mediaType', ''), 64)})")
            write(block(part.get("text", ""), "  |   "))


def show_event(event: dict[str, Any]) -> None:
    """Print one entry of a history on one line."""
    state = line(event.get("state") or event.get("type") or "", 16)
    sender = line(event.get("fromAlias") or event.get("from") or "", 64)
    recipient = line(event.get("toAlias") or event.get("to") or "", 64)
    text = event.get("content") or event.get("preview") or ""
    shown = f"  {line(text, 80)}" if text else ""
    cursor, kind = line(event.get("cursor", ""), 20), line(event.get("type", ""), 16)
    when, message_id = clock(event.get("at", "")), line(event.get("messageId", ""), 256)
    write(f"{cursor:>6}  {when}  {kind:<8}  {state:<9}  {sender} > {recipient}  {message_id}{shown}")
