"""Every numbered clause has an owner, and every clause of a finished part has a test that names it.

Markers are read from the sources, so a test counts as soon as it is written and also where it is
chosen out of a run.

Source: docs/clauses.toml; DESIGN.md 8.
"""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
TESTS = CHECKOUT / "tests"
# How many clauses each table holds; a clause lost from the file would otherwise go unseen.
CLAUSE_COUNTS = {
    "native": 217,
    "native-weak-points": 20,
    "pi-peers": 51,
    "pi-peers-open": 24,
    "intercom": 137,
    "invariants": 51,
    "faults": 35,
    "security": 25,
    "mutants": 29,
    "open-bugs": 58,
}


class Claim(NamedTuple):
    """One test's word that it shows a clause."""

    clause: str
    place: str


def register() -> dict[str, Any]:
    """Return docs/clauses.toml as it was read."""
    return tomllib.loads((CHECKOUT / "docs" / "clauses.toml").read_text(encoding="utf-8"))


def clauses_of(document: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return every clause of `document` with its `owner` or `na`."""
    return {name: entry for table in document["clauses"].values() for name, entry in table.items()}


def is_clause_mark(node: ast.AST) -> bool:
    """Return whether `node` is the call `pytest.mark.clause(...)`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "clause"
        and ast.unparse(node.func.value) in {"pytest.mark", "mark"}
    )


def claims_in(source: str, name: str) -> Iterator[Claim]:
    """Yield the clauses that the tests of one file name.

    Raises:
        ValueError: A clause is not a literal, or the mark stands on what is no test.
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            is_test = node.name.lower().startswith("test")
            if not is_test and any(is_clause_mark(mark) for mark in node.decorator_list):
                raise ValueError(f"{name}:{node.lineno}: a clause is named by {node.name}, which is no test")
        if not is_clause_mark(node):
            continue
        assert isinstance(node, ast.Call)
        for argument in node.args:
            if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                raise ValueError(f"{name}:{node.lineno}: a clause is named by a literal")  # noqa: TRY004
            yield Claim(argument.value, f"{name}:{node.lineno}")


def claims() -> list[Claim]:
    """Return every claim of every test file."""
    found: list[Claim] = []
    for path in sorted(TESTS.rglob("test_*.py")):
        found += claims_in(path.read_text(encoding="utf-8"), str(path.relative_to(CHECKOUT)))
    return found


def unshown(document: dict[str, Any], found: list[Claim]) -> list[str]:
    """Return the clauses of finished parts that no claim of `found` names."""
    finished = set(document["finished"])
    shown = {claim.clause for claim in found}
    owned = clauses_of(document).items()
    return [name for name, entry in owned if entry.get("owner") in finished and name not in shown]


def test_clauses_of_every_reference_are_all_listed() -> None:
    """The register holds exactly as many clauses as each reference numbers."""
    document = register()
    assert {name: len(table) for name, table in document["clauses"].items()} == CLAUSE_COUNTS
    assert len(clauses_of(document)) == sum(CLAUSE_COUNTS.values())


def test_clause_without_one_owner_or_reason_is_found() -> None:
    """Each clause has one owner that is a part of the product, or the reason why there is none."""
    document = register()
    parts = set(document["parts"])
    assert set(document["finished"]) <= parts
    wrong = [
        name
        for name, entry in clauses_of(document).items()
        if not (set(entry) == {"owner"} and entry["owner"] in parts)
        and not (set(entry) == {"na"} and len(entry["na"]) > 20)
    ]
    assert wrong == []


def test_clause_of_finished_part_has_a_test() -> None:
    """No clause of a finished part is without a test that names it."""
    assert unshown(register(), claims()) == []


def test_marker_naming_unknown_or_na_clause_is_found() -> None:
    """Each clause that a test names is in the register, and has an owner."""
    known = clauses_of(register())
    wrong = [claim for claim in claims() if "owner" not in known.get(claim.clause, {})]
    assert wrong == []


def test_unshown_clause_of_finished_part_is_reported() -> None:
    """The comparison reports a clause of a finished part that no test names, and no other."""
    document = {
        "finished": ["native"],
        "clauses": {"one": {"A1": {"owner": "native"}, "A2": {"owner": "native"}, "A3": {"owner": "desk"}}},
    }
    assert unshown(document, [Claim("A1", "here")]) == ["A2"]


def test_claims_of_decorators_parameters_and_modules_are_read() -> None:
    """A clause counts wherever pytest would see its mark."""
    source = """
pytestmark = [pytest.mark.clause("A1")]
@pytest.mark.clause("A2", "A3")
@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.clause("A4"))])
async def test_one(x): ...
"""
    assert sorted(claim.clause for claim in claims_in(source, "x")) == ["A1", "A2", "A3", "A4"]


@pytest.mark.parametrize(
    "source",
    [
        "@pytest.mark.clause('A1')\ndef build(): ...",
        "@pytest.mark.clause(A1)\ndef test_one(): ...",
    ],
)
def test_claims_that_show_nothing_are_refused(source: str) -> None:
    """A mark on what pytest does not run, or one that cannot be read, is an error."""
    with pytest.raises(ValueError, match="clause is named by"):
        list(claims_in(source, "x"))
