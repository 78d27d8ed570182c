"""The values at a post's ports."""

import inspect

from tests.unit.shell.peers.kit import World as KitWorld
from tieline.shell.peers import Target, World


def test_target_can_tell_idle_only_where_its_record_says_so() -> None:
    """An optional question is not put to a window that did not announce it."""
    assert not Target("i", "/a", "t", 0).can_tell_idle


def test_world_of_the_tests_offers_every_port() -> None:
    """What the post may ask is what the protocol lists."""
    names = {name for name, _ in inspect.getmembers(World) if not name.startswith("_")}
    assert names <= set(dir(KitWorld())) | {"letterhead", "policy", "is_busy"}
