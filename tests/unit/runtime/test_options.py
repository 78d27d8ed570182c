"""Where a root's things are, and what it is opened with."""

from pathlib import Path

import pytest

from tieline.errors import UsageError
from tieline.runtime.options import RootOptions, home_directory, places, settings


def test_home_is_given_or_of_the_environment_or_of_the_person(private_home: Path) -> None:
    """A flag, then TIELINE_HOME, then ~/.tieline; always absolute."""
    assert home_directory("/x/y", {"TIELINE_HOME": "/z"}) == "/x/y"
    assert home_directory("", {"TIELINE_HOME": "/z"}) == "/z"
    assert home_directory("", {}).endswith("/.tieline")


@pytest.mark.clause("native-149", "native-186", "native-173", "native-174", "native-175")
def test_places_of_a_shared_coordination_directory_keep_the_inbox_at_home(private_home: Path) -> None:
    """Presence and sockets move with the coordination directory, private mail does not."""
    options = RootOptions(home=str(private_home), coordination="/shared/here")
    held = settings(options, {})
    found = places(options, held, {})
    assert found.active_agents == "/shared/here/active-agents"
    assert found.runtime == "/shared/here/peer-runtime"
    assert found.stores == f"{private_home}/peer-messages"
    assert places(RootOptions(home="/h"), settings(RootOptions(home="/h"), {}), {}).coordination == "/h"


def test_settings_of_a_bad_file_name_it_with_its_line(private_home: Path) -> None:
    """A wrong config.toml is a usage error that a person can follow."""
    (private_home / "config.toml").write_text('[communication]\nscope = "moon"\n')
    with pytest.raises(UsageError, match=r"config.toml, line 2"):
        settings(RootOptions(home=str(private_home)), {})


def test_settings_limits_of_the_caller_are_taken(private_home: Path) -> None:
    """A program may raise its own limits."""
    held = settings(RootOptions(home=str(private_home), limits={"rate_burst": 99}), {})
    assert held.limits.rate_burst == 99
