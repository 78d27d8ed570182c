"""The reference page is what the parsers say."""

from pathlib import Path

from tieline.adapters.cli import reference
from tieline.adapters.cli.main import EXIT_CODES, commands_here

PAGE = Path(__file__).resolve().parents[4] / "docs" / "reference" / "commands.md"


def test_page_in_the_documentation_equals_the_parsers() -> None:
    """docs/reference/commands.md is what this version prints; print it anew when this fails."""
    assert PAGE.read_text(encoding="utf-8") == reference.page() + "\n"


def test_page_has_every_command_and_exit_code() -> None:
    """Nothing that can be called or can come back is missing."""
    page = reference.page()
    for name in commands_here():
        assert f"\n## tieline {name}\n" in page
    for code, meaning in EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in page


def test_parsers_summaries_agree_with_the_help_page() -> None:
    """Every command has a sentence of its own in its parser."""
    for name, (_, summary, _) in reference.parsers().items():
        assert summary.endswith("."), name
