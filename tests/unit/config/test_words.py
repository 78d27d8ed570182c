"""Words: scopes, resource keys and names of rule sets by their grammar."""

import pytest

from tieline.config.words import RULE_SETS, Scope, is_resource_key, is_rule_set


def test_scope_rank_grows_with_what_it_includes() -> None:
    """Each scope includes those before it."""
    assert [scope.rank for scope in (Scope.WORKSPACE, Scope.REPOSITORY, Scope.MACHINE)] == [0, 1, 2]


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
