"""The pages about the commands are what the commands do: the reference, and the JSON shapes."""

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.adapters.cli.fake import FakeRoot, Result, message, receipt
from tieline import config
from tieline.adapters.cli import reference
from tieline.adapters.cli.main import COMMANDS, EXIT_CODES, commands_here, exit_code
from tieline.engine.contract import Held
from tieline.errors import CODES, next_action
from tieline.model.identity import Availability, Descriptor, Peer, Scope
from tieline.model.message import Attachment, Envelope
from tieline.model.receipt import Durability, Event, Receipt, State
from tieline.runtime import render
from tieline.runtime.broker import Started
from tieline.runtime.ended import Ended, Recovered

CHECKOUT = Path(__file__).resolve().parents[4]
PAGE = CHECKOUT / "docs" / "reference" / "commands.md"
CONFIGURATION = CHECKOUT / "docs" / "configuration.md"
PACKAGE = CHECKOUT / "src" / "tieline"
AVAILABILITIES = {str(one) for one in Availability}
KINDS = {"root", "run"}
STATES = {str(one) for one in State}
DURABILITIES = {str(one) for one in Durability}


def test_page_in_the_documentation_equals_the_parsers() -> None:
    """docs/reference/commands.md is what this version prints; print it anew when this fails."""
    assert PAGE.read_text(encoding="utf-8") == reference.page() + "\n"


def test_page_has_every_command_and_exit_code() -> None:
    """Nothing that can be called or can come back is missing."""
    page = reference.page()
    for name in commands_here():
        assert f"\n## tieline {name}\n" in page
    for code, meaning in EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in page


def test_parsers_summaries_agree_with_the_help_page() -> None:
    """Every command has a sentence of its own in its parser."""
    for name, (_, summary, _) in reference.parsers().items():
        assert summary.endswith("."), name


@pytest.mark.clause(
    "native-208",
    "native-209",
    "native-210",
    "native-211",
    "native-212",
    "native-213",
    "native-214",
    "native-215",
    "native-216",
    "native-217",
)
def test_troubleshooting_has_every_code_with_its_action() -> None:
    """The page has each code with its exit code and the very next action that the program prints."""
    text = (PAGE.parents[1] / "howto-troubleshooting.md").read_text(encoding="utf-8")
    for code in CODES:
        row = next(row for row in text.splitlines() if row.startswith(f"| `{code}` |"))
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert cells[1] == str(exit_code(code)), code
        assert cells[3] == next_action(code), code


# --- docs/json-shapes.md --------------------------------------------------------------------------

SHAPES = PAGE.parents[1] / "json-shapes.md"
ANSWERS: dict[str, Any] = {
    "list_peers": {"self": {"alias": "web"}, "peers": [{"alias": "api"}]},
    "local.send": {"receipts": [receipt()], "errors": []},
    "local.reply": {"receipts": [receipt()], "errors": []},
    "local.ask": {"receipt": receipt(), "reply": message(), "timedOut": False},
    "local.inbox": {
        "messages": [],
        "cursor": "1",
        "oldestCursor": "1",
        "gap": False,
        "unread": 0,
        "prepared": 0,
        "remaining": 0,
        "held": [],
        "token": None,
    },
    "local.status": {"sent": [], "received": [{"message": message(), "history": []}]},
    "local.last": {"entry": "e", "text": "", "offset": 0, "nextOffset": None, "entries": 1},
    "local.log": {"events": [], "cursor": "0"},
    "local.mute": {"peer": "peer-1", "muted": True},
    "resource.list": {"resources": []},
}
COMMANDS_SHOWN = {
    "peers": ["peers"],
    "send": ["send", "api", "x"],
    "ask": ["ask", "api", "x"],
    "inbox": ["inbox"],
    "status": ["status", "m-1"],
    "last": ["last", "api"],
    "log": ["log"],
    "mute": ["mute", "api"],
    "setup": ["setup", "pi-peers", "--yes"],
    "unsetup": ["unsetup", "pi-peers", "--yes"],
    "recover": ["recover", "i-1"],
    "recover list": ["recover"],
    "run": ["run"],
    "resource": ["resource", "list"],
    "hook": ["hook", "shell", "pre-tool", "make"],
    "broker": ["broker"],
    "forget": ["forget", "i-1"],
    "doctor": ["doctor"],
    "completion": ["completion", "bash"],
    "version": ["--version"],
    "error": ["send"],
}


def documented() -> dict[str, dict[str, Any]]:
    """Return the example of each section of the page."""
    sections = re.split(r"^## ", SHAPES.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    found = {}
    for section in sections:
        example = re.search(r"^```json\n(.*?)\n```", section, re.MULTILINE | re.DOTALL)
        assert example is not None, section
        found[section.partition("\n")[0]] = json.loads(example[1])
    return found


def names_of(kind: str) -> set[str]:
    """Return the member names that the page lists for a peer, receipt, message or event."""
    text = SHAPES.read_text(encoding="utf-8")
    paragraph = re.search(rf"\*\*{kind}\*\* has: (.*?)\n\n", text + "\n\n", re.DOTALL)
    assert paragraph is not None
    return set(re.findall(r"`(\w+)`", paragraph[1]))


def test_shapes_of_every_command_are_documented() -> None:
    """Every command of the command line, and the error, has a section with an example."""
    own = {name for name, (place, _) in COMMANDS.items() if place.startswith("cli.")}
    assert set(documented()) == set(COMMANDS_SHOWN)
    assert own - {"reply"} <= set(documented())


@pytest.mark.parametrize("section", COMMANDS_SHOWN)
def test_shape_that_a_command_prints_is_the_documented_one(
    run: Callable[..., Result],
    fake_root: Callable[..., FakeRoot],
    monkeypatch: pytest.MonkeyPatch,
    section: str,
) -> None:
    """What a command prints has exactly the members of its example, with values of the same kind."""
    left = Ended("i-1", "s", 1, 0, 1, "")
    monkeypatch.setattr("tieline.adapters.cli.recover.ended_instances", lambda home: [left])
    monkeypatch.setattr("tieline.adapters.cli.recover.recover", lambda *words: Recovered("i-1", "s", [], []))
    gone = {"messages": 1, "unread": 0, "unsettled": 0}
    monkeypatch.setattr("tieline.adapters.cli.forget.forget", lambda *words, is_unread_too: gone)
    started = Started("/i/broker.sock", is_ours=True)
    monkeypatch.setattr("tieline.adapters.cli.broker.run_broker", lambda *words, **_: words[2](started))
    fake_root(ANSWERS)
    printed, example = run(*COMMANDS_SHOWN[section], "--json").json, documented()[section]
    assert set(printed) == set(example)
    for name, value in example.items():
        if value is not None and printed[name] is not None:
            assert type(printed[name]) is type(value), name
    assert (printed["version"], printed["command"]) == (1, example["command"])
    if section == "error":
        assert set(printed["error"]) <= set(example["error"]) | {"messageId"}
    if "root" in example:
        assert set(printed["root"]) == set(example["root"])


def test_members_of_doors_are_the_documented_ones() -> None:
    """Peers, receipts, messages and events have the members that the page lists, and no others."""
    peer = Peer("i-1", "r-1")
    full = Descriptor(
        peer, "s", "a", "p", "run", "idle", Availability.AVAILABLE, (), "w", "r", Scope.MACHINE, "h", "m"
    )
    full = msgspec.structs.replace(full, context_percent=3, ref="a1b2c3", is_other_project=True)
    assert set(render.descriptor(full, age_ms=1, is_self=True)) == names_of("peer") - AVAILABILITIES - KINDS
    kept = Receipt("m", "a", "b", State.REPLIED, 1, 1, 1, 1, "o", Durability.SYNCED, is_retryable=True)
    assert (
        set(render.receipt(kept, 1, "native")) | {"target", "text"}
        == names_of("receipt") - STATES - DURABILITIES
    )
    envelope = Envelope(
        "m",
        peer,
        peer,
        "c",
        "t",
        "r",
        "k",
        1,
        1,
        1,
        "a",
        "p",
        thread="t",
        attachments=(Attachment("n", "t"),),
    )
    held = Held(1, envelope, State.ACCEPTED, 1, 1, kept)
    parts = {"mediaType", "name", "external"}
    assert set(render.message(held)) == names_of("message") - parts - {"text"}
    event = Event(1, "receipt", "o", "m", "a", "b", State.ACCEPTED, kept, 1)
    extra = {"fromAlias", "fromProject", "topic", "preview"}
    assert set(render.event(event)) | extra == names_of("event") - {"message", "resource", "wait_cycle"}


def test_limits_in_the_documentation_are_those_of_the_program() -> None:
    """Every limit's default, range and reason stands in docs/configuration.md as `config.LIMITS` has it."""
    assert reference.limits() in CONFIGURATION.read_text(encoding="utf-8")
    row = "| `inbox_messages` | 32 | 1 | 1,000,000 | unconsumed messages per recipient |"
    assert row in reference.limits()


def test_settings_in_the_documentation_are_all_that_there_are() -> None:
    """Every section, key, ready set and variable that the program reads is named, and no other key."""
    page = CONFIGURATION.read_text(encoding="utf-8")
    source = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    words = {*config.FIELDS, *config.RESOURCE_FIELDS, *config.RULE_FIELDS, *config.LIMITS}
    words |= set(re.findall(r"\bTIELINE_[A-Z]+(?:_[A-Z]+)*\b", source))
    words |= {f"{name}:{form}" if form else name for name, form in config.RULE_SETS.items()}
    words |= {f"[{name}]" for name in config.SECTIONS - {"wires"}}
    words |= {f"[wires.{name}]" for name in config.WireSettings.__struct_fields__}
    words |= {*config.PI_PEERS_FIELDS, *config.INTERCOM_FIELDS}
    assert [word for word in sorted(words) if word not in page] == []
    known = {*config.FIELDS, *config.LIMITS, "auto_grant", "rule_sets"}
    known |= {*config.PI_PEERS_FIELDS, *config.INTERCOM_FIELDS}
    assert set(re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE)) == known


def test_settings_in_the_documentation_have_their_defaults() -> None:
    """What the page calls the default is what holds without a file."""
    page = CONFIGURATION.read_text(encoding="utf-8")
    page, wires = page.split("## [wires.pi_peers]")
    told = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", page, re.MULTILINE))
    held = config.Settings()
    assert re.findall(r"^\| `enabled` \| `([^`]+)` \|", wires, re.MULTILINE) == ["false", "false"]
    assert f'| `accept` | `"{held.wires.pi_peers.accept}"` |' in wires
    for name in ("enabled", "scope", "idle_behavior", "allow_resource_control", "resource_wait_timeout_ms"):
        assert tomllib.loads(f"value = {told[name]}")["value"] == getattr(held, name)
    assert tomllib.loads(f"value = {told['auto_grant']}")["value"] == held.resource.auto_grant


def test_settings_in_the_example_of_the_documentation_are_taken() -> None:
    """The first block of TOML on the page is a configuration that holds."""
    (text,) = re.findall(r"```toml\n(.*?)```", CONFIGURATION.read_text(encoding="utf-8"), re.DOTALL)
    assert config.load(text, "page", {}).limits.inbox_messages == 64
