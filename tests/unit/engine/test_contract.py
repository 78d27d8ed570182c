"""The closed sets of what is asked and what is ordered."""

import inspect
from typing import get_args

import msgspec
import pytest

from tieline.engine import contract
from tieline.engine.contract import (
    Act,
    Answer,
    Asked,
    Box,
    Command,
    Draft,
    Outcome,
    Plan,
    Recorded,
    Row,
    Send,
    Standing,
)
from tieline.model.identity import Peer

# Values that commands and plans are made of, which are none of the three unions themselves.
PARTS = {"Act", "Asked", "Box", "Draft", "Held", "Outcome", "Page", "Plan", "Recorded", "Sent", "Standing"}


def classes() -> dict[str, type]:
    """Return what the module defines."""
    return {
        name: item
        for name, item in vars(contract).items()
        if inspect.isclass(item) and item.__module__ == contract.__name__
    }


def test_contract_has_no_class_outside_its_unions() -> None:
    """Everything that may be asked, stored or ordered is in exactly one union: a match over it is whole."""
    unions = [{item.__name__ for item in get_args(union)} for union in (Command, Row, Send)]
    assert sum(map(len, unions)) == len(set().union(*unions))
    assert set(classes()) == set().union(*unions) | PARTS


def test_contract_values_are_frozen() -> None:
    """A plan that was decided is carried out as it was decided."""
    for name, item in classes().items():
        if issubclass(item, msgspec.Struct):
            assert item.__struct_config__.frozen, name
    with pytest.raises(AttributeError):
        Plan().is_urgent = False  # type: ignore[misc]


def test_plan_by_default_decides_nothing_and_waits_for_the_disk() -> None:
    """A plan that says nothing admits nothing, sends nothing, and is urgent: the safe side."""
    plan = Plan()
    assert (plan.answer, plan.rows, plan.sends, plan.events) == (None, (), (), ())
    assert plan.is_urgent
    assert not plan.admits


def test_draft_by_default_is_a_persons_plain_message() -> None:
    """Nothing is automatic, replaced, asked or attached unless it was said."""
    standing = Standing(frozenset(), is_in_scope=False)
    draft = Draft("m-1", Peer("a"), Peer("b"), standing, "x")
    assert draft.act is Act.PERSON
    assert draft.is_recipient_tieline is None
    assert (draft.replaces, draft.is_ask, draft.notify_when_idle, draft.attachments) == (
        False,
        False,
        False,
        (),
    )


def test_answer_names_one_request_of_one_link() -> None:
    """Numbers and texts are different requests: an id is compared with its type."""
    assert Answer(Asked(1, "1"), Recorded()) != Answer(Asked(1, 1), Recorded())
    assert Asked(1, "1") != Asked(2, "1")


def test_words_of_the_contract_are_the_stored_and_spoken_ones() -> None:
    """These texts are in journals and tests of others: a change is a migration."""
    assert [item.value for item in Box] == ["in", "out"]
    assert [item.value for item in Outcome] == ["answered", "refused", "written", "lost", "unreached"]
    assert [item.value for item in Act] == ["person", "agent", "automatic"]


def test_rows_carry_the_cursor_that_orders_them() -> None:
    """A row that is an event has its place in the history as its first field."""
    ordered = [row for row in get_args(Row) if "cursor" in row.__struct_fields__]
    assert {row.__name__ for row in ordered} == {"MessageRow", "MoveRow", "ContextRow"}
    assert all(row.__struct_fields__[0] == "cursor" for row in ordered)
