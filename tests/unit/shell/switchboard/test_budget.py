"""Requests are charged to a root."""

import pytest

from tieline.config import Limits
from tieline.shell.switchboard.budget import ROOTS_MAX, Budget


@pytest.mark.clause("S18", "O57")
def test_budget_spent_refuses_until_time_refills_it() -> None:
    """Two seconds' worth may come at once, then one request per share of a second."""
    budget = Budget(Limits())
    assert budget.per_second == 200
    assert sum(budget.charge("a", 0) for _ in range(1_000)) == 400
    assert sum(budget.charge("a", 500) for _ in range(1_000)) == 100
    assert not budget.charge("a", 502)
    assert budget.charge("a", 505)
    assert sum(budget.charge("a", 3_600_000) for _ in range(1_000)) == 400


@pytest.mark.clause("S18")
def test_budget_of_one_root_leaves_another_its_own() -> None:
    """A flooder spends nobody else's requests."""
    budget = Budget(Limits(rate_per_second=100))
    assert budget.per_second == 2_000
    assert sum(budget.charge("flooder", 0) for _ in range(10_000)) == 4_000
    assert budget.charge("other", 0)


def test_budget_of_many_roots_forgets_who_asked_longest_ago() -> None:
    """The memory is bounded, and a root that keeps asking is never forgotten."""
    budget = Budget(Limits())
    for _ in range(400):
        budget.charge("flooder", 0)
    for number in range(2 * ROOTS_MAX):
        assert budget.charge(f"root-{number}", 0)
        assert not budget.charge("flooder", 0)
