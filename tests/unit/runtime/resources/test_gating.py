"""What rules and policies ask of a command that is about to start here."""

from pathlib import Path

import pytest

from tests.unit.runtime.resources.kit import KEY, claim, principal
from tests.unit.runtime.roots import two
from tieline.engine.coordination import SetPolicy
from tieline.errors import UsageError
from tieline.model.identity import Peer
from tieline.runtime.resources.coordinator import Coordinator
from tieline.runtime.resources.gating import judged_here, verdict_on


@pytest.fixture
def home(private_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a home with rules for git, as the environment names it."""
    made = private_home / "h"
    made.mkdir(mode=0o700)
    (made / "config.toml").write_text('[resource]\nrule_sets = ["git"]\n')
    monkeypatch.setenv("TIELINE_HOME", str(made))
    return made


def test_verdict_names_keys_classes_and_the_line(home: Path, private_home: Path) -> None:
    """A rule fits or none does; the line holds what is needed."""
    found = verdict_on(("git", "commit"), "", str(private_home), str(home))
    assert len(found.keys) == 1
    assert found.use == f"tieline run --resource {found.keys[0]} -- git commit"
    assert verdict_on(None, "make all", str(private_home), str(home)).keys == ()
    assert "build" in verdict_on(None, "make all", str(private_home), str(home)).names


def test_wrong_configuration_is_the_callers_to_correct(home: Path, private_home: Path) -> None:
    """The text names what is wrong."""
    (home / "config.toml").write_text('[resource]\nrule_sets = ["nothing"]\n')
    with pytest.raises(UsageError):
        verdict_on(("git",), "", str(private_home), str(home))


def test_judgement_names_who_holds_what_is_needed(home: Path, private_home: Path) -> None:
    """Only what is needed and held is named."""
    coordinator = Coordinator(str(home))
    found, holders = judged_here(("git", "commit"), "", str(private_home), str(home), None)
    assert holders == []
    claim(coordinator, "other", *found.keys)
    claim(coordinator, "another", KEY)
    _, holders = judged_here(("git", "commit"), "", str(private_home), str(home), None)
    assert [key for key, _ in holders] == list(found.keys)
    assert holders[0][1].startswith(":other (make) since ")
    coordinator.close()


@pytest.mark.asyncio
async def test_judgement_adds_what_a_policy_asks_of_this_agent(
    home: Path, private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that is enrolled under a strict policy holds its resource for every command."""
    async with two(private_home) as (alice, _bob):
        coordinator = Coordinator(str(home))
        peer = Peer(alice.node.instance)
        lead = principal("lead", "resource.control")
        policy = SetPolicy(lead, KEY, Peer("lead").id, (peer.id,))
        coordinator.decide([KEY], policy, peers={Peer("lead").id: "alive"})
        assert judged_here(("ls",), "", str(private_home), str(home), None)[0].keys == ()
        monkeypatch.setenv("TIELINE_SESSION", alice.node.session)
        found, _ = judged_here(("ls",), "", str(private_home), str(home), None)
        assert found.keys == (KEY,)
        assert found.use == f"tieline run --resource {KEY} -- ls"
        assert "enrolled" in found.reason
        coordinator.close()
