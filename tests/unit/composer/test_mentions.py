import pytest

from tieline.composer import direct, mentions, open_mention


def names(text: str, pasted: list[tuple[int, int]] | tuple[()] = ()) -> list[str]:
    return [one.alias for one in mentions(text, pasted)]


@pytest.mark.clause("native-128")
@pytest.mark.parametrize(
    "text",
    [
        "https://host:3000",
        "see https://host:3000/x now",
        "12:30",
        "at 12:30",
        "C:\\x",
        "in C:\\x",
        "pkg:script",
        "run pkg:script",
        ":smile:",
        "well done :smile: indeed",
        "`:api`",
        "run `make :api` first",
        "``a ` :api``",
        "```\n:api\n```",
        "before\n~~~sh\n:api run\n~~~\nafter",
        "```\n:api, and no end",
        "\\:api",
        "a \\:api",
        "/peers send :api hello",
        "  /msg :api",
        "!echo :api",
        "a:api",
        ":api/x",
        ":api\\x",
        ":api=1",
        ":1api",
        "::api",
        ":",
        ": api",
        ":api\N{LATIN SMALL LETTER E WITH ACUTE}",
    ],
)
def test_colon_that_names_nobody_stays_literal(text: str) -> None:
    """Addresses, times, paths, scripts, emoji, code, escapes and commands hold no mention."""
    assert names(text) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (":api hello", ["api"]),
        ("ask :api", ["api"]),
        ("ask (:api, :db) and [:web]", ["api", "db", "web"]),
        ("ask\n:api.", ["api"]),
        ("`code` :api", ["api"]),
        ("`an open tick :api", ["api"]),
        ("```\n:no\n```\n:api", ["api"]),
        (":api_1-x!", ["api_1-x"]),
        (" :api", ["api"]),
    ],
)
def test_mention_at_word_start_is_found(text: str, found: list[str]) -> None:
    """A name at the start, after a blank or after an opening bracket is a mention."""
    assert names(text) == found
    for one in mentions(text):
        assert text[one.start : one.end] == ":" + one.alias


def test_pasted_mention_stays_literal() -> None:
    """Nothing in a bracketed paste is a mention; what was typed beside it is."""
    text = "see :api and :db"
    assert names(text, [(4, 8)]) == ["db"]
    assert names(text, [(0, len(text))]) == []


@pytest.mark.clause("native-130")
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (":api run the tests", ("api", "run the tests")),
        ("  :api  run ", ("api", "run")),
        (":api\trun", ("api", "run")),
        (":api run :db", ("api", "run :db")),
        (":api", None),
        (":api ", None),
        (":api, run", None),
        ("tell :api run", None),
        (":api run\nand more", None),
        (":api\nrun", None),
        ("/:api run", None),
        ("", None),
    ],
)
def test_direct_send_needs_first_word_and_one_line(text: str, wanted: tuple[str, str] | None) -> None:
    """A text is for one peer when its first word names it, content follows, and it is one line."""
    found = direct(text)
    assert (None if found is None else (found.mention.alias, found.content)) == wanted


def test_pasted_first_word_sends_nothing() -> None:
    """A pasted line that begins with a name is not for anybody."""
    assert direct(":api run", [(0, 8)]) is None


@pytest.mark.parametrize(
    ("text", "cursor", "wanted"),
    [
        (":", 1, ("", 0)),
        (":ap", 3, ("ap", 0)),
        ("ask :a now", 6, ("a", 4)),
        ("ask :api", 6, None),
        ("12:", 3, None),
        ("a:", 2, None),
        ("\\:", 2, None),
        ("`:", 2, None),
        ("`:` `", 2, None),
        ("/x :", 4, None),
        ("plain", 3, None),
        (":a", 9, None),
    ],
)
def test_name_being_typed_opens_picker_where_it_could_be_mention(
    text: str, cursor: int, wanted: tuple[str, int] | None
) -> None:
    """The picker opens behind a colon that could name somebody, and nowhere else."""
    found = open_mention(text, cursor)
    assert (None if found is None else (found.alias, found.start)) == wanted


def test_name_typed_beside_paste_opens_picker() -> None:
    """What was pasted before or behind does not hide a name that is being typed; in it none is."""
    assert open_mention("xxx :ap yyy", 7, [(0, 3), (8, 11)]) is not None
    assert open_mention("xxx :ap yyy", 7, [(2, 6)]) is None
