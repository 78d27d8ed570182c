"""Which resources a command needs: matching, keys, folders, cover, reasons, and the line to use instead."""

import shlex

import pytest

from tieline.config import Rule
from tieline.engine.gate.profiles import Class
from tieline.engine.gate.rules import (
    GateCommand,
    RepositoryFacts,
    complete_key,
    quoted,
    repository_token,
    requirements,
    suggestion,
)

FACTS = RepositoryFacts("abc", "/w")
TESTS = Rule(
    "repository/tests", name="tests", executables=("pytest", "gmake"), without=("--collect-only", "-m slow")
)


def keys(text: str, *rules: Rule, facts: RepositoryFacts = FACTS) -> tuple[str, ...]:
    """Return what a text needs under some rules."""
    return requirements(GateCommand(None, text, "/w"), rules, facts).keys


@pytest.mark.parametrize(
    ("rule", "hits", "misses"),
    [
        (TESTS, ["pytest", "a && pytest -x", "make", "$(pytest)"], ["py", "pytest --collect-only",
                                                                    "pytest -m slow"]),
        (
            Rule("machine/x", executables=("git",), subcommands=("commit", "re*", "stash pop", "lfs pu*")),
            ["git commit", "git -C y commit", "git rebase", "git stash pop", "git lfs push"],
            ["git", "git log commit", "git stash", "git stash list", "git lfs ls", "commit", "git pop stash"],
        ),
        (
            Rule("machine/x", scripts=("test", "test:*")),
            ["npm test", "pnpm test:unit", "make x test"],
            ["npm run tester", "echo test"],
        ),
        (
            Rule("machine/x", arguments=("3000", "--port=30*", "-p 30*", "a b c")),
            ["x 3000", "x --port=3001", "x -p 3002", "x z a b c d"],
            ["3000", "x 30001", "x --port 3001", "x -p 1", "x a b", "x a b -c"],
        ),
        (Rule("machine/x", arguments=("PORT=3000",)), ["PORT=3000 x", "env PORT=3000 x"], ["PORT=1 x",
            "PORT=3000"]),
        (Rule("machine/x", profile="build"), ["make", "npm test", "ls; tox"], ["ls", "$X", "ls '"]),
        (Rule("machine/x", profile="strict"), ["make", "ls", "$X", "'"], ["", "A=1", "# x"]),
        (Rule("machine/x", profile="build", scripts=("test",)), ["npm test"], ["poe test", "npm run build"]),
        (Rule("machine/x", executables=("npm",), scripts=("test",)), ["npm test"], ["pnpm test",
            "npm run x"]),
    ],
)  # fmt: skip
def test_rule_fits_what_it_names_and_nothing_else(rule: Rule, hits: list[str], misses: list[str]) -> None:
    """A command needs a resource when all that a rule names holds of one of its programs."""
    assert [text for text in hits if not keys(text, rule)] == []
    assert [text for text in misses if keys(text, rule)] == []


def test_keys_of_several_rules_are_one_sorted_bundle() -> None:
    """Every program is held against every rule; keys are sorted and not repeated."""
    rules = (TESTS, Rule("machine/b", executables=("make",)), Rule("repository/tests", scripts=("x",)))
    assert keys("make x && pytest", *rules) == ("machine/b", "repository/abc/tests")


def test_key_in_short_form_gets_token_of_repository() -> None:
    """The short form means the command's own repository, other keys are left as they are."""
    assert complete_key("repository/tests", FACTS) == "repository/abc/tests"
    assert complete_key("repository/id/tests", FACTS) == "repository/id/tests"
    assert complete_key("machine/port-1", FACTS) == "machine/port-1"


def test_token_outside_repository_is_made_from_shared_folder() -> None:
    """Two agents in one folder without a repository share a token; another folder has another."""
    one, same, other = (RepositoryFacts(None, folder) for folder in ("/w", "/w", "/v"))
    assert repository_token(one) == repository_token(same) != repository_token(other)
    assert len(repository_token(one)) == len("workspace-") + 32
    assert repository_token(RepositoryFacts(None, "/\udc80")).startswith("workspace-")


def test_folder_of_other_repository_is_asked_for_then_used() -> None:
    """The gate does not guess where another folder belongs: it names it, and takes the answer."""
    command = GateCommand(None, "cd ../o && pytest; cd /w; pytest", "/w")
    first = requirements(command, (TESTS,), FACTS)
    assert first.directories == ("/o",)
    assert first.keys == ("repository/abc/tests",)
    told = FACTS._replace(elsewhere={"/o": RepositoryFacts("def", "/o")})
    second = requirements(command, (TESTS,), told)
    assert second.directories == ()
    assert second.keys == ("repository/abc/tests", "repository/def/tests")


def test_folder_that_changes_no_key_is_not_asked_for() -> None:
    """A resource of the machine is the same in every folder, and the workspace is known."""
    rule = Rule("machine/x", executables=("pytest",))
    assert requirements(GateCommand(None, "cd /o && pytest", "/w"), (rule,), FACTS).directories == ()
    below = GateCommand(None, "cd .. && pytest", "/w/a")
    assert requirements(below, (TESTS,), FACTS).directories == ()
    assert requirements(GateCommand(None, "cd $X && pytest", "/w"), (TESTS,), FACTS).directories == ()


def test_folders_to_ask_for_are_bounded() -> None:
    """A command cannot make the caller look at the disk without end."""
    text = "".join(f"cd /o{number}; pytest\n" for number in range(40))
    assert len(requirements(GateCommand(None, text, "/w"), (TESTS,), FACTS).directories) == 16


def test_command_under_tieline_run_needs_only_what_it_does_not_hold() -> None:
    """The line that the gate proposes passes the gate."""
    other = Rule("machine/x", executables=("pytest",))
    held = "tieline run --resource repository/tests -- "
    assert keys(held + "pytest", TESTS) == ()
    assert keys(held + "pytest", TESTS, other) == ("machine/x",)
    assert keys(held + "ls; pytest", TESTS) == ("repository/abc/tests",)
    assert keys("tieline run --resource repository/other/tests -- pytest", TESTS) == ("repository/abc/tests",)
    assert keys("tieline run --gate -- pytest", TESTS, other) == ()
    assert (
        keys(held + "git -C /o x", Rule("repository/tests", executables=("git",)))
        == ("repository/abc/tests",) * 0
    )
    elsewhere = FACTS._replace(elsewhere={"/o": RepositoryFacts("def", "/o")})
    git = Rule("repository/tests", executables=("git",))
    assert keys(held + "git -C /o x", git, facts=elsewhere) == ("repository/def/tests",)


@pytest.mark.parametrize(
    ("text", "classes", "is_parsed", "executable"),
    [
        ("make", Class.BUILD | Class.STRICT, True, "make"),
        ("ls; make", Class.BUILD | Class.STRICT, True, "ls"),
        ("ls", Class.STRICT, True, "ls"),
        ("", Class.NONE, True, ""),
        ("$X", Class.STRICT, False, ""),
        ("make '", Class.BUILD | Class.STRICT, False, "make"),
        ("ls '", Class.STRICT, False, "ls"),
    ],
)
def test_classes_of_command_are_kept_as_bits(
    text: str, classes: Class, is_parsed: bool, executable: str
) -> None:
    """Every command is gated under `strict`; what cannot be read is no build unless a part of it is."""
    verdict = requirements(GateCommand(None, text, "/w"), (), FACTS)
    assert (verdict.classes, verdict.is_parsed, verdict.executable) == (classes, is_parsed, executable)


def test_reason_of_verdict_names_programs_and_rules_only() -> None:
    """The sentence is for a person: no argument of the command is in it, and it stays short."""
    command = GateCommand(None, "pytest --token=secret '", "/w")
    assert requirements(command, (TESTS,), FACTS).reason == (
        "pytest needs repository/tests (rule tests); "
        "the command could not be read whole: a quote or a bracket is not closed"
    )
    assert requirements(GateCommand(None, "ls", "/w"), (TESTS,), FACTS).reason == "no rule names this command"
    strict = Rule("machine/x", profile="strict")
    assert requirements(GateCommand(None, "$X", "/w"), (strict,), FACTS).reason.startswith(
        "what could not be read needs machine/x; "
    )
    many = tuple(Rule(f"machine/x{number}", executables=("a\x1b[31m",)) for number in range(6))
    said = requirements(GateCommand(("a\x1b[31m",), "", "/w"), many, FACTS).reason
    assert said.count("a??31m needs") == 4
    assert said.endswith("; 2 more")


@pytest.mark.parametrize("word", ["a", "", "a b", "it's", "$x", "'", "a\nb", "-x=1"])
def test_quoted_word_is_read_back_as_one_word(word: str) -> None:
    """A shell reads back the very word."""
    assert shlex.split(quoted(word)) == [word]


def test_suggestion_for_command_is_the_line_to_use_instead() -> None:
    """The line runs the same command under all of its resources."""
    run = "tieline run --resource machine/a --resource machine/b -- "
    both = ("machine/a", "machine/b")
    assert suggestion(GateCommand(("a", "b c"), "", "/w"), both) == run + "a 'b c'"
    assert suggestion(GateCommand(None, " pytest -x  y ", "/w"), both) == run + "pytest -x  y"
    for text in ("a && b", "A=1 b", "if x", "a > b", "a 'b'", "a\tb", "~/x"):
        assert suggestion(GateCommand(None, text, "/w"), both) == f"{run}bash -c {quoted(text)}"
    assert suggestion(GateCommand(None, "a; b", "/w"), ("machine/a",), "sh").endswith("-- sh -c 'a; b'")
