"""Receipts, errors and exit codes of one or several recipients."""

from typing import Any

import pytest

from tests.unit.adapters.cli.fake import receipt
from tieline.adapters.cli.delivery import Outcome, deliver, new_id, words
from tieline.errors import OutcomeUnknown, RecoveryRequired, Refused


@pytest.mark.parametrize(
    ("states", "codes", "expected"),
    [
        (["accepted", "replied"], [], 0),
        (["accepted", "pending"], [], 3),
        (["accepted"], ["QUEUE_FULL"], 1),
        (["accepted"], ["PEER_OFFLINE"], 4),
        (["unknown"], ["QUEUE_FULL"], 3),
        ([], ["PEER_OFFLINE", "QUEUE_FULL"], 1),
        (["unknown"], ["RECOVERY_REQUIRED"], 5),
        (["expired"], ["UNKNOWN_TARGET"], 1),
    ],
)
def test_exit_code_of_several_is_the_gravest(states: list[str], codes: list[str], expected: int) -> None:
    """One recipient's success never hides another's doubt."""
    outcome = Outcome()
    outcome.add(
        {"receipts": [receipt(state) for state in states], "errors": [{"code": code} for code in codes]}
    )
    assert outcome.exit_code == expected


@pytest.mark.clause("native-210")
def test_words_never_claim_more_than_the_receipt() -> None:
    """Neither consumption nor reply is told as work done, nor an ended run's mail as read."""
    assert "not say that the work is done" in words(receipt("consumed"))
    assert "ended before it read it" in words(receipt(outcome="TARGET_ENDED"))
    assert "does not know" in words(receipt("later-state"))
    assert (
        len({words(receipt(state)) for state in ("pending", "unknown", "accepted", "rejected", "expired")})
        == 5
    )


@pytest.mark.parametrize("durability", ["synced", None])
def test_words_of_an_ended_sender_do_not_say_that_nobody_read(durability: str | None) -> None:
    """What a root that is over knew last is not told as what holds now."""
    told = {**receipt("accepted"), "durability": durability}
    assert "not read yet" in words(told)
    assert "not read yet" not in words(told, is_left=True)
    assert "whether it was read since is not known" in words(told, is_left=True)


def test_new_id_is_never_the_same() -> None:
    """Ids are fresh, and of the form that the wire takes."""
    ids = {new_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(1 <= len(one) <= 256 and one.isascii() and one.isprintable() for one in ids)


class Asked:
    """A client whose answers come from a function."""

    def __init__(self, answer: Any) -> None:
        self.requests: list[dict[str, Any]] = []
        self._answer = answer

    def call(self, method: str, params: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        self.requests.append(dict(params))
        answer: dict[str, Any] = self._answer(params)
        return answer


def test_deliver_to_several_stores_all_before_it_waits() -> None:
    """A slow recipient does not keep the next one's message from being stored; the same id asks again."""

    def slow(params: dict[str, Any]) -> dict[str, Any]:
        state = "accepted" if params["waitMs"] or params["to"] == "quick" else "pending"
        return {"receipts": [receipt(state, messageId=params["messageId"])], "errors": []}

    client = Asked(slow)
    outcome = deliver(client, ["slow", "quick"], {"content": "x"}, 2.0)  # type: ignore[arg-type]
    assert [(one["to"], one["waitMs"] > 0) for one in client.requests] == [
        ("slow", False),
        ("quick", False),
        ("slow", True),
    ]
    assert client.requests[0]["messageId"] == client.requests[2]["messageId"]
    assert [one["state"] for one in outcome.receipts] == ["accepted", "accepted"]
    assert outcome.exit_code == 0


def test_deliver_one_failure_leaves_the_others() -> None:
    """What is raised for one recipient is that recipient's error."""
    errors = {
        "a": OutcomeUnknown("lost", "m"),
        "b": Refused("QUEUE_FULL", "full"),
        "c": RecoveryRequired("doubt"),
    }

    def answer(params: dict[str, Any]) -> dict[str, Any]:
        if params["to"] in errors:
            raise errors[params["to"]]
        return {"receipts": [receipt()], "errors": []}

    outcome = deliver(Asked(answer), ["a", "b", "c", "d"], {"content": "x"}, 0.0)  # type: ignore[arg-type]
    assert [error["code"] for error in outcome.errors] == [
        "DELIVERY_UNKNOWN",
        "QUEUE_FULL",
        "RECOVERY_REQUIRED",
    ]
    assert outcome.errors[0]["messageId"] == "m"
    assert len(outcome.receipts) == 1
    assert outcome.exit_code == 5


@pytest.mark.parametrize("note", ["BROKER_ACCEPTED", "BROKER_QUEUED", "CHECKPOINTED", "PLACED"])
def test_word_of_a_broker_ends_a_send_well_and_claims_no_custody(note: str) -> None:
    """No stronger answer may ever come on that wire; the words say what is not known."""
    outcome = Outcome()
    outcome.add({"receipts": [receipt("unknown", outcome=note)], "errors": []})
    assert outcome.exit_code == 0
    assert words(receipt("unknown", outcome=note)).endswith(f"({note})")
    assert "accepted:" not in words(receipt("unknown", outcome=note))
