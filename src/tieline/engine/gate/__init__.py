"""The command gate: which commands need which resource, by rules alone."""

from tieline.engine.gate.profiles import Class
from tieline.engine.gate.rules import (
    GateCommand,
    RepositoryFacts,
    Verdict,
    complete_key,
    repository_token,
    requirements,
    suggestion,
)
from tieline.engine.gate.rulesets import rules_of, ruleset

__all__ = [
    "Class",
    "GateCommand",
    "RepositoryFacts",
    "Verdict",
    "complete_key",
    "repository_token",
    "requirements",
    "rules_of",
    "ruleset",
    "suggestion",
]
