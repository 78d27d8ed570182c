"""What was put where is kept, and gives the bytes back."""

from pathlib import Path

from tieline.adapters.harness.ledger import Record, Splice, digest, load, path_in, save, splices, undone


def test_undone_takes_every_change_back() -> None:
    """From the last to the first."""
    texts = ["ab", "axb", "axb", "axbyy", "aZbyy"]
    record = Record(digest(texts[-1]), splices(texts))
    assert record.undo == (Splice(1, "x", ""), Splice(3, "yy", ""), Splice(1, "Z", "x"))
    assert undone("aZbyy", record) == "ab"
    assert undone("other", record) is None


def test_save_and_load_return_the_same(home: Path) -> None:
    """Without records nothing is left."""
    folder = str(home / "t")
    record = Record("d", (Splice(1, "é\r\n", ""),), (("a", "b"),), ("/x",), is_created=True, before="b")
    save(folder, {"/f": record})
    assert load(folder) == {"/f": record}
    assert Path(path_in(folder)).stat().st_mode & 0o777 == 0o600
    save(folder, {})
    assert not (home / "t").exists()


def test_load_of_what_nobody_can_read_is_nothing(home: Path) -> None:
    """A damaged record stops nobody."""
    for text in ("", "{", "[]", '{"files": {"/f": {"after": 1}}}', '{"files": {"/f": 3}}'):
        Path(path_in(str(home))).write_text(text)
        assert load(str(home)) == {}
