"""`tieline broker`: what it prints, and which place it takes."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.unit.adapters.cli.fake import Result
from tieline.adapters.cli import broker
from tieline.errors import Refused
from tieline.runtime.broker import Paths, Started


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Mapping[str, str], Paths]]:
    """What the runtime was asked for; it tells a started broker."""
    found: list[tuple[Mapping[str, str], Paths]] = []

    def fake(
        environment: Mapping[str, str],
        paths: Paths,
        started: Callable[[Started], None],
        *,
        is_extensions: bool,
    ) -> None:
        assert is_extensions is (paths is not Paths.SHARED)
        found.append((environment, paths))
        started(Started("/i/broker.sock", is_ours=len(found) == 1))

    monkeypatch.setattr(broker, "run_broker", fake)
    return found


def test_broker_prints_one_line_when_it_answers(
    run: Callable[..., Result], asked: list[tuple[Mapping[str, str], Paths]]
) -> None:
    """On stdout for the one that started; on stderr where another one answers already."""
    first, second = run("broker"), run("broker")
    assert (first.code, first.out) == (0, "Intercom broker started at /i/broker.sock\n")
    assert (second.code, second.out) == (0, "")
    assert "answers already at /i/broker.sock" in second.err
    assert [paths for _, paths in asked] == [Paths.SHARED, Paths.SHARED]


def test_broker_as_json_tells_socket_and_whether_it_is_ours(
    run: Callable[..., Result], asked: list[tuple[Mapping[str, str], Paths]]
) -> None:
    """One versioned object."""
    shapes = [json.loads(run("broker", "--json").out) for _ in range(2)]
    assert shapes[0] == {"version": 1, "command": "broker", "socket": "/i/broker.sock", "started": True}
    assert shapes[1]["started"] is False


@pytest.mark.clause("intercom-132")
def test_broker_takes_the_extensions_last_word_for_where_its_sessions_look(
    run: Callable[..., Result], asked: list[tuple[Mapping[str, str], Paths]], tmp_path: Path
) -> None:
    """The script is never run; `--paths` goes before it."""
    script = str(tmp_path / "broker.ts")
    run("broker", script)
    run("broker", "--paths", "folder", script)
    assert [paths for _, paths in asked] == [Paths.AGENT, Paths.FOLDER]
    wrong = run("broker", "--paths", "nowhere")
    assert wrong.code == 2
    assert "choose from 'shared', 'agent', 'folder'" in wrong.err
    assert run("broker", "a", "b").code == 2


def test_broker_whose_starter_left_goes_on(
    run: Callable[..., Result],
    asked: list[tuple[Mapping[str, str], Paths]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pipe that nobody reads is no reason to end."""

    def gone() -> None:
        raise BrokenPipeError

    monkeypatch.setattr(broker, "flush", gone)
    assert run("broker").code == 0


def test_broker_that_may_not_start_is_told_with_the_next_action(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code, the sentence, what to do."""

    def refused(*_: object, **__: object) -> None:
        raise Refused("UNSAFE_ENDPOINT", "not yours")

    monkeypatch.setattr(broker, "run_broker", refused)
    result = run("broker")
    assert result.code == 1
    assert "UNSAFE_ENDPOINT" in result.err
    assert "next:" in result.err
