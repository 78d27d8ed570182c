"""Show that what replaces a damaged record repeats no number and forgets no command."""

import msgspec
import pytest

from tieline.model.process import ProcessIdentity
from tieline.model.resource import (
    Claimant,
    Document,
    Launch,
    LaunchState,
    Ledger,
    Mark,
    Policy,
    Reservation,
    ResourceKey,
    Ticket,
    TicketState,
)
from tieline.store.resources.formats import Index, Witness, encode
from tieline.store.resources.salvage import (
    damage_of,
    held_launches,
    readable,
    rebuilt_index,
    rebuilt_ledger,
    restored,
)

KEY = ResourceKey("machine/tests")
OTHER = ResourceKey("machine/web")
OWNER = ProcessIdentity("b", 1, 2, 3, None, "linux")
CLAIMANT = Claimant("p", "i", "a", OWNER)
NOW_MS = 1_700_000_000_000
POLICY = Policy("c" * 64, ("p",), "strict")


def launch(name: str, fence: int = 1, key: ResourceKey = KEY) -> Launch:
    return Launch(name, "n", "d", "sh", "w", CLAIMANT, 1, "b", resources=((key, fence),))


def held(key: ResourceKey, fence: int, state: TicketState = TicketState.RUNNING) -> Document:
    right = Reservation("r", fence, 0, "b", 5, 6, nonce="n", supervisor=OWNER, processes=(OWNER,))
    ticket = Ticket("q", 1, CLAIMANT, "tests", 4, state, launch_id="l", digest="d", reservation=right)
    return Document(key, revision=2, fence=fence, ticket_number=1, tickets=(ticket,))


def test_readable_is_the_record_or_none() -> None:
    """What is no record is none, and raises nothing."""
    assert readable(encode(Mark(fence=2)), Mark) == Mark(fence=2)
    for data in (b"", b"{", encode(Ledger()), b'{"marker":"tieline-resource-mark","version":9}'):
        assert readable(data, Mark) is None


@pytest.mark.clause("I38")
def test_damage_takes_the_highest_number_of_every_source() -> None:
    """Witness, mark, an older record, a launch and what the process saw: each may know the highest fence."""
    sources = {
        "seen": damage_of(KEY, "x", b"", b"", None, Mark(revision=1, fence=9)),
        "mark": damage_of(KEY, "x", b"{", encode(Mark(fence=9)), None, Mark()),
        "witness": damage_of(KEY, "x", b"", b"", Witness(KEY, Mark(fence=9)), Mark()),
        "launch": damage_of(
            KEY, "x", b"", b"", Witness(KEY, Mark(fence=3), launches=(launch("l", 9),)), Mark()
        ),
        "record": damage_of(KEY, "x", encode(Document(KEY, fence=9)), encode(Mark(fence=3)), None, Mark()),
    }
    for name, damage in sources.items():
        assert damage.mark.fence == 9, name
        assert damage.is_mark_known, name
        assert restored(damage, "note", NOW_MS).fence == 9, name


@pytest.mark.clause("I38")
def test_restored_without_any_number_goes_on_above_the_clock() -> None:
    """Where nothing remembers the fence, no count of grants can have reached the next one."""
    damage = damage_of(KEY, "x", b"{", b"", None, Mark())
    assert not damage.is_mark_known
    assert not damage.is_policy_known
    document = restored(damage, "note", NOW_MS)
    assert min(document.fence, document.epoch, document.ticket_number, document.event_sequence) >= NOW_MS


def test_restored_keeps_policy_enrolment_and_tells_who_answered() -> None:
    """The policy goes on under the next epoch; the claims are gone; the history says who answered."""
    witness = Witness(KEY, Mark(4, 2, 3, 5, 8), POLICY, ("p",), launches=(launch("l"),))
    document = restored(damage_of(KEY, "x", b"{", b"", witness, Mark()), "you: looked", NOW_MS)
    assert (document.policy, document.enrolment, document.tickets) == (POLICY, ("p",), ())
    assert (document.revision, document.epoch, document.event_sequence) == (4, 3, 9)
    (event,) = document.events
    assert (event.state, event.note, event.audience, event.sequence) == (
        "recovered",
        "you: looked",
        ("p",),
        9,
    )
    assert document.events_dropped == 8


def test_record_that_the_witness_confirms_stays_when_its_mark_is_lost() -> None:
    """A lost mark costs no claim and no holder."""
    whole = held(KEY, 7)
    damage = damage_of(KEY, "x", encode(whole), b"", Witness(KEY, Mark.of(whole)), Mark())
    assert damage.document == whole
    after = restored(damage, "note", NOW_MS)
    assert after.tickets == whole.tickets
    assert after.event_sequence == whole.event_sequence + 1
    newer = Witness(KEY, msgspec.structs.replace(Mark.of(whole), fence=8))
    assert damage_of(KEY, "x", encode(whole), b"", newer, Mark()).document is None
    assert damage_of(OTHER, "x", encode(whole), b"", None, Mark()).document is None


def test_record_id_names_these_very_bytes() -> None:
    """Who answered for one damage has not answered for the next."""
    ids = {
        damage_of(key, "x", data, mark, None, Mark()).record_id
        for key in (KEY, OTHER)
        for data in (b"", b"{")
        for mark in (b"", b"{")
    }
    assert len(ids) == 8


def test_held_launch_of_several_resources_is_one_command() -> None:
    """A command is known by its id, with the fence of each resource; what is not used is no command."""
    (found,) = held_launches(
        [held(KEY, 7), held(OTHER, 3), held(KEY, 9, TicketState.RESERVED), Document(KEY)]
    )
    assert found.resources == ((KEY, 7), (OTHER, 3))
    assert (found.state, found.supervisor, found.nonce) == (LaunchState.IDENTIFIED, OWNER, "n")


@pytest.mark.clause("native-189", "I34")
def test_rebuilt_ledger_knows_every_command_that_anything_names() -> None:
    """An older ledger, a witness and a record each bring theirs; the revision is not older than any."""
    old = Ledger(3, (launch("old"),))
    witness = Witness(KEY, Mark(), launches=(launch("seen"),))
    ledger = rebuilt_ledger(old, [witness], [held(KEY, 7)], 5)
    assert {one.launch_id for one in ledger.launches} == {"old", "seen", "l"}
    assert ledger.revision == 5
    assert rebuilt_ledger(old, [], [], 0).revision == 3


def test_rebuilt_index_names_each_once_in_order() -> None:
    """The index is sorted."""
    assert rebuilt_index([OTHER, KEY, OTHER], 4) == Index((KEY, OTHER), 4)
