"""What the desk knows, and how it is brought up to date."""

import pytest

from tests.unit.adapters.desk.kit import OWN, FakePort, message, peer
from tieline.adapters.desk.model import Model

pytestmark = pytest.mark.asyncio
API = peer("api", 1)


def made(**facts: object) -> tuple[Model, list[str], FakePort]:
    old: list[str] = []
    port = FakePort(**{"peers": [API], **facts})
    return Model(port, old.append), old, port


@pytest.mark.clause("native-126")
async def test_receipt_is_told_once_and_only_where_it_is_news() -> None:
    """Pending and accepted are no news; replied is, once; another's receipt is not ours to tell."""
    model, old, _port = made()
    await model.read("agents")

    def receipt(state: str, sender: str = OWN, **facts: object) -> None:
        event = {"type": "receipt", "messageId": "m-1", "from": sender, "to": API["peerId"], "state": state}
        model.told("peer_update", {"event": {**event, **facts}})

    for state in ("pending", "unknown", "accepted", "consumed", "replied", "replied"):
        receipt(state)
    receipt("replied", sender=API["peerId"])
    receipt("expired", receipt={"outcome": "NOT_DELIVERED"})
    assert model.notes == [
        "Your message to :api: read",
        "Your message to :api: replied",
        "Your message to :api: never delivered",
    ]
    assert "talk" in old


async def test_arrivals_are_told_by_kind_and_first_reading_is_quiet() -> None:
    """What was there before is not news; a question, an answer, mail and what is held are said as that."""
    model, _old, port = made(messages=[message("m-0")])
    await model.read("talk")
    assert model.notes == []
    port.messages += [
        message("m-1", ask=True),
        message("m-2", replyTo="m-0"),
        message("m-3", fromProject="shop\x1b"),
        message("m-4", None, isHeld=True, isUnread=False, ask=True),
    ]
    await model.read("talk")
    assert [one.split(" :")[0] for one in model.notes] == [
        "Question from", "Answer from", "Message from", "Held for your word: from",
    ]  # fmt: skip
    assert "\\x1b" in model.notes[2]


async def test_resource_events_are_told_once() -> None:
    """A change of a resource is named by its number; the same one is told once."""
    model, old, _port = made()
    event = {"type": "resource", "resource": "machine/db", "sequence": 3, "state": "reserved"}
    for _ in range(2):
        model.told("resource_update", {"event": event})
    assert model.notes == ["machine/db: reserved"]
    assert old.count("resources") == 2


async def test_ring_is_told_when_it_closes_and_when_it_breaks() -> None:
    """Each once, by name."""
    model, _old, port = made()
    await model.read("agents")
    port.view = {"cycles": [{"peers": [{"peerId": API["peerId"]}], "text": "api waits"}]}
    await model.read("waits")
    await model.read("waits")
    port.view = {"waits": []}
    await model.read("waits")
    assert model.notes == ["RING of waits: api waits · 4 shows how to break it", "The ring of :api is broken"]


async def test_notes_and_told_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of news is kept within bounds."""
    monkeypatch.setattr("tieline.adapters.desk.model.TOLD_MAX", 5)
    model, _old, _port = made()
    for number in range(300):
        model.told("resource_update", {"event": {"resource": "r", "sequence": number}})
    assert len(model.notes) == 100
    assert len(model._told) == 5
