"""Times: what is said to people and to the wire."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.model.moment import WALL_MS_MAX, from_iso, to_iso


@given(st.integers(min_value=0, max_value=WALL_MS_MAX))
def test_iso_of_any_moment_reads_back(wall_ms: int) -> None:
    """Milliseconds survive the wire's form."""
    text = to_iso(wall_ms)
    assert text.endswith("Z")
    assert len(text) == 24
    assert from_iso(text) == wall_ms


@pytest.mark.clause("K9")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2026-01-01T00:00:00",
        "1969-12-31T23:59:59Z",
        "2026-13-01T00:00:00Z",
        "2" * 50,
        "\u0662026",
    ],
)
def test_iso_that_is_no_time_is_refused(text: str) -> None:
    """No zone, no date, before 1970: a ValueError, never a guess."""
    with pytest.raises(ValueError, match=r"."):
        from_iso(text)


@pytest.mark.clause("K9")
def test_iso_outside_of_its_range_is_clamped() -> None:
    """A wall clock in the year 300000 or before 1970 gives a time that can be written."""
    assert to_iso(10**18) == "9999-12-31T23:59:59.999Z"
    assert to_iso(-5) == "1970-01-01T00:00:00.000Z"
