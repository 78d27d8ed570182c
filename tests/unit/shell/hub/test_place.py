"""Where a broker is, for each revision that looks for it."""

import hashlib
import os
import sys

import pytest

from tieline.errors import UsageError
from tieline.shell.hub.place import Paths, agent_directory, place_of

UID = os.geteuid()


@pytest.mark.clause("intercom-131")
def test_shared_place_follows_from_the_user_alone() -> None:
    """HOME, TMPDIR and agent directory do not move it."""
    moved = {"HOME": "/elsewhere", "TMPDIR": "/t", "PI_CODING_AGENT_DIR": "/a"}
    for environment in ({}, moved):
        place = place_of(environment)
        assert place.socket == f"/tmp/pi-intercom-{UID}/broker.sock"
        assert place.records == place.folder == f"/tmp/pi-intercom-{UID}"
        assert not place.is_named


@pytest.mark.clause("intercom-131")
@pytest.mark.parametrize("named", ["", "  ", "relative", "./x", "~/x", "/", "//", "/a\0b"])
def test_named_directory_that_is_no_absolute_path_is_refused(named: str) -> None:
    """There is no second choice."""
    with pytest.raises(UsageError, match="PI_INTERCOM_RUNTIME_DIR"):
        place_of({"PI_INTERCOM_RUNTIME_DIR": named})


@pytest.mark.clause("intercom-131", "intercom-122")
def test_named_directory_may_make_a_socket_path_of_exactly_a_hundred_bytes() -> None:
    """UTF-8 bytes count, not characters; one more is refused, with the length."""
    room = 100 - len("/broker.sock")
    fitting = "/" + "é" * ((room - 1) // 2) + "x" * ((room - 1) % 2)
    place = place_of({"PI_INTERCOM_RUNTIME_DIR": fitting + "/"})
    assert len(os.fsencode(place.socket)) == 100
    assert place.is_named
    assert place.records == fitting
    with pytest.raises(UsageError, match="101 bytes"):
        place_of({"PI_INTERCOM_RUNTIME_DIR": fitting + "x"})


def test_shared_place_on_android_is_below_its_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Termux has no /tmp; without a prefix Node's temporary directory is it."""
    monkeypatch.setattr(sys, "getandroidapilevel", lambda: 30, raising=False)
    assert place_of({"PREFIX": "/d/u"}).folder == f"/d/u/tmp/pi-intercom-{UID}"
    assert place_of({"TMPDIR": "/d/t/"}).folder == f"/d/t/pi-intercom-{UID}"
    with pytest.raises(UsageError, match="shorter"):
        place_of({"PREFIX": "/" + "x" * 100})


@pytest.mark.clause("intercom-122")
@pytest.mark.parametrize(
    ("environment", "folder", "agent"),
    [
        ({"HOME": "/h"}, "/tmp", "/h/.pi/agent"),
        ({"HOME": "/h", "PI_CODING_AGENT_DIR": " ~/x "}, "/tmp", "/h/x"),
        ({"HOME": "/h", "PI_CODING_AGENT_DIR": "~", "TMPDIR": "/t/"}, "/t", "/h"),
        ({"HOME": "/h", "PI_CODING_AGENT_DIR": "/a//b/", "TMP": "/t"}, "/t", "/a//b/"),
        ({"HOME": "/h", "PI_CODING_AGENT_DIR": "\ufeff", "TEMP": "/u", "TMPDIR": ""}, "/u", "/h/.pi/agent"),
        ({"HOME": "/h", "TMPDIR": "/" + "x" * 90}, "/tmp", "/h/.pi/agent"),
    ],
)
def test_agents_place_is_marked_by_user_and_spelling(
    environment: dict[str, str], folder: str, agent: str
) -> None:
    """16 hexadecimal digits of SHA-256 over uid and agent directory; /tmp where that is too long."""
    mark = hashlib.sha256(f"{UID}:{agent}".encode()).hexdigest()[:16]
    place = place_of({**environment, "PI_INTERCOM_RUNTIME_DIR": "ignored"}, Paths.AGENT)
    assert place.socket == f"{folder}/pi-intercom-{mark}/broker.sock"
    assert place.records == os.path.abspath(f"{agent}/intercom")
    assert place.is_agents
    assert agent_directory(environment) == agent


@pytest.mark.clause("intercom-122")
def test_ancestors_place_is_the_agent_directory() -> None:
    """Everything in one private directory."""
    place = place_of({"PI_CODING_AGENT_DIR": "/a"}, Paths.FOLDER)
    assert (place.socket, place.records, place.is_agents) == ("/a/intercom/broker.sock", "/a/intercom", False)
