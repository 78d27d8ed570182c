"""Move the fragments of changes/ into CHANGELOG.md, under one version.

Rule 1: a fragment is `NNN-topic.KIND.md`; its text goes in as one list item, word for word.
Rule 2: a fragment that cannot be placed stops the whole run before anything is written.

Source: changes/README.md.
"""

import re
import sys
from datetime import UTC, datetime
from pathlib import Path

KINDS = {
    "added": "Added",
    "changed": "Changed",
    "fixed": "Fixed",
    "removed": "Removed",
    "security": "Security",
}
FRAGMENT_NAME = re.compile(r"(?P<number>\d{3})-[a-z0-9-]+\.(?P<kind>[a-z]+)\.md")
FIRST_SECTION = "\n## "


class FragmentError(Exception):
    """A fragment or a version that cannot be placed; the text says which and why."""


def fragments_of(folder: Path) -> list[tuple[str, str]]:
    """Return (kind, text) of every fragment in `folder`, in the order of their numbers.

    Raises:
        FragmentError: A file has another name than a fragment's, an unknown kind, or no text.
    """
    found = []
    for path in sorted(folder.glob("*.md")):
        if path.name == "README.md":
            continue
        match = FRAGMENT_NAME.fullmatch(path.name)
        if match is None or match["kind"] not in KINDS:
            message = f"{path.name}: a fragment is NNN-topic.KIND.md, KIND one of {', '.join(KINDS)}"
            raise FragmentError(message)
        text = path.read_text(encoding="utf-8").strip()
        if not text:
            raise FragmentError(f"{path.name}: says nothing")
        found.append((match["kind"], text))
    return found


def section_of(version: str, day: str, fragments: list[tuple[str, str]]) -> str:
    """Return the changelog section of `version`, kinds in the order of `KINDS`.

    Raises:
        FragmentError: `version` is not three numbers, or there is no fragment.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise FragmentError(f"version {version!r}: expected three numbers, as in VERSION=0.1.0")
    if not fragments:
        raise FragmentError("changes/ holds no fragment")
    lines = [f"## {version} ({day})"]
    for kind, title in KINDS.items():
        texts = [text for one, text in fragments if one == kind]
        if texts:
            lines += ["", f"### {title}", ""]
            lines += ["- " + text.replace("\n", "\n  ") for text in texts]
    return "\n".join(lines) + "\n"


def with_section(changelog: str, section: str) -> str:
    """Return `changelog` with `section` above the sections it already has."""
    head, mark, rest = changelog.partition(FIRST_SECTION)
    return head.rstrip("\n") + "\n\n" + section + (mark + rest if mark else "")


def main(arguments: list[str]) -> int:
    """Write CHANGELOG.md, remove the fragments, and return the exit code."""
    checkout = Path(__file__).resolve().parents[1]
    changes, changelog = checkout / "changes", checkout / "CHANGELOG.md"
    version = arguments[0] if arguments else ""
    try:
        section = section_of(version, f"{datetime.now(UTC):%Y-%m-%d}", fragments_of(changes))  # noqa: TID251
    except FragmentError as error:
        print(f"changelog: {error}", file=sys.stderr)
        return 2
    changelog.write_text(with_section(changelog.read_text(encoding="utf-8"), section), encoding="utf-8")
    for path in changes.glob("*.md"):
        if path.name != "README.md":
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
