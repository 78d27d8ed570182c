"""`tieline last`: the text alone on stdout, and how to go on where a page ends."""

from collections.abc import Callable

from tests.unit.adapters.cli.fake import ESCAPE, FakeRoot, Result

Run = Callable[..., Result]
Make = Callable[..., FakeRoot]


def test_last_answer_is_the_data(run: Run, fake_root: Make) -> None:
    """The text is the data; a page that ends says how to go on."""
    answer = {"entry": "e-1", "text": f"done{ESCAPE}", "offset": 0, "nextOffset": 16_384, "entries": 2}
    root = fake_root({"local.last": answer})
    result = run("last", ":api", "--entry", "e-1", "--offset", "4")
    assert result.code == 0
    assert result.out.startswith("done")
    assert "\x1b" not in result.out
    assert "tieline last api --entry e-1 --offset 16384" in result.err
    assert root.params("local.last") == {"to": "api", "entry": "e-1", "offset": 4}


def test_last_empty_history_is_said(run: Run, fake_root: Make) -> None:
    """A peer without an answer is told as that, not as an empty text."""
    fake_root({"local.last": {"entry": None, "text": "", "offset": 0, "nextOffset": None, "entries": 0}})
    result = run("last", "api")
    assert (result.code, result.out) == (0, "")
    assert "no finished answer yet" in result.err
    assert run("last", "api", "--json").json["entry"] is None


def test_last_negative_offset_is_wrong_usage(run: Run, fake_root: Make) -> None:
    """An offset counts from 0."""
    root = fake_root({})
    assert run("last", "api", "--offset=-1").code == run("last", "api", "--offset", "x").code == 2
    assert root.requests == []
