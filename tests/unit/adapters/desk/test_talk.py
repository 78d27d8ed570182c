import pytest

from tests.unit.adapters.desk.kit import NOW_MS, OWN, message
from tieline.adapters.desk import talk as module
from tieline.adapters.desk.talk import Talk

API = "peer-" + f"{1:032x}"


def name(peer: str, alias: str) -> str:
    return alias or {API: "api", OWN: "me"}.get(peer, peer)


def clock(_ms: int) -> str:
    return "12:00:00"


def text(talk: Talk, chain: str, width: int = 80) -> str:
    return "\n".join("".join(piece.text for piece in row) for row in talk.lines(chain, width, name, clock))


def told(*messages: dict[str, object]) -> Talk:
    talk = Talk(OWN)
    talk.told(messages)
    return talk


def test_reply_joins_its_conversation_and_moves_replace_messages() -> None:
    """A chain is one conversation in both directions; what moved takes the place of what was."""
    talk = told(message("m-1", "which?", ask=True))
    assert talk.counts() == (1, 1, 0)
    fresh = talk.told(
        [
            message("m-1", "which?", ask=True, state="replied"),
            message("m-2", "that", sender=OWN, to=API, replyTo="m-1", at_ms=NOW_MS + 1),
        ]
    )
    assert fresh == [], "neither came anew"
    assert talk.keys() == ["m-1"]
    assert len(talk.threads["m-1"].messages) == 2
    assert talk.counts() == (0, 0, 0)
    assert talk.business() == {}


def test_messages_of_one_id_from_two_senders_are_two() -> None:
    """A message is its sender, its id and its recipient."""
    talk = told(message("m-1", "one"), message("m-1", "two", sender="peer-other"))
    assert len(talk.threads["m-1"].messages) == 2


def test_answerable_is_the_oldest_open_question_else_the_newest() -> None:
    """A reply goes to what is open first; held mail is not answered before it is let in."""
    talk = told(
        message("m-1", "a", at_ms=NOW_MS),
        message("m-2", "b", ask=True, at_ms=NOW_MS + 1, replyTo="m-1"),
        message("m-3", "c", at_ms=NOW_MS + 2, replyTo="m-1"),
    )
    found = talk.threads["m-1"].answerable()
    assert found is not None
    assert found["messageId"] == "m-2"
    assert told(message("m-5", None, isHeld=True)).threads["m-5"].answerable() is None
    own = told(message("m-6", sender=OWN, to=API))
    assert own.threads["m-6"].answerable() is None
    assert own.threads["m-6"].other["id"] == API


def test_question_of_ours_without_answer_is_awaited() -> None:
    """It stands before what is done, and is business with its recipient."""
    talk = told(
        message("m-1", state="consumed"), message("m-2", sender=OWN, to=API, ask=True, at_ms=NOW_MS - 9)
    )
    assert talk.keys() == ["m-2", "m-1"]
    assert talk.business() == {API: "awaited"}
    assert talk.with_peer(API) == "m-1"
    assert talk.with_peer("nobody") is None


@pytest.mark.clause("K22")
def test_body_is_whole_escaped_and_indented(monkeypatch: pytest.MonkeyPatch) -> None:
    """No line of a body can pose as one of ours; what is too long says where the rest is."""
    talk = told(message("m-1", "one\n20:26:40 :you to :api\n\x1b[2J", topic="t\x07",
                        attachments=[{"name": "a\x1b", "mediaType": "text/plain", "text": "x"}]))  # fmt: skip
    shown = text(talk, "m-1")
    assert "  | 20:26:40 :you to :api" in shown
    assert "  | \\x1b[2J" in shown
    assert "\x1b" not in shown
    assert "attached: a\\x1b (text/plain), 1 characters" in shown
    monkeypatch.setattr(module, "BODY_LINES_MAX", 3)
    assert "(more: `tieline status m-2`" in text(told(message("m-2", "x" * 1000)), "m-2", 40)
    assert text(talk, "unknown") == ""


def test_every_receipt_has_its_time_and_words() -> None:
    """Each state once, with its time, then what is known now as a sentence."""
    steps = [{"state": "unknown", "at": "2026-05-28T20:26:40.000Z", "outcome": "BROKER_ACCEPTED"},
             {"state": "expired", "at": "2026-05-28T20:27:40.000Z", "outcome": "NOT_DELIVERED"}]  # fmt: skip
    shown = text(told(message("m-1", sender=OWN, to=API, steps=steps, said="Never delivered.")), "m-1")
    assert "12:00:00 unknown   the broker passed it on" in shown
    assert "12:00:00 expired   never delivered" in shown
    assert "Never delivered." in shown
    assert "you to :api" in shown
    row = "".join(piece.text for piece in told(message("m-1")).row("m-1", 80, name, clock))
    assert len(row) <= 80
    assert row.startswith("* unread   :api")
