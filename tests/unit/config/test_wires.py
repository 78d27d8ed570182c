"""The section wires: off by default, the right order of sources, and what is said of a wrong value."""

import pytest

from tieline.config.settings import load
from tieline.config.wires import IntercomSettings, PiPeersSettings, WireSettings
from tieline.errors import UsageError

ON = "[wires.pi_peers]\nenabled = true\n"


def test_wires_without_any_source_are_off() -> None:
    """Nobody speaks a foreign wire whom no person switched on."""
    assert load("", "c", {"PI_PEERS_DIR": "/p", "PI_PEERS_ACCEPT": "off"}).wires == WireSettings()
    assert not WireSettings().pi_peers.enabled
    assert not WireSettings().intercom.enabled


def test_wires_give_what_the_file_says() -> None:
    """Each field of each wire is taken as it stands."""
    text = ON + 'accept = "ask"\ndirectory = "/p"\nname = "api work"\n[wires.intercom]\nenabled = true\n'
    assert load(text, "c", {}).wires == WireSettings(
        PiPeersSettings(True, "ask", "/p", "api work"), IntercomSettings(True)
    )


def test_wires_take_our_variable_before_the_foreign_one_before_the_file() -> None:
    """The nearest source wins, and an empty foreign variable is none."""
    text = ON + 'directory = "/file"\naccept = "ask"\n'
    foreign = {"PI_PEERS_DIR": "/theirs", "PI_PEERS_ACCEPT": "off"}
    held = load(text, "c", foreign).wires.pi_peers
    assert (held.directory, held.accept) == ("/theirs", "off")
    ours = {"TIELINE_PI_PEERS_DIRECTORY": "/ours", "TIELINE_PI_PEERS_ACCEPT": "accept"}
    held = load(text, "c", foreign | ours).wires.pi_peers
    assert (held.directory, held.accept) == ("/ours", "accept")
    assert load(text, "c", {"PI_PEERS_DIR": ""}).wires.pi_peers.directory == "/file"
    assert load("", "c", {"TIELINE_PI_PEERS_ENABLED": "true"}).wires.pi_peers.enabled
    assert not load(ON, "c", {"TIELINE_PI_PEERS_ENABLED": "0"}).wires.pi_peers.enabled
    assert load("", "c", {"TIELINE_INTERCOM_ENABLED": "1"}).wires.intercom.enabled
    assert load(ON, "c", {"TIELINE_PI_PEERS_NAME": "desk"}).wires.pi_peers.name == "desk"


def test_wires_that_are_off_are_not_stopped_by_a_foreign_variable() -> None:
    """What another product's variable holds is no concern of a root that does not speak with it."""
    assert load("", "c", {"PI_PEERS_DIR": "relative", "PI_PEERS_ACCEPT": "sometimes"}).wires == WireSettings()


@pytest.mark.parametrize(
    ("text", "environment", "says"),
    [
        ("wires = 1\n", {}, "must be a table"),
        ("[wires.smoke]\n", {}, "unknown wire; allowed are pi_peers, intercom"),
        ("[wires]\npi_peers = 1\n", {}, "c, line 2: pi_peers: must be a table"),
        (
            "[communication]\nenabled = true\n[wires.pi_peers]\nenabled = 1\n",
            {},
            "c, line 4: enabled must be",
        ),
        (ON + "token = 1\n", {}, "c, line 3: token: unknown field; allowed are enabled, accept"),
        (ON + 'accept = "maybe"\n', {}, "c, line 3: accept must be accept, ask or off"),
        (ON + 'directory = "p"\n', {}, "c, line 3: directory must be an absolute path"),
        (ON + 'name = ""\n', {}, "c, line 3: name must be 1 to 64 printable"),
        (ON + 'name = "a [b]"\n', {}, "name must be"),
        (ON + 'name = "a\\nb"\n', {}, "name must be"),
        (ON, {"PI_PEERS_ACCEPT": "maybe"}, "PI_PEERS_ACCEPT: accept must be"),
        (ON, {"PI_PEERS_DIR": "p"}, "PI_PEERS_DIR: directory must be an absolute path"),
        (ON, {"TIELINE_PI_PEERS_ACCEPT": ""}, "TIELINE_PI_PEERS_ACCEPT: accept must be"),
        ("", {"TIELINE_PI_PEERS_ENABLED": "x"}, "TIELINE_PI_PEERS_ENABLED: enabled must be true or false"),
        ("", {"TIELINE_INTERCOM_ENABLED": "x"}, "TIELINE_INTERCOM_ENABLED: enabled must be true or false"),
        ("wires = {pi_peers = {accept = 1}}\n", {}, "c: accept must be"),
    ],
)
def test_wires_with_a_wrong_value_name_source_and_what_is_allowed(
    text: str, environment: dict[str, str], says: str
) -> None:
    """A wrong value is a start-up error that leads to its line or variable."""
    with pytest.raises(UsageError, match=r".") as caught:
        load(text, "c", environment)
    assert says in str(caught.value)
