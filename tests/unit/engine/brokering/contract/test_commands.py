"""All that may be asked of the hub."""

import typing

from tieline.engine.brokering.contract import Command, Join, Kept, SendAsked, Tick, Unkept, commands
from tieline.engine.brokering.features import DIRECT


def test_every_command_but_time_names_its_link() -> None:
    """A command says over which link it came; that time passed or room was missing comes over none."""
    members = typing.get_args(Command)
    assert {one.__name__ for one in members} == {name for name in commands.__all__ if name != "Command"}
    assert [one for one in members if "link" not in one.__struct_fields__] == [Tick, Kept, Unkept]


def test_command_that_can_need_a_fresh_id_brings_one() -> None:
    """Registrations, sends and reads bring the token that their answer may bear."""
    assert "token" in Join.__struct_fields__
    assert "token" in SendAsked.__struct_fields__
    join = Join(link=1, features=DIRECT, fields={}, token="t", epoch="e")
    assert (join.wanted_id, join.scope, join.lineage) == (None, None, None)
