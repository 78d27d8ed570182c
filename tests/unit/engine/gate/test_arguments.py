"""One program's arguments: what its options take, and which words are its first."""

import pytest

from tieline.engine.gate.arguments import moved, option_at, scripts_of, words_of
from tieline.engine.gate.tables import TOOLS


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("-am", "x"), ("-m", "x", 2)),
        (("-mx", "y"), ("-m", "x", 1)),
        (("--file=a", "b"), ("--file", "a", 1)),
        (("-q", "b"), ("-q", "", 1)),
    ],
)
def test_option_takes_its_value_from_its_own_word_or_the_next(
    words: tuple[str, ...], expected: tuple[str, str, int]
) -> None:
    """Letters may stand together; the last one that takes a value ends the word."""
    assert option_at(words, 0, frozenset({"-m", "--file"})) == expected


@pytest.mark.parametrize(
    ("text", "words", "directory", "is_sure"),
    [
        ("git -C a commit", ("commit",), "/w/a", True),
        ("git --unknown a commit", ("a", "commit"), "/w", False),
        ("git --unknown=a commit", ("commit",), "/w", True),
        ("git --no-pager log", ("log",), "/w", True),
        ("git", (), "/w", True),
    ],
)
def test_first_word_is_sure_unless_an_unknown_option_stands_before_it(
    text: str, words: tuple[str, ...], directory: str, is_sure: bool
) -> None:
    """What may be a value is said to be so, and both readings are judged."""
    assert words_of(tuple(text.split()), TOOLS["git"], "/w") == (words, directory, is_sure)


def test_script_of_a_package_manager_is_named_in_each_of_its_forms() -> None:
    """Its own words are no scripts, its short forms are."""
    assert scripts_of("npm", ("t",)) == scripts_of("npm", ("it",)) == ("test",)
    assert scripts_of("npm", ("rum", "build")) == ("build",)
    assert scripts_of("yarn", ("lint",)) == ("lint",)
    assert scripts_of("npm", ("install",)) == scripts_of("ls", ("test",)) == ()


def test_folder_that_only_the_shell_knows_is_empty() -> None:
    """No folder is guessed."""
    assert moved("/w", ("a/../b",)) == "/w/b"
    assert moved("/w", ("~",)) == moved("/w", ("\0",)) == moved("", ("a",)) == ""
