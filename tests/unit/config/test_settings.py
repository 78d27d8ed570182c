"""Settings: defaults of the specification, and where a wrong value came from."""

import pytest

from tieline.config.settings import Settings, load
from tieline.config.words import Scope
from tieline.errors import UsageError


@pytest.mark.clause("native-145", "native-146", "native-147", "native-150", "native-151", "native-149")
def test_settings_without_any_source_are_the_defaults() -> None:
    """Narrowest scope, notify, no control; enabled because installing it is the consent."""
    settings = load("", "config.toml", {})
    assert settings == Settings()
    assert (settings.scope, settings.idle_behavior) == (Scope.WORKSPACE, "notify")
    assert not settings.allow_resource_control
    assert settings.resource_wait_timeout_ms == 300_000
    assert settings.enabled


def test_settings_flags_go_before_variables_before_the_file() -> None:
    """The nearest source wins."""
    text = '[communication]\nalias = "file"\nscope = "machine"\n[limits]\nrate_burst = 40\n'
    settings = load(
        text, "c", {"TIELINE_ALIAS": "env", "TIELINE_RATE_BURST": "50"}, {"alias": "flag", "scope": None}
    )
    assert (settings.alias, settings.scope, settings.limits.rate_burst) == ("flag", Scope.MACHINE, 50)
    assert load(text, "c", {"TIELINE_ALIAS": "env"}).alias == "env"
    assert load("", "c", {"TIELINE_ENABLED": "false"}).enabled is False


@pytest.mark.clause("native-152", "native-168", "native-169")
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[communication]\nscope = "planet"\n', "c, line 2: scope must be workspace, repository or machine"),
        ('[communication]\nidle_behavior = "loud"\n', "notify or auto"),
        ('[communication]\nalias = "1x"\n', "a letter"),
        ("[communication]\nenabled = 1\n", "true or false"),
        ('[communication]\ncoordination_directory = "relative"\n', "an absolute path"),
        ("[communication]\nresource_wait_timeout_ms = 0\n", "a whole number from 1"),
        ("[communication]\nnope = 1\n", "unknown field"),
        ("[nope]\n", "unknown section"),
        ("communication = 3\n", "must be a table"),
        ("[limits]\nrate_burst = 0\n", "line 2: rate_burst must be a whole number from 1"),
        ("[limits]\nrate_burst = true\n", "a whole number"),
        ("[limits]\nrate_burst = 1.5\n", "a whole number"),
        ("[limits]\nwarp = 9\n", "unknown limit"),
        ("[limits]\nframe_bytes = 2048\nmessage_bytes = 4096\n", "message_bytes is larger than"),
        ("[limits]\nexpiry_ms = 5000\nmax_expiry_ms = 4000\n", "expiry_ms is larger than"),
        ("not toml", "not TOML"),
    ],
)
def test_settings_with_a_wrong_value_name_source_and_what_is_allowed(text: str, says: str) -> None:
    """A wrong value is a start-up error that names file, line, field and the allowed values."""
    with pytest.raises(UsageError, match=r".") as caught:
        load(text, "c", {})
    assert says in str(caught.value)
    assert str(caught.value).startswith("c")


@pytest.mark.parametrize(
    ("name", "value"), [("TIELINE_SCOPE", "x"), ("TIELINE_RATE_BURST", "-1"), ("TIELINE_ENABLED", "maybe")]
)
def test_settings_with_a_wrong_variable_name_the_variable(name: str, value: str) -> None:
    """The message names the variable, so that a person finds it."""
    with pytest.raises(UsageError, match=name):
        load("", "c", {name: value})


def test_settings_with_a_wrong_flag_name_the_flag() -> None:
    """A flag is named as it was typed."""
    with pytest.raises(UsageError, match="--idle-behavior"):
        load("", "c", {}, {"idle_behavior": "x"})
