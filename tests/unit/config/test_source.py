"""Where a value came from: the line of a key, and words of a variable."""

import pytest

from tieline.config.source import flag, number, table, where, wrong
from tieline.errors import UsageError


def test_where_of_a_key_is_its_first_line() -> None:
    """A person is led to the line; a key that stands nowhere leads to the file."""
    text = '[limits]\n"rate_burst" = 3\n'
    assert where("c", text, "rate_burst") == "c, line 2"
    assert where("c", text, "limits") == "c, line 1"
    assert where("c", text, "nowhere") == "c"
    assert wrong("c", text, "rate_burst", "too many") == "c, line 2: rate_burst: too many"


def test_table_that_is_none_is_refused_with_its_line() -> None:
    """A section is a table or absent, never a value."""
    assert table({}, "limits", "c", "") == {}
    assert table({"limits": {"a": 1}}, "limits", "c", "") == {"a": 1}
    with pytest.raises(UsageError, match="c, line 1: limits: must be a table"):
        table({"limits": 3}, "limits", "c", "limits = 3")


def test_variable_gives_a_number_or_a_flag_or_its_text() -> None:
    """What is neither comes back as it is, so that the check names it."""
    assert [number(given) for given in ("12", "-1", "\u0663", "9" * 17)] == [12, "-1", "\u0663", "9" * 17]
    assert [flag(given) for given in ("TRUE", "1", "false", "0", "maybe")] == [
        True,
        True,
        False,
        False,
        "maybe",
    ]
