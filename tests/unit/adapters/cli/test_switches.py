"""The switch of a wire in config.toml: turned on without losing a line, taken out to the byte."""

import sys
import tomllib

import pytest

from tieline.adapters.cli.switches import is_on, switched_off, switched_on
from tieline.errors import UsageError

TEXTS = [
    "",
    "# a note\n",
    '[communication]\nalias = "x"',
    '[communication]\r\nscope = "machine"\r\n',
    "[wires]\n",
    "[wires.pi_peers]\n",
    "[wires.pi_peers]\n\n# a note\n\n[limits]\n",
    "[wires.pi_peers]\nenabled = false # not yet\naccept='ask'\n[limits]\n",
    '[wires.pi_peers]\naccept = "ask"  # a note\n\n[limits]\nrate_burst=3\n',
    "wires.pi_peers.enabled = false\n",
    "wires.intercom.enabled = false\n[limits]\n",
    "[wires.intercom]\nenabled = true\n",
    "wires = {pi_peers = {enabled = false}}\n",
    'wires.pi_peers.accept = "ask"\n',
    '[wires]\npi_peers.accept = "ask"\n# a note\n',
    "# [wires.pi_peers] is off\n[wires.intercom]\nenabled = true\n",
]


@pytest.mark.parametrize("text", TEXTS)
def test_switch_turned_on_and_off_gives_the_same_bytes(text: str) -> None:
    """Whatever a person wrote is there afterwards as it was, and twice is as once."""
    on = switched_on(text, "pi_peers")
    assert is_on(on, "pi_peers")
    assert switched_on(on, "pi_peers") == on
    off = switched_off(on, "pi_peers")
    assert off == text
    assert switched_off(off, "pi_peers") == off


@pytest.mark.parametrize(
    "text",
    [
        "wires = {intercom = {enabled = true}}\n",
        "wires = { } # mine\r\n[limits]\r\nrate_burst=3\r\n",
        "wires = {pi_peers = {accept='ask'}}",
        "[wires]\npi_peers = { }\n",
        '[wires.intercom]\naccept = "ask"\n[wires.pi_peers]',
        "[wires.pi_peers] # a\n# b",
    ],
)
def test_switch_of_both_wires_goes_without_a_trace_in_any_order(text: str) -> None:
    """Also in a table of one value, whose line says what it was, and after a line that had no end."""
    for first, last in (("pi_peers", "intercom"), ("intercom", "pi_peers")):
        wires = [one for one in (first, last) if not is_on(text, one)]
        on = text
        for wire in wires:
            on = switched_on(on, wire)
            assert switched_on(on, wire) == on
        for wire in reversed(wires):
            on = switched_off(on, wire)
        assert on == text


@pytest.mark.parametrize("text", ["wires = {}\n", "wires = { pi_peers = { enabled = false } }\n"])
def test_switch_in_one_value_goes_in_the_order_that_it_came_in(text: str) -> None:
    """What was switched on last stays on while the first goes."""
    on = switched_on(switched_on(text, "pi_peers"), "intercom")
    off = switched_off(on, "pi_peers")
    assert (is_on(off, "pi_peers"), is_on(off, "intercom")) == (False, True)
    assert switched_off(off, "intercom") == text


@pytest.mark.parametrize("change", [("accept='ask'", "accept='all'"), ('before: "', "before: ")])
def test_switch_in_a_line_that_a_person_changed_since_stays_as_false(change: tuple[str, str]) -> None:
    """Then the wire is off, and everything else as it is."""
    on = switched_on("wires = {pi_peers = {accept='ask'}}\n", "pi_peers").replace(*change, 1)
    off = tomllib.loads(switched_off(on, "pi_peers"))
    assert off["wires"]["pi_peers"].pop("enabled") is False
    assert list(off["wires"]["pi_peers"]) == ["accept"]


def test_switch_beside_a_text_that_looks_like_ours_becomes_false() -> None:
    """Only the one line that is the switch itself is taken out."""
    text = '[communication]\nalias = "x" # enabled = true # tieline setup\n[wires.pi_peers]\nenabled = true\n'
    assert switched_off(text, "pi_peers") == text.replace("enabled = true\n", "enabled = false\n")


def test_switch_that_a_person_wrote_becomes_false() -> None:
    """A line of the person's own is turned, not removed."""
    text = "[wires.pi_peers]\nenabled = true  # mine\n"
    assert switched_off(text, "pi_peers") == "[wires.pi_peers]\nenabled = false  # mine\n"


def test_switch_with_a_persons_line_below_keeps_the_table() -> None:
    """What was written below our head since then stays, with a head above it."""
    text = switched_on("# a\n", "pi_peers") + 'accept = "ask"\n'
    off = switched_off(text, "pi_peers")
    assert tomllib.loads(off) == {"wires": {"pi_peers": {"accept": "ask", "enabled": False}}}


def test_switch_after_later_sections_is_taken_out_between_them() -> None:
    """A section that came behind ours stays where it is."""
    text = switched_on("# a\n", "pi_peers") + "\n[limits]\nrate_burst = 3\n"
    assert switched_off(text, "pi_peers") == "# a\n\n[limits]\nrate_burst = 3\n"


def test_switch_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a table that a person wrote needs the package; its absence is a sentence, not a trace."""
    monkeypatch.setitem(sys.modules, "tomlkit", None)
    assert is_on(switched_on("# a\n", "pi_peers"), "pi_peers")
    with pytest.raises(UsageError, match=r"install tieline\[setup\]"):
        switched_on("[wires.pi_peers]\nenabled = false\n", "pi_peers")
