"""What a name means among sessions: exact, short, shared, or nobody's."""

import pytest

from tieline.errors import Refusal
from tieline.wire.intercom.targets import shown_targets, target_of

ROWS = [
    {"id": "pi-aaaaaaaa1111", "name": "Reviewer"},
    {"id": "pi-aaaaaaaa2222", "name": "worker"},
    {"id": "session-b-0001", "name": "worker"},
    {"id": "PLAIN-id-0001", "name": " padded "},
    {"id": "nameless-00001"},
]


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("pi-aaaaaaaa1111", "pi-aaaaaaaa1111"),
        ("plain-ID-0001", "PLAIN-id-0001"),
        ("reviewer", "pi-aaaaaaaa1111"),
        ("  REVIEWER ", "pi-aaaaaaaa1111"),
        ("padded", "PLAIN-id-0001"),
        ("nameless", "nameless-00001"),
        ("pi-aaaaaaaa1", "pi-aaaaaaaa1111"),
    ],
)
def test_target_that_fits_one_is_that_one(target: str, found: str) -> None:
    """An exact id in any case, a name without regard to case and blanks, or 8 characters of an id."""
    assert target_of(ROWS, target) == found


@pytest.mark.clause("intercom-110", "intercom-111")
@pytest.mark.parametrize(
    ("target", "code", "words"),
    [
        ("worker", "AMBIGUOUS_TARGET", "2 intercom sessions"),
        ("pi-aaaaaaaa", "AMBIGUOUS_TARGET", "pi-aaaaaaaa1"),
        ("pi-aaa", "UNKNOWN_TARGET", "too short"),
        ("nobody", "UNKNOWN_TARGET", "no intercom session"),
        ("  ", "UNKNOWN_TARGET", "a target is"),
    ],
)
def test_target_that_fits_none_or_several_is_refused_with_options(target: str, code: str, words: str) -> None:
    """Nothing is guessed, and what could be meant is named."""
    found = target_of(ROWS, target)
    assert isinstance(found, Refusal)
    assert found.code == code
    assert words in found.text


@pytest.mark.clause("intercom-111")
def test_name_that_begins_another_id_is_ambiguous_unless_it_is_its_own() -> None:
    """A short name that is also the begin of a foreign id is not guessed; of the own id it is no other."""
    rows = [{"id": "pi-abc-123456", "name": "nine"}, {"id": "nine-00000001", "name": "other"}]
    found = target_of(rows, "nine")
    assert isinstance(found, Refusal)
    assert found.code == "AMBIGUOUS_TARGET"
    assert target_of([{"id": "nine-00000001", "name": "nine"}], "nine") == "nine-00000001"


@pytest.mark.clause("intercom-47")
def test_exact_id_goes_before_a_session_of_that_name() -> None:
    """Whoever calls itself like another's id gets none of its mail."""
    rows = [{"id": "first-id-0001", "name": "x"}, {"id": "other-id-0001", "name": "first-id-0001"}]
    assert target_of(rows, "first-id-0001") == "first-id-0001"


@pytest.mark.clause("intercom-109")
def test_shown_target_is_as_short_as_it_is_safe() -> None:
    """Eight characters, more where ids share them or a name equals them; each resolves to its own."""
    shown = shown_targets(ROWS)
    assert shown["session-b-0001"] == "session-"
    assert shown["pi-aaaaaaaa1111"] == "pi-aaaaaaaa1"
    named = [{"id": "session-b-0001"}, {"id": "other-id", "name": "session-"}]
    assert shown_targets(named)["session-b-0001"] == "session-b"
    assert all(target_of(ROWS, target) == one for one, target in shown.items())
