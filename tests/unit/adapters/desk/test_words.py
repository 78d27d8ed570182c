import pytest

from tieline.adapters.desk.words import age, fit, named, role_of, safe, state_words, width


@pytest.mark.clause("K22")
@pytest.mark.parametrize("text", ["\x1b[2J", "\u202e", "字" * 30, "e\u0301" * 30, "", "\U000e0041"])
def test_fitted_text_takes_exactly_its_columns(text: str) -> None:
    """Whatever it is, it is escaped, cut or filled to its room."""
    shown = fit(text, 12)
    assert width(shown) == 12
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert fit("7", 3, is_right=True) == "  7"


def test_name_pushes_nothing_off_its_row() -> None:
    """A long name is cut, with its colon in front."""
    assert named("api") == ":api"
    assert width(named("字" * 90)) <= 20


@pytest.mark.parametrize(
    ("milliseconds", "said"),
    [(-5, "0 s"), (99_000, "99 s"), (120_000, "2 m"), (7_200_000, "2 h"), (864_000_000, "10 d")],
)
def test_age_is_short_in_every_range(milliseconds: int, said: str) -> None:
    """An age is at most five characters, and never below nothing."""
    assert age(milliseconds) == said


def test_state_words_say_no_more_than_the_receipt() -> None:
    """An outcome that refines a state is said instead; one that nobody knows stands beside it, escaped."""
    assert state_words("accepted") == "arrived, not read yet"
    assert state_words("unknown") == "sent, not known whether it arrived"
    assert state_words("unknown", "BROKER_ACCEPTED") == "the broker passed it on"
    assert state_words("rejected", "X\x1b") == "refused (X\\x1b)"
    assert state_words("new\x1b") == "new\\x1b"
    assert [role_of(one) for one in ("rejected", "unknown", "replied", "accepted")] == [
        "bad",
        "warn",
        "good",
        "",
    ]
    assert safe("\n") == "\\n"
