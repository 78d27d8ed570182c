"""Clauses that only whole processes show: hostile words at every command, senders racing for one inbox."""

import asyncio
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.system.kit.attached import Attached
from tests.system.kit.hostile import HostilePeer

pytestmark = pytest.mark.asyncio
PAYLOADS = (
    "\x1b]52;c;cm0gLXJm\x07", "\x1b]0;title\x1b\\", "\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\",
    "\x1bP+q\x1b\\", "\x1b_apc\x1b\\",
    "\x9b31m\x9d0;c1\x9c", "\x1b[6n\x1b[c\x1b[2J\x1b[1;1H", "\x1b]0;unterminated",
    "\b\b\b\r\x7f",
    "\u202egnp.exe\u2066\u200b\u200f\ufeff\U000e0041\u2028\u2029\x85",
)  # fmt: skip
HOSTILE = "".join(f"{number}{payload}" for number, payload in enumerate(PAYLOADS))
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)


async def shown(home: Path, *words: str) -> str:
    """Return what a command writes for a person, on both streams."""
    command = shutil.which("tieline")
    assert command is not None
    process = await asyncio.create_subprocess_exec(
        command, *words,
        cwd=home,
        env={**os.environ, "TIELINE_HOME": str(home), "TERM": "xterm-256color"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    return out.decode() + err.decode()


@pytest.mark.clause("O50", "K22", "S22", "native-127")
async def test_commands_show_hostile_words_of_every_field_without_a_control(private_home: Path) -> None:
    """Text, topic, project, model and session of a peer, and a name given by hand, at each command."""
    bob = await Attached.start(private_home, "bob")
    peer = await HostilePeer.start(private_home, "peer", projectName=HOSTILE[:120], model=HOSTILE[:120])
    try:
        link = await peer.dial("bob")
        assert "result" in await link.send(HOSTILE, "m-1", topic=HOSTILE[:200].replace("\0", ""))
        pages = {
            words: await shown(private_home, *words)
            for words in (
                ("peers", "--scope", "machine"), ("peers", "--query", HOSTILE[:40]), ("inbox",),
                ("status", "m-1"),
                ("log",), ("doctor",), ("status", HOSTILE), ("send", HOSTILE, "x"), ("mute", HOSTILE),
                ("recover", HOSTILE), ("last", HOSTILE), ("reply", HOSTILE, "x"), (HOSTILE,),
                ("inbox", HOSTILE),
            )
        }  # fmt: skip
        for words, page in pages.items():
            assert page, words
            found = FORBIDDEN.findall(page)
            assert found == [], (words, found)
        assert peer.alias in pages["peers", "--scope", "machine"]
        assert peer.alias in pages["inbox",]
        for log in (private_home / "logs").glob("*.log"):
            assert FORBIDDEN.findall(log.read_text()) == []
    finally:
        await peer.close()
        await bob.leave()


@pytest.mark.timeout(120)
@pytest.mark.clause("O02", "I1", "I11", "native-99")
async def test_sender_processes_at_a_barrier_lose_nothing(private_home: Path) -> None:
    """Twelve processes send at once, ten rounds over: each told `accepted` is there once, in one sequence."""
    roots = await asyncio.gather(*(Attached.start(private_home, f"a{number}") for number in range(13)))
    target, senders = roots[0], roots[1:]
    seen: list[tuple[str, int]] = []
    told: list[str] = []
    try:
        for turn in range(10):
            sent = await asyncio.gather(
                *(
                    root.call("send_peer_message", to=target.who["peerId"], content=str(turn))
                    for root in senders
                )
            )
            assert {receipt["state"] for receipt in sent} == {"accepted"}
            told += [receipt["messageId"] for receipt in sent]
            read = (await target.call("peer_messages"))["messages"]
            seen += [(message["messageId"], message["sequence"]) for message in read]
        assert sorted(name for name, _ in seen) == sorted(told)
        assert len(told) == len(set(told)) == 120
        sequences = [number for _, number in seen]
        assert sequences == sorted(set(sequences))
    finally:
        await asyncio.gather(*(root.leave() for root in roots))
