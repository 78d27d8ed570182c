"""What others read of a root, and what the sender of a refused message is told."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.intercom.kit import intercom_of, station, tool, until
from tests.unit.runtime.roots import call
from tieline.errors import Refusal
from tieline.runtime.intercom import reads
from tieline.runtime.intercom.postal import SHARED
from tieline.wire.intercom.client import LastAsked, MessageCame
from tieline.wire.intercom.mapping import FAILURE_NAME, instance_of

pytestmark = pytest.mark.asyncio
ROW = {"id": "pi-x", "cwd": "/", "model": "m"}


@pytest.mark.clause("intercom-136")
async def test_page_is_of_the_pinned_answer_or_an_explicit_no(private_home: Path) -> None:
    """Nothing yet is said so; another entry, a place inside a pair, and a limit beyond the bound."""
    async with station(private_home) as at:
        root = await at.root("api")
        told = intercom_of(root).reads

        def page(entry: str | None, offset: int, limit: int) -> dict[str, Any]:
            return told._page(LastAsked("t", ROW, entry, offset, limit))

        assert page(None, 0, 5)["empty"] is True
        assert page("x", 0, 5) == {"error": "entry_not_found"}
        await call(root, "host.answer", entry="e", text="\U0001f600" * 3)
        assert page(None, 0, 3) == {"entryId": "e", "text": "\U0001f600", "offset": 0, "nextOffset": 2}
        assert page("e", 1, 3) == {"error": "invalid_offset"}
        assert page("e", 4, 99_999)["nextOffset"] is None
        # A page without a character would name itself as the next one, for ever.
        assert page("e", 2, 1) == {"error": "invalid_limit"}
        assert page("e", 6, 1)["nextOffset"] is None


@pytest.mark.clause("intercom-137")
async def test_receipt_is_of_the_first_word_and_only_of_what_is_on_disk(private_home: Path) -> None:
    """A message that is not stored is not found; a later word of its id changes nothing."""
    async with station(private_home) as at:
        one, other = await at.root("one"), await at.root("other")
        sent = await tool(one, "send", to="other", message="exact")
        mine = intercom_of(other).reads
        await until(lambda: "receipt" in mine.receipt("s-other", sent["messageId"]))
        facts = mine.receipt("s-other", sent["messageId"])["receipt"]
        assert (facts["delivery"], facts["queued"], facts["placementEntryId"]) == ("steer", True, None)
        spoofed = {"id": sent["messageId"], "timestamp": 1, "content": {"text": "other text"}}
        mine.recorded(MessageCame({**ROW, "id": intercom_of(one).peer}, spoofed))
        assert mine.receipt("s-other", sent["messageId"])["receipt"] == facts
        mine._provenance.clear()
        assert mine.receipt("s-other", sent["messageId"]) == {"error": "receipt_not_found"}
        mine._is_evicted = True
        again = mine.receipt("s-other", sent["messageId"])["receipt"]
        assert (again["textSha256"], again["sender"]["incarnation"]) == (facts["textSha256"], None)
        assert mine.receipt("s-one", sent["messageId"]) == {"error": "publication_unavailable"}


async def test_memory_of_receipts_is_bounded(private_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes, and from then on what the store alone knows is told."""
    monkeypatch.setattr(reads, "PROVENANCE_MAX", 2)
    async with station(private_home) as at:
        mine = intercom_of(await at.root("api")).reads
        for number in range(3):
            message = {"id": f"m{number}", "timestamp": 1, "content": {"text": "t"}}
            mine.recorded(MessageCame(ROW, message))
        assert [key for _, key in mine._provenance] == ["m1", "m2"]
        assert (instance_of("pi-x"), "m1") in mine._provenance


@pytest.mark.clause("intercom-77")
async def test_refused_sender_is_told_where_that_helps_and_never_in_a_loop(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question gets a failure that ends its wait, a message that found no room a passive word; no more."""
    async with station(private_home) as at:
        intercom = intercom_of(await at.root("api"))
        said: list[dict[str, Any]] = []
        monkeypatch.setattr(intercom.post, "say", lambda _member, _to, message: said.append(message))

        def turn_away(code: str, **fields: Any) -> None:
            message = {"id": "m", "timestamp": 1, "content": {"text": "t"}, **fields}
            refusal = Refusal(code, "no")
            intercom.reads.turned_away(SHARED, MessageCame(ROW, message), refusal)

        turn_away("QUEUE_FULL", expectsReply=True)
        (failure,) = said.pop()["content"]["attachments"]
        assert failure["name"] == FAILURE_NAME
        turn_away("QUEUE_FULL")
        assert (said[0]["passive"], "replyTo" in said.pop()) == (True, False)
        for fields in ({"passive": True}, {"delivery": "passive"}, {"replyTo": "x"}):
            turn_away("QUEUE_FULL", **fields)
        turn_away("MESSAGE_ID_CONFLICT")
        assert said == []
