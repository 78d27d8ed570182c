"""Who wants to be told when somebody is idle: one notice each."""

import pytest

from tieline.model.identity import Peer
from tieline.runtime.windows.subscriptions import ALL_MAX, EACH_MAX, LIFE_MS, Awaited, Subscriptions

OWN, WINDOW = Peer("self-1"), Peer("pi-peers:" + "0" * 32)


@pytest.mark.clause("pi-peers-36", "pi-peers-U17")
def test_subscription_is_told_once_and_not_after_twelve_hours() -> None:
    """Each asker once; who asked too long ago is not told any more."""
    subscriptions = Subscriptions()
    subscriptions.subscribe("/old", "n-0", 0)
    subscriptions.subscribe("/a", "n-1", 10)
    subscriptions.subscribe("/a", "n-1", 11)
    assert [(one.address, one.nonce) for one in subscriptions.idle(LIFE_MS)] == [("/a", "n-1")]
    assert subscriptions.idle(LIFE_MS) == []


def test_subscriptions_of_one_address_and_of_all_are_bounded() -> None:
    """The oldest of the same asker gives way; a crowd of askers has an end, too."""
    subscriptions = Subscriptions()
    for place in range(EACH_MAX + 2):
        subscriptions.subscribe("/a", f"n-{place}", 0)
    assert [one.nonce for one in subscriptions.idle(1)] == [f"n-{place}" for place in range(2, EACH_MAX + 2)]
    for place in range(ALL_MAX + 5):
        subscriptions.subscribe(f"/{place}", "n", 0)
    told = subscriptions.idle(1)
    assert (len(told), told[0].address) == (ALL_MAX, "/5")


@pytest.mark.clause("pi-peers-37")
def test_notice_counts_once_and_only_while_its_nonce_lives() -> None:
    """A forged, a second and a late notice tell nobody anything."""
    subscriptions = Subscriptions()
    subscriptions.wait("n-1", OWN, WINDOW, "/w", 0)
    subscriptions.wait("n-2", OWN, WINDOW, "/w", 0)
    assert subscriptions.told("forged", "/w", 1) is None
    assert subscriptions.told("n-1", "/another", 1) is None
    assert subscriptions.told("n-1", "/w", 1) == Awaited(OWN, WINDOW, "/w", LIFE_MS)
    assert subscriptions.told("n-1", "", 1) is None
    assert subscriptions.told("n-2", "/w", LIFE_MS) is None
    for place in range(ALL_MAX + 1):
        subscriptions.wait(f"m-{place}", OWN, WINDOW, "/w", 0)
    assert subscriptions.told("m-0", "", 1) is None
    assert subscriptions.told("m-1", "", 1) is not None
