"""The section resource: rules in order, and what is said of a wrong one."""

import pytest

from tieline.config.rules import ResourceSettings, Rule
from tieline.config.settings import load
from tieline.errors import UsageError

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
