"""Show that an identity of a process survives a record and differs in every part."""

import msgspec
import pytest

from tieline.model.process import Life, ProcessIdentity
from tieline.shell import process as shell_process

ONE = ProcessIdentity("boot", 4_026_531_836, 17, 5_000, 99, "linux", 7)


def test_identity_written_and_read_is_equal() -> None:
    """A record gives back the very identity that was put in."""
    assert msgspec.json.decode(msgspec.json.encode(ONE), type=ProcessIdentity) == ONE


@pytest.mark.clause("I36")
@pytest.mark.parametrize(
    "change",
    [
        {"boot_id": "other"},
        {"pid_namespace": 1},
        {"pid": 18},
        {"start_ticks": 5_001},
        {"pidfd_inode": 100},
        {"pidfd_inode": None},
        {"platform": "darwin"},
        {"time_namespace": 8},
    ],
)
def test_identity_that_differs_in_one_part_is_another(change: dict[str, object]) -> None:
    """No part of an identity is left out when two are compared or used as a key."""
    other = msgspec.structs.replace(ONE, **change)  # type: ignore[arg-type]
    assert other != ONE
    assert len({ONE, other}) == 2


def test_identity_offered_by_the_shell_is_the_same_type() -> None:
    """Whoever reads processes and whoever keeps records speak of one type."""
    assert shell_process.ProcessIdentity is ProcessIdentity


@pytest.mark.clause("pi-peers-11", "pi-peers-U2")
def test_life_of_a_text_record_has_four_answers_of_which_one_is_death() -> None:
    """What cannot be compared has words of its own, so that nobody reads it as dead."""
    assert {one.value for one in Life} == {"alive", "dead", "foreign", "unproved"}
