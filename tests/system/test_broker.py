"""The intercom broker in processes of its own: one owner, its end, its mail, a far end that does not read."""

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.kit.sessions import Broker, Session, seconds_since
from tieline.shell.hub import Paths, place_of

Start = Callable[..., Broker]
MEBIBYTE = 1 << 20

ENSURING = """
import os, sys
from tieline.runtime.broker import connect_hub, ensure_broker
sys.stdin.readline()
connect_hub(ensure_broker(os.environ)).close()
"""


@pytest.fixture
def start(private_home: Path) -> Iterator[Start]:
    """Start brokers that end with the test."""
    made: list[Broker] = []

    def starting(*words: str, **variables: str) -> Broker:
        made.append(Broker(private_home, *words, **variables))
        return made[-1]

    yield starting
    for broker in made:
        broker.kill()


@pytest.fixture
def broker(start: Start) -> Broker:
    """A broker that answers."""
    made = start()
    assert made.started()
    return made


@pytest.mark.timeout(180)
@pytest.mark.clause("intercom-126", "K16", "S6")
def test_thirty_two_brokers_started_at_once_are_one(start: Start) -> None:
    """One says that it started; the others say that one answers, and end with 0. The socket stays its own."""
    brokers = [start() for _ in range(32)]
    session = None
    while session is None:
        time.sleep(0.01)
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            session = Session(brokers[0].socket)
    session.join("holder")
    inode = os.stat(brokers[0].socket).st_ino
    lines = [broker.started() for broker in brokers]
    owners = [broker for broker, line in zip(brokers, lines, strict=True) if line]
    assert len(owners) == 1
    assert [broker.ended(60) for broker in brokers if broker is not owners[0]] == [0] * 31
    assert os.stat(brokers[0].socket).st_ino == inode
    record = Path(brokers[0].home, "i", "broker.pid").read_text()
    assert record.split("\n")[0] == str(owners[0].process.pid)
    session.say(type="list", requestId="1")
    assert len(session.hear("sessions")["sessions"]) == 1
    session.close()


@pytest.mark.timeout(180)
@pytest.mark.clause("intercom-126", "K16", "O26")
def test_sixteen_clients_that_need_a_broker_at_once_get_one(private_home: Path, start: Start) -> None:
    """After a kill none fails, one broker is up, and the spawn lock is given back."""
    before = start()
    assert before.started()
    before.process.kill()
    assert before.ended() == -signal.SIGKILL
    environment = {
        **os.environ,
        "PI_INTERCOM_RUNTIME_DIR": str(private_home / "i"),
        "TIELINE_HOME": str(private_home / "t"),
    }
    clients = [
        subprocess.Popen(
            [sys.executable, "-c", ENSURING], env=environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(16)
    ]
    for client in clients:
        assert client.stdin is not None
        client.stdin.write(b"\n")
        client.stdin.flush()
    ends = [client.communicate(timeout=120) for client in clients]
    assert [client.returncode for client in clients] == [0] * 16, ends
    assert not (private_home / "i" / "broker.spawn.lock").exists()
    (log,) = (private_home / "t" / "logs").glob("broker-*.log")
    assert log.read_text().count("broker started") == 2
    until = time.monotonic() + 20
    while (private_home / "i" / "broker.sock").exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert not (private_home / "i" / "broker.sock").exists()


@pytest.mark.clause("intercom-126")
def test_second_broker_takes_nothing_from_one_that_is_stopped(broker: Broker, start: Start) -> None:
    """A stopped broker counts as running: its socket is still its own, and it goes on."""
    session = Session(broker.socket)
    session.join("a")
    inode = os.stat(broker.socket).st_ino
    broker.process.send_signal(signal.SIGSTOP)
    second = start()
    assert (second.started(), second.ended()) == ("", 0)
    assert os.stat(broker.socket).st_ino == inode
    broker.process.send_signal(signal.SIGCONT)
    session.say(type="list", requestId="1")
    assert len(session.hear("sessions")["sessions"]) == 1
    session.close()


@pytest.mark.clause("intercom-127")
def test_broker_leaves_five_seconds_after_its_last_session(broker: Broker) -> None:
    """A join within that time takes it back; a socket that never registers does not hold it."""
    raw = Session(broker.socket)
    first = Session(broker.socket)
    first.join("a")
    first.say(type="unregister")
    time.sleep(3)
    second = Session(broker.socket)
    second.join("b")
    time.sleep(3)
    assert broker.process.poll() is None
    second.close()
    left = time.monotonic()
    assert broker.ended() == 0
    assert 4.9 < seconds_since(left) < 7.5
    assert raw.is_ended()
    assert not os.path.exists(broker.socket)
    raw.close()
    first.close()


@pytest.mark.clause("intercom-127")
def test_broker_that_is_told_to_end_closes_its_sessions_and_takes_its_names_along(broker: Broker) -> None:
    """Code 0, no socket, no record."""
    session = Session(broker.socket)
    session.join("a")
    broker.process.terminate()
    assert broker.ended() == 0
    assert session.is_ended()
    assert not {"broker.sock", "broker.pid"} & set(os.listdir(broker.home / "i"))
    session.close()


@pytest.mark.timeout(120)
@pytest.mark.clause("intercom-131", "intercom-134", "I42")
def test_held_mail_keeps_the_broker_and_survives_its_kill(broker: Broker, start: Start) -> None:
    """Nobody is connected and it stays; killed, the next one hands the mail over, once."""
    gone, sender = Session(broker.socket), Session(broker.socket)
    gone.join_recorded("gone", "session-gone")
    sender.join_recorded("sender", "session-sender")
    gone.close()
    sender.hear("session_left")
    answer = sender.send("session-gone", "m-1", "held for you")
    assert (answer["type"], answer["delivery"]) == ("delivered", "queued")
    sender.close()
    time.sleep(7)
    assert broker.process.poll() is None
    broker.process.kill()
    assert broker.ended() == -signal.SIGKILL
    assert os.path.exists(broker.socket)
    next_one = start()
    assert next_one.started()
    back = Session(next_one.socket)
    back.join_recorded("gone", "session-gone")
    message = back.hear("message")
    assert (message["message"]["id"], message["message"]["content"]["text"]) == ("m-1", "held for you")
    time.sleep(1.5)  # until its socket has lived on
    back.close()
    assert next_one.ended() == 0
    last = start()
    assert last.started()
    again = Session(last.socket)
    again.join_recorded("gone", "session-gone")
    again.say(type="list", requestId="1")
    assert again.hear()["type"] == "sessions"
    again.close()


@pytest.mark.timeout(180)
@pytest.mark.clause("intercom-131", "intercom-134", "I25")
def test_mail_that_was_taken_survives_kills_under_load_and_comes_once(start: Start) -> None:
    """Of what four brokers took while they were killed nothing is lost, and nothing comes twice."""
    sent: set[str] = set()
    taken: set[str] = set()

    def send(path: str, round_number: int, number: int) -> None:
        with contextlib.suppress(OSError, EOFError), contextlib.closing(Session(path)) as session:
            session.join_recorded(f"s{number}", f"session-s{number}")
            for turn in range(10):
                message_id = f"{round_number}-{number}-{turn}"
                sent.add(message_id)
                if session.send("session-gone", message_id)["type"] == "delivered":
                    taken.add(message_id)

    broker = start()
    assert broker.started()
    gone = Session(broker.socket)
    gone.join_recorded("gone", "session-gone")
    gone.close()
    time.sleep(0.3)
    for round_number in range(4):
        sending = [
            threading.Thread(target=send, args=(broker.socket, round_number, number)) for number in range(5)
        ]
        for one in sending:
            one.start()
        time.sleep(0.02 * (round_number + 1))
        broker.process.kill()
        for one in sending:
            one.join()
        broker.ended()
        broker = start()
        assert broker.started()
    back = Session(broker.socket)
    back.join_recorded("gone", "session-gone")
    back.sock.settimeout(2)
    came = []
    with contextlib.suppress(TimeoutError):
        while True:
            came.append(str(back.hear("message")["message"]["id"]))
    back.close()
    assert len(came) == len(set(came))
    assert taken
    assert taken <= set(came) <= sent


def _percentile(session: Session, to: Session, number: int) -> float:
    """Return the 99th percentile in seconds from a send until the other end has the message."""
    taken = []
    for turn in range(300):
        begin = time.perf_counter()
        session.send("fast", f"p-{number}-{turn}")
        to.hear("message")
        taken.append(time.perf_counter() - begin)
    return sorted(taken)[296]


@pytest.mark.timeout(120)
@pytest.mark.clause("K14")
def test_far_end_that_does_not_read_costs_at_most_twenty_mebibytes_and_slows_nobody(broker: Broker) -> None:
    """What waits for it is bounded, then it is hung up on; the others go on at their pace."""
    slow, sender, fast, flooding = (Session(broker.socket) for _ in range(4))
    for name, session in (("slow", slow), ("sender", sender), ("fast", fast), ("flooding", flooding)):
        session.join(name)
    text = "x" * (MEBIBYTE - 2_000)
    flooding.send("fast", "warm", text)
    fast.hear("message")
    before, alone = broker.memory_bytes(), _percentile(sender, fast, 0)
    highest = [before]
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(0.005):
            highest[0] = max(highest[0], broker.memory_bytes())

    looking = threading.Thread(target=look)
    looking.start()
    answers = [flooding.send("slow", f"f-{turn}", text)["type"] for turn in range(10)]
    beside = _percentile(sender, fast, 1)
    answers += [flooding.send("slow", f"g-{turn}", text)["type"] for turn in range(30)]
    is_over.set()
    looking.join()
    assert answers[:10] == ["delivered"] * 10
    assert answers[-1] == "delivery_failed"
    assert highest[0] - before <= 20 * MEBIBYTE
    assert beside <= 2 * alone + 0.005
    assert slow.is_ended()
    for session in (slow, sender, fast, flooding):
        session.close()


@pytest.mark.timeout(120)
def test_thousand_sessions_are_connected_whatever_the_shells_limit(start: Start) -> None:
    """The broker raises its own limit; all are listed, and each is reached."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1_200:
        pytest.skip("this machine allows fewer descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        broker = start()
        assert broker.started()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1_200), hard))
    sessions: list[Session] = []
    ids: list[str] = []
    try:
        for number in range(1_000):
            sessions.append(Session(broker.socket))
            ids.append(sessions[-1].join(f"s{number}"))
        sessions[0].say(type="list", requestId="1")
        listed = sessions[0].hear("sessions")["sessions"]
        assert [row["id"] for row in listed] == ids
        assert sessions[1].send(ids[999], "m")["type"] == "delivered"
        assert sessions[999].hear("message")["message"]["id"] == "m"
    finally:
        for session in sessions:
            session.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.clause("intercom-122", "intercom-132")
def test_broker_of_an_extension_answers_where_its_sessions_look(private_home: Path, start: Start) -> None:
    """Started with the path of the extension's script and its environment; it ignores our variable."""
    agent, temporary = private_home / "agent", private_home / "tmp"
    temporary.mkdir(mode=0o700)
    script = private_home / "package" / "broker.ts"
    script.parent.mkdir()
    script.write_text("// theirs")
    variables = {"PI_CODING_AGENT_DIR": str(agent), "TMPDIR": str(temporary)}
    broker = start(str(script), **variables)
    place = place_of({**os.environ, **variables}, Paths.AGENT)
    assert broker.started() == f"Intercom broker started at {place.socket}\n"
    assert (agent / "intercom" / "broker.pid").read_text().split("\n")[0] == str(broker.process.pid)
    session = Session(place.socket)
    session.join("a")
    session.close()
    assert not (private_home / "i").exists()


@pytest.mark.clause("intercom-123", "intercom-131")
def test_broker_in_a_directory_that_is_a_link_or_open_refuses_and_changes_nothing(
    private_home: Path, start: Start
) -> None:
    """Code 1 with the reason; the directory, its mode and what is in it stay."""
    target = private_home / "target"
    target.mkdir(mode=0o755)
    (target / "broker.sock").write_text("theirs")
    (private_home / "i").symlink_to(target)
    for change in (lambda: None, lambda: [(private_home / "i").unlink(), target.rename(private_home / "i")]):
        change()
        refused = start()
        _, said = refused.process.communicate(timeout=30)
        assert refused.process.returncode == 1
        assert "UNSAFE_ENDPOINT" in said
    assert (private_home / "i" / "broker.sock").read_text() == "theirs"
    assert (private_home / "i").stat().st_mode & 0o777 == 0o755


@pytest.mark.clause("intercom-125")
def test_broker_beside_a_live_process_with_a_dead_socket_fails_loudly(
    private_home: Path, start: Start
) -> None:
    """The process that the record names is named, and goes on."""
    (private_home / "i").mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(private_home / "i" / "broker.sock"))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as living:
        (private_home / "i" / "broker.pid").write_text(str(living.pid))
        refused = start()
        _, said = refused.process.communicate(timeout=30)
        assert refused.process.returncode == 1
        assert f"process {living.pid}" in said
        assert living.poll() is None
        living.kill()
    after = start()
    assert after.started()


class FullBroker(Broker):
    """A broker on a disk that a test fills and empties."""

    PROGRAM = (sys.executable, "-m", "tests.system.kit.full_broker")


@pytest.mark.timeout(120)
@pytest.mark.clause("K5", "intercom-131")
def test_full_disk_refuses_new_mail_and_the_broker_goes_on(private_home: Path) -> None:
    """New mail is refused, sessions talk on, kept mail arrives, and with room again the id is taken."""
    room = private_home / "room"
    room.write_text("100000000")
    broker = FullBroker(private_home, FULL_BROKER_ROOM=str(room), PYTHONPATH=str(Path.cwd()))
    with contextlib.ExitStack() as ends:
        ends.callback(broker.kill)
        assert broker.started()

        def connected() -> Session:
            session = Session(broker.socket)
            ends.callback(session.close)
            return session

        one, other, child, main = (connected() for _ in range(4))
        one.join_recorded("one", "session-one")
        other.join("other")
        group = {"cwd": "/srv", "model": "m", "rootSessionId": "r"}
        main.say(type="register", session={**group, "name": "main"}, wakeOutcomes=1)
        main_id = main.hear("registered")["sessionId"]
        child.say(type="register", session={**group, "name": "child", "parentSessionId": "r"}, wakeOutcomes=1)
        child_id = child.hear("registered")["sessionId"]
        child.say(type="unregister", parked=True)
        main.hear("session_left")
        assert main.send(child_id, "kept")["type"] == "delivery_queued"
        room.write_text("1")
        time.sleep(0.5)
        refused = [main.send(child_id, f"m-{number}", "x" * 100_000) for number in range(3)]
        assert {one["type"] for one in refused} == {"delivery_failed"}
        assert "No space" in refused[0]["reason"]
        asked = one.send(main_id, "q", "x" * 100_000, expectsReply=True)
        assert (asked["type"], asked["outcomeKnown"]) == ("delivery_failed", True)
        assert other.send(main_id, "said")["type"] == "delivered"
        assert main.hear("message")["message"]["id"] == "said"
        assert broker.process.poll() is None
        room.write_text("100000000")
        time.sleep(0.5)
        assert main.send(child_id, "m-1", "y")["type"] == "delivery_queued"
        back = connected()
        session = {**group, "name": "child", "parentSessionId": "r"}
        back.say(type="register", requestedId=child_id, session=session, wakeOutcomes=1)
        assert [back.hear("message")["message"]["id"] for _ in range(2)] == ["kept", "m-1"]
