"""What peers ask over their links."""

import pytest

from tests.unit.shell.switchboard.kit import SELF, Joint, World, receipt
from tieline.engine.contract import Answer, AskedStatus, Offer, ReceiptTold, Recorded
from tieline.errors import Refusal
from tieline.model.identity import Peer
from tieline.wire.native import mapping


def opened(world: World) -> Joint:
    """Return a far end's link to us, proved."""
    joint = world.connect(world.end("far-1"))
    world.settle()
    assert joint.connection.is_open
    return joint


@pytest.mark.clause("native-75", "native-76", "K19", "S16")
@pytest.mark.parametrize("method", ["peer.read", "resource.status", "resource.request", "resource.anything"])
def test_request_for_what_is_the_roots_own_is_denied(method: str) -> None:
    """Inboxes and resources are not reached over the peer endpoint, and nothing is decided."""
    world = World()
    joint = opened(world)
    joint.request(method, {})
    world.settle()
    assert [told.refusal.code for told in joint.end.told if told.refusal] == ["CAPABILITY_DENIED"]
    assert world.submitted == []


@pytest.mark.clause("native-71", "S16")
def test_request_of_an_unknown_method_is_told_so() -> None:
    """Every method outside the table is METHOD_NOT_FOUND, and the link stays."""
    world = World()
    joint = opened(world)
    for method in ("peer.delete", "tieline.resource", "local.send", "host.boundary", "x"):
        joint.request(method, {})
    world.settle()
    assert {told.refusal.code for told in joint.end.told if told.refusal} == {"METHOD_NOT_FOUND"}
    assert joint.connection.is_open
    assert world.submitted == []


@pytest.mark.clause("native-59", "K19", "I47")
def test_offer_names_the_proved_sender_whatever_it_claims() -> None:
    """A frame that says who sent it is refused; one that does not is from whom the link proved."""
    world = World()
    joint = opened(world)
    params = {"version": 1, "messageId": "m-1", "to": Peer(SELF).id, "content": "x"}
    joint.request("peer.send", {**params, "from": Peer("other").id})
    joint.request("peer.send", params)
    world.settle()
    assert [told.refusal.code for told in joint.end.told if told.refusal] == ["INVALID_PARAMS"]
    (offer,) = world.submitted
    assert isinstance(offer, Offer)
    assert offer.sender_instance == "far-1"
    assert offer.envelope.sender == Peer("far-1")


def test_answer_goes_to_the_request_that_asked() -> None:
    """Answers in any order reach their own requests; each method gets its own shape."""
    world = World()
    joint = opened(world)
    first = joint.request("peer.status", {"messageId": "m-1", "to": Peer(SELF).id})
    second = joint.request("tieline.status", {"messageId": "m-2", "to": Peer(SELF).id})
    third = joint.request(
        "peer.receipt", {"receipt": mapping.answered("peer.status", receipt("m-3", "far-1"))}
    )
    world.settle()
    one, two, three = world.submitted
    assert isinstance(one, AskedStatus)
    assert isinstance(two, AskedStatus)
    assert isinstance(three, ReceiptTold)
    world.send(
        Answer(two.asked, receipt("m-2", "far-1")),
        Answer(three.asked, Recorded()),
        Answer(one.asked, Refusal("SCOPE_DENIED", "no")),
    )
    told = {item.attempt: item for item in joint.end.told}
    assert told[first].refusal is not None
    assert told[first].refusal.code == "SCOPE_DENIED"
    assert (told[second].result or {})["durability"] == "synced"
    assert told[third].result == {"recorded": True}


def test_answer_to_a_link_that_is_gone_is_dropped() -> None:
    """The asker asks again; nothing breaks here."""
    world = World()
    joint = opened(world)
    joint.request("peer.status", {"messageId": "m-1", "to": Peer(SELF).id})
    world.settle()
    joint.connection.close()
    world.settle()
    (asked,) = world.submitted
    assert isinstance(asked, AskedStatus)
    world.send(Answer(asked.asked, receipt("m-1", "far-1")))
    assert joint.end.told == []


@pytest.mark.clause("native-80")
def test_hello_and_directory_are_answered_at_once() -> None:
    """What needs no decision is not queued behind the store."""
    world = World()
    joint = opened(world)
    joint.request(mapping.HELLO, mapping.hello())
    joint.request("peer.directory", {"version": 1})
    joint.request("tieline.last", {"to": Peer(SELF).id})
    world.settle()
    assert [told.result for told in joint.end.told] == [mapping.hello(), {"peers": []}, {"entry": None}]
    assert world.submitted == []


@pytest.mark.clause("S12")
def test_standing_of_a_far_end_is_read_again_after_a_heartbeat() -> None:
    """A far end that left the scope is out of it one heartbeat later, on the link that it has."""
    world = World()
    joint = opened(world)
    params = {"version": 1, "messageId": "m-1", "to": Peer(SELF).id, "content": "x"}
    world.out_of_scope.add("far-1")
    joint.request("peer.send", params)
    world.settle()
    world.mono_ms += 5_001
    joint.request("peer.send", params)
    world.settle()
    assert [item.standing.is_in_scope for item in world.submitted if isinstance(item, Offer)] == [True, False]


@pytest.mark.clause("S18", "O57", "K19")
@pytest.mark.parametrize("links", [1, 4, 16])
def test_requests_over_many_links_get_the_same_total(links: int) -> None:
    """A root that opens more links is not answered more: its requests are counted, not its links."""
    world = World(pending_requests=600)
    end = world.end("far-1")
    joints = []
    for _ in range(links):
        joints.append(world.connect(end))
        world.settle()
    for number in range(480):
        joints[number % links].request(mapping.HELLO, mapping.hello())
        if number % 30 == 29:
            world.settle()
    world.settle()
    assert sum(told.refusal is None for told in end.told) == 400
    assert {told.refusal.code for told in end.told if told.refusal} == {"RATE_LIMITED"}
    assert world.board.counters["requests_limited"] == 80
    other = world.connect(world.end("far-2"))
    world.settle()
    other.request(mapping.HELLO, mapping.hello())
    world.settle()
    assert other.end.told[0].refusal is None


def test_probe_of_waits_is_answered_with_nothing() -> None:
    """It reaches the root and becomes no command; its answer is empty."""
    world = World()
    joint = opened(world)
    joint.request(mapping.PROBE, {"id": "x"})
    world.settle()
    assert [told.result for told in joint.end.told] == [{}]
    assert world.submitted == []
