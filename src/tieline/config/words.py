"""Words that settings and keys are made of: scopes, aliases, resource keys, names of rule sets.

Rule 1: every grammar here is ASCII and checked by comparing with sets, never by a locale.
Rule 2: nothing here knows where a word came from; who reads it names the source.

Source: reference/native.md 1P, 2.13; specification, "Names".
"""

from enum import StrEnum

__all__ = [
    "ALIAS_CHARACTERS_MAX",
    "RESOURCE_KEY_CHARACTERS_MAX",
    "RESOURCE_NAME_CHARACTERS_MAX",
    "RULE_SETS",
    "Scope",
    "is_alias",
    "is_resource_key",
    "is_resource_name",
    "is_rule_set",
]

ALIAS_CHARACTERS_MAX = 64
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_ALIAS_TAIL = _LETTERS | frozenset("0123456789_-")
_ALPHANUMERIC = _LETTERS | frozenset("0123456789")

RESOURCE_KEY_CHARACTERS_MAX = 256  # reference/native.md 2.13 "Keys"
RESOURCE_NAME_CHARACTERS_MAX = 64
RULE_SETS = {
    "git": "",
    "python": "",
    "node": "",
    "cargo": "",
    "make": "",
    "jvm": "",
    "compose": "",
    "port": "PORT",
    "database": "NAME",
}
"""Ready sets of rules, each with what must follow its name after a colon; `engine.gate` has the rules."""


class Scope(StrEnum):
    """How far one may see and send; each includes those before it."""

    WORKSPACE = "workspace"
    REPOSITORY = "repository"
    MACHINE = "machine"

    @property
    def rank(self) -> int:
        """0 for the narrowest."""
        return tuple(Scope).index(self)


def is_alias(text: str) -> bool:
    """Return whether `text` starts with a letter and goes on with letters, digits, `_`, `-`; 1 to 64."""
    return 0 < len(text) <= ALIAS_CHARACTERS_MAX and text[0] in _LETTERS and _ALIAS_TAIL.issuperset(text)


def is_resource_key(text: str) -> bool:
    """Return whether `text` is `machine/NAME`, `repository/ID/NAME`, or `repository/NAME`; at most 256."""
    kind, *rest = text.split("/")
    if len(text) > RESOURCE_KEY_CHARACTERS_MAX or kind not in {"machine", "repository"}:
        return False
    if len(rest) == 2 and kind == "repository":
        identity, name = rest
        return 0 < len(identity) <= 128 and _ALIAS_TAIL.issuperset(identity) and is_resource_name(name)
    return len(rest) == 1 and is_resource_name(rest[0])


def is_rule_set(text: str) -> bool:
    """Return whether `text` names a ready set of rules, with what it is about where it needs that."""
    name, colon, subject = text.partition(":")
    form = RULE_SETS.get(name)
    if form is None or bool(form) != bool(colon):
        return False
    if form == "PORT":
        return subject.isascii() and subject.isdigit() and subject[0] != "0" and int(subject[:6]) < 65_536
    return not form or (
        is_resource_name(subject) and len(subject) <= RESOURCE_NAME_CHARACTERS_MAX - len(name) - 1
    )


def is_resource_name(text: str) -> bool:
    """Return whether `text` starts with a letter or digit and goes on with those, `_`, `-`, `.`; 1 to 64."""
    return (
        0 < len(text) <= RESOURCE_NAME_CHARACTERS_MAX
        and text[0] in _ALPHANUMERIC
        and (_ALIAS_TAIL | {"."}).issuperset(text)
    )
