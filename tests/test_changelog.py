"""The changelog is built from its fragments, or nothing is written.

Source: changes/README.md.
"""

from pathlib import Path

import pytest

from tools.changelog import FragmentError, fragments_of, section_of, with_section


def test_section_of_fragments_groups_them_by_kind() -> None:
    """Fragments stand under their kind, in their order, and a long one stays one list item."""
    fragments = [("fixed", "One."), ("added", "Two\nlines."), ("fixed", "Three.")]
    assert section_of("0.1.0", "2026-12-01", fragments) == (
        "## 0.1.0 (2026-12-01)\n\n### Added\n\n- Two\n  lines.\n\n### Fixed\n\n- One.\n- Three.\n"
    )


def test_section_put_into_changelog_stands_above_older_ones() -> None:
    """A new section goes between the introduction and the sections that were there."""
    once = with_section("# Changelog\n\nWords.\n", "## 0.1.0 (a day)\n")
    assert with_section(once, "## 0.2.0 (a day)\n") == (
        "# Changelog\n\nWords.\n\n## 0.2.0 (a day)\n\n## 0.1.0 (a day)\n"
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("1-topic.added.md", "x"),
        ("001-topic.md", "x"),
        ("001-topic.other.md", "x"),
        ("001-topic.added.md", " "),
    ],
)
def test_fragment_that_cannot_be_placed_is_refused(name: str, text: str, tmp_path: Path) -> None:
    """A fragment with a wrong name, an unknown kind or no text stops the run."""
    (tmp_path / name).write_text(text)
    with pytest.raises(FragmentError, match=r"topic"):
        fragments_of(tmp_path)


@pytest.mark.parametrize(
    ("version", "fragments"), [("1.0", [("added", "x")]), ("", [("added", "x")]), ("1.0.0", [])]
)
def test_section_without_version_or_fragment_is_refused(
    version: str, fragments: list[tuple[str, str]]
) -> None:
    """A version is three numbers, and an empty section is no section."""
    with pytest.raises(FragmentError):
        section_of(version, "a day", fragments)
