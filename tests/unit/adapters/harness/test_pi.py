"""pi and oh-my-pi: the extension where it is shipped, and the server where nobody else registers it."""

from collections.abc import Callable
from pathlib import Path

from tieline.adapters.harness.base import Document, Place, Whole
from tieline.adapters.harness.pi import OMP, PI

Make = Callable[..., Place]


def test_pi_with_the_extension_has_no_server_of_its_own(place: Make, home: Path) -> None:
    """The extension brings the tools; a server beside it would be a second peer of the session."""
    extension, servers = PI.files(place(shims=("pi",)))
    assert isinstance(extension, Whole)
    assert isinstance(servers, Document)
    assert extension.path == f"{home}/.pi/agent/extensions/tieline.js"
    assert (servers.path, servers.entries) == (f"{home}/.pi/agent/mcp.json", ())


def test_pi_without_the_extension_shows_the_tools_directly(place: Make) -> None:
    """Otherwise its model would not see them."""
    (servers,) = PI.files(place())
    assert isinstance(servers, Document)
    assert servers.entries[0].value["exposure"] == "direct"


def test_omp_has_the_same_extension_in_its_own_folder(place: Make, home: Path) -> None:
    """A project has its own folder; without the extension the server stands in its file."""
    (alone,) = OMP.files(place())
    assert isinstance(alone, Document)
    assert alone.entries[0].value == {"command": "/opt/tieline", "args": ["mcp"]}
    extension, servers = OMP.files(place(shims=("pi",)))
    assert extension.path == f"{home}/.omp/agent/extensions/tieline.js"
    assert isinstance(servers, Document)
    assert servers.entries == ()
    assert OMP.files(place(project="/p"))[-1].path == "/p/.omp/mcp.json"
    assert PI.files(place(PI_CODING_AGENT_DIR="/d"))[-1].path == "/d/mcp.json"
