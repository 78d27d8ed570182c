"""Settings: defaults of the specification, ranges, and where a wrong value came from."""

import pytest

from tieline.config import (
    LIMITS,
    RULE_SETS,
    Limits,
    ResourceSettings,
    Rule,
    Scope,
    Settings,
    is_resource_key,
    is_rule_set,
    load,
)
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


def test_scope_rank_grows_with_what_it_includes() -> None:
    """Each scope includes those before it."""
    assert [scope.rank for scope in (Scope.WORKSPACE, Scope.REPOSITORY, Scope.MACHINE)] == [0, 1, 2]


RULE = '[[resource.rule]]\nresource = "machine/x"\n'


def test_resource_section_gives_rules_and_sets_in_order() -> None:
    """What a person wrote is what the gate gets; a set named twice is there once."""
    text = (
        '[resource]\nauto_grant = "fifo"\nrule_sets = ["git", "port:3000", "git"]\n'
        '[[resource.rule]]\nresource = "repository/tests"\nname = "a.b"\nexecutables = ["pytest"]\n'
        'subcommands = ["run x"]\nscripts = ["test:*"]\narguments = ["-k 30*"]\nwithout = ["--help"]\n'
        'profile = "build"\n[[resource.rule]]\nresource = "machine/all"\nprofile = "strict"\n'
    )
    assert load(text, "c", {}).resource == ResourceSettings(
        "fifo",
        ("git", "port:3000"),
        (
            Rule(
                "repository/tests",
                "a.b",
                executables=("pytest",),
                subcommands=("run x",),
                scripts=("test:*",),
                arguments=("-k 30*",),
                without=("--help",),
                profile="build",
            ),
            Rule("machine/all", profile="strict"),
        ),
    )
    assert load("", "c", {}).resource == ResourceSettings("manual", (), ())


def test_resource_grant_is_set_by_flag_before_variable_before_file() -> None:
    """The nearest source wins here too."""
    text, variable = '[resource]\nauto_grant = "fifo"\n', {"TIELINE_RESOURCE_AUTO_GRANT": "manual"}
    assert load(text, "c", {}).resource.auto_grant == "fifo"
    assert load(text, "c", variable).resource.auto_grant == "manual"
    assert load(text, "c", variable, {"resource_auto_grant": "fifo"}).resource.auto_grant == "fifo"
    assert load(text, "c", variable, {"resource_auto_grant": None}).resource.auto_grant == "manual"
    with pytest.raises(UsageError, match="TIELINE_RESOURCE_AUTO_GRANT: auto_grant must be manual or fifo"):
        load("", "c", {"TIELINE_RESOURCE_AUTO_GRANT": "always"})
    with pytest.raises(UsageError, match="--resource-auto-grant"):
        load("", "c", {}, {"resource_auto_grant": "x"})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("resource = 1\n", "must be a table"),
        ("[resource]\nnope = 1\n", "c, line 2: nope: unknown field; allowed are auto_grant, rule_sets, rule"),
        ("[resource]\nauto_grant = 1\n", "c, line 2: auto_grant must be manual or fifo"),
        ("[resource]\nrule_sets = 1\n", "c, line 2: rule_sets must be a list"),
        ('[resource]\nrule_sets = ["nope"]\n', "c, line 2: unknown rule set 'nope'; allowed are git, python"),
        ('[resource]\nrule_sets = ["port"]\n', "port:PORT, database:NAME"),
        ("[resource]\nrule_sets = [1]\n", "unknown rule set 1"),
        ("[resource.rule]\n", "rule must be written as [[resource.rule]]"),
        ("[resource]\nrule = [1]\n", "resource.rule 1 must be a table"),
        (RULE, "c, line 1: resource.rule 1: it must name executables, scripts, arguments or a profile"),
        ('[[resource.rule]]\nprofile = "build"\n', "c, line 1: resource.rule 1: resource is missing"),
        (RULE + 'subcommands = ["x"]\n', "subcommands need executables"),
        (
            RULE + 'profile = "build"\n[[ resource.rule ]]\nresource = "x"\n',
            "c, line 5: resource.rule 2: resource: must be machine/NAME, repository/NAME or repository/ID",
        ),
        (RULE + "nope = 1\n", "c, line 3: resource.rule 1: nope: unknown field; allowed are resource, name"),
        (RULE + 'profile = "all"\n', "profile: must be build or strict"),
        (RULE + 'name = "a b"\n', "name: must be a word"),
        (RULE + 'executables = "x"\n', "executables: must be a list of 1 to 64 patterns"),
        (RULE + "scripts = []\n", "scripts: must be a list of 1 to 64 patterns"),
        (RULE + "scripts = [1]\n", "scripts: each must be words"),
        (RULE + 'scripts = ["a*b"]\n', "* only last"),
        (RULE + 'arguments = ["a  b"]\n', "one space between"),
        (RULE + 'arguments = ["a\\u0007"]\n', "each must be words"),
        (RULE + 'arguments = [""]\n', "each must be words"),
        (RULE + 'executables = ["/bin/x"]\n', "each must be the name of a program"),
        (RULE + 'executables = ["x*"]\n', "each must be the name of a program"),
        ('resource = {rule = [{profile = "x"}]}\n', "c: resource.rule 1: profile"),
    ],
)
def test_resource_section_with_a_wrong_value_names_line_rule_and_field(text: str, says: str) -> None:
    """A wrong rule is found at start, not when a command should have waited."""
    with pytest.raises(UsageError, match=r".") as caught:
        load(text, "c", {})
    assert says in str(caught.value)
    assert str(caught.value).startswith("c")


@pytest.mark.parametrize(
    ("key", "is_key"),
    [
        ("machine/port-3000", True),
        ("repository/tests", True),
        ("repository/a_B-9/tests", True),
        ("repository/-id/a.b_c-d", True),
        ("machine/" + "a" * 64, True),
        ("machine/" + "a" * 65, False),
        ("machine/a/b", False),
        ("repository/a/b/c", False),
        ("repository//b", False),
        ("repository/" + "a" * 129 + "/b", False),
        ("repository/a.b/c", False),
        ("machine/", False),
        ("machine/.a", False),
        ("machine/\u0663", False),
        ("machine", False),
        ("other/a", False),
        ("", False),
        ("machine/" + "/" * 300, False),
    ],
)
def test_resource_key_is_checked_by_its_grammar(key: str, is_key: bool) -> None:
    """A key is of the machine or of a repository, and its name starts with a letter or digit."""
    assert is_resource_key(key) == is_key


@pytest.mark.parametrize(
    ("name", "is_set"),
    [
        *((name, not form) for name, form in RULE_SETS.items()),
        ("git:x", False),
        ("port:1", True),
        ("port:65535", True),
        ("port:65536", False),
        ("port:0", False),
        ("port:", False),
        ("port:0x1", False),
        ("port:99999999999", False),
        ("database:app_test", True),
        ("database:a/b", False),
        ("database:" + "a" * 55, True),
        ("database:" + "a" * 56, False),
        ("nope", False),
    ],
)
def test_rule_set_is_checked_with_what_it_is_about(name: str, is_set: bool) -> None:
    """A port is a number of a port, a database has a name that fits into a key."""
    assert is_rule_set(name) == is_set
