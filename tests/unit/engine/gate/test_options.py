"""What is surely an option of a program, and what may be the value of one."""

import pytest

from tieline.engine.gate.options import is_taken_back, sure_of


def sure(text: str) -> list[str]:
    """Return the arguments of a command that are surely its own."""
    name, *arguments = text.split()
    return [arguments[at] for at in sorted(sure_of(name, tuple(arguments)).places)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("git commit --dry-run", "commit --dry-run"),
        ("git commit -m --dry-run", "commit -m"),
        ("git commit -a --dry-run", "commit -a --dry-run"),
        ("git commit -am --dry-run", "commit -am"),
        ("git commit -m x --dry-run", "commit -m --dry-run"),
        ("git commit -m -F --dry-run", "commit -m"),
        ("git -c -C --dry-run", "-c --dry-run"),
        ("git -C --dry-run add", "-C add"),
        ("git --unknown=x --dry-run", "--unknown=x --dry-run"),
        ("git add -- --dry-run", "add"),
        ("git bisect run x --dry-run", "bisect run"),
        ("make -j8 -n", "-j8 -n"),
        ("make -fx -n", "-fx -n"),
        ("make -kf -n", "-kf"),
        ("nobody -q --help", "-q"),
        ("nobody --help --version x", "--help --version x"),
        ("cargo run x --help", "run x"),
        ("docker compose run web ls --help", "compose run web"),
        ("docker compose run --rm web --help", "compose run --rm web"),
        ("docker compose run -e web --help", "compose run -e"),
        ("npm run dev -- --port 1", "run dev --port"),
        ("npm install -- --dry-run", "install"),
        ("npm -- run", ""),
        ("env x --help", "x"),
        ("x -- -h", ""),
        ("x -o -- -h", "-o"),
        ("x - --help", "- --help"),
    ],
)
def test_place_is_sure_only_where_no_reading_makes_it_a_value(text: str, expected: str) -> None:
    """After an option that is not known, after `--` and after a program that is started, nothing is sure."""
    assert sure(text) == expected.split()


def test_word_that_may_be_a_value_equals_no_pattern() -> None:
    """It keeps its place among the words, so that those behind it do not move up."""
    assert sure_of("git", ("stash", "-m", "list")).words == ("stash", "\0")
    assert sure_of("git", ("stash", "list", "-p")).words == ("stash", "list")


@pytest.mark.parametrize(
    ("pattern", "text", "is_back"),
    [
        ("--dry-run", "--dry-run --no-dry-run", True),
        ("--dry-run", "--dry-run --dry-run=false", True),
        ("--dry-run", "--dry-run False", True),
        ("--dry-run", "--dry-run x", False),
        ("-n", "-n --no-n", False),
        ("--show*", "--show --no-show", False),
    ],
)
def test_option_is_taken_back_by_its_opposite(pattern: str, text: str, is_back: bool) -> None:
    """An option that another one undoes says nothing."""
    assert is_taken_back(pattern, tuple(text.split())) is is_back
