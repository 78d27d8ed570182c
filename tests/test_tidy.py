"""House rules that no general tool holds.

Rule 1: a list of exceptions in this file may only shrink: an entry that is no longer needed is as
    red as a new breach.
Rule 2: sources are read, not run, except where the rule is about what they do.

Source: STYLE.md 6.
"""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGE = CHECKOUT / "src" / "tieline"
TESTS = CHECKOUT / "tests"
REFERENCE_PAGE = CHECKOUT / "docs" / "reference" / "commands.md"
REFERENCE_MODULE = "tieline.adapters.cli.reference"

FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 500

# Growth lists. What is longer than it may be, with its present length: the number may only go down.
FUNCTIONS_PAST_70: dict[str, int] = {}
MODULES_PAST_500: dict[str, int] = {}

# Rooms that decide and do nothing; import-linter's contract "pure-core" must name each that exists.
PURE_ROOMS = ("errors", "config", "keys", "model", "machine", "composer", "text", "engine", "wire")

LEFTOVER = re.compile(
    "|".join(rf"\b{first}{rest}\b" for first, rest in (("TO", "DO"), ("FIX", "ME"), ("XX", "X")))
)

# Calls that could turn a peer's bytes into code, and modules that exist to do so.
FORBIDDEN_CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "os.system",
    "os.popen",
    "os.execvp",
    "os.execvpe",
}
FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "yaml", "dill", "cloudpickle", "jsonpickle"}

CORE_DEPENDENCIES = {"msgspec", "apsw", "pynacl", "uvloop", "tomlkit"}


def sources() -> list[Path]:
    """Return every module of the package."""
    return sorted(PACKAGE.rglob("*.py"))


def files_of_tests() -> list[Path]:
    """Return every file of tests, in every suite."""
    return sorted(TESTS.rglob("test_*.py"))


def pages() -> list[Path]:
    """Return every page of the documentation."""
    return [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").rglob("*.md"))]


def name_of(path: Path) -> str:
    """Return the path of a file as messages and growth lists write it."""
    return path.relative_to(CHECKOUT).as_posix()


def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def functions_of(
    tree: ast.AST, prefix: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield every function under `tree` with its dotted name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, node
            yield from functions_of(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.ClassDef):
            yield from functions_of(node, f"{prefix}{node.name}.")
        else:
            yield from functions_of(node, prefix)


def past(found: dict[str, int], limit: int, listed: dict[str, int]) -> list[str]:
    """Return what is wrong between the lengths `found`, the `limit`, and the growth list."""
    wrong = [
        f"{name} has {length} lines, at most {listed.get(name, limit)}"
        for name, length in found.items()
        if length > listed.get(name, limit)
    ]
    wrong += [
        f"{name} has {found.get(name, 0)} lines: lower its entry from {length}, or remove it at {limit}"
        for name, length in listed.items()
        if found.get(name, 0) < length
    ]
    return wrong


def forbidden_in(tree: ast.AST) -> Iterator[str]:
    """Yield what under `tree` could run text as code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if ast.unparse(node.func) in FORBIDDEN_CALLS:
                yield f"{node.lineno}: {ast.unparse(node.func)}"
            for word in node.keywords:
                if word.arg == "shell" and not (
                    isinstance(word.value, ast.Constant) and word.value.value is False
                ):
                    yield f"{node.lineno}: shell="
        elif isinstance(node, ast.Import | ast.ImportFrom):
            named = (
                [node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
            )
            for name in named:
                if name.split(".")[0] in FORBIDDEN_MODULES:
                    yield f"{node.lineno}: import {name}"


def test_module_without_header_is_found() -> None:
    """Every module says what it is, and every module with code names its source."""
    wrong = []
    for path in sources():
        header = ast.get_docstring(parsed(path)) or ""
        if not header or (path.name != "__init__.py" and "Source:" not in header):
            wrong.append(name_of(path))
    assert wrong == []


def test_module_without_unit_test_is_found() -> None:
    """Every module has its own unit test file, at the same place under tests/unit."""
    absent = []
    for path in sources():
        expected = TESTS / "unit" / path.relative_to(PACKAGE).parent / f"test_{path.name}"
        if path.name not in {"__init__.py", "__main__.py"} and not expected.exists():
            absent.append(name_of(expected))
    assert absent == []


def test_unit_test_without_module_is_found() -> None:
    """No unit test file stays behind when its module has gone or moved."""
    astray = []
    for path in sorted((TESTS / "unit").rglob("test_*.py")):
        module = PACKAGE / path.relative_to(TESTS / "unit").parent / path.name.removeprefix("test_")
        if not module.exists() and not module.with_suffix("").is_dir():
            astray.append(name_of(path))
    assert astray == []


def test_test_without_promise_is_found() -> None:
    """Every test is named subject, condition, outcome, and says its promise in a docstring."""
    wrong = []
    for path in files_of_tests():
        for name, function in functions_of(parsed(path)):
            last = name.rpartition(".")[2]
            if not last.startswith("test_") or any(
                "fixture" in ast.unparse(d) for d in function.decorator_list
            ):
                continue
            if not ast.get_docstring(function) or len(last.removeprefix("test_").split("_")) < 3:
                wrong.append(f"{name_of(path)}:{function.lineno} {name}")
    assert wrong == []


def test_test_that_is_switched_off_is_found() -> None:
    """No test is skipped or expected to fail for good."""
    switches = {"pytest.mark.skip", "pytest.mark.xfail"}
    wrong = [
        f"{name_of(path)}:{node.lineno}"
        for path in files_of_tests()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in switches
    ]
    assert wrong == []


def test_leftover_note_in_any_text_is_found() -> None:
    """Nothing in sources, tests or documentation is marked as still to be done."""
    texts = [*sources(), *sorted(TESTS.rglob("*.py")), *pages(), *sorted((CHECKOUT / "tools").iterdir())]
    wrong = [
        f"{name_of(path)}:{number}"
        for path in texts
        if path.is_file()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if LEFTOVER.search(line)
    ]
    assert wrong == []


def test_function_grown_past_limit_is_found() -> None:
    """No function is longer than 70 lines, beyond the listed ones, and those only shrink."""
    found = {
        f"{name_of(path)}:{name}": (function.end_lineno or 0) - function.lineno + 1
        for path in sources()
        for name, function in functions_of(parsed(path))
    }
    assert past(found, FUNCTION_LINES_MAX, FUNCTIONS_PAST_70) == []


def test_module_grown_past_limit_is_found() -> None:
    """No module is longer than 500 lines, beyond the listed ones, and those only shrink."""
    found = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in sources()}
    assert past(found, MODULE_LINES_MAX, MODULES_PAST_500) == []


def test_growth_list_entry_that_shrank_is_found() -> None:
    """An entry above what is there is reported, as is a length above its entry or above the limit."""
    assert past({"a": 80, "b": 71, "c": 70}, 70, {"a": 90}) == [
        "b has 71 lines, at most 70",
        "a has 80 lines: lower its entry from 90, or remove it at 70",
    ]
    assert past({"a": 80}, 70, {"a": 80}) == []
    assert past({"a": 81}, 70, {"a": 80}) == ["a has 81 lines, at most 80"]


def test_source_that_could_run_text_is_found() -> None:
    """Nothing in the package evaluates, unpickles, or hands text to a shell."""
    wrong = [f"{name_of(path)}:{place}" for path in sources() for place in forbidden_in(parsed(path))]
    assert wrong == []


@pytest.mark.parametrize(
    "text",
    [
        "eval(x)",
        "exec(x)",
        "import pickle",
        "from yaml import load",
        "run(x, shell=True)",
        "run(x, shell=flag)",
        "os.system(x)",
    ],
)
def test_each_way_to_run_text_is_recognised(text: str) -> None:
    """The rule against running text sees each way to do it."""
    assert list(forbidden_in(ast.parse(text)))


def test_public_names_differing_from_all_are_found() -> None:
    """`__all__` repeats nothing, every name in it exists, and no other public name is offered."""
    tieline = importlib.import_module("tieline")
    offered = list(tieline.__all__)
    assert len(offered) == len(set(offered))
    assert [name for name in offered if not hasattr(tieline, name)] == []
    tree = parsed(PACKAGE / "__init__.py")
    bound = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert {name for name in bound if not name.startswith("_")} - set(offered) - {"TYPE_CHECKING"} == set()


def reference_page() -> str:
    """Return the command reference as the commands themselves print it."""
    printed = subprocess.run(
        [sys.executable, "-m", REFERENCE_MODULE], capture_output=True, check=True, text=True, timeout=60
    )
    return printed.stdout


def has_reference() -> bool:
    """Return whether the commands can print their reference yet."""
    adapters = PACKAGE / "adapters" / "cli"
    return (adapters / "reference.py").exists()


def test_reference_page_differing_from_help_is_found() -> None:
    """docs/reference/commands.md is what the commands print of themselves, byte for byte."""
    assert REFERENCE_PAGE.exists() == has_reference()
    if has_reference():
        assert REFERENCE_PAGE.read_text(encoding="utf-8") == reference_page()


def commands_in(page: str) -> set[str]:
    """Return the words after `tieline` at the start of a line in a page's shell blocks."""
    blocks = re.findall(r"^```(?:sh|console|bash)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return {
        word for block in blocks for word in re.findall(r"^(?:\$ )?tieline ([a-z]+)", block, re.MULTILINE)
    }


def test_documented_command_that_does_not_exist_is_found() -> None:
    """Every command that a page shows is in the command reference."""
    shown = {word for path in pages() for word in commands_in(path.read_text(encoding="utf-8"))}
    assert {"peers", "send", "inbox"} <= shown
    if has_reference():
        known = set(re.findall(r"tieline ([a-z]+)", REFERENCE_PAGE.read_text(encoding="utf-8")))
        assert shown - known == set()


def test_broken_link_between_pages_is_found() -> None:
    """Every link of a page to another file of the project leads somewhere."""
    wrong = [
        f"{name_of(path)}: {target}"
        for path in pages()
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8"))
        if "://" not in target and not (path.parent / target).exists()
    ]
    assert wrong == []


# Packages


def project() -> dict[str, Any]:
    """Return pyproject.toml as it was read."""
    return tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))


def locked(name: str) -> dict[str, str]:
    """Return the version of each package in a lock.

    Raises:
        AssertionError: A package stands without a hash.
    """
    text = (CHECKOUT / "requirements" / name).read_text(encoding="utf-8").replace("\\\n", " ")
    found = {}
    for line in text.splitlines():
        if line and not line.startswith((" ", "#")):
            match = re.match(r"([a-z0-9.-]+)==(\S+)", line)
            assert match is not None, line
            assert "--hash=sha256:" in line, line
            found[match[1]] = match[2]
    return found


def test_requirement_with_address_or_without_hash_is_found() -> None:
    """No requirement file names a download address, and every locked package has its hashes."""
    for path in sorted((CHECKOUT / "requirements").iterdir()):
        text = path.read_text(encoding="utf-8")
        assert "://" not in text, name_of(path)
        assert "-index" not in text, name_of(path)
    assert locked("run.txt")
    assert locked("dev.txt")


def test_locks_that_differ_from_each_other_are_found() -> None:
    """What is tested is what is shipped: each package to run with stands in both locks alike."""
    tested = locked("dev.txt")
    assert {name: version for name, version in locked("run.txt").items() if tested.get(name) != version} == {}


def test_dependency_without_decision_is_found() -> None:
    """Each dependency beyond the first five has a line in docs/decisions.md."""
    table = project()["project"]
    needed = [
        *table["dependencies"],
        *(one for extra in table["optional-dependencies"].values() for one in extra),
    ]
    names = {re.split(r"[^A-Za-z0-9_-]", one)[0].lower() for one in needed}
    decided = (CHECKOUT / "docs" / "decisions.md").read_text(encoding="utf-8").lower()
    assert {name for name in names - CORE_DEPENDENCIES if f"`{name}`" not in decided} == set()


def test_pure_room_outside_its_contract_is_found() -> None:
    """import-linter's contract of purity names exactly the pure rooms that exist."""
    contracts = {one["id"]: one for one in project()["tool"]["importlinter"]["contracts"]}
    existing = {room for room in PURE_ROOMS if (PACKAGE / room).is_dir() or (PACKAGE / f"{room}.py").exists()}
    assert set(contracts["pure-core"]["source_modules"]) == {f"tieline.{room}" for room in existing}


def test_fragment_with_wrong_name_is_found() -> None:
    """Each changelog fragment is named NNN-topic.KIND.md, with a number of its own."""
    names = [path.name for path in (CHECKOUT / "changes").iterdir() if path.name != "README.md"]
    kinds = "added|changed|fixed|removed|security"
    assert [name for name in names if not re.fullmatch(rf"\d{{3}}-[a-z0-9-]+\.({kinds})\.md", name)] == []
    assert len({name[:3] for name in names}) == len(names)
