"""What may be shown: the families of hostile text, characters as readers count them, and widths."""

import time

import pytest

from tieline.text import display_width, label, printable, wrapped

FAMILY = "👨‍👩‍👧‍👦"


@pytest.mark.clause("K22", "O50", "native-127", "mutant-26")
@pytest.mark.parametrize(
    "payload",
    [
        "\x1b[2J\x1b[1;1H",
        "\x1b]52;c;ZXZpbA==\x07",
        "\x1b]0;title\x1b\\",
        "\x1b]8;;http://x\x1b\\text\x1b]8;;\x1b\\",
        "\x1bP+q544e\x1b\\",
        "\x1b_apc\x1b\\",
        "\x9b31m",
        "\x9d52;c;x\x9c",
        "\x1b[6n\x1b[c\x05",
        "\x1b]0;never ended",
        "a\rb",
        "ab\x08\x08cd",
        "\x7f",
        "\x00",
    ],
)
def test_terminal_control_is_shown_as_an_escape(payload: str) -> None:
    """None of the known payload families keeps a control character, and the reader sees it was there."""
    shown = printable("x" + payload + "y")
    assert shown.isascii()
    assert shown.isprintable()
    assert "\\x" in shown or "\\r" in shown


@pytest.mark.clause("K22", "K24", "native-3.6.17", "O50")
@pytest.mark.parametrize(
    "point",
    [
        *range(0x200B, 0x2010),
        *range(0x2028, 0x202F),
        *range(0x2060, 0x2070),
        0x85,
        0xAD,
        0x61C,
        0x115F,
        0x180E,
        0x3164,
        0xFEFF,
        0xFFF9,
        0xE0001,
        0xE0041,
        0xE007F,
        0xE0100,
        0xD800,
        0xDFFF,
        0xE000,
        0xFFFE,
        0x10FFFF,
    ],
)
def test_character_that_hides_or_reorders_is_shown_as_an_escape(point: int) -> None:
    """Bidirectional, zero-width, tag, separator, surrogate and unassigned characters are escapes."""
    shown = printable(f"a{chr(point)}b")
    assert shown.isascii()
    assert f"{point:x}" in shown


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "",
        "naïve",
        "日本語",
        "Привет",
        "שלום",
        "مرحبا",
        "हिन्दी",
        "e\u0301",
        "한글",
        "\u1112\u1161\u11ab",
        "👍🏽",
        "1️⃣",
        "🇩🇪🇫🇷",
        FAMILY,
        "❤️",
    ],
)
def test_text_of_people_is_unchanged(text: str) -> None:
    """Scripts, accents and emoji stay as they are."""
    assert printable(text) == text
    assert printable(text, 200) == text


def test_newline_and_tab_stay_only_where_lines_are_shown() -> None:
    """In one line they are escapes; in a text of lines they stay, and a carriage return never does."""
    assert printable("a\n\tb\r") == "a\\n\\tb\\r"
    assert printable("a\n\tb\r\nc", multiline=True) == "a\n\tb\\r\nc"


@pytest.mark.clause("K22")
@pytest.mark.parametrize("text", ["\u0301x", "a\n\u0301x", "\u200dx", "\ufe0fx"])
def test_mark_without_a_base_is_shown_as_an_escape(text: str) -> None:
    """What would hang on a character of the frame around does not reach it."""
    shown = printable(text, multiline=True)
    assert shown.replace("\n", "").isascii()


@pytest.mark.clause("K22")
def test_flood_of_marks_is_cut_off() -> None:
    """Of more marks than any script stacks the rest are escapes."""
    shown = printable("a" + "\u0301" * 100)
    assert shown.count("\u0301") == 8
    assert shown.count("\\u0301") == 92


@pytest.mark.clause("K22")
def test_joiner_outside_emoji_is_shown_as_an_escape() -> None:
    """A zero-width joiner stays between pictures and nowhere else, and not endlessly."""
    assert printable(FAMILY) == FAMILY
    assert printable("a\u200db") == "a\\u200db"
    assert printable("👨\u200db") == "👨\\u200db"
    assert "\\u200d" in printable("👨" + "\u200d👨" * 50)


@pytest.mark.clause("O49", "K22", "K24")
@pytest.mark.parametrize(
    "cluster", ["é", "e\u0301", "👍🏽", FAMILY, "🇩🇪", "1️⃣", "\u1112\u1161\u11ab", "字", "\\x1b"]
)
def test_cut_never_falls_inside_a_character(cluster: str) -> None:
    """At every width the text ends before or after a whole character."""
    text = cluster.replace("\\x1b", "\x1b") * 3
    for columns in range(1, 40):
        shown = printable(text, columns)
        assert display_width(shown) <= columns
        body = shown.removesuffix("…")
        assert body == cluster * (len(body) // len(cluster))
        assert shown == body or len(body) < len(cluster) * 3


def test_width_is_bounded_for_each_line() -> None:
    """Each line of a text is cut for itself; nothing is shown in no columns."""
    assert printable("abcdef\nab\nabcdefgh", 4, multiline=True) == "abc…\nab\nabc…"
    assert printable("abcd", 4) == "abcd"
    assert printable("abcde", 4) == "abc…"
    assert printable("abc", 1) == "…"
    assert printable("abc", 0) == ""
    assert printable("日本", 3) == "日…"


@pytest.mark.clause("native-36", "native-127")
def test_label_is_one_line_of_at_most_80_columns() -> None:
    """A label stays on its line and in its room, whatever a peer calls itself."""
    shown = label("api\n\x1b[31m" + "字" * 200)
    assert shown.startswith("api\\n\\x1b[31m字")
    assert display_width(shown) <= 80


@pytest.mark.clause("K22", "S19")
@pytest.mark.parametrize(
    "unit", ["a", "\x1b[", "字", "e\u0301", "\u200d", "👨\u200d", "\u0301", "🇩", "\ud800"]
)
def test_work_is_linear_in_what_is_shown(unit: str) -> None:
    """A megabyte on one line costs little where little of it is shown, and no more than its length else."""
    begin = time.perf_counter()
    printable(unit * (1_000_000 // len(unit)), 80)
    assert time.perf_counter() - begin < 0.5
    spent = []
    for count in (2_000, 20_000):
        begin = time.perf_counter()
        printable(unit * count)
        spent.append(time.perf_counter() - begin)
    assert spent[1] < 60 * spent[0] + 0.05


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [""]),
        ("one two three four five", ["one two three", "four five"]),
        ("a" * 20, ["a" * 16, "a" * 4]),
        ("word " + "b" * 14, ["word", "b" * 14]),
        ("a\n\nb", ["a", "", "b"]),
        ("a\tb", ["a        b"]),
        ("\x1b[2J\u202e", ["\\x1b[2J\\u202e"]),
        ("x" * 13 + "\x1b", ["x" * 13, "\\x1b"]),
        ("\u4e2d" * 9, ["\u4e2d" * 8, "\u4e2d"]),
    ],
)
@pytest.mark.clause("K22")
def test_wrapped_text_is_whole_and_fits(text: str, lines: list[str]) -> None:
    """Every character is shown or escaped, words stay together where they fit, and no escape is cut."""
    assert wrapped(text, 16, 100) == lines


def test_wrapped_flood_is_bounded() -> None:
    """A line of a megabyte costs what is shown of it."""
    assert wrapped("y" * 1_000_000, 16, 3) == ["y" * 16] * 3
    assert wrapped("\n" * 100, 16, 3) == ["", "", ""]
