"""Waits and rings in words and as JSON, and who waits for whom over one resource."""

import re
from pathlib import Path
from typing import Any

from tieline.engine.waiting import Cycle, Wait, cycle_of
from tieline.model.process import ProcessIdentity
from tieline.model.resource import Blocker, Claimant, Document, Policy, ResourceKey, Ticket, TicketState
from tieline.runtime import rings

SHAPES = Path(__file__).parents[3] / "docs" / "json-shapes.md"
NAMES = {"peer-a": "web", "peer-b": "api"}
ASK = Wait("peer-a", "peer-b", "ask", "m-1", 1_000)
CLAIM = Wait("peer-b", "peer-a", "resource", "machine/db", 2_000, "r-1")
RING = cycle_of([ASK, CLAIM])
KEY = ResourceKey("machine/db")
LIFE = ProcessIdentity("boot", 1, 1, 1, None, "linux")


def members(kind: str) -> set[str]:
    """Return the members that the page lists."""
    found = re.search(rf"\*\*{kind}\*\* has: (.*?)\.\s", SHAPES.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return set(re.findall(r"`(\w+)`", found[1]))


def test_view_has_the_documented_members() -> None:
    """Each wait and ring has what the page lists."""
    view = rings.view([ASK, CLAIM], [RING], NAMES, frozenset({"peer-a"}))
    assert set().union(*view["waits"]) == members("wait") - {"ask", "resource"}
    (ring,) = view["cycles"]
    assert set(ring) == {"peers", "waits", "givesWay", "ways", "text"}
    assert {way["peer"] for way in ring["ways"]} == {"peer-a"}
    assert [one["act"] for one in ring["ways"]] == ["give_up", "release"]
    (foreign,) = rings.view([], [RING], {}, frozenset())["cycles"]
    assert {way["peer"] for way in foreign["ways"]} == {"peer-a", "peer-b"}


def test_event_says_the_ring_and_what_its_reader_can_do() -> None:
    """By name, with the commands that there are; a broken one says so."""
    told = rings.event(RING, "peer-b", NAMES, 7, 3_000, is_standing=True)
    assert (told["type"], told["cursor"], told["state"], told["to"]) == (
        "wait_cycle",
        "7",
        "standing",
        "peer-b",
    )
    assert ":web waits for :api (an answer); :api waits for :web (machine/db)" in told["text"]
    assert "`tieline reply m-1 TEXT`" in told["text"]
    assert "`tieline resource cancel r-1`" in told["text"]
    assert told["text"].endswith("Where all can, :web should.")
    own = rings.event(RING, "peer-a", {}, 7, 3_000, is_standing=True)
    assert "stop waiting for peer-b (question m-1)" in own["text"]
    assert "let go of machine/db, which peer-b waits for" in own["text"]
    assert own["text"].endswith("you should.")
    over = rings.event(RING, "peer-a", NAMES, 8, 4_000, is_standing=False)
    assert (over["state"], over["text"].startswith("The ring of waits is broken")) == ("broken", True)


def test_ring_over_other_roots_is_told_without_what_only_they_know() -> None:
    """Where the question or resource is not known, the words do without."""
    ring = Cycle((Wait("peer-a", "peer-b", "resource"), Wait("peer-b", "peer-a", "ask")))
    text = rings.event(ring, "peer-a", NAMES, 1, 1, is_standing=True)["text"]
    assert ":web waits for :api (a resource)" in text
    assert "answer :api or cancel the request for the resource" in text
    text = rings.event(ring, "peer-b", NAMES, 1, 1, is_standing=True)["text"]
    assert "stop waiting for :web or let go of the resource, which :web waits for" in text


def ticket(
    number: int, peer: str, state: TicketState = TicketState.QUEUED, requested_ms: int = 100
) -> Ticket:
    """Return one claim of a peer."""
    return Ticket(f"r-{number}", number, Claimant(peer, "i", "x", LIFE), "why", requested_ms, state)


def waits_of(before_ms: int = 0, **fields: Any) -> set[tuple[str, str]]:
    """Return who waits for whom over a document with these fields."""
    return {(wait.waiter, wait.awaited) for wait in rings.of_document(Document(KEY, **fields), before_ms)}


def test_queued_wait_for_the_holder_and_nobody_waits_for_itself() -> None:
    """A second command of the holder's own agent is no wait for another one."""
    tickets = (
        ticket(1, "h", TicketState.RUNNING),
        ticket(2, "a"),
        ticket(3, "h"),
        ticket(4, "b", TicketState.RELEASED),
    )
    assert waits_of(tickets=tickets) == {("a", "h")}
    (wait,) = rings.of_document(Document(KEY, tickets=tickets), 0)
    assert (wait.subject, wait.request, wait.since_ms) == (KEY, "r-2", 100)


def test_queued_wait_for_a_blocker_else_after_a_while_for_the_controller() -> None:
    """Nobody holds it: what still runs is in the way, or the one who grants it; an open one is granted."""
    policy = Policy("c", ("a",), "strict")
    blocker = Blocker("l", "o", "x", "make", "boot", 1)
    assert waits_of(tickets=(ticket(1, "a"),), policy=policy, blockers=(blocker,)) == {("a", "o")}
    assert waits_of(99, tickets=(ticket(1, "a"),), policy=policy) == set()
    assert waits_of(100, tickets=(ticket(1, "a"),), policy=policy) == {("a", "c")}
    assert waits_of(100, tickets=(ticket(1, "a"),)) == set()
