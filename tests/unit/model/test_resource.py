"""Show what a resource may be called, and that its numbers only grow."""

import msgspec
import pytest

from tieline.errors import Refusal
from tieline.model.process import ProcessIdentity
from tieline.model.resource import (
    ACTIVE,
    FINISHED,
    Claimant,
    Document,
    Launch,
    Ledger,
    Mark,
    Reservation,
    ResourceKey,
    Ticket,
    TicketState,
    complete_key,
    key_digest,
    resource_key,
)

OWNER = ProcessIdentity("b", 1, 2, 3, None, "linux")
WAITER = ProcessIdentity("b", 1, 9, 3, None, "linux")
CLAIMANT = Claimant("peer-1", "i", "alias", OWNER)
RIGHT = Reservation("r", 1, 0, "b", 5, 5)
TICKET = Ticket("q", 1, CLAIMANT, "because", 5, launch_id="l")


@pytest.mark.parametrize(
    "text",
    ["machine/tests", "machine/5", "machine/a_B.c-d", "machine/" + "x" * 64, "repository/id_-9/tests"],
)
def test_key_of_either_form_is_accepted(text: str) -> None:
    """A key names a thing of the machine or of one repository."""
    assert resource_key(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "", "machine", "machine/", "machine/.x", "machine/-x", "machine/x/y", "machine/" + "x" * 65,
        "repository/x", "repository//x", "repository/a.b/x", "repository/" + "i" * 129 + "/x", "user/x",
        "machine/é", "machine/x\n", "repository/a/b/c",
    ],
)  # fmt: skip
def test_key_of_another_form_is_refused(text: str) -> None:
    """Whatever could name a path, or two things, is no key."""
    refused = resource_key(text)
    assert isinstance(refused, Refusal)
    assert refused.code == "INVALID_PARAMS"


def test_short_key_is_completed_with_the_repository() -> None:
    """A person names a resource of this repository without its id; other forms stay as they are."""
    assert complete_key("repository/tests", "abc") == "repository/abc/tests"
    assert complete_key("repository/x/tests", "abc") == "repository/x/tests"
    assert complete_key("machine/tests", "abc") == "machine/tests"
    assert isinstance(complete_key("repository/tests", ""), Refusal)


def test_digest_of_a_key_names_its_file() -> None:
    """A key's file is named by its sha256 in hex."""
    assert key_digest(ResourceKey("machine/tests")) == (
        "9a257f437273f685bd1f2ba38191e57d77874f178c2adcb1db62e0ac9f5f72f4"
    )


def test_states_are_waiting_active_or_finished() -> None:
    """The ten states fall into three kinds."""
    assert len(TicketState) == 10
    assert {TicketState.QUEUED} | ACTIVE | FINISHED == set(TicketState)
    assert not ACTIVE & FINISHED


def test_record_written_and_read_is_equal() -> None:
    """A document and a ledger give back what was put in, under the specification's field names."""
    document = Document(
        ResourceKey("machine/x"), tickets=(msgspec.structs.replace(TICKET, reservation=RIGHT),)
    )
    data = msgspec.json.encode(document)
    assert b'"requestId":"q"' in data
    assert msgspec.json.decode(data, type=Document) == document
    ledger = Ledger(3, (Launch("l", "n", "d", "sh", "w", CLAIMANT, 1, "b"),))
    assert msgspec.json.decode(msgspec.json.encode(ledger), type=Ledger) == ledger


@pytest.mark.clause("O47")
@pytest.mark.parametrize("value", ["-1", "1e308", "true", '"10"', "NaN", "Infinity", "0.5"])
def test_number_of_a_record_that_is_no_count_is_refused(value: str) -> None:
    """No field that counts takes anything but a whole number from 0."""
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(f'{{"resource":"machine/x","fence":{value}}}'.encode(), type=Document)


def test_record_with_a_field_that_nobody_knows_is_refused() -> None:
    """A field of a newer program is not dropped in silence."""
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(b'{"resource":"machine/x","extra":1}', type=Document)


def test_document_finds_holder_queue_and_tickets() -> None:
    """The holder, the waiting and the ticket of a request or of a launch are found."""
    held = msgspec.structs.replace(TICKET, request_id="h", state=TicketState.RUNNING)
    document = Document(ResourceKey("machine/x"), tickets=(held, TICKET))
    assert document.holder == held
    assert document.queue == (TICKET,)
    assert document.ticket("h") == held
    assert document.ticket("none") is None
    assert document.launched("l") == TICKET  # the newest of the two
    assert document.launched("none") is None
    assert Document(ResourceKey("machine/x")).holder is None


def test_ledger_finds_a_launch() -> None:
    """A launch is found by its id."""
    one = Launch("l", "n", "d", "sh", "w", CLAIMANT, 1, "b")
    assert Ledger(launches=(one,)).launch("l") is one
    assert Ledger().launch("l") is None


def test_starter_is_the_waiting_process_where_there_is_one() -> None:
    """The process without which nothing starts is the waiter, else the root."""
    assert CLAIMANT.starter == OWNER
    assert msgspec.structs.replace(CLAIMANT, waiter=WAITER).starter == WAITER


@pytest.mark.clause("I38")
@pytest.mark.parametrize("name", ["revision", "epoch", "fence", "ticket_number", "event_sequence"])
def test_mark_refuses_a_document_in_which_one_number_is_lower(name: str) -> None:
    """An older copy is recognised by any of its numbers."""
    document = Document(
        ResourceKey("machine/x"), revision=5, epoch=5, fence=5, ticket_number=5, event_sequence=5
    )
    mark = Mark.of(document)
    assert mark.admits(document)
    assert mark.admits(msgspec.structs.replace(document, **{name: 6}))
    assert not mark.admits(msgspec.structs.replace(document, **{name: 4}))
