import msgspec
import pytest

from tieline.composer import Binding, Draft, Instruction, Known, Letter, note, read
from tieline.errors import Refusal

API = Known("api", "peer-a", "instance-a")
DB = Known("db", "peer-d", "instance-d")
WATCHED = Known("log", "peer-l", "instance-l", has_inbox=False)
RUN = Known("run", "peer-r", "instance-a", "run-1")


def bound(text: str, peer: Known = API, at: int = 0) -> Draft:
    place = msgspec.structs.replace(peer.binding(), start=at, end=at + len(peer.alias) + 1)
    return Draft(text, len(text), (place,))


@pytest.mark.clause("native-130")
def test_leading_recipient_makes_letter() -> None:
    """A text whose first word is a peer is a letter to it; scope and pending answer come along."""
    draft = msgspec.structs.replace(bound(":api go on"), scope="machine", reply_to="m-1")
    assert read(draft, [API, DB]) == Letter(API, "go on", (), "m-1", "machine")
    assert read(Draft(":db go"), [API, DB]) == Letter(DB, "go", (), None, None)


@pytest.mark.clause("native-131")
def test_inline_reference_becomes_metadata_and_no_letter() -> None:
    """A name in the middle of a text sends nothing: the text is the local turn's, with who is meant."""
    found = read(bound("compare with :api please", at=13), [API])
    assert isinstance(found, Instruction)
    assert found.text == "compare with :api please"
    assert [(one.peer_id, one.start, one.end) for one in found.references] == [("peer-a", 13, 17)]
    said = note(found.references)
    assert "no access" in said
    assert "peer-a" in said
    assert note(()) == ""
    assert "run-1" in note(read(Draft("ask :run"), [RUN]).references)


def test_reference_in_letter_is_metadata_of_it() -> None:
    """A letter's further names are references; the text stays as it was typed."""
    found = read(Draft(":api ask :db and :nobody"), [API, DB])
    assert isinstance(found, Letter)
    assert found.content == "ask :db and :nobody"
    assert [one.alias for one in found.references] == ["db"]


@pytest.mark.clause("native-129")
@pytest.mark.parametrize(
    "known",
    [[], [Known("api", "peer-z", "instance-z")], [Known("api", "peer-a", "instance-z")],
     [Known("api", "peer-a", "instance-a", "run-9")]],
)  # fmt: skip
@pytest.mark.parametrize("text", [":api go", "ask :api"])
def test_binding_to_ended_incarnation_is_refused(known: list[Known], text: str) -> None:
    """What was picked and is not that incarnation any more is PEER_OFFLINE, also where its name came back."""
    found = read(bound(text, at=text.index(":")), known)
    assert isinstance(found, Refusal)
    assert found.code == "PEER_OFFLINE"
    assert "pick it again" in found.text


@pytest.mark.parametrize("draft", [bound(":log hi", WATCHED), Draft(":log hi"), Draft("ask :log")])
def test_peer_without_inbox_is_refused(draft: Draft) -> None:
    """A peer that is shown only is CAPABILITY_DENIED."""
    found = read(draft, [WATCHED])
    assert isinstance(found, Refusal)
    assert found.code == "CAPABILITY_DENIED"


@pytest.mark.parametrize("text", [":api hi", "ask :api"])
def test_name_of_several_that_was_not_picked_is_refused(text: str) -> None:
    """A name that two bear is AMBIGUOUS_TARGET with both; picked it is exact."""
    twin = Known("api", "peer-b", "instance-b")
    found = read(Draft(text), [API, twin])
    assert isinstance(found, Refusal)
    assert (found.code, found.candidates) == ("AMBIGUOUS_TARGET", ("peer-a", "peer-b"))
    sent = read(bound(":api hi", twin), [API, twin])
    assert isinstance(sent, Letter)
    assert sent.to == twin


def test_name_that_nobody_bears_is_refused_only_in_front() -> None:
    """In front it is UNKNOWN_TARGET; elsewhere it is text."""
    found = read(Draft(":nobody hi"), [API])
    assert isinstance(found, Refusal)
    assert found.code == "UNKNOWN_TARGET"
    assert read(Draft("ask :nobody"), [API]) == Instruction("ask :nobody", (), None, None)


def test_draft_for_exact_peer_takes_all_of_its_text() -> None:
    """An answer goes to its peer whole, with its lines and names; one that ended is refused."""
    draft = Draft(":api is\nright", 0, (), (), None, "m-2", Binding("db", 0, 0, "peer-d", "instance-d"))
    found = read(draft, [API, DB])
    assert isinstance(found, Letter)
    assert (found.to, found.content, found.reply_to) == (DB, ":api is\nright", "m-2")
    assert [one.alias for one in found.references] == ["api"]
    gone = read(draft, [API])
    assert isinstance(gone, Refusal)
    assert gone.code == "PEER_OFFLINE"
    twins = read(draft, [API, DB, Known("api", "x", "y")])
    assert isinstance(twins, Refusal)
    assert twins.code == "AMBIGUOUS_TARGET"
    whole = read(Draft(":api ask :db"), [API, DB, Known("db", "x", "y")])
    assert isinstance(whole, Refusal)
