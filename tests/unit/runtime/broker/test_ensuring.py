"""A broker for whoever needs one."""

import sys
from pathlib import Path

import pytest

from tieline.errors import Refused, UsageError
from tieline.runtime.broker import ensuring
from tieline.runtime.broker.ensuring import broker_command, ensure_broker
from tieline.shell.hub import Paths, Place


def test_command_is_this_program_whatever_the_path_holds() -> None:
    """The interpreter that runs now; no search, no shell."""
    assert broker_command()[:3] == [sys.executable, "-m", "tieline.adapters.cli.main"]
    assert broker_command(Paths.AGENT)[3:] == ["broker", "--paths", "agent"]


def test_ensured_broker_is_started_with_the_callers_environment(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Place, command and environment belong together; a command of one's own goes before ours."""
    asked: list[tuple[Place, list[str], dict[str, str]]] = []

    def start(place: Place, command: list[str], environment: dict[str, str], now: object) -> bool:
        assert callable(now)
        assert now() > 1_000_000_000_000
        asked.append((place, command, environment))
        return True

    monkeypatch.setattr(ensuring, "start_if_missing", start)
    environment = {"PI_INTERCOM_RUNTIME_DIR": str(private_home / "i")}
    place = ensure_broker(environment)
    ensure_broker(environment, command=("own",))
    assert place.socket == str(private_home / "i" / "broker.sock")
    assert [one[1] for one in asked] == [broker_command(), ("own",)]
    assert asked[0][2] == environment


@pytest.mark.clause("intercom-131")
def test_wrong_directory_starts_nothing(private_home: Path) -> None:
    """No fallback, and no process."""
    with pytest.raises(UsageError):
        ensure_broker({"PI_INTERCOM_RUNTIME_DIR": "relative"})
    folder = private_home / "loose"
    folder.mkdir(mode=0o755)
    with pytest.raises(Refused) as caught:
        ensure_broker({"PI_INTERCOM_RUNTIME_DIR": str(folder)})
    assert caught.value.code == "UNSAFE_ENDPOINT"
