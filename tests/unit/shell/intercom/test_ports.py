"""The fake world has what a post needs: the kit and the ports cannot drift apart."""

from tests.unit.shell.intercom.kit import FakeLine, World
from tieline.shell.intercom import ports


def test_kit_has_every_port_of_the_world_and_of_a_line() -> None:
    """What the post may call, a test's world answers."""
    for port, fake in ((ports.World, World()), (ports.Line, FakeLine())):
        for name in (*port.__annotations__, *vars(port)):
            assert name.startswith("_") or hasattr(fake, name), name


def test_registration_names_the_session_and_the_wanted_id() -> None:
    """Two facts, and nothing of a socket."""
    made = World().registration()
    assert (made.requested_id, made.session["name"]) == ("pi-own", "own")
