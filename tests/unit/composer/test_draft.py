import pytest

from tieline.composer import Binding, Draft, mentions

API = Binding("api", 0, 0, "peer-a", "instance-a")


def picked(text: str = "ask :a") -> Draft:
    draft = Draft(text, len(text))
    place = draft.picking()
    assert place is not None
    return draft.picked(place, API)


@pytest.mark.clause("native-129")
def test_pick_puts_exact_peer_in_place_of_prefix() -> None:
    """Picking replaces what was typed of the name, adds a blank, and keeps the incarnation."""
    draft = picked()
    assert (draft.text, draft.cursor) == ("ask :api ", 9)
    assert draft.bindings == (Binding("api", 4, 8, "peer-a", "instance-a"),)
    assert draft.picking() is None


def test_pick_before_blank_adds_no_second_one() -> None:
    """A blank that is there already is used."""
    draft = Draft("ask :a now", 6)
    place = draft.picking()
    assert place is not None
    assert draft.picked(place, API).text == "ask :api now"
    assert draft.picked(place, API).cursor == 9


@pytest.mark.clause("native-129")
def test_edit_before_binding_moves_it() -> None:
    """A binding is where its name is after every edit before it, and stays in one behind it."""
    draft = picked().edited(0, 0, "please, ")
    assert draft.bindings[0].start == 12
    draft = draft.edited(0, 7, "")
    assert draft.text == " ask :api "
    assert draft.bindings[0].start == 5
    draft = draft.edited(len(draft.text), len(draft.text), "now")
    assert draft.bindings[0].start == 5
    assert draft.cursor == len(draft.text)


@pytest.mark.parametrize(("start", "end", "new"), [(6, 7, "x"), (4, 8, ""), (0, 5, ""), (8, 8, "s")])
def test_edit_in_binding_ends_it(start: int, end: int, new: str) -> None:
    """A name that was changed, taken away or made longer is not what was picked any more."""
    assert picked().edited(start, end, new).bindings == ()


def test_second_of_two_equal_names_goes_where_cursor_says() -> None:
    """Of two equal names the one before the cursor is the one that was taken away."""
    draft = Draft(":api :api ", 10, (Binding("api", 0, 4, "a", "a"), Binding("api", 5, 9, "b", "b")))
    assert [one.peer_id for one in draft.became(":api ", 0).bindings] == ["b"]
    assert [one.peer_id for one in draft.became(":api ", 5).bindings] == ["a"]


def test_whole_replacement_keeps_what_is_alike() -> None:
    """A text that became another one keeps its bindings in what both end or begin with."""
    draft = picked().became("tell :api ", 4)
    assert draft.bindings[0].start == 5
    assert Draft("abc").became("abc", 1).cursor == 1
    assert Draft("abc").became("xyz", 99).text == "xyz"


def test_paste_is_remembered_and_moved() -> None:
    """A pasted span moves with its text, is cut where it is edited, and goes when it is deleted."""
    draft = Draft("a ", 2).edited(2, 2, ":api", is_pasted=True)
    assert draft.pasted == ((2, 6),)
    assert draft.edited(0, 0, "xx").pasted == ((4, 8),)
    assert draft.edited(6, 6, "!").pasted == ((2, 6),)
    assert draft.edited(4, 5, "--").pasted == ((2, 4), (6, 7))
    assert draft.edited(0, 6, "").pasted == ()
    assert mentions(draft.text, draft.pasted) == ()
    assert Draft().became(":api x", 6, is_pasted=True).pasted == ((0, 6),)


@pytest.mark.clause("native-125", "native-129")
def test_draft_read_back_is_equal() -> None:
    """A draft that was kept has its text, cursor, bindings, scope and pending answer again."""
    draft = Draft(
        ":api hi", 3, (Binding("api", 0, 4, "p", "i", "r"),), ((5, 7),), "machine", "m-1",
        Binding("db", 0, 0, "q", "j"),
    )  # fmt: skip
    assert Draft.of(draft.shape()) == draft


@pytest.mark.parametrize(
    "shape",
    [
        None,
        [],
        {"text": 1},
        {"text": "a", "cursor": 2},
        {"text": "a", "more": 1},
        {
            "text": "abcd",
            "bindings": [{"alias": "b", "start": 0, "end": 2, "peerId": "p", "instanceId": "i"}],
        },
        {"text": "a", "pasted": [[0, 2]]},
        {"text": "x" * 1_048_577},
    ],
)
def test_shape_that_is_no_draft_gives_empty_one(shape: object) -> None:
    """What was kept and does not fit is not believed."""
    assert Draft.of(shape) == Draft()


def test_bound_mentions_come_with_what_was_picked() -> None:
    """Each mention is given with its binding, or with none."""
    draft = picked(":a").edited(5, 5, "and :db")
    assert [(one.alias, bind and bind.peer_id) for one, bind in draft.bound()] == [
        ("api", "peer-a"),
        ("db", None),
    ]
