"""How words are read: order, forms, and what is wrong."""

import argparse
import sys

import pytest

from tieline.adapters.cli.arguments import Alone, Shelf, milliseconds, parse, recipients_and_text, text_of
from tieline.errors import Refused, UsageError


def made() -> argparse.ArgumentParser:
    """A parser with a word list and options of each kind."""
    parser = Alone().add_parser("try", "Try.")
    parser.add_argument("words", nargs="+")
    parser.add_argument("--flag", action="store_true")
    parser.add_argument("--value")
    return parser


@pytest.mark.parametrize(
    "words",
    [
        ["a", "b", "--flag", "--value", "v"],
        ["--flag", "a", "--value", "v", "b"],
        ["--value=v", "a", "b", "--flag"],
        ["a", "--flag", "--value", "v", "--", "b"],
    ],
)
def test_parse_options_anywhere_read_the_same(words: list[str]) -> None:
    """Options may stand before, between and after the words."""
    options = parse(made(), words)  # type: ignore[arg-type]
    assert (options.words, options.flag, options.value) == (["a", "b"], True, "v")


def test_parse_words_after_dashes_are_never_options() -> None:
    """After `--` nothing is an option, not even another `--`."""
    assert parse(made(), ["a", "--", "--flag", "--", "-x"]).words == ["a", "--flag", "--", "-x"]  # type: ignore[arg-type]


@pytest.mark.parametrize("words", [[], ["--flag"], ["a", "--fla"], ["a", "--value"], ["a", "-x"]])
def test_parse_wrong_words_raise_usage(words: list[str]) -> None:
    """A missing word, an unknown or shortened option and a missing value are wrong usage."""
    with pytest.raises(UsageError):
        parse(made(), words)  # type: ignore[arg-type]


def test_parse_single_dash_is_a_word() -> None:
    """`-` stands for stdin and is no option."""
    assert parse(made(), ["a", "-"]).words == ["a", "-"]  # type: ignore[arg-type]


def test_parse_parser_is_unchanged_after_use() -> None:
    """Reading twice with one parser gives the same."""
    parser = made()
    assert parse(parser, ["a", "b"]).words == parse(parser, ["a", "b"]).words == ["a", "b"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"), [("0", 0), ("1.5", 1500), ("86400", 86_400_000), ("0.0004", 0)]
)
def test_milliseconds_in_range_are_whole(text: str, expected: int) -> None:
    """Seconds in decimal become whole milliseconds."""
    assert milliseconds(text) == expected


@pytest.mark.parametrize("text", ["-0.1", "86400.1", "nan", "inf", "1e99", "x", ""])
def test_milliseconds_out_of_range_are_refused(text: str) -> None:
    """What is no number of seconds in range is refused."""
    with pytest.raises(argparse.ArgumentTypeError, match="seconds"):
        milliseconds(text)


def test_recipients_named_twice_get_one_message() -> None:
    """The same name written twice, with and without its colon, is one recipient."""
    assert recipients_and_text([":api", "web", "api", "text"], "p") == (["api", "web"], "text")


@pytest.mark.clause("native-128", "native-130")
@pytest.mark.parametrize("word", [":api run :db", "  :api  run :db "])
def test_one_word_that_begins_with_a_name_is_read_as_at_the_desk(word: str) -> None:
    """A line as the composer reads it, a name and what it is told, is both recipient and text."""
    assert recipients_and_text([word], "p") == (["api"], "run :db")


@pytest.mark.parametrize("word", [":api", ":smile: hi", "\\:api hi", ":api two\nlines", "text"])
def test_one_word_that_is_no_letter_is_refused(word: str) -> None:
    """What the composer sends to nobody is wrong usage here."""
    with pytest.raises(UsageError):
        recipients_and_text([word], "p")


def test_text_of_non_utf8_words_is_refused() -> None:
    """Bytes of the command line that are no UTF-8 are refused, not replaced."""
    with pytest.raises(UsageError):
        text_of("a\udcff")


def test_text_of_endless_stdin_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more is read than any root may take."""
    import io

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x" * 1_048_577)))
    with pytest.raises(Refused) as caught:
        text_of("-")
    assert caught.value.code == "MESSAGE_TOO_LARGE"
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UsageError):
        text_of("-")


def test_shelf_keeps_what_was_made() -> None:
    """The shelf keeps each parser with its sentences."""
    shelf = Shelf()
    parser = shelf.add_parser("one", "First.", "More.")
    assert shelf.made == {"one": (parser, "First.", "More.")}
