"""The section `resource` of config.toml: who grants, and which commands need which resource.

Rule 1: a wrong rule is found at start, with its line, its number from 1 and its field.
Rule 2: what a rule is held against is the gate's; here is only its grammar.

Source: reference/native.md 2.13, 3.5.
"""

from typing import Any

import msgspec

from tieline.config.source import table, where, wrong
from tieline.config.words import RULE_SETS, is_resource_key, is_resource_name, is_rule_set
from tieline.errors import UsageError

__all__ = [
    "PATTERNS_MAX",
    "RESOURCE_FIELDS",
    "RULES_MAX",
    "RULE_FIELDS",
    "RULE_SETS_MAX",
    "ResourceSettings",
    "Rule",
    "auto_grant",
    "resource_settings",
]

RULES_MAX = 256  # a command is held against each of them before it starts
PATTERNS_MAX = 64  # in one field of one rule
PATTERN_CHARACTERS_MAX = 200
RULE_SETS_MAX = 64
RESOURCE_FIELDS = ("auto_grant", "rule_sets", "rule")
_PATTERN_FIELDS = ("executables", "subcommands", "scripts", "arguments", "without")
RULE_FIELDS = ("resource", "name", *_PATTERN_FIELDS, "profile")


class Rule(msgspec.Struct, frozen=True):
    """A resource, and what a command must be to need it: all that is named must hold.

    `executables` are base names; `subcommands` the first words that are no options; `scripts` those of a
    package manager or targets; `arguments` words anywhere, or leading assignments; `without` the same, and
    then the rule does not hold; `profile` is `build`, `strict` or empty. Of several patterns in a field one
    suffices. A pattern is a word, words with a space between, or the beginning of one before a last `*`.
    """

    resource: str
    name: str = ""
    executables: tuple[str, ...] = ()
    subcommands: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    profile: str = ""


class ResourceSettings(msgspec.Struct, frozen=True):
    """What a person configured of shared resources: who grants, and which commands need which."""

    auto_grant: str = "manual"
    rule_sets: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()


def resource_settings(document: dict[str, Any], source: str, text: str) -> ResourceSettings:
    """Return what the section `resource` sets."""
    section = table(document, "resource", source, text)
    for name in section:
        if name not in RESOURCE_FIELDS:
            raise UsageError(
                wrong(source, text, name, f"unknown field; allowed are {', '.join(RESOURCE_FIELDS)}")
            )
    sets = section.get("rule_sets", [])
    place = where(source, text, "rule_sets")
    if not isinstance(sets, list) or len(sets) > RULE_SETS_MAX:
        raise UsageError(f"{place}: rule_sets must be a list of at most {RULE_SETS_MAX} names")
    for name in sets:
        if not isinstance(name, str) or not is_rule_set(name):
            shown = ", ".join(f"{one}:{form}" if form else one for one, form in RULE_SETS.items())
            raise UsageError(f"{place}: unknown rule set {name!r}; allowed are {shown}")
    rules = section.get("rule", [])
    if not isinstance(rules, list) or len(rules) > RULES_MAX:
        raise UsageError(
            f"{where(source, text, '[resource.rule')}: rule must be written as [[resource.rule]], "
            f"at most {RULES_MAX} times"
        )
    return ResourceSettings(
        auto_grant=auto_grant(section.get("auto_grant", "manual"), where(source, text, "auto_grant")),
        rule_sets=tuple(dict.fromkeys(sets)),
        rules=tuple(_rule(rule, number, source, text) for number, rule in enumerate(rules, 1)),
    )


def auto_grant(value: Any, place: str) -> str:
    """Return `manual` or `fifo`; UsageError names `place` otherwise."""
    if value not in ("manual", "fifo"):
        raise UsageError(f"{place}: auto_grant must be manual or fifo")
    return str(value)


def _rule(rule: Any, number: int, source: str, text: str) -> Rule:
    """Return one `[[resource.rule]]`, the `number`th from 1."""
    if not isinstance(rule, dict):
        raise UsageError(f"{source}: resource.rule {number} must be a table")
    for name, value in rule.items():
        allowed = _rule_fault(name, value)
        if allowed:
            raise UsageError(
                f"{_rule_place(source, text, number, name)}: resource.rule {number}: {name}: {allowed}"
            )
    place = _rule_place(source, text, number, "")
    if "resource" not in rule:
        raise UsageError(f"{place}: resource.rule {number}: resource is missing")
    if rule.get("subcommands") and not rule.get("executables"):
        raise UsageError(f"{place}: resource.rule {number}: subcommands need executables")
    if not any(rule.get(name) for name in ("executables", "scripts", "arguments", "profile")):
        raise UsageError(
            f"{place}: resource.rule {number}: it must name executables, scripts, arguments or a profile; "
            'profile = "strict" is every command'
        )
    return msgspec.convert(rule, Rule)


# Prepared here, in one thread: two threads that are the first to convert one would end the process.
msgspec.json.Decoder(Rule)


def _rule_fault(name: str, value: Any) -> str:
    """Return what a field of a rule must be, empty when it is."""
    if name == "resource":
        right = isinstance(value, str) and is_resource_key(value)
        return "" if right else "must be machine/NAME, repository/NAME or repository/ID/NAME"
    if name == "name":
        return (
            ""
            if isinstance(value, str) and is_resource_name(value)
            else "must be a word of at most 64 characters"
        )
    if name == "profile":
        return "" if value in ("build", "strict") else "must be build or strict"
    if name not in _PATTERN_FIELDS:
        return f"unknown field; allowed are {', '.join(RULE_FIELDS)}"
    if not isinstance(value, list) or not 0 < len(value) <= PATTERNS_MAX:
        return f"must be a list of 1 to {PATTERNS_MAX} patterns"
    if not all(isinstance(one, str) and _is_pattern(one) for one in value):
        return f"each must be words, one space between, * only last, at most {PATTERN_CHARACTERS_MAX} long"
    if name == "executables" and any(mark in one for one in value for mark in "/ *"):
        return "each must be the name of a program without folder, space or *"
    return ""


def _is_pattern(text: str) -> bool:
    return (
        0 < len(text) <= PATTERN_CHARACTERS_MAX
        and text.isprintable()
        and "*" not in text[:-1]
        and all(text.split(" "))
    )


def _rule_place(source: str, text: str, number: int, name: str) -> str:
    """Return the source with the line of a field in the `number`th rule, or of the rule."""
    found = 0
    start = 0
    for line_number, line in enumerate(text.splitlines(), 1):
        if line.replace(" ", "").startswith("[[resource.rule]]"):
            found += 1
            start = line_number if found == number else start
        elif found == number and name and line.split("=")[0].strip().strip('"') == name:
            return f"{source}, line {line_number}"
    return f"{source}, line {start}" if start else source
