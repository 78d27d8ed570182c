"""Brokers of the intercom wire that ends meet at: one of the second stack, and ours.

Source: reference/intercom.md 6.3.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.contract.js.intercom import JsBroker
from tests.contract.js.peer import ANSWERED_S

__all__ = ["BROKERS", "OurBroker", "broker"]

THEIRS, OURS = "theirs", "ours"
BROKERS = [THEIRS, OURS]


class OurBroker(JsBroker):
    """One running `tieline broker`."""

    @classmethod
    async def begin(cls, folder: Path, **environment: str) -> "OurBroker":
        """Start it in a runtime directory of this test; it listens when this returns."""
        os.makedirs(folder, mode=0o700, exist_ok=True)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tieline.adapters.cli.main", "broker",
            env={**os.environ, "PI_INTERCOM_RUNTIME_DIR": str(folder), **environment},
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        async with asyncio.timeout(ANSWERED_S):
            assert b"started" in await process.stdout.readline()
        return cls(process)


@asynccontextmanager
async def broker(kind: str, path: Path) -> AsyncIterator[JsBroker]:
    """Give a running broker of this kind at `path`, which ends in `broker.sock`."""
    made = await JsBroker.start(path) if kind == THEIRS else await OurBroker.begin(path.parent)
    try:
        yield made
    finally:
        await made.discard()
