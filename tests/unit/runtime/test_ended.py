"""What two real roots leave behind when their process ends."""

import subprocess
import sys
from pathlib import Path

import pytest

from tieline.errors import Refused
from tieline.runtime.ended import Damaged, ended_instances, forget, outbox_of_ended, recover

TALK = """
import asyncio, sys
from tieline.errors import Refused
from tieline.runtime.ended import recover
from tieline.runtime.root import Root

async def talk(home):
    alpha = await Root.open(home=home, alias="alpha", workspace=home, session="s-alpha")
    beta = await Root.open(home=home, alias="beta", workspace=home, session="s-beta")
    await alpha.send("beta", "left unread", message_id="m-1")
    try:
        await asyncio.to_thread(recover, home, beta.who()["instanceId"])
    except Refused as refused:
        print(refused.code)
    print(alpha.who()["instanceId"], beta.who()["instanceId"])
    await alpha.close()
    await beta.close()

asyncio.run(talk(sys.argv[1]))
"""


@pytest.fixture
def left(private_home: Path) -> tuple[str, str, str]:
    """A home in which alpha sent beta one message that nobody read: (home, alpha, beta)."""
    home = str(private_home)
    words = [sys.executable, "-c", TALK, home]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    code, names = done.stdout.splitlines()
    assert code == "STILL_ALIVE"
    alpha, beta = names.split()
    return home, alpha, beta


@pytest.mark.clause("native-182", "native-184", "native-185")
def test_recover_ended_recipient_shows_its_unread_mail_again_and_again(left: tuple[str, str, str]) -> None:
    """Unread mail of an ended instance is shown under its original id, and nothing is moved or marked."""
    home, _, beta = left
    first, second = recover(home, beta), recover(home, beta)
    assert first == second
    assert (first.instanceId, first.sessionId) == (beta, "s-beta")
    (message,) = first.messages
    assert (message["messageId"], message["content"], message["state"]) == ("m-1", "left unread", "accepted")
    assert (message["expired"], message["authority"]) == (False, "external")


@pytest.mark.clause("native-183")
def test_recover_for_another_saved_session_is_refused(left: tuple[str, str, str]) -> None:
    """The association with the saved session is checked before anything is returned."""
    home, _, beta = left
    with pytest.raises(Refused) as caught:
        recover(home, beta, "s-other")
    assert caught.value.code == "SCOPE_DENIED"
    assert len(recover(home, beta, "s-beta").messages) == 1


def test_outbox_of_ended_sender_is_found_by_message_id(left: tuple[str, str, str]) -> None:
    """A message whose sender ended is still known, with its last receipt."""
    home, alpha, _ = left
    (item,) = outbox_of_ended(home, "m-1")
    assert (item["instanceId"], item["receipt"]["state"], item["unsettled"]) == (alpha, "accepted", False)
    assert outbox_of_ended(home, "m-2") == []


def test_forget_unread_mail_only_on_request(left: tuple[str, str, str]) -> None:
    """What was never read goes only when that is asked for; the list says what is left."""
    home, alpha, beta = left
    assert {item.instance: item.unread_count for item in ended_instances(home)} == {alpha: 0, beta: 1}
    with pytest.raises(Refused) as caught:
        forget(home, beta, is_unread_too=False)
    assert caught.value.code == "UNREAD_MAIL"
    assert forget(home, beta, is_unread_too=True) == {"messages": 1, "unread": 1, "unsettled": 0}
    assert forget(home, alpha, is_unread_too=False)["messages"] == 1
    assert ended_instances(home) == []


@pytest.mark.clause("K17")
def test_ended_store_that_is_damaged_is_counted_as_unknown_and_kept(left: tuple[str, str, str]) -> None:
    """Of a damaged store nothing is shown, counted or removed, and what a person can do is no circle."""
    home, _, beta = left
    path = Path(home) / "peer-messages" / beta / "messages.db"
    path.write_bytes(path.read_bytes()[:100] + bytes(12_000))
    (damaged,) = [item for item in ended_instances(home) if item.fault]
    assert (damaged.instance, damaged.unread_count, damaged.message_count) == (beta, None, None)
    for act in (recover, lambda home, beta: forget(home, beta, is_unread_too=True)):
        with pytest.raises(Damaged) as caught:
            act(home, beta)
        assert caught.value.code == "RECOVERY_REQUIRED"
        for command in ("tieline recover", "tieline doctor", "tieline forget"):
            assert command not in caught.value.action
    assert path.exists()


def test_ended_send_tells_no_number_of_attempts(left: tuple[str, str, str]) -> None:
    """How often it was tried ended with the root: it is absent, never 0 beside an answer that came."""
    home, _, _ = left
    (item,) = outbox_of_ended(home, "m-1")
    assert "attempts" not in item
    assert item["expired"] is False
