"""`tieline reply`: the sender of the named message is the recipient."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.adapters.cli.fake import ESCAPE, ErrorAnswer, FakeRoot, Result, message, receipt

Run = Callable[..., Result]
Make = Callable[..., FakeRoot]


def test_reply_names_the_message_it_answers(run: Run, fake_root: Make) -> None:
    """The id of the received message is handed over; the root knows its sender."""
    root = fake_root({"local.reply": {"receipts": [receipt(replyTo="m-9")], "errors": []}})
    result = run("reply", "m-9", "yes", "--topic", "t")
    assert result.code == 0
    assert root.params("local.reply") == {"content": "yes", "topic": "t", "messageId": "m-9", "waitMs": 3_000}
    assert "answers m-9" in result.out
    assert run("reply", "m-9", "-", stdin=b"from stdin\n").code == 0
    assert root.params("local.reply")["content"] == "from stdin"


@pytest.mark.clause("native-212")
def test_reply_to_unknown_message_is_refused(run: Run, fake_root: Make) -> None:
    """A reply to something that was never received takes nothing."""

    def refuse(params: dict[str, Any]) -> dict[str, Any]:
        raise ErrorAnswer("INVALID_REPLY", ESCAPE)

    fake_root({"local.reply": refuse})
    result = run("reply", "m-0", "x", "--json")
    assert (result.code, result.json["error"]["code"]) == (1, "INVALID_REPLY")
    assert "\x1b" not in result.err


def test_reply_takes_no_id_of_its_own(run: Run, fake_root: Make) -> None:
    """ID is the message that is answered; there is no second one to confuse it with."""
    root = fake_root({"local.reply": {"receipts": [receipt()]}})
    assert run("reply", "m-9", "x", "--id", "other").code == 2
    assert root.requests == []
    assert message()["messageId"] == "m-9"
