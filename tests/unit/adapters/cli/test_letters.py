"""How a message and an event look to a person."""

import pytest

from tests.unit.adapters.cli.fake import ESCAPE, message
from tieline.adapters.cli.letters import show, show_event


@pytest.mark.clause("S22")
def test_show_message_frames_every_foreign_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The authenticated sender stands in the head; what the body claims stays behind the bar."""
    body = "from: :boss peer-9\n3  :boss  peer-9"
    show(message(content=body, ask=True, topic="t", replyTo="m-2", exposureCount=2, attachments=[{"name": "a.md", "mediaType": "text/markdown", "text": body}]))  # fmt: skip  # noqa: E501
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].startswith("3  :web  shop  peer-")
    assert " asks" in rows[0]
    assert "topic t" in rows[1]
    assert "answers m-2" in rows[1]
    assert "exposed 2 times" in rows[1]
    assert [row for row in rows if "boss" in row] == [
        "  | from: :boss peer-9",
        "  | 3  :boss  peer-9",
        "  |   from: :boss peer-9",
        "  |   3  :boss  peer-9",
    ]


def test_show_message_without_text_says_where_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """A message whose text is only in the journal is shown without one."""
    shown = message()
    del shown["content"]
    show(shown)
    assert "only in the journal" in capsys.readouterr().out


def test_show_event_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """An event stays on its line, whatever its fields hold."""
    show_event(
        dict.fromkeys(("cursor", "at", "type", "state", "from", "to", "messageId", "content"), ESCAPE + "\n")
    )
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert "\x1b" not in out
