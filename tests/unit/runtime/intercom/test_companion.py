"""What a companion asks: versions, its context, its guard, the provenance of a message."""

from pathlib import Path

import pytest

from tests.unit.runtime.intercom.kit import intercom_of, station, tool, until
from tests.unit.runtime.roots import call

pytestmark = pytest.mark.asyncio


async def test_questions_of_a_version_are_answered_and_others_refused_as_results(private_home: Path) -> None:
    """An unknown version is `unsupported_version`, and for provenance unavailable; nothing raises."""
    async with station(private_home) as at:
        one, other = await at.root("one"), await at.root("other")
        seen = await call(other, "intercom.context", version=1)
        target = {name: seen[name] for name in ("rootSessionId", "peerId", "incarnation")}
        assert seen["connected"] is True
        assert await call(other, "intercom.context", version=2) == {"error": "unsupported_version"}
        assert await call(other, "intercom.guard", version=2, target=target, revision="g") == {
            "error": "unsupported_version"
        }
        assert await call(other, "intercom.guard", version=1, target=target, revision="g") == {
            "revision": "g"
        }
        shown = (await tool(one, "list"))["sessions"][0]
        assert (shown["guardedDelivery"], shown["applicationGuard"]) == (1, "g")
        sent = await tool(one, "send", to="other", message="x")
        asked = {"rootSessionId": "s-other", "messageId": sent["messageId"]}
        reads = intercom_of(other).reads
        await until(lambda: "receipt" in reads.receipt("s-other", sent["messageId"]))
        assert (await call(other, "intercom.provenance", version=1, **asked))["receipt"]["version"] == 1
        assert await call(other, "intercom.provenance", version=3, **asked) == {
            "error": "publication_unavailable"
        }
