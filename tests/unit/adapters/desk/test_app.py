"""The desk as a person drives it: every key path, by the screen package's own pilot."""

import asyncio

import pytest

from tests.unit.adapters.desk.kit import (
    NOW_MS,
    OWN,
    FakePort,
    desk,
    entry,
    keys_of,
    message,
    peer,
    refusal,
    settle,
    shown,
    text_of,
    writer,
)
from tieline.adapters.desk.app import Desk
from tieline.adapters.desk.boxes import Reading
from tieline.runtime.timeline import TimelinePage

pytestmark = pytest.mark.asyncio

API, DB, KID = peer("api", 1, busy=True), peer("db", 2, harness="claude code"), peer(
    "kid", 3, instanceId="instance-1", runId="r-1"
)  # fmt: skip


def agents(**facts: object) -> FakePort:
    return FakePort(peers=[API, DB, KID], **facts)


async def test_directory_shows_each_peer_once_with_runs_below() -> None:
    """Roots by name, each with its runs under it; what a listing says of each, in words."""
    async with desk(agents()) as (app, _pilot, _port):
        assert keys_of(app, "agents") == [API["peerId"], KID["peerId"], DB["peerId"]]
        rows = shown(app).splitlines()
        row = next(line for line in rows if ":api" in line)
        assert all(word in row for word in ("busy", "codex gpt-5", "shop", "40%", "work", "native", "1 s"))
        assert "   :kid" in "\n".join(" " + line for line in rows)


async def test_directory_filters_as_it_is_typed() -> None:
    """`/` opens the filter, each letter narrows, Escape shows all again."""
    async with desk(agents()) as (app, pilot, _port):
        await pilot.press("slash", *"claude")
        assert keys_of(app, "agents") == [DB["peerId"]]
        await pilot.press("x")
        assert "nobody fits" in shown(app)
        await pilot.press("escape")
        assert len(keys_of(app, "agents")) == 3
        await pilot.press("slash", *":kid", "enter")
        assert keys_of(app, "agents") == [API["peerId"], KID["peerId"]]
        assert app.focused is app.lines("agents")


async def test_peer_that_comes_and_ends_is_seen_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of the directory is read by itself; who ended with an open question stays, marked as ended."""
    monkeypatch.setattr("tieline.adapters.desk.app.LOOK_S", 0.05)
    port = agents(messages=[message("m-1", "Is it green?", ask=True)])
    async with desk(port) as (app, pilot, _port):
        port.peers = [DB, peer("web", 4)]
        port.changed.add("agents")
        await pilot.pause(0.5)
        await settle(app, pilot)
        text = shown(app)
        assert ":web" in text
        assert next(line for line in text.splitlines() if ":api" in line).split()[1] == "ended"
        assert ":kid" not in text, "who left nothing is gone"
        assert ":api has ended; its unanswered question stays here" in text
        await pilot.press("2")
        assert "Is it green?" in shown(app)


@pytest.mark.clause("native-126")
async def test_arrival_is_noted_once_in_one_line_and_leaves_the_focus() -> None:
    """A notification is one line that the screen draws; focus, draft and cursor stay where they are."""
    async with desk(agents()) as (app, pilot, port):
        await pilot.press("colon", *"api x", "left")
        before = writer(app).draft
        port.arrive(message("m-1", "line one\nline two", fromProject="shop"))
        await settle(app, pilot)
        assert text_of(app, "#note") == "Message from :api · shop · 2 shows it"
        assert app.focused is writer(app)
        assert writer(app).draft == before
        port.tell("peer_update", {"event": {"type": "message", "messageId": "m-1"}})
        await settle(app, pilot)
        assert len(app.model.notes) == 1, "it is told once"


@pytest.mark.clause("native-126")
async def test_callback_from_below_draws_nothing() -> None:
    """What is told from below marks a part as old; the next reading draws it."""
    async with desk(agents()) as (app, pilot, port):
        before = shown(app)
        port.arrive(message("m-1", "hello"))
        assert shown(app) == before
        await settle(app, pilot)
        assert shown(app) != before


@pytest.mark.clause("native-130")
async def test_reply_goes_to_its_sender_with_its_correlation() -> None:
    """`r` answers the oldest open question of the conversation; Enter sends, and the receipt is told."""
    port = agents(messages=[message("m-1", "Is it green?", ask=True), message("m-2", "and red?", ask=True)])
    async with desk(port) as (app, pilot, _port):
        await pilot.press("2", "r", *"yes")
        assert "to :api, answers m-" in text_of(app, "#target")
        await pilot.press("enter")
        await settle(app, pilot)
        (sent,) = port.sent()
        assert (sent["to"], sent["content"]) == (API["peerId"], "yes")
        assert sent["replyTo"] in ("m-1", "m-2")
        assert text_of(app, "#note").startswith("To :api: accepted.")
        assert writer(app).text == ""
        port.arrive(message("m-1", "Is it green?", ask=True, state="replied"))
        await settle(app, pilot)
        assert "The recipient replied." in shown(app)
        await pilot.press("4")
        assert (app.pane, writer(app).text) == ("waits", ""), "the keys are the pane's again"


async def test_looking_consumes_nothing_and_m_marks_as_read() -> None:
    """Moving, opening and scrolling call nothing that consumes; `m` marks the conversation's unread mail."""
    port = agents(messages=[message("m-1", "hello"), message("m-2", "again", replyTo="m-1")])
    async with desk(port) as (app, pilot, _port):
        await pilot.press("2", "down", "up", "enter", "down", "pagedown", "escape", "5", "2")
        await settle(app, pilot)
        assert {name for name, _ in port.calls} <= {"list_peers", "local.conversations", "resource.list"}
        await pilot.press("m")
        await settle(app, pilot)
        assert [one["messageId"] for one in port.sent("peer_messages")] == ["m-1", "m-2"]


async def test_unanswered_question_is_on_top_and_held_above_it() -> None:
    """First what waits for the person's word, then questions, then unread, then the rest."""
    port = agents(
        messages=[
            message("m-1", "old", state="consumed", at_ms=NOW_MS - 5),
            message("m-2", "new", state="consumed"),
            message("m-3", "unread", at_ms=NOW_MS - 9),
            message("m-4", "ask", ask=True, at_ms=NOW_MS - 99),
            message("m-5", None, isHeld=True, isUnread=False, at_ms=NOW_MS - 999, state="pending"),
        ]
    )
    async with desk(port) as (app, _pilot, _port):
        assert keys_of(app, "talk") == ["m-5", "m-4", "m-3", "m-2", "m-1"]
        assert "1 held, 1 question" in text_of(app, "#head")


@pytest.mark.parametrize(("key", "is_accepted"), [("a", True), ("d", False)])
async def test_held_message_is_let_in_or_sent_away(key: str, is_accepted: bool) -> None:
    """What the wire holds for consent is shown without its text; `a` accepts it, `d` denies it."""
    port = agents(messages=[message("m-5", None, isHeld=True, isUnread=False, state="pending")])
    async with desk(port) as (app, pilot, _port):
        await pilot.press("2")
        assert "its text waits for your word" in shown(app)
        await pilot.press(key)
        await settle(app, pilot)
        assert port.sent("local.consent") == [{"messageId": "m-5", "accept": is_accepted}]


@pytest.mark.clause("native-129", "native-130")
async def test_picked_recipient_is_exact_also_where_two_bear_its_name() -> None:
    """`:` opens the list; arrows choose, Enter takes, Enter sends to that incarnation."""
    port = FakePort(peers=[peer("api", 1), peer("api", 2)])
    async with desk(port) as (app, pilot, _port):
        await pilot.press("colon", "a", "down", "enter", *"go", "enter")
        await settle(app, pilot)
        assert [one["to"] for one in port.sent()] == [peer("api", 2)["peerId"]]
        assert port.sent()[0]["content"] == "go"
        await pilot.press(*":api", "escape", *" go", "enter")
        await settle(app, pilot)
        assert text_of(app, "#note").startswith("AMBIGUOUS_TARGET: 2 peers are called :api")
        assert len(port.sent()) == 1
        assert writer(app).text == ":api go", "what was typed stays"


@pytest.mark.clause("native-131")
async def test_inline_reference_sends_nothing() -> None:
    """A name in the middle of a text is a reference: nobody is told anything."""
    async with desk(agents()) as (app, pilot, port):
        await pilot.press("colon", "backspace", *"compare with :db", "enter", "enter")
        await settle(app, pilot)
        assert port.sent() == []
        assert "This is for nobody" in text_of(app, "#note")
        assert "It names :db; they were told nothing." in app.model.notes[-1]
        assert writer(app).text.startswith("compare with :db")


@pytest.mark.parametrize("text", ["https://host:3000", "at 12:30", ":smile:", "C:\\x", "/x :api", "!x :api"])
@pytest.mark.clause("native-128")
async def test_literal_opens_no_picker_at_its_end(text: str) -> None:
    """What holds a colon and names nobody opens no list, and Enter sends it to nobody."""
    async with desk(agents()) as (app, pilot, port):
        await pilot.press("colon", "backspace")
        writer(app).insert(text)
        await pilot.pause()
        assert not writer(app).is_picking
        await pilot.press("enter")
        await settle(app, pilot)
        assert port.sent() == []


async def test_escape_closes_picker_and_keeps_draft() -> None:
    """Escape closes the list, then leaves the composer, then forgets whom it was for; the text stays."""
    async with desk(agents()) as (app, pilot, _port):
        await pilot.press("colon", "d")
        assert writer(app).is_picking
        await pilot.press("escape")
        assert not writer(app).is_picking
        assert app.focused is writer(app)
        await pilot.press("escape")
        assert app.focused is app.lines("agents")
        assert writer(app).text == ":d"
        await pilot.press("enter", *"x", "escape", "escape")
        assert writer(app).draft.to is None
        assert "x" in writer(app).text


@pytest.mark.clause("native-129")
async def test_binding_to_ended_peer_is_refused_and_picked_again() -> None:
    """A recipient that ended, or came back as another, is PEER_OFFLINE; the list opens to pick anew."""
    async with desk(agents()) as (app, pilot, port):
        await pilot.press("colon", "d", "enter", *"go")
        port.peers = [peer("db", 9)]
        app._is_old("agents")
        await settle(app, pilot)
        await pilot.press("enter")
        await settle(app, pilot)
        assert text_of(app, "#note").startswith("PEER_OFFLINE: :db, as it was picked")
        assert port.sent() == []
        assert writer(app).is_picking
        await pilot.press("enter", "enter")
        await settle(app, pilot)
        assert [one["to"] for one in port.sent()] == [peer("db", 9)["peerId"]]
        assert port.sent()[0]["content"] == "go"


@pytest.mark.clause("native-125", "native-129")
async def test_draft_survives_arrival_modal_resize_and_restart() -> None:
    """Text, cursor and bindings are what they were after mail, a box, another size, and another desk."""
    port = agents()
    async with desk(port) as (app, pilot, _port):
        await pilot.press("colon", "d", "enter", *"go on", "left", "left")
        before = writer(app).draft
        assert (before.text, before.cursor, before.bindings[0].peer_id) == (":db go on", 7, DB["peerId"])
        port.arrive(message("m-1", "interrupting"))
        await settle(app, pilot)
        assert writer(app).draft == before
        assert app.focused is writer(app)
        app.push_screen(Reading("title", "text"))
        await pilot.pause()
        await pilot.press("escape")
        assert writer(app).draft == before
        await pilot.resize_terminal(40, 10)
        assert "the desk needs 60 and 16" in shown(app)
        await pilot.press("2", "m", "r", "5")
        await pilot.resize_terminal(100, 30)
        await pilot.pause()
        assert (app.pane, port.sent("peer_messages")) == ("agents", []), "no key acts on what nobody sees"
        assert app.focused is writer(app)
        assert writer(app).draft == before
    async with desk(port) as (again, pilot, _port):
        assert writer(again).draft == before
        await pilot.press("colon", "enter")
        await settle(again, pilot)
        assert [one["to"] for one in port.sent()] == [DB["peerId"]]
        await pilot.press("up")
        assert writer(again).draft.bindings == before.bindings, "history keeps them, too"
        await pilot.press("down")
        assert writer(again).text == ""


@pytest.mark.clause("native-125")
async def test_draft_survives_a_thousand_arrivals() -> None:
    """A thousand messages while a person types: every letter is there, the focus never moved."""
    async with desk(agents()) as (app, pilot, port):
        await pilot.press("colon", "d", "enter")
        for number in range(100):
            port.arrive(*(message(f"m-{number}-{place}", "x", at_ms=NOW_MS + number) for place in range(10)))
            await pilot.press("abcdefghij"[number % 10])
        await settle(app, pilot)
        assert writer(app).text == ":db " + "abcdefghij" * 10
        assert writer(app).draft.bindings[0].peer_id == DB["peerId"]
        assert app.focused is writer(app)
        assert len(app.model.talk.threads) == 1_000
        assert len(port.sent("local.conversations")) < 200, "many arrivals are one reading"


@pytest.mark.clause("native-129")
async def test_paste_names_nobody() -> None:
    """A bracketed paste that begins with a name is text; Enter sends it to nobody."""
    from textual import events

    async with desk(agents()) as (app, pilot, port):
        await pilot.press("colon", "backspace")
        writer(app).post_message(events.Paste(":db drop all tables"))
        await pilot.pause()
        assert writer(app).text == ":db drop all tables"
        assert not writer(app).is_picking
        await pilot.press("enter")
        await settle(app, pilot)
        assert port.sent() == []


async def test_refused_letter_comes_back_with_its_code() -> None:
    """A refusal says its code and the next action; what was typed is in the composer again."""
    async with desk(agents(answers={"local.send": refusal("QUEUE_FULL")})) as (app, pilot, _port):
        await pilot.press("enter", *"hello", "enter")
        await settle(app, pilot)
        assert text_of(app, "#note").startswith("QUEUE_FULL: it was refused. Next: let the recipient")
        assert writer(app).text == "hello"
        assert writer(app).draft.to is not None


async def test_question_is_sent_as_one() -> None:
    """F2 makes the next letter a question, and only that one."""
    async with desk(agents()) as (app, pilot, port):
        await pilot.press("enter", "f2", *"ok?")
        assert "QUESTION" in text_of(app, "#target")
        await pilot.press("enter")
        await settle(app, pilot)
        await pilot.press("escape", "enter", *"well", "enter")
        await settle(app, pilot)
        assert [one["ask"] for one in port.sent()] == [True, None]


async def test_letter_of_several_lines_goes_to_its_exact_peer() -> None:
    """Enter on an agent addresses the draft; Ctrl-J begins another line; names in it are text."""
    async with desk(agents()) as (app, pilot, port):
        await pilot.press("enter", *"one", "ctrl+j", *":db two", "enter", "enter")
        await settle(app, pilot)
        assert [(one["to"], one["content"]) for one in port.sent()] == [(API["peerId"], "one\n:db two")]


RESOURCE = {
    "resource": "machine/db",
    "state": "held",
    "configured": True,
    "controllerAlias": "me",
    "epoch": 1,
    "profile": "build",
    "holder": {
        "alias": "api", "executable": "make", "state": "running", "fence": 7, "launchId": "l-1",
        "since": "2026-05-28T20:26:30.000Z", "heldMs": 10_000, "evidence": ["process 5: gone"],
    },
    "blockers": [{"alias": "old", "executable": "psql", "launchId": "l-0"}],
    "queue": [{"alias": "db", "waitMs": 4_000, "reason": "migrate", "requestId": "r-1"}],
    "nextAction": "wait for the holder",
}  # fmt: skip


async def test_resources_show_holder_queue_and_evidence_and_act() -> None:
    """Who holds, since when, who queues, what blocks; `g` grants, `c` cancels."""
    async with desk(agents(resources=[RESOURCE])) as (app, pilot, port):
        await pilot.press("3")
        text = shown(app)
        for said in ("machine/db", ":api (make), running, fence 7, for 10 s", "process 5: gone",
                     ":old (psql)",
                     ":db for 4 s: migrate", "[r-1]", ":me grants"):  # fmt: skip
            assert said in text, said
        await pilot.press("g")
        await settle(app, pilot)
        await pilot.press("end", "up", "c")
        await settle(app, pilot)
        assert port.sent("coordinate_resource") == [
            {"operation": "grant", "requestId": "r-1"},
            {"operation": "cancel_request", "requestId": "r-1"},
        ]


async def test_recovery_needs_the_typed_launch_id() -> None:
    """`x` shows the evidence; the launch id, typed, recovers; another text changes nothing."""
    async with desk(agents(resources=[RESOURCE])) as (app, pilot, port):
        await pilot.press("3", "x")
        await settle(app, pilot)
        assert "put the cursor on a holder" in text_of(app, "#note")
        await pilot.press("down", "down", "x")
        await settle(app, pilot)
        assert "launch l-1 holds machine/db" in shown(app)
        await pilot.press(*"l-2", "enter")
        assert "That is not it" in shown(app)
        await pilot.press("escape")
        await settle(app, pilot)
        assert port.recovered == []
        await pilot.press("x")
        await settle(app, pilot)
        await pilot.press(*"l-1", "enter")
        await settle(app, pilot)
        assert [one[:2] for one in port.recovered] == [("machine/db", "l-1")]


def ring(own: bool = False) -> dict[str, object]:
    first = OWN if own else API["peerId"]
    names = {first: "me" if own else "api", DB["peerId"]: "db"}
    waits = [
        {"waiter": first, "awaited": DB["peerId"], "kind": "ask", "subject": "m-9"},
        {"waiter": DB["peerId"], "awaited": first, "kind": "ask", "subject": "m-1"},
    ]
    act = {"peer": first, "act": "answer", "other": DB["peerId"], "subject": "m-1", "text": "answer :db"}
    return {
        "waits": waits,
        "cycles": [
            {
                "peers": [{"peerId": one, "alias": names[one]} for one in names],
                "waits": waits,
                "givesWay": first,
                "ways": [act],
                "text": "a ring",
            }
        ],
    }


async def test_ring_is_drawn_told_and_broken_by_who_can() -> None:
    """A ring is named the moment it closes; `f` writes to who should give way; Enter sends it."""
    async with desk(agents()) as (app, pilot, port):
        port.view = ring()
        port.tell("peer_update", {"event": {"type": "wait_cycle"}})
        await settle(app, pilot)
        assert text_of(app, "#note") == "RING of waits: a ring · 4 shows how to break it"
        assert "(1 RING)" in text_of(app, "#tabs")
        await pilot.press("4")
        text = shown(app)
        assert "╭▶ :api ──asks──▶ :db" in text
        assert "╰─ :db ──asks──▶ :api" in text
        assert ":api (should) can answer :db" in text
        await pilot.press("f", "enter")
        await settle(app, pilot)
        (sent,) = port.sent()
        assert sent["to"] == API["peerId"]
        assert "You can answer :db" in sent["content"]
        port.view = {"waits": [], "cycles": []}
        app._is_old("waits")
        await settle(app, pilot)
        assert "is broken" in text_of(app, "#note")
        assert "nobody waits for anybody" in shown(app)


async def test_own_place_in_a_ring_is_left_by_answering() -> None:
    """Where the person is in the ring, `f` opens the answer to the question that closes it."""
    port = agents(messages=[message("m-1", "which?", ask=True, sender=DB["peerId"], alias="db")])
    port.view = ring(own=True)
    async with desk(port) as (app, pilot, _port):
        await pilot.press("4", "f", *"that", "enter")
        await settle(app, pilot)
        assert [(one["to"], one["replyTo"]) for one in port.sent()] == [(DB["peerId"], "m-1")]


async def test_timeline_is_searched_and_exported() -> None:
    """`/` searches by words, peer and state; `e` writes what is shown as JSON lines."""
    port = agents(page=TimelinePage((entry("first"), entry("second", 2, is_ask=True))))
    async with desk(port) as (app, pilot, _port):
        await pilot.press("5")
        text = shown(app)
        assert text.index("second") < text.index("first"), "the newest is on top"
        await pilot.press("slash", *"red peer:db state:accepted", "enter")
        await settle(app, pilot)
        query = port.queries[-1]
        assert (query.text, query.peer, query.states) == ("red", "db", frozenset({"accepted"}))
        await pilot.press("e")
        await settle(app, pilot)
        (lines,) = port.exports.values()
        assert len(lines.splitlines()) == 2
        assert "2 lines are in /home/me/.tieline/desk/timeline-" in text_of(app, "#note")
        await pilot.press("enter", "escape", "slash", *"state:nonsense", "enter")
        await settle(app, pilot)
        assert "state is one of accepted" in text_of(app, "#note")


async def test_help_lists_the_keys_and_closes() -> None:
    """`?` lists every key that the desk has."""
    async with desk(agents()) as (app, pilot, _port):
        await pilot.press("question_mark")
        text = shown(app)
        for key in ("1 to 5", "Enter", "F2", "Timeline", "r replies"):
            assert key in text
        await pilot.press("escape")
        assert "The keys of the desk" not in shown(app)


async def test_last_answer_is_shown_without_waking() -> None:
    """`l` shows the last finished answer; a peer without one is said."""
    port = agents(answers={"local.last": {"entry": "e-1", "text": "All \x1b[2Jgreen."}})
    async with desk(port) as (app, pilot, _port):
        await pilot.press("l")
        await settle(app, pilot)
        assert "All \\x1b[2Jgreen." in shown(app)
        await pilot.press("q")
        port.answers["local.last"] = {"entry": None}
        await pilot.press("l")
        await settle(app, pilot)
        assert ":api has finished no answer yet" in text_of(app, "#note")


async def test_talk_of_an_agent_is_one_key_away() -> None:
    """`t` shows the newest conversation with the agent under the cursor, or says that there is none."""
    port = agents(messages=[message("m-1"), message("m-2", sender=DB["peerId"], alias="db", ask=True)])
    async with desk(port) as (app, pilot, _port):
        await pilot.press("t")
        assert app.pane == "talk"
        assert app.lines("talk").key == "m-1"
        await pilot.press("1", "down", "t")
        await settle(app, pilot)
        assert "nothing was said with it" in text_of(app, "#note")


async def test_small_terminal_gets_a_sentence() -> None:
    """Below 60 columns or 16 rows one sentence says what is needed; larger again shows the desk."""
    async with desk(agents(), size=(50, 12)) as (app, pilot, _port):
        assert "This terminal has 50 columns and 12 rows" in shown(app)
        await pilot.resize_terminal(60, 16)
        await pilot.pause()
        assert ":api" in shown(app)
    async with desk(agents(), size=(10, 2)) as (app, _pilot, _port):
        assert "This" in shown(app)


async def test_failed_reading_keeps_what_was_known() -> None:
    """A part that cannot be read says why and shows what it had."""
    async with desk(agents()) as (app, pilot, port):
        port.answers["resource.list"] = None

        async def broken(method: str, **_: object) -> dict[str, object]:
            raise refusal("RECOVERY_REQUIRED")

        port.call = broken  # type: ignore[method-assign]
        app._is_old("agents")
        await settle(app, pilot)
        assert text_of(app, "#note").startswith("RECOVERY_REQUIRED: it was refused.")
        assert ":api" in shown(app)


async def test_quit_keeps_draft_and_unsubscribes() -> None:
    """`q` ends the desk in order: the draft is kept, nobody is told anything any more."""
    port = agents()
    app = Desk(port)
    async with app.run_test() as pilot:
        await settle(app, pilot)
        await pilot.press("colon", "d", "enter", "escape", "q")
        await asyncio.sleep(0)
    assert port.shape["draft"]["text"] == ":db "
    assert port.told == []


async def test_mouse_chooses_a_row() -> None:
    """The mouse is optional: a click moves the cursor, a double click chooses."""
    async with desk(agents()) as (app, pilot, _port):
        await pilot.click("#agents-list", offset=(5, 2))
        assert app.lines("agents").key == DB["peerId"]
        await pilot.click("#agents-list", offset=(5, 0), times=2)
        assert writer(app).draft.to is not None
        assert writer(app).draft.to.peer_id == API["peerId"]
