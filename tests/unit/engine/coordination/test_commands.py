"""Show what is taken for the life of a claimant."""

import pytest

from tests.unit.engine.coordination.kit import A, claimant, facts, process


def test_process_that_nobody_looked_at_is_unknown() -> None:
    """What was not observed is neither alive nor gone."""
    assert facts().process(process(5)) == "unknown"
    assert facts().process(None) == "unknown"
    assert facts(processes={process(5): "alive"}).process(process(5)) == "alive"


@pytest.mark.parametrize(
    ("peer", "owner", "waiter", "expected"),
    [
        ("alive", "alive", "alive", "alive"),
        ("alive", "unknown", "unknown", "alive"),
        ("unknown", "alive", "alive", "unknown"),  # the exact peer was asked and did not answer
        ("gone", "alive", "alive", "gone"),
        ("alive", "gone", "alive", "gone"),
        ("alive", "alive", "gone", "gone"),
    ],
)
def test_claimant_is_gone_when_peer_root_or_waiter_is(
    peer: str, owner: str, waiter: str, expected: str
) -> None:
    """A grant is of no use to a claimant of whom any needed part has ended."""
    known = facts(
        peers={A.peer.id: peer},  # type: ignore[dict-item]
        processes={process(100): owner, process(5): waiter},  # type: ignore[dict-item]
    )
    assert known.liveness(claimant(A, 5)) == expected


def test_claimant_whose_peer_was_not_asked_lives_as_its_starter() -> None:
    """Where no peer was asked, the process that would start the command tells."""
    one = claimant(A, 5)
    asked = facts(processes={process(5): "alive"})
    known = type(asked)(asked.boot_id, asked.processes)
    assert known.liveness(one) == "alive"
    assert type(asked)().liveness(one) == "unknown"
