"""What a person does at the desk, beyond the key paths in test_app."""

import pytest

from tests.unit.adapters.desk.kit import FakePort, desk, message, peer, refusal, settle, text_of, writer
from tests.unit.adapters.desk.test_app import RESOURCE, ring
from tieline.composer import Binding

pytestmark = pytest.mark.asyncio
API = peer("api", 1)


async def test_keys_of_a_pane_do_nothing_in_another() -> None:
    """Outside its pane no key acts; on nothing it says so, or stays quiet."""
    async with desk(FakePort(peers=[API])) as (app, pilot, port):
        await pilot.press(*"rmadgcxfe")
        await settle(app, pilot)
        await pilot.press("2", *"rmadgcxfetl", "3", *"gcrtl", "4", *"f")
        await settle(app, pilot)
        names = {name for name, _ in port.calls}
        assert names == {"list_peers", "local.conversations", "resource.list"}
        assert app.model.notes[-1] == "put the cursor on a ring"


async def test_refused_act_is_one_line_with_its_code() -> None:
    """A grant that is not this root's to give says CAPABILITY_DENIED and the next action."""
    port = FakePort(peers=[API], resources=[RESOURCE])
    port.answers["coordinate_resource"] = refusal("CAPABILITY_DENIED")
    async with desk(port) as (app, pilot, _port):
        await pilot.press("3", "g")
        await settle(app, pilot)
        assert text_of(app, "#note").startswith("CAPABILITY_DENIED: it was refused. Next:")


async def test_reply_to_a_sender_that_is_not_listed_goes_to_its_exact_id() -> None:
    """Whoever wrote may be answered, also from where the listing does not reach; the root judges it."""
    port = FakePort(messages=[message("m-1", sender="peer-elsewhere", alias="far")])
    async with desk(port) as (app, pilot, _port):
        await pilot.press("2", "r", *"yes", "enter")
        await settle(app, pilot)
        assert [(one["to"], one["replyTo"]) for one in port.sent()] == [("peer-elsewhere", "m-1")]


async def test_errors_of_a_send_come_back_with_the_text() -> None:
    """An error in the answer is said, and what was typed is in the composer again."""
    error = {"code": "PEER_OFFLINE", "text": "gone", "action": "pick again"}
    port = FakePort(peers=[API], answers={"local.send": {"receipts": [], "errors": [error]}})
    async with desk(port) as (app, pilot, _port):
        await pilot.press("enter", *"hi", "enter")
        await settle(app, pilot)
        assert text_of(app, "#note") == "PEER_OFFLINE: gone. Next: pick again."
        assert writer(app).text == "hi"
        await pilot.press("backspace", "backspace", "enter")
        await settle(app, pilot)
        assert len(port.sent()) == 1, "nothing is not sent"


async def test_addressed_peer_that_ended_is_refused_and_forgotten() -> None:
    """A draft for an exact agent that ended is PEER_OFFLINE; its text stays, to nobody."""
    port = FakePort(peers=[API])
    async with desk(port) as (app, pilot, _port):
        await pilot.press("enter", *"hi")
        port.peers = []
        app._is_old("agents")
        await settle(app, pilot)
        await pilot.press("enter")
        await settle(app, pilot)
        assert text_of(app, "#note").startswith("PEER_OFFLINE")
        assert (writer(app).text, writer(app).draft.to, port.sent()) == ("hi", None, [])


@pytest.mark.parametrize(
    ("act", "said"),
    [("give_up", "you can answer :db"), ("answer", "that question is not here any more")],
)
async def test_way_out_that_needs_no_letter_is_said(act: str, said: str) -> None:
    """What only the person can do elsewhere is said; an answer to what is not here any more, too."""
    port = FakePort(peers=[API, peer("db", 2)], view=ring(own=True))
    port.view["cycles"][0]["ways"][0]["act"] = act
    async with desk(port) as (app, pilot, _port):
        await pilot.press("4", "f")
        await settle(app, pilot)
        assert app.model.notes[-1] == said


async def test_own_request_in_a_ring_is_cancelled() -> None:
    """Where the person's own request closes the ring, `f` cancels it."""
    port = FakePort(peers=[API], view=ring(own=True))
    port.view["cycles"][0]["ways"][0] |= {"act": "cancel", "request": "r-9"}
    async with desk(port) as (app, pilot, _port):
        await pilot.press("4", "f")
        await settle(app, pilot)
        assert port.sent("coordinate_resource") == [{"operation": "cancel_request", "requestId": "r-9"}]


async def test_ring_of_agents_that_are_not_seen_is_said() -> None:
    """Who could break it and is not in the directory is said, not guessed."""
    async with desk(FakePort(view=ring())) as (app, pilot, _port):
        await pilot.press("4", "f")
        await settle(app, pilot)
        assert app.model.notes[-1] == "whoever can break it is not seen from here: answer :db"


async def test_target_replaces_a_lone_colon() -> None:
    """An agent that is chosen after `:` takes the place of the colon, and not of a text."""
    async with desk(FakePort(peers=[API])) as (app, pilot, _port):
        await pilot.press("colon", "escape", "escape", "enter")
        assert writer(app).text == ""
        await pilot.press(*"abc", "escape")
        app.write_to(Binding("api", 0, 0, API["peerId"], "instance-1"))
        assert writer(app).text == "abc"


async def test_notes_are_read_whole_by_their_key() -> None:
    """A note that was cut is read with `n`, the newest first."""
    async with desk(FakePort(peers=[API])) as (app, pilot, _port):
        app.model.say("x" * 200)
        app.model.say("last")
        await pilot.press("n")
        await pilot.pause()
        from tieline.adapters.desk.boxes import Reading

        assert isinstance(app.screen, Reading)
        assert app.screen._text.startswith("last\n\nxxx")
