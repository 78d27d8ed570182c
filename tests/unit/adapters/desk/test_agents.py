from tests.unit.adapters.desk.kit import OWN, peer
from tieline.adapters.desk.agents import Agents
from tieline.composer import Binding

OWN_SHAPE = {"peerId": OWN, "alias": "me"}


def text(row: object) -> str:
    return "".join(piece.text for piece in row)  # type: ignore[attr-defined]


def test_peer_missing_from_listing_is_gone_and_stays_where_there_is_business() -> None:
    """Who is not listed any more is shown as ended while somebody has unfinished business with it."""
    agents = Agents()
    one, two = peer("api", 1), peer("db", 2)
    assert agents.told(OWN_SHAPE, [one, two])
    assert not agents.told(OWN_SHAPE, [{**one, "ageMs": 9}, two]), "an age alone is no change"
    assert agents.told(OWN_SHAPE, [two])
    assert agents.keys() == [two["peerId"]]
    assert agents.keys(frozenset({one["peerId"]})) == [two["peerId"], one["peerId"]]
    assert "ended" in text(agents.row(one["peerId"], 80))
    assert (agents.is_there(one["peerId"]), agents.alias(one["peerId"])) == (False, "api")
    agents.told(OWN_SHAPE, [one, two])
    assert agents.is_there(one["peerId"])


def test_gone_peers_are_bounded() -> None:
    """The oldest of very many that went are forgotten."""
    agents = Agents()
    for number in range(300):
        agents.told(OWN_SHAPE, [peer("x", number)])
    assert len(agents.gone) == 200


def test_row_says_what_a_listing_says_in_its_width() -> None:
    """State in words, context fill, wire and age; wider screens show more of long names."""
    agents = Agents()
    agents.told(OWN_SHAPE, [peer("api", 1, busy=True, contextPercent=91, wire="intercom"),
                            peer("x", 2, availability="scope_denied")])  # fmt: skip
    row = text(agents.row(peer("api", 1)["peerId"], 80))
    assert all(word in row for word in (":api", "busy", "91%", "intercom", "1 s"))
    assert len(row) <= 80
    assert "scope d" in text(agents.row(peer("x", 2)["peerId"], 80))
    assert "held" in text(agents.row(peer("api", 1)["peerId"], 80, "held"))
    assert len(text(agents.row(peer("api", 1)["peerId"], 120))) > 100
    assert "state" in text(Agents.heading(80))


def test_filter_keeps_a_root_whose_run_fits() -> None:
    """A run that fits is shown under its root; a run whose root is not seen stands alone."""
    agents = Agents()
    root, run = peer("api", 1), peer("kid", 3, instanceId="instance-1", runId="r")
    lone = peer("lost", 4, instanceId="elsewhere", runId="r")
    agents.told(OWN_SHAPE, [run, root, lone])
    agents.filter = "KID"
    assert agents.keys() == [root["peerId"], run["peerId"]]
    agents.filter = ""
    assert agents.keys() == [root["peerId"], run["peerId"], lone["peerId"]]
    agents.filter = "idle"
    assert agents.keys()[0] == root["peerId"]


def test_picks_begin_with_the_prefix_first() -> None:
    """Who begins with what was typed comes first, then who holds it; without an alias nobody is picked."""
    agents = Agents()
    agents.told(OWN_SHAPE, [peer("web-api", 1), peer("api", 2), peer("", 3), peer("API2", 4)])
    assert [one["alias"] for one in agents.picks("ap", 9)] == ["api", "API2", "web-api"]
    assert len(agents.picks("", 2)) == 2
    assert agents.binding(peer("api", 2)["peerId"]) == Binding(
        "api", 0, 0, peer("api", 2)["peerId"], "instance-2"
    )
    assert agents.binding("nobody") is None


def test_known_peer_without_inbox_is_marked() -> None:
    """Who is shown only, or is not available, takes no letter."""
    agents = Agents()
    agents.told(
        OWN_SHAPE, [peer("a", 1), peer("b", 2, capabilities=[]), peer("c", 3, availability="offline")]
    )
    assert [one.has_inbox for one in agents.known()] == [True, False, False]
    assert agents.alias(OWN) == "me"
    assert agents.alias("peer-unknown-and-long") == "peer-unknown-"
