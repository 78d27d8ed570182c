"""Settings: defaults of the specification, ranges, and where a wrong value came from."""

import pytest

from tieline.config import LIMITS, Limits, Scope, Settings, load
from tieline.errors import UsageError

PUBLISHED = {
    "frame_bytes": 65_536, "message_bytes": 8_000, "inbox_messages": 32, "pending_requests": 32,
    "connections": 16,
    "storage_bytes": 10_485_760, "rate_per_second": 10, "rate_burst": 20, "handshake_ms": 2_000,
    "acknowledgement_ms": 2_000, "expiry_ms": 600_000, "max_expiry_ms": 3_600_000, "retention_ms": 86_400_000,
    "automatic_replies": 8, "directory_page_size": 50, "published_runs": 64,
}  # fmt: skip


@pytest.mark.clause(
    "native-153",
    "native-154",
    "native-155",
    "native-156",
    "native-157",
    "native-158",
    "native-159",
    "native-160",
    "native-161",
    "native-162",
    "native-163",
    "native-164",
    "native-165",
    "native-166",
    "native-167",
)
def test_limits_are_those_of_the_specification() -> None:
    """Every published default holds, and the table of reasons agrees with the values."""
    limits = Limits()
    assert {name: getattr(limits, name) for name in PUBLISHED} == PUBLISHED
    assert {name: getattr(limits, name) for name in LIMITS} == {
        name: bound.default for name, bound in LIMITS.items()
    }
    assert set(LIMITS) == set(Limits.__struct_fields__)
    assert all(
        bound.low <= bound.default <= bound.high and bound.unit and bound.reason for bound in LIMITS.values()
    )


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
