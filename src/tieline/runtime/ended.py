"""What ended instances left on disk, in the shapes of the doors: for review, for questions, for removal.

Rule 1: everything is read through `store.recovery`, which holds the ended root's lock and reads a copy;
nothing is moved to another instance, and nothing is retried.
Rule 2: of a damaged store nothing is shown and nothing is counted: what cannot be known is None.

Source: DESIGN.md 2, 8; reference/native.md 1Q (182 to 185); reference/reliability.md I6, K17.
"""

import time
from typing import Any, NamedTuple

from tieline.engine.contract import Held, Sent
from tieline.errors import RecoveryRequired, Refused
from tieline.runtime import render
from tieline.store import recovery, removal

__all__ = [
    "DAMAGED_ACTION",
    "Damaged",
    "Ended",
    "Recovered",
    "ended_instances",
    "forget",
    "outbox_of_ended",
    "recover",
]

DAMAGED_ACTION = (
    "repair the disk or bring the folder back from a backup, then repeat; or move the folder away from"
    " peer-messages and keep it: its senders still know what they sent"
)


class Damaged(RecoveryRequired):
    """What an ended instance left cannot be read; every byte is kept."""

    @property
    def action(self) -> str:
        """What a person can do, for no command of ours can."""
        return DAMAGED_ACTION


class Ended(NamedTuple):
    """One ended instance; `fault` says why its counts are not known and None, "" when they are."""

    instance: str
    session: str
    unread_count: int | None
    unsettled_count: int | None
    message_count: int | None
    fault: str
    held_count: int | None = 0


class Recovered(NamedTuple):
    """What one ended instance left: unread messages, with `expired`, and sends that were not settled.

    `held` waited for the person's word and never arrived: without its text, as an agent's shell sees it.
    """

    instanceId: str  # noqa: N815 - it is the name in the JSON shape
    sessionId: str  # noqa: N815 - the same
    messages: list[dict[str, Any]]
    sent: list[dict[str, Any]]
    held: list[dict[str, Any]] = []  # noqa: RUF012 - a tuple's default, never written to


def ended_instances(home: str) -> list[Ended]:
    """Return every ended instance below `home`, by id; damaged ones with what is wrong."""
    return [
        Ended(
            one.instance,
            one.session,
            one.unread_count,
            one.unsettled_count,
            one.message_count,
            one.damage,
            one.held_count,
        )
        for one in recovery.ended(home, now_ms=_now_ms())
    ]


def recover(home: str, instance: str, session: str | None = None) -> Recovered:
    """Return the unread mail and the unsettled sends of an ended instance; nothing is changed.

    Raises:
        Refused: `STILL_ALIVE`, `UNKNOWN_TARGET`, `SCOPE_DENIED` for another saved session, `VERSION_SKEW`.
        Damaged: a file is damaged, named; all bytes are kept.
        UsageError: `instance` is no instance id.
    """
    try:
        found = recovery.recover(home, instance, session=session, now_ms=_now_ms())
    except RecoveryRequired as error:
        raise Damaged(str(error)) from error
    return Recovered(
        found.identity.instance_id,
        found.identity.session_id,
        [_unread(item) for item in found.unread],
        [_sent(item) for item in found.unsettled],
        [render.held(_held(item), is_personal=False) for item in found.held],
    )


def outbox_of_ended(home: str, message_id: str) -> list[dict[str, Any]]:
    """Return what ended instances below `home` knew of a message that they sent.

    Damaged stores are passed over: `ended_instances` names them.
    """
    found: list[dict[str, Any]] = []
    for item in recovery.ended(home):
        if item.damage:
            continue  # `doctor` and `recover` name it
        try:
            sends = recovery.recover(home, item.instance, now_ms=_now_ms()).sends
        except (Refused, RecoveryRequired):
            continue  # it went between the list and the look
        mine = [send for send in sends if send.envelope.message_id == message_id]
        found += [{"instanceId": item.instance, **_sent(send)} for send in mine]
    return found


def forget(home: str, instance: str, *, is_unread_too: bool) -> dict[str, int]:
    """Remove what an ended instance left, with its log; return how many messages went, and which were open.

    Args:
        home: TIELINE_HOME, absolute.
        instance: The ended one.
        is_unread_too: Also what nobody read, and sends of which it is not known whether they arrived.

    Raises:
        Refused: `UNREAD_MAIL` unless `is_unread_too`; `RESOURCE_BUSY`, it may be in the making; else as
            `recover`.
        Damaged: it cannot be read, so nobody knows what would be lost; it is kept.
    """
    try:
        found = removal.forget(home, instance, with_unread=is_unread_too, now_ms=_now_ms())
    except RecoveryRequired as error:
        raise Damaged(str(error)) from error
    if found is None:
        return {"messages": 0, "unread": 0, "unsettled": 0}
    return {"messages": found.message_count, "unread": len(found.unread), "unsettled": len(found.unsettled)}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _unread(item: recovery.Unread) -> dict[str, Any]:
    return {**render.message(_held(item)), "expired": item.is_expired}


def _held(item: recovery.Unread) -> Held:
    return Held(
        item.cursor,
        item.envelope,
        item.receipt.state,
        item.at_ms,
        item.expires_ms,
        item.receipt,
        is_prepared=item.is_exposed,
    )


def _sent(item: recovery.EndedSend) -> dict[str, Any]:
    sent = Sent(item.cursor, item.envelope, item.receipt, item.expires_ms)
    shape = render.sent_message(sent)
    # How often it was tried is in the memory of a root alone: it ended with it, and is not 0.
    return {
        **{name: shape[name] for name in shape if name != "attempts"},
        "unsettled": item.is_unsettled,
        "expired": item.is_expired,
    }
