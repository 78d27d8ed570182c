"""Laws of the gate: any text gets a verdict, soon, and the line it proposes passes."""

import shlex
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tieline.config import ResourceSettings, Rule
from tieline.engine.gate import (
    Class,
    GateCommand,
    RepositoryFacts,
    Verdict,
    requirements,
    rules_of,
    suggestion,
)
from tieline.engine.gate.reading import SUBJECTS_MAX, read
from tieline.engine.gate.splitting import COMMANDS_MAX, TOKENS_MAX, split

SETS = ("git", "python", "node", "cargo", "make", "jvm", "compose", "port:3000", "database:app_test")
RULES = rules_of(ResourceSettings(rule_sets=SETS))
STRICT = (*RULES, Rule("repository/all", profile="strict"), Rule("machine/builds", profile="build"))
FACTS = RepositoryFacts("abc", "/w")
SIZE = 8_192
PIECES = (
    "pytest", "make", "git", "commit", "npm", "run", "test", "sh", "bash", "-c", "-lc", "env", "A=1",
    "sudo", "-n",
    "timeout", "5", "xargs", "find", "-exec", "eval", "tieline", "--resource", "repository/tests",
    "--gate", "--",
    "cd", "..", "/o", "-C", "if", "then", "fi", "case", "in", "esac", "do", "done", "for", "function",
    "[[", "]]",
    "{", "}", "(", ")", "((", "))", "$(", "${", "$((", "`", "'", '"', "$'", '$"', "$x", "\\", "\\\n", "\n",
    " ", " ",
    " ", ";", ";;", "&", "&&", "|", "||", "|&", "&>", "<", ">", ">>", "2>&1", "<<", "<<-", "<<<", "EOF",
    "\nEOF\n",
    "<(", ">(", "#", "\0", "\r\n", "\t", "*", "=", "a=(", "\udc80", "字", "python", "-m", "uv", "pnpm", "npx",
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=200), st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
HOSTILE = [
    "a;", "git add\n", "(", "$(",
    '"$(', "\\a", "''", "\n", "<<a ", "<<a\na a\n", "env ", "find -exec ", "`", "git a ",
    "sh -c ", "uv run ", "$a", "${", "a#", "case a in ", ">a ", "npm run dev\n", "docker 1\n",
    "stash list ", "if ",
    "a'b'\"c\"$d", ")", "find -exec a \\; ", "env A=b ", "A=b ", "eval ", "env -a ", "git -c a ", "$((",
    "[[ ", "{ ",
    "\\\n", "a=(", "<(", "$'", "for a in b\n", "function a ", "\0", "\t", "tieline run -- ", "--", "cd a;",
    "|", "<<<a ",
]  # fmt: skip


def verdict(text: str, rules: tuple[Rule, ...] = STRICT) -> Verdict:
    """Return what a shell's text needs."""
    return requirements(GateCommand(None, text, "/w"), rules, FACTS)


@given(TEXTS)
def test_any_text_gets_the_same_verdict_twice(text: str) -> None:
    """Nothing raises, and the same command is always judged alike."""
    first = verdict(text)
    assert first == verdict(text)
    assert list(first.keys) == sorted(set(first.keys))
    assert first.is_parsed or Class.STRICT in first.classes
    assert bool(first.keys) <= (Class.STRICT in first.classes)
    assert first.reason.isprintable()


@given(st.lists(st.one_of(st.text(max_size=20), st.sampled_from(PIECES)), max_size=20))
def test_any_arguments_get_a_verdict(argv: list[str]) -> None:
    """Separate arguments are as safe as a text."""
    command = GateCommand(tuple(argv), "", "/w")
    assert requirements(command, STRICT, FACTS) == requirements(command, STRICT, FACTS)


@given(TEXTS)
@example("pytest -x")
@example("git commit -m \"$(cat <<'E'\nit's\nE\n)\"")
@example("pytest 'x")
@example("$X")
@example("\0\n")
@example("a; $(\0 b)")
def test_line_that_the_gate_proposes_needs_nothing_more(text: str) -> None:
    """A command run as the gate says is not sent round again."""
    command = GateCommand(None, text, "/w")
    first = requirements(command, STRICT, FACTS)
    if first.keys and not first.directories:
        assert verdict(suggestion(command, first.keys)).keys == ()


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12), min_size=1
    )
)
def test_quoted_words_are_read_back_by_splitter(words: list[str]) -> None:
    """What is quoted for a shell comes back as the very words, which is also how a shell reads it."""
    line = "x " + " ".join("'" + word.replace("'", "'\"'\"'") + "'" for word in words)
    script = split(line)
    assert script.fault == ""
    assert list(script.segments[0].words) == ["x", *words] == shlex.split(line)


@given(st.sampled_from(["pytest", "make", "git commit", "npm test", "cargo test"]), TEXTS, TEXTS)
def test_command_after_readable_text_is_always_seen(command: str, before: str, after: str) -> None:
    """Whatever stands before on lines of its own, a command that a shell would reach is seen."""
    script = split(before + "\n")
    if not script.fault and "case" not in before and "[[" not in before:
        keys = verdict(command, RULES).keys
        assert set(keys) <= set(verdict(f"{before}\n{command}\n{after}", RULES).keys) or "cd" in before


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_of_8_kilobytes_costs_little(piece: str) -> None:
    """Steps are bounded, and the time stays below twice that of a plain loop of 100,000 turns beside it."""
    text = (piece * SIZE)[:SIZE]
    script = split(text)
    assert script.token_count <= TOKENS_MAX + 1
    assert len(script.segments) <= COMMANDS_MAX + 64
    assert len(read(None, text, "/w").subjects) <= SUBJECTS_MAX + 1
    verdict(text)
    ratios = []
    for _round in range(9):
        start = time.process_time()
        sum(number * number for number in range(100_000))
        middle = time.process_time()
        verdict(text)
        ratios.append((time.process_time() - middle) / (middle - start))
    assert min(ratios) < 2.0


@pytest.mark.parametrize("piece", HOSTILE)
def test_time_of_longer_text_grows_no_faster_than_its_length(piece: str) -> None:
    """Thirty-two times the text costs at most sixty-four times as much, and a millisecond."""
    short, long = (min(_seconds((piece * size)[:size]) for _round in range(3)) for size in (SIZE, SIZE * 32))
    assert long <= short * 64 + 0.001


def _seconds(text: str) -> float:
    start = time.process_time()
    verdict(text)
    return time.process_time() - start
