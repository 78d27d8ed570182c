"""The broker as a process: when it says that it started, when it leaves, and what it leaves behind."""

import json
import os
import resource
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tieline.engine.brokering.contract import Put
from tieline.errors import RecoveryRequired, Refused, UsageError
from tieline.runtime.broker import process, sessions
from tieline.runtime.broker.process import Started, paths_of, run_broker
from tieline.shell.hub import Paths, claim, connect_hub, is_answering, place_of
from tieline.store.files import open_directory
from tieline.store.mail import MailJournal


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """What the broker's loop changes of this process is put back."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.fixture
def environment(private_home: Path) -> dict[str, str]:
    """Names a place of the test."""
    return {"PI_INTERCOM_RUNTIME_DIR": str(private_home / "i"), "TIELINE_HOME": str(private_home / "t")}


@pytest.mark.clause("intercom-128", "intercom-127")
def test_never_used_broker_leaves_by_itself_and_takes_its_names_along(
    environment: dict[str, str], private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers when it says so; a socket that never registers does not hold it."""
    monkeypatch.setattr(sessions, "IDLE_MS", 300)
    told: list[Started] = []
    raw = []

    def started(what: Started) -> None:
        told.append(what)
        raw.append(connect_hub(place_of(environment)))

    run_broker(environment, Paths.SHARED, started)
    raw[0].close()
    assert told == [Started(str(private_home / "i" / "broker.sock"), is_ours=True)]
    assert not {"broker.sock", "broker.pid"} & set(os.listdir(private_home / "i"))
    (log,) = (private_home / "t" / "logs").iterdir()
    assert "broker started" in log.read_text()


@pytest.mark.clause("intercom-126")
def test_broker_beside_one_that_answers_says_so_and_is_no_failure(environment: dict[str, str]) -> None:
    """The loser of a race."""
    place = place_of(environment)
    held = claim(place)
    assert held is not None
    endpoint = held.listen()
    told: list[Started] = []
    run_broker(environment, Paths.SHARED, told.append)
    assert told == [Started(place.socket, is_ours=False)]
    assert is_answering(place)
    endpoint.close()
    held.release()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_broker_that_is_asked_to_end_ends_in_order(environment: dict[str, str], number: int) -> None:
    """Names gone, no error."""
    run_broker(environment, Paths.SHARED, lambda _: os.kill(os.getpid(), number))
    assert not is_answering(place_of(environment))
    assert not Path(place_of(environment).socket).exists()


@pytest.mark.clause("S6")
def test_broker_whose_name_was_removed_makes_it_anew(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cleaner took it: sessions find it again, and those that are connected saw nothing."""
    monkeypatch.setattr(process, "LOOK_SECONDS", 0.05)
    place = place_of(environment)
    answers: list[bool] = []

    def look() -> None:
        answers.append(is_answering(place))
        os.kill(os.getpid(), signal.SIGTERM)

    def started(_: Started) -> None:
        os.unlink(place.socket)
        os.unlink(f"{place.records}/broker.pid")
        threading.Timer(0.4, look).start()

    run_broker(environment, Paths.SHARED, started)
    assert answers == [True]
    assert not {"broker.sock", "broker.pid"} & set(os.listdir(place.folder))


@pytest.mark.clause("S6")
def test_broker_whose_directory_or_place_was_taken_ends(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can reach it any more: the next one may come, and what another put there stays."""
    monkeypatch.setattr(process, "LOOK_SECONDS", 0.05)
    place = place_of(environment)
    run_broker(environment, Paths.SHARED, lambda _: os.rename(place.folder, f"{place.folder}.was"))
    assert not os.path.exists(place.folder)
    theirs = socket.socket(socket.AF_UNIX)

    def started(_: Started) -> None:
        os.unlink(place.socket)
        theirs.bind(place.socket)
        theirs.listen()

    run_broker(environment, Paths.SHARED, started)
    assert is_answering(place)
    theirs.close()


def test_descriptor_limit_is_raised_to_what_the_machine_allows(environment: dict[str, str]) -> None:
    """More sessions than a shell's limit may come."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))  # above what this process has open
    seen: list[int] = []

    def started(_: Started) -> None:
        seen.append(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        os.kill(os.getpid(), signal.SIGTERM)

    run_broker(environment, Paths.SHARED, started)
    assert seen == [min(hard, 65_536) if hard != resource.RLIM_INFINITY else 65_536]
    process._raise_descriptor_limit()


@pytest.mark.clause("K17")
def test_broker_with_damaged_mail_does_not_start_and_lets_the_next_one_try(
    environment: dict[str, str], private_home: Path
) -> None:
    """It never answers; the lock is free again."""
    with open_directory(str(private_home / "i"), create=True) as directory:
        journal = MailJournal.open(directory)
        journal.commit([Put("mail", "1", b"{}")])
        journal.close()
        (private_home / "i" / "tieline-mail.db-wal").unlink()
        (private_home / "i" / "tieline-mail.db").write_bytes(b"x" * 9_000)
    with pytest.raises(RecoveryRequired, match=r"tieline-mail\.db"):
        run_broker(environment, Paths.SHARED, lambda _: pytest.fail("it started"))
    held = claim(place_of(environment))
    assert held is not None
    held.release()


@pytest.mark.clause("K4", "I42")
def test_broker_that_cannot_keep_mail_ends_with_the_reason(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its names go; who starts it learns why."""

    class Failing(sessions.Sessions):
        def begin(self, plan: object) -> None:
            self.failure = Refused("QUEUE_FULL", "full")
            self.is_over.set()

    monkeypatch.setattr(process, "Sessions", Failing)
    with pytest.raises(Refused, match="full"):
        run_broker(environment, Paths.SHARED, lambda _: None)
    assert not Path(place_of(environment).socket).exists()


@pytest.mark.clause("intercom-131")
def test_wrong_directory_or_seam_stops_the_start(environment: dict[str, str]) -> None:
    """No fallback."""
    for wrong in ({"PI_INTERCOM_RUNTIME_DIR": "x"}, {"TIELINE_TEST_SEAM": "x"}):
        with pytest.raises(UsageError):
            run_broker({**environment, **wrong}, Paths.SHARED, lambda _: None)


def test_rows_are_shown_in_the_agent_directory_that_is_named_or_of_the_extension() -> None:
    """Without either they are shown at home."""
    environment = {"HOME": "/h", "TIELINE_HOME": "/t"}
    named = {**environment, "PI_CODING_AGENT_DIR": "~/a"}
    assert process._shown_folder(environment, is_extensions=False) == "/t/intercom"
    assert process._shown_folder(environment, is_extensions=True) == "/h/.pi/agent/intercom"
    assert process._shown_folder(named, is_extensions=False) == "/h/a/intercom"


@pytest.mark.clause("intercom-102")
def test_asks_that_an_earlier_broker_kept_are_shown_again(
    environment: dict[str, str], private_home: Path
) -> None:
    """Its files may be of an instant before its end."""
    rows = []
    for message_id, expires_ms in (("m", 4_000_000_000_000), ("old", 2)):
        body = {"askId": message_id, "messageId": message_id, "asker": "a", "target": "b", "question": "?"}
        document = {**body, "createdAt": 1, "expiresAt": expires_ms}
        rows.append(Put("ask", f"a\n{message_id}", json.dumps(document).encode()))
    with open_directory(str(private_home / "i"), create=True) as directory:
        journal = MailJournal.open(directory)
        journal.commit(rows)
        journal.close()
    run_broker(environment, Paths.SHARED, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    assert os.listdir(private_home / "t" / "intercom" / "pending-asks") == ["m.json"]


@pytest.mark.clause("intercom-132")
def test_paths_are_those_asked_for_then_those_of_the_script(tmp_path: Path) -> None:
    """Without either it is the shared place."""
    assert paths_of("", "") is Paths.SHARED
    assert paths_of(str(tmp_path / "broker.js"), "") is Paths.AGENT
    assert paths_of(str(tmp_path / "broker.js"), "folder") is Paths.FOLDER
