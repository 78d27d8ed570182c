"""`tieline forget`: only what ended, and unread mail only on request."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.adapters.cli.fake import Result
from tieline.errors import Refused

Run = Callable[..., Result]


def test_forget_unread_mail_needs_the_word(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unread mail goes only with --unread, and its count is told."""

    def forget(home: str, instance: str, *, is_unread_too: bool) -> dict[str, Any]:
        if not is_unread_too:
            raise Refused("UNREAD_MAIL", "2 unread")
        return {"messages": 9, "unread": 2, "unsettled": 0}

    monkeypatch.setattr("tieline.adapters.cli.forget.forget", forget)
    refused = run("forget", "i-1", "--json")
    assert (refused.code, refused.json["error"]["code"]) == (1, "UNREAD_MAIL")
    assert "2 of them unread" in run("forget", "i-1", "--unread").out
    shape = run("forget", "i-1", "--unread", "--json").json
    assert shape == {
        "version": 1,
        "command": "forget",
        "instanceId": "i-1",
        "messages": 9,
        "unread": 2,
        "unsettled": 0,
    }


@pytest.mark.parametrize(("name", "code"), [("../../etc", 2), ("i-none", 4)])
def test_forget_name_that_is_none_removes_nothing(run: Run, name: str, code: int) -> None:
    """A path is no instance, and an instance that left nothing is unknown."""
    assert run("forget", name, "--unread").code == code
