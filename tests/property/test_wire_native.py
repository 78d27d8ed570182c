"""Laws of a native link: however bytes are cut and frames fall, each thing ends once."""

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.errors import Refusal
from tieline.keys import PrivateKey
from tieline.wire.exchange import Closed, RequestLost, RequestReceived, ResponseReceived
from tieline.wire.native.protocol import (
    Advertised,
    Authenticated,
    Connection,
    LookupWanted,
    NativeLimits,
    NonceMemory,
)

LIMITS = NativeLimits(frame_bytes=2_048, pending_requests=3, handshake_ms=1_000, acknowledgement_ms=50)
KEYS = {"client": PrivateKey.generate(b"\x01" * 32), "server": PrivateKey.generate(b"\x02" * 32)}
ADVERTISED = {role: Advertised(role, key.public, (role,)) for role, key in KEYS.items()}


class End:
    """One end of a link, and all that happened at it."""

    def __init__(self, role: Any) -> None:
        self.role = role
        self.seen: list[Any] = []
        self.asked: list[str] = []
        self.open_ids: list[Any] = []
        self.connection = Connection(
            role,
            instance=role,
            key=KEYS[role],
            capabilities=(),
            nonce=role.encode().ljust(32, b"\0"),
            nonces=NonceMemory(),
            limits=LIMITS,
            now_ms=0,
            expected=ADVERTISED["server"] if role == "client" else None,
        )

    def drain(self, now_ms: int) -> None:
        """Take the events as a caller does."""
        while events := self.connection.events_received():
            for event in events:
                self.seen.append(event)
                if isinstance(event, LookupWanted):
                    self.connection.advertised(ADVERTISED["client"], now_ms)
                elif isinstance(event, RequestReceived):
                    self.open_ids.append(event.id)


def deliver(sender: End, receiver: End, cuts: list[int], now_ms: int) -> None:
    """Carry all that waits, cut where `cuts` say, and drain both ends."""
    data = sender.connection.data_to_send()
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in pairwise(places):
        receiver.connection.receive_data(data[start:end], now_ms)
        receiver.drain(now_ms)


CUTS = st.lists(st.integers(0, 2_000), max_size=6)


@pytest.mark.clause("native-60", "native-62", "K8")
@given(st.lists(CUTS, min_size=4, max_size=4))
def test_handshake_cut_anywhere_opens_both_ends(cuts: list[list[int]]) -> None:
    """The four frames of the handshake, each cut at will, prove both ends to each other."""
    client, server = End("client"), End("server")
    for at in range(2):
        deliver(client, server, cuts[2 * at], 0)
        deliver(server, client, cuts[2 * at + 1], 0)
    assert client.seen == [Authenticated("server", ("server",))]
    assert server.seen[-1] == Authenticated("client", ("client",))


ACTS = st.sampled_from(["ask", "answer", "refuse", "carry", "carry", "wait", "eof", "close"])


def done(one: End, other: End, act: str, cuts: list[int], now_ms: int) -> None:
    """Do one thing at one end."""
    match act:
        case "ask":
            attempt = one.connection.request("m", {}, now_ms)
            if isinstance(attempt, str):
                one.asked.append(attempt)
        case "answer" if one.open_ids:
            name = one.open_ids.pop()
            one.connection.respond(name, {"x": name})
        case "refuse" if one.open_ids:
            one.connection.refuse(one.open_ids.pop(), Refusal("SCOPE_DENIED", "no"))
        case "carry":
            deliver(one, other, cuts, now_ms)
        case "wait":
            one.connection.expire(now_ms)
        case "eof" if not cuts:
            one.connection.receive_eof()
        case "close" if len(cuts) == 1:
            one.connection.close()


@pytest.mark.clause("native-66", "native-156", "K8")
@given(st.lists(st.tuples(st.booleans(), ACTS, CUTS), max_size=40))
def test_every_request_ends_once_whatever_happens(acts: list[tuple[bool, str, list[int]]]) -> None:
    """Each request of either end is answered or lost, once; `Closed` comes once and last; windows hold."""
    client, server = End("client"), End("server")
    for _ in range(2):
        deliver(client, server, [], 0)
        deliver(server, client, [], 0)
    now_ms = 1
    for is_client, act, cuts in acts:
        one, other = (client, server) if is_client else (server, client)
        now_ms += 20 * (act == "wait")
        done(one, other, act, cuts, now_ms)
        for end in (client, server):
            end.drain(now_ms)
            assert len(end.open_ids) <= LIMITS.pending_requests or end.connection.is_closed
    for end in (client, server):
        end.connection.close()
        end.drain(now_ms)
        ended = [event.attempt for event in end.seen if isinstance(event, ResponseReceived | RequestLost)]
        assert Counter(ended) == Counter(end.asked)
        assert [type(event) for event in end.seen].count(Closed) == 1
        assert isinstance(end.seen[-1], Closed)
        answers = [event for event in end.seen if isinstance(event, ResponseReceived) and event.result]
        assert all(event.result == {"x": event.attempt} for event in answers)
