"""Where a value of config.toml came from, for the message of a wrong one.

Rule: a message names the source and, where it is found, the line.

Source: reference/native.md 1P; DESIGN.md 3.
"""

from typing import Any

from tieline.errors import UsageError

__all__ = ["flag", "number", "table", "where", "wrong"]


def table(document: dict[str, Any], name: str, source: str, text: str) -> dict[str, Any]:
    """Return the table of this name, empty when there is none; UsageError when it is something else."""
    found = document.get(name, {})
    if not isinstance(found, dict):
        raise UsageError(wrong(source, text, name, "must be a table"))
    return found


def flag(given: str) -> bool | str:
    """Return the yes or no that a variable holds, or its text when it holds neither."""
    words: dict[str, bool] = {"true": True, "1": True, "false": False, "0": False}
    return words.get(given.lower(), given)


def number(given: str) -> int | str:
    """Return the whole number that a variable holds, or its text when it holds none."""
    return int(given) if given.isascii() and given.isdigit() and len(given) < 17 else given


def where(source: str, text: str, name: str) -> str:
    """Return the source, with the first line that names `name` where there is one."""
    for line_number, line in enumerate(text.splitlines(), 1):
        if line.split("=")[0].strip().strip('"') == name or line.strip().strip("[]").startswith(name):
            return f"{source}, line {line_number}"
    return source


def wrong(source: str, text: str, name: str, says: str) -> str:
    """Return the message that `name` is wrong, with its place."""
    return f"{where(source, text, name)}: {name}: {says}"
