"""Requests that a root may end: one answer each."""

import pytest

from tieline.runtime.windows.leaving import OPEN_MAX, Request, Requests


def request(number: int, until_ms: int = 100) -> Request:
    """Return a request."""
    return Request(f"r-{number}", f"asked-{number}", "/a", "", until_ms)


@pytest.mark.clause("pi-peers-38")
def test_request_is_taken_once() -> None:
    """By the host, or by time; never by both."""
    requests = Requests()
    assert requests.deadline_ms is None
    assert requests.add(request(1))
    assert requests.add(request(2, 50))
    assert requests.deadline_ms == 50
    assert requests.overdue(49) == []
    assert requests.overdue(50) == [request(2, 50)]
    assert requests.take("r-2") is None
    assert requests.take("r-1") == request(1)
    assert requests.take("r-1") is None


def test_requests_are_bounded_and_the_same_one_waits_once() -> None:
    """A crowd of requests, and a repeated one, are turned away at once."""
    requests = Requests()
    assert all(requests.add(request(place)) for place in range(OPEN_MAX))
    assert not requests.add(request(OPEN_MAX))
    requests.take("r-0")
    assert not requests.add(request(1)._replace(number="another"))
    assert requests.add(request(OPEN_MAX))
