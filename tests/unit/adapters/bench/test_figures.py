"""Figures and aims."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.adapters.bench.figures import AIMS, Aim, Figure, judge, percentile

LEAST = Aim("faster", "many", "one", 8.0, is_least=True)
MOST = Aim("cheaper", "ours", "limit", 3.2, 2.5)


def figures(**values: float) -> dict[str, Figure]:
    """Return figures of one value each."""
    return {name: Figure.single(value, "us") for name, value in values.items()}


@given(st.lists(st.floats(0, 1e9), min_size=1), st.floats(0, 1))
def test_percentile_of_any_samples_is_a_sample_with_enough_below(samples: list[float], share: float) -> None:
    """It is one of the samples, at least that share does not exceed it, and no smaller sample would do."""
    found = percentile(samples, share)
    assert found in samples
    assert sum(one <= found for one in samples) >= share * len(samples)
    smaller = [one for one in samples if one < found]
    assert not smaller or len(smaller) < share * len(samples)


def test_percentile_of_nothing_is_refused() -> None:
    """No figure stands on no sample."""
    with pytest.raises(ValueError, match="no samples"):
        percentile([], 0.5)


def test_figure_of_hundred_samples_has_median_and_tail() -> None:
    """The median and the 99th percentile, in the unit given."""
    assert Figure.of([float(one) for one in range(1, 101)], "us") == Figure(50.0, 99.0, "us", 100)


@pytest.mark.parametrize(
    ("ours", "verdict"), [(2.5, "met, stretch too"), (2.6, "met"), (3.2, "met"), (3.3, "missed")]
)
def test_aim_at_most_is_judged_by_its_ratio(ours: float, verdict: str) -> None:
    """The bound itself still holds; beyond it the aim is missed."""
    assert judge(MOST, figures(ours=ours, limit=1.0)).verdict == verdict


@pytest.mark.parametrize(("many", "is_met"), [(7.9, False), (8.0, True), (9.0, True)])
def test_aim_at_least_is_judged_the_other_way(many: float, is_met: bool) -> None:
    """A rate must reach its bound."""
    assert judge(LEAST, figures(many=many, one=1.0)).is_met is is_met


def test_aim_without_its_figure_is_missed() -> None:
    """What was not measured is never met."""
    for present in ({}, figures(ours=1.0), figures(limit=1.0)):
        found = judge(MOST, present)
        assert (found.verdict, found.ratio) == ("missed", None)


def test_aim_at_tail_compares_tails() -> None:
    """A p99 aim takes the 99th percentile of both."""
    aim = Aim("tail", "ours", "limit", 3.0, part="p99")
    both = {"ours": Figure(1.0, 30.0, "us", 9), "limit": Figure(100.0, 10.0, "us", 9)}
    assert judge(aim, both).ratio == 3.0


def test_aim_without_a_limit_compares_the_figure_itself() -> None:
    """Memory has a bound in its own unit."""
    aim = Aim("memory", "pss", "", 40.0)
    assert judge(aim, figures(pss=40.0)).is_met
    assert not judge(aim, figures(pss=40.1)).is_met


def test_aims_of_the_project_are_those_that_were_set() -> None:
    """The bounds are the ones that were set before anything was measured."""
    assert {aim.measured: (aim.bound, aim.stretch) for aim in AIMS} == {
        "accept": (3.2, 2.5),
        "send": (6.5, 5.0),
        "routes_32_rate": (8.0, None),
        "ping_at_routes": (3.0, None),
        "accept_much_stored": (1.2, None),
        "mcp_pss": (40.0, None),
        "mcp_initialize": (2.5, None),
        "mcp_first_call": (10.0, None),
        "cli_peers": (4.0, None),
    }
