"""What an ended instance left: shown unchanged, and what is damaged not at all."""

import hashlib
import random
import shutil
import tempfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.faults.rows import AT_MS, message, move
from tests.unit.store.conftest import INSTANCE, LATER_MS, SESSION, Maker
from tieline.engine.contract import Box, ContextRow, Row
from tieline.errors import RecoveryRequired, Refused, TielineError, UsageError
from tieline.model.receipt import Durability, State
from tieline.store import recovery
from tieline.store.journal.journal import Journal
from tieline.store.recovery import ended, recover
from tieline.store.removal import forget, housekeep

LEFT: list[Row] = [
    message(1),  # unread
    message(2), move(3, 2),  # read
    message(4), move(5, 4, State.ACCEPTED, "prepared"),  # shown, without evidence
    message(6), move(7, 6, State.ACCEPTED, "prepared"), move(8, 6, State.ACCEPTED, "released"),
    message(9), replace(move(10, 9, State.EXPIRED), outcome="EXPIRED"),
    message(11), move(12, 11, State.REPLIED),
    message(13), move(14, 13, State.ACCEPTED, "prepared"), ContextRow(15, 13, "record", "token", AT_MS),
    message(20, box=Box.OUT),
    message(21, box=Box.OUT), move(22, 21, State.UNKNOWN),
    message(23, box=Box.OUT), replace(move(24, 23, State.ACCEPTED), durability=Durability.UNSTATED),
    message(25, box=Box.OUT), replace(move(26, 25, State.REJECTED), outcome="QUEUE_FULL"),
]  # fmt: skip


HELD_LEFT: list[Row] = [
    replace(message(1), is_held=True),  # nobody said a word
    replace(message(2), is_held=True), replace(move(3, 2, State.REJECTED), accepted_ms=None),  # denied
    replace(message(4), is_held=True), replace(move(5, 4, State.EXPIRED), accepted_ms=None),
    replace(message(6), is_held=True), replace(move(7, 6, State.ACCEPTED), accepted_ms=AT_MS),
]  # fmt: skip


def hashes(place: Path) -> dict[str, str]:
    """Return the SHA-256 of every file."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(place.iterdir())}


# ---------------------------------------------------------------- recover


@pytest.mark.clause("native-184", "native-185", "native-3.6.7", "I6")
@pytest.mark.parametrize("is_killed", [False, True])
def test_recover_shows_unread_mail_with_original_ids_and_changes_nothing(
    home: Path, make: Maker, is_killed: bool
) -> None:
    """Accepted and expired-unconsumed mail is shown, again and again, and not one byte moves."""
    place = make(LEFT, is_killed=is_killed)
    before = hashes(place)
    first = recover(str(home), INSTANCE)
    assert recover(str(home), INSTANCE) == first
    assert hashes(place) == before
    assert [(unread.cursor, unread.is_expired, unread.is_exposed) for unread in first.unread] == [
        (1, False, False),
        (4, False, True),
        (6, False, False),
        (9, True, False),
    ]
    assert first.unread[0].envelope == message(1).envelope
    assert first.unread[0].receipt.state is State.ACCEPTED
    assert first.unread[0].receipt.accepted_ms == AT_MS + 1
    assert first.unread[3].receipt.outcome == "EXPIRED"
    assert (first.message_count, first.identity.session_id) == (11, SESSION)


@pytest.mark.clause("I4")
def test_recover_shows_unsettled_sends(home: Path, make: Maker) -> None:
    """What the ended instance sent and never settled is named; the rest has its last receipt."""
    make(LEFT)
    recovered = recover(str(home), INSTANCE)
    assert [send.cursor for send in recovered.unsettled] == [20, 21]
    assert [(send.cursor, send.receipt.state) for send in recovered.sends] == [
        (20, State.UNKNOWN),  # the intent is stored; whether bytes followed it, nobody wrote down
        (21, State.UNKNOWN),
        (23, State.ACCEPTED),
        (25, State.REJECTED),
    ]
    assert recovered.sends[2].receipt.durability is Durability.UNSTATED
    assert not any(send.is_expired for send in recovered.sends)
    late = recover(str(home), INSTANCE, now_ms=1 << 50)
    assert [send.cursor for send in late.sends if send.is_expired] == [20, 21]


def test_recover_leaves_out_what_its_person_never_let_in(home: Path, make: Maker) -> None:
    """Held, denied and held until too late is no mail of theirs; let in and unread is.

    What nobody said a word about is named apart, so that a person knows of it.
    """
    make(HELD_LEFT)
    recovered = recover(str(home), INSTANCE)
    assert [(one.cursor, one.receipt.state) for one in recovered.held] == [(1, State.PENDING)]
    assert [item.held_count for item in ended(str(home))] == [1]
    assert [one.envelope.message_id for one in recovered.unread] == [message(6).envelope.message_id]


def test_recover_with_the_time_flags_what_ran_out(home: Path, make: Maker) -> None:
    """Mail whose life ended with nobody to mark it is flagged by the clock."""
    make([message(1)])
    assert not recover(str(home), INSTANCE, now_ms=AT_MS).unread[0].is_expired
    assert recover(str(home), INSTANCE, now_ms=LATER_MS).unread[0].is_expired


@pytest.mark.clause("native-183")
def test_recover_validates_the_saved_session(home: Path, make: Maker) -> None:
    """A session that the instance did not serve gets nothing."""
    make([message(1)])
    assert recover(str(home), INSTANCE, session=SESSION).unread
    with pytest.raises(Refused) as refused:
        recover(str(home), INSTANCE, session="another")
    assert refused.value.code == "SCOPE_DENIED"


@pytest.mark.clause("native-182", "I6")
def test_recover_of_a_living_instance_is_refused(home: Path) -> None:
    """As long as the lock is held the instance lives, and its mail is its own."""
    journal = Journal.open(str(home / "peer-messages" / INSTANCE), INSTANCE, SESSION)
    for act in (
        lambda: recover(str(home), INSTANCE),
        lambda: forget(str(home), INSTANCE, with_unread=True, now_ms=LATER_MS),
    ):
        with pytest.raises(Refused) as refused:
            act()
        assert refused.value.code == "STILL_ALIVE"
    assert ended(str(home)) == []
    assert housekeep(str(home), 0, LATER_MS) == []
    journal.close()
    assert [one.instance for one in ended(str(home))] == [INSTANCE]


def test_recover_of_an_unknown_instance_is_refused(home: Path) -> None:
    """A name that left nothing, and one that is no instance id, are told apart."""
    with pytest.raises(Refused) as refused:
        recover(str(home), "nobody")
    assert refused.value.code == "UNKNOWN_TARGET"
    assert "tieline recover --all" in refused.value.action
    for name in ("../x", "", "a.b", "a/b"):
        with pytest.raises(UsageError) as wrong:
            recover(str(home), name)
        assert "tieline recover --all" in wrong.value.action
    assert ended(str(home)) == []


@pytest.mark.clause("S2", "I50")
def test_recover_leaves_no_copy_behind(
    home: Path, make: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The private copy is 0700, and gone afterwards, also when reading failed."""
    place = make(LEFT)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    modes: list[int] = []
    reading = recovery._rows_of_copy

    def look(path: str, *rest: object) -> object:
        modes.append(Path(path).parent.stat().st_mode & 0o777)
        modes.extend(copy.stat().st_mode & 0o777 for copy in Path(path).parent.iterdir())
        return reading(path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(recovery, "_rows_of_copy", look)
    recover(str(home), INSTANCE)
    (place / "messages.db").write_bytes(b"damaged")
    with pytest.raises(RecoveryRequired):
        recover(str(home), INSTANCE)
    assert modes == [0o700, 0o600, 0o600] * 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.clause("I50")
def test_recover_of_files_that_change_meanwhile_is_refused(
    home: Path, make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the originals are not what they were before, nothing is shown."""
    place = make(LEFT)
    reading = recovery._rows_of_copy

    def change(*arguments: object) -> object:
        with (place / "messages.db").open("ab") as stream:
            stream.write(b"x")
        return reading(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(recovery, "_rows_of_copy", change)
    with pytest.raises(RecoveryRequired, match="changed"):
        recover(str(home), INSTANCE)


# ---------------------------------------------------------------- damage


@pytest.mark.clause("native-180", "native-181", "K17", "O46")
@pytest.mark.parametrize("name", ["messages.db", "messages.db-wal", "identity.json", "witness", "lock"])
@pytest.mark.parametrize("act", ["remove", "empty", "link", "open"])
def test_recover_with_a_file_missing_or_unsafe_is_refused_and_keeps_the_rest(
    home: Path, make: Maker, name: str, act: str
) -> None:
    """No missing, emptied, linked or open file is taken for an empty inbox."""
    place = make(LEFT, is_killed=True)
    path = place / name
    if act == "remove":
        path.unlink()
    elif act == "empty":
        path.write_bytes(b"")
    elif act == "link":
        path.rename(home / "elsewhere")
        path.symlink_to(home / "elsewhere")
    else:
        path.chmod(0o644)
    before = hashes(place)
    is_harmless = (name, act) in {("lock", "empty"), ("lock", "open"), ("witness", "empty")}
    if is_harmless:
        assert len(recover(str(home), INSTANCE).unread) == 4
    else:
        with pytest.raises(TielineError):
            recover(str(home), INSTANCE)
        (listed,) = ended(str(home))
        assert listed.damage
        # Nobody can say what it holds: 0 would be a claim.
        assert (listed.unread_count, listed.unsettled_count, listed.message_count) == (None, None, None)
        with pytest.raises(TielineError):
            forget(str(home), INSTANCE, with_unread=True, now_ms=LATER_MS)
        assert housekeep(str(home), 0, 10 * LATER_MS) == []
    assert hashes(place) == before


@pytest.mark.clause("K17", "I38")
def test_recover_of_an_older_copy_is_refused(home: Path, make: Maker) -> None:
    """A database put back from an earlier moment is noticed."""
    older = make([message(1)])
    shutil.move(older, home / "older")
    place = make([message(1), message(2)])
    shutil.copy(home / "older" / "messages.db", place / "messages.db")
    with pytest.raises(RecoveryRequired, match="row 2"):
        recover(str(home), INSTANCE)


@pytest.mark.clause("K17")
def test_recover_of_anothers_database_is_refused(home: Path, make: Maker) -> None:
    """A database swapped in from another instance is never shown as this one's."""
    place = make([message(1)])
    other = make([message(1)], "other-2")
    shutil.copy(other / "messages.db", place / "messages.db")
    with pytest.raises(RecoveryRequired, match="other-2"):
        recover(str(home), INSTANCE)


@pytest.mark.clause("K17", "I50")
@pytest.mark.parametrize("is_killed", [False, True])
def test_recover_after_any_flip_or_cut_tells_damage_or_the_truth(
    home: Path, make: Maker, is_killed: bool
) -> None:
    """Random and header bit flips, and truncations, of every file: damage is told, or nothing is lost."""
    place = make(LEFT, is_killed=is_killed)
    golden = {path.name: path.read_bytes() for path in place.iterdir()}
    truth = recover(str(home), INSTANCE)
    chance = random.Random(7)
    told = 0
    for name in ("messages.db", "messages.db-wal", "witness", "identity.json"):
        content = golden[name]
        bits = {*range(0, min(len(content), 100) * 8, 5)}
        bits |= {chance.randrange(len(content) * 8) for _ in range(120 if content else 0)}
        changed = [(bit, _flipped(content, bit)) for bit in sorted(bits)]
        changed += [
            (-length, content[:length]) for length in range(0, len(content), max(1, len(content) // 30))
        ]
        for what, damaged in changed:
            (place / name).write_bytes(damaged)
            try:
                seen = recover(str(home), INSTANCE)
            except (RecoveryRequired, Refused):
                told += 1
            else:
                assert (seen.unread, seen.sends) == (truth.unread, truth.sends), (name, what)
            assert (place / name).read_bytes() == damaged
        (place / name).write_bytes(content)
    assert told > 100
    assert recover(str(home), INSTANCE) == truth


def _flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


# ---------------------------------------------------------------- lists


def test_ended_counts_what_is_left(home: Path, make: Maker) -> None:
    """The list says whose mail is unread and whose sends are unsettled."""
    make(LEFT)
    make([], "empty-2")
    first, second = ended(str(home))
    assert (first.instance, first.session, first.unread_count, first.unsettled_count) == (
        "empty-2",
        SESSION,
        0,
        0,
    )
    assert (second.instance, second.unread_count, second.unsettled_count, second.message_count) == (
        INSTANCE,
        4,
        2,
        11,
    )
    assert second.damage == ""
