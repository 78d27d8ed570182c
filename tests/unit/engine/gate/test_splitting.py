"""Shell texts into commands: separators, quotes, substitutions, reserved words, here-documents, bounds."""

import pytest

from tieline.engine.gate.splitting import COMMANDS_MAX, EXPANSION, FRAMES_MAX, TOKENS_MAX, Segment, split

E = EXPANSION


def words(text: str) -> list[str]:
    """Return each command of a text that must be readable, its words joined by a blank."""
    script = split(text)
    assert script.fault == "", text
    return [" ".join(segment.words) for segment in script.segments]


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("", []),
        ("   ", []),
        ("a b\tc", ["a b c"]),
        ("a && b || c ; d & e | f |& g\nh", ["a", "b", "c", "d", "e", "f", "g", "h"]),
        ("a;;;b", ["a", "b"]),
        ("a # b; c\nd", ["a", "d"]),
        ("# only a comment", []),
        ("a x#y 'z'#y", ["a x#y z#y"]),
        ("a \\\n b", ["a b"]),
        ("a\\ b c\\;d", ["a b c;d"]),
        ("'a b' \"c d\" e'f'\"g\"", ["a b c d efg"]),
        ("'a;b' \"c&&d\"", ["a;b c&&d"]),
        ('"a\\"b\\\\c\\d\\\ne"', ['a"b\\c\\de']),
        ("(a; b) && c", ["a", "b", "c"]),
        ("{ a; b; }", ["a", "b"]),
        ("! a", ["a"]),
        ("if a; then b; elif c; then d; else e; fi", ["a", "b", "c", "d", "e"]),
        ("while a; do b; done < f", ["a", "b"]),
        ("for x in $(a) b c; do d $x; done", ["a", f"d {E}"]),
        ("for ((i=0; i<3; i++)); do a; done", ["a"]),
        ("select x in a b; do c; done", ["c"]),
        ("case $x in a|b|c) d;; e|f) g;; (h) i;; *) j; esac; k", ["d", "g", "i", "j", "k"]),
        ("case x in\n a|b)\n c\n ;;\n d) e ;;\nesac\nf", ["c", "e", "f"]),
        ("case x in (a) b;; esac", ["b"]),
        ("(case x in a) b;; esac); c", ["b", "c"]),
        ("f() { a; }; b", ["a", "b"]),
        ("f ( ) { a; }", ["a"]),
        ("function f { a; }", ["a"]),
        ("function f() { a; }", ["a"]),
        ("[[ a && b || ( c > d ) ]]; e", ["[[ a b c d ]]", "e"]),
        ("coproc a", ["a"]),
        ('"if" a', ["if a"]),
        ("echo if then", ["echo if then"]),
        ("((i++)); a", ["a"]),
        ("((i = $(a) + 1)) && b", ["a", "b"]),
        ("a esac", ["a esac"]),
        ("esac", []),
        ("a\r\nb\r\n", ["a", "b"]),
    ],
)
def test_text_of_shell_gives_its_commands(text: str, commands: list[str]) -> None:
    """Separators, quotes and the shell's own words are read as a shell reads them."""
    assert words(text) == commands


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("a $(b $(c)) d", ["c", f"b {E}", f"a {E} d"]),
        ("a `b`", ["b", f"a {E}"]),
        ('a "x`b`y"', ["b", f"a x{E}y"]),
        ('a "$(b "$(c)")"', ["c", f"b {E}", f"a {E}"]),
        ("a <(b) >(c)", ["b", "c", f"a {E} {E}"]),
        ("a $x ${y:-$(b)} $1 $? $$ $", ["b", f"a {E} {E} {E} {E} {E} $"]),
        ("a ${x:-'}'} ${x:-\"}\"} ${x:-\\}} ${x:-`b`} ${x:-{}", ["b", f"a {E} {E} {E} {E} {E}"]),
        ('a "${x:-don\'t}" b', [f"a {E} b"]),
        ("a $((1 + (2 * 3))) b", [f"a {E} b"]),
        ("a $'b' $'c\\n' $\"d\" \"$'e\"", [f"a b {E} d $'e"]),
        ("a=(b c $(d)) e", ["d", "e"]),
        ("a @(b|c) d", ["a @" + E + " d"]),
        ("$(a)/b", ["a", f"{E}/b"]),
    ],
)
def test_expansion_in_text_is_unknown_and_its_commands_count(text: str, commands: list[str]) -> None:
    """What the shell would put in is not guessed; the commands in a substitution are commands."""
    assert words(text) == commands


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("a > b 2>&1 <c >>d &>e &>>f >|g <>h 3<&4 i", ["a i"]),
        ("> a b", ["b"]),
        ("a 2 > b", ["a 2"]),
        ("a x2>b", ["a x2"]),
        ("a '2'>b", ["a 2"]),
        ("a <", ["a"]),
    ],
)
def test_redirection_in_text_is_no_argument(text: str, commands: list[str]) -> None:
    """A file that output goes to is neither a command nor an argument."""
    assert words(text) == commands


def test_assignment_before_command_is_set_apart() -> None:
    """NAME=VALUE before a command is its environment; after it, or quoted, it is a word."""
    assert split("A=1 B+='x y' c D=2").segments == [Segment(("c", "D=2"), ("A=1", "B+=x y"))]
    assert split("A=1").segments == [Segment((), ("A=1",))]
    assert split("'A=1' b 1A=2").segments == [Segment(("A=1", "b", "1A=2"))]
    assert split("1A=2").segments == [Segment(("1A=2",))]


def test_body_of_here_document_is_input_and_no_command() -> None:
    """What is fed to a command is kept for it and not read as commands."""
    script = split("a <<X && b <<-'Y' <<< z\nc; d\nX\n\te\n\tY\nf\n")
    assert script.fault == ""
    assert script.segments == [
        Segment(("a",), (), ("c; d\n",)),
        Segment(("b",), (), ("z", "\te\n")),
        Segment(("f",)),
    ]
    inside = split("git commit -m \"$(cat <<'EOF'\nit's (unclosed\nEOF\n)\" && b")
    assert inside.fault == ""
    assert [segment.words[0] for segment in inside.segments] == ["cat", "git", "b"]


@pytest.mark.parametrize("start", ["cat <<X\n", "cat <<-X\n\t", "cat <<Y <<X\nY\n"])
def test_command_that_a_here_document_expands_is_a_command(start: str) -> None:
    """A shell runs it to put the text together, unless the ending was quoted; a quote is plain there."""
    script = split(f"""{start}it's "$(git commit -m "a; b") `make`" $HOME\nX\nls""")
    assert script.fault == ""
    assert {segment.words for segment in script.segments} >= {
        ("git", "commit", "-m", "a; b"), ("make",), ("ls",)
    }  # fmt: skip
    assert all(frame < len(script.parents) for *_, frame in script.segments)
    for ending in ("'X'", '"X"', "\\X"):
        assert [one.words for one in split(f"cat <<{ending}\n$(git commit)\nX\n").segments] == [("cat",)]
    assert split("cat <<X\n$(git commit\nX\n").fault


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("a 'b", ["a b"]),
        ('a "b', ["a b"]),
        ("a $'b", ["a"]),
        ("a; b $(c", ["a", "c", f"b {E}"]),
        ("a )", ["a"]),
        ("a (b)", ["b", "a"]),
        ('a `b "c`', ["b c", f"a {E}"]),
        ("a <<X\nb", ["a"]),
        ("a <<X", ["a"]),
        ("$(a <<X)", ["a", E]),
        ("a ${b", [f"a {E}"]),
    ],
)
def test_text_that_is_wrong_keeps_what_was_read(text: str, commands: list[str]) -> None:
    """A shell runs line by line: what stood before the fault counts, and the fault is told."""
    script = split(text)
    assert script.fault
    assert [" ".join(segment.words) for segment in script.segments] == commands


def test_backslash_at_the_end_says_nothing() -> None:
    """A sign that escapes nothing is dropped, between double quotes too."""
    assert words("a \\") == ["a"]
    assert [" ".join(one.words) for one in split('a "\\').segments] == ["a \\"]


def test_text_beyond_a_bound_is_told_so() -> None:
    """Tokens, commands and nesting are bounded, and reaching a bound is a fault."""
    assert split("a;" * (COMMANDS_MAX + 5)).fault
    assert len(split("a;" * (COMMANDS_MAX + 5)).segments) == COMMANDS_MAX
    assert split("'' " * TOKENS_MAX).token_count == TOKENS_MAX + 1
    assert split("$(" * FRAMES_MAX).fault == "it is nested too deeply"
    assert split("a b c", 2).fault
    assert split("a", 0).segments == []


def test_frame_of_command_is_known_with_its_parents() -> None:
    """A subshell is another frame, so that a change of folder in it ends with it."""
    script = split("a; (b; (c)); d")
    assert [segment.frame for segment in script.segments] == [0, 1, 2, 0]
    assert script.parents == [0, 0, 1]
