"""One process of a measurement, told what to do."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tieline.adapters.bench.crew import Crew, Member
from tieline.adapters.bench.limit import echo_server
from tieline.adapters.bench.worker import content_of


@pytest.fixture
def crew(private_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crew]:
    """Give a crew in a folder of this test."""
    monkeypatch.setenv("TMPDIR", str(private_home))
    with Crew(1_024) as made:
        yield made


@pytest.fixture
def pair(crew: Crew) -> tuple[Member, Member]:
    """Give a recipient and a sender with raised limits."""
    return crew.start("recipient"), crew.start("sender")


def test_content_of_any_size_has_that_size_and_its_instant() -> None:
    """The instant is read back from the front; the rest only fills."""
    for size in (20, 21, 1_024):
        text = content_of(size, 123)
        assert len(text.encode()) == size
        assert int(text[:20]) == 123


def test_send_of_many_stores_each_once(pair: tuple[Member, Member]) -> None:
    """What a worker says was accepted stands in the recipient's store, once."""
    recipient, sender = pair
    result = sender.do("send", to=recipient.peer_id, count=5, bytes=200)
    assert (len(result["accepted"]), result["failures"], len(result["tookUs"])) == (5, {}, 5)
    assert recipient.do("stored")["counts"] == dict.fromkeys(result["accepted"], 1)


def test_flood_of_runs_reaches_each_run(pair: tuple[Member, Member]) -> None:
    """All targets are served side by side for the time that was asked."""
    recipient, sender = pair
    runs = recipient.do("begin_runs", count=4)["peerIds"]
    result = sender.do("flood", targets=runs, bytes=100, seconds=0.3)
    assert result["failures"] == {}
    assert len(result["accepted"]) >= 4
    assert result["seconds"] >= 0.3
    assert set(recipient.do("stored")["counts"]) == set(result["accepted"])


def test_arrivals_of_a_reading_host_are_timed(pair: tuple[Member, Member]) -> None:
    """The host is told no later than it holds the text, and after the message was sent."""
    recipient, sender = pair
    recipient.do("read")
    sent = sender.do("send", to=recipient.peer_id, count=3, bytes=100)
    arrived = recipient.do("arrivals", count=3)
    assert len(sent["accepted"]) == len(arrived["readUs"]) == 3
    for told, read in zip(sorted(arrived["toldUs"]), sorted(arrived["readUs"]), strict=True):
        assert 0 < told <= read < 10_000_000


def test_offers_over_a_held_link_are_accepted_beside_the_limit(
    crew: Crew, pair: tuple[Member, Member]
) -> None:
    """The recipient alone is measured, and the same bytes are echoed and written as often."""
    recipient, prober = pair
    prober.do("hold", instance=recipient.instance)
    path = f"{crew.folder}/echo"
    with echo_server(path, None):
        asked = {"instance": recipient.instance, "bytes": 300, "count": 4}
        result = prober.do("offer", **asked, pythonEcho=path, file=f"{crew.folder}/file")
    assert [len(result[name]) for name in ("tookUs", "pythonEchoUs", "syncUs", "echoUs")] == [4, 4, 4, 0]
    filled = prober.do("fill", instance=recipient.instance, bytes=300, count=40, window=8)
    assert len(result["accepted"]) == 4
    assert len(set(filled["accepted"])) == 40
    counts = recipient.do("stored")["counts"]
    assert counts == dict.fromkeys([*result["accepted"], *filled["accepted"]], 1)


def test_pings_over_a_held_link_store_nothing(pair: tuple[Member, Member]) -> None:
    """A ping and a flood of them are answered without the store."""
    recipient, prober = pair
    prober.do("hold", instance=recipient.instance)
    groups = recipient.do("resources")["groups"]
    assert prober.do("ping", seconds=0.1, pauseMs=1)["tookUs"]
    assert prober.do("ping_flood", seconds=0.1, window=8)["answers"] >= 8
    assert recipient.do("resources")["groups"] == groups
    assert recipient.do("stored")["counts"] == {}


def test_send_beyond_the_default_rate_is_counted_as_failed(crew: Crew) -> None:
    """At the defaults a flood is refused with a code, and nothing of it is called accepted."""
    recipient, sender = crew.start("recipient", is_default=True), crew.start("sender", is_default=True)
    result = sender.do("send", to=recipient.peer_id, count=60, bytes=20)
    assert result["failures"]
    assert len(result["accepted"]) + sum(result["failures"].values()) == 60
    assert len(recipient.do("stored")["counts"]) >= len(result["accepted"])
