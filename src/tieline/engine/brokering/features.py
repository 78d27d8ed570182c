"""What a session at the broker can do and is served with, as data: nobody asks which revision it is.

Rule 1: how a session registered picks one of two bases; capabilities are added to it only where the
    session announced them itself.
Rule 2: the sender's features decide how its send is judged, the recipient's what may reach it.

Source: reference/intercom.md 1.2 to 1.8.
"""

from typing import Final

import msgspec

__all__ = ["DIRECT", "RECORDED", "Features"]


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """One session's abilities.

    `is_told_of_peers`: joins and changed presence are broadcast to it. `takes_over`: a second registration
    under its id replaces it; else the newcomer gets a fresh id. `matches_prefixes`: its targets may be the
    start of an id. `stages_replacements`: its replacing updates wait for a later one. `is_recorded`: its
    sends are remembered, so that a repeat is answered and not delivered again. `keeps_asks`: the broker
    watches which of its asks are open, and judges its replies by them. `has_mailbox`: what it sends to the
    gone is held, and what is sent to it while it is gone. `needs_plain`: it disconnects from a message that
    breaks the strict form. `is_bounded`: it counts towards the sessions that such sockets may be.
    `has_bus`: it takes part in the extension bus. The rest are capabilities that it announced.
    """

    is_told_of_peers: bool = False
    takes_over: bool = False
    matches_prefixes: bool = False
    stages_replacements: bool = False
    is_recorded: bool = False
    keeps_asks: bool = False
    has_mailbox: bool = False
    needs_plain: bool = False
    is_bounded: bool = False
    has_bus: bool = False
    guarded_delivery: bool = False
    receipt_reads: bool = False
    last_reads: bool = False
    wake_outcomes: bool = False


DIRECT: Final = Features(stages_replacements=True, needs_plain=True)
"""Revision F and what extends it: the broker routes, and remembers nothing of what it routed."""

RECORDED: Final = Features(
    is_told_of_peers=True,
    takes_over=True,
    matches_prefixes=True,
    is_recorded=True,
    keeps_asks=True,
    has_mailbox=True,
    is_bounded=True,
    has_bus=True,
)
"""Revision N: the broker keeps records, asks, and mail for who is gone."""
