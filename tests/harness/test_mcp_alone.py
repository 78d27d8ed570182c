"""Real harnesses that know nothing of us but `tieline mcp`: they ask a neighbour and read the answer."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.model import Call, Conversation, ModelServer, Say
from tests.harness.neighbour import Neighbour, peer_named
from tests.harness.programs import Program

TOKEN = "ASK-THE-REVIEWER"
QUESTION = "Which port does the preview use? Q-4711"
ANSWER = "The preview uses the third port. A-0815"
REVIEWER = "reviewer"
WAIT_MS = 30_000
LABEL = "external"
MESSAGE_ID = re.compile(r'"messageId": ?"([^"]+)"')
SHOW_MEMBERS = ("claude-code", "codex", "omp")
"""What shows the model the members of a tool's result; the others show its texts alone."""

Opener = Callable[..., Program]


def asked(seen: Conversation) -> dict[str, Any]:
    """Return the question's arguments, addressed by what the listing showed."""
    listing = seen.results(seen.last_user_with(TOKEN))[0]
    return {"to": peer_named(listing, REVIEWER), "content": QUESTION, "scope": "machine"}


def awaited(seen: Conversation) -> dict[str, Any]:
    """Return the arguments that wait for the answer: by the question's id, where the model was shown it."""
    receipt = MESSAGE_ID.search(seen.results(seen.last_user_with(TOKEN))[1])
    waiting: dict[str, Any] = {"waitMs": WAIT_MS}
    return waiting if receipt is None else {**waiting, "replyTo": receipt[1]}


def script(model: ModelServer) -> None:
    """Let the model list, ask, and wait for the answer."""
    model.script(
        TOKEN,
        Call("list_peers", {"scope": "machine"}),
        Call("send_peer_message", asked),
        Call("peer_messages", awaited),
        Say("The reviewer has answered."),
    )


def answered(harness: str, model: ModelServer, neighbour: Neighbour) -> None:
    """Answer the question as the neighbour, and check what each side was shown."""
    model.wait(lambda seen: seen.count(QUESTION, "call") > 0)
    question = neighbour.next_message()
    assert question.content == QUESTION
    assert neighbour.reply(question.message_id, ANSWER)["state"] in ("accepted", "consumed")

    with_answer = model.with_result(ANSWER)
    shown = with_answer.seen
    assert shown.items[-1].kind == "result", "the answer is in the very next request"
    assert ANSWER in shown.items[-1].text
    assert sum(ANSWER in result for result in shown.results()) == 1, "in one result, once"
    assert LABEL in shown.items[-1].text.lower(), "a peer's text is marked as such"
    if harness in SHOW_MEMBERS:
        assert question.message_id in shown.results(shown.last_user_with(TOKEN))[1]


@pytest.mark.parametrize("harness", ["claude-code", "codex", "pi", "omp", "opencode", "gemini"])
def test_headless_run_with_our_server_asks_a_neighbour_and_is_shown_the_answer(
    harness: str, open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """One prompt without a terminal: the answer of a Python program is in the next model request."""
    program = open_program(harness)
    script(model)
    with Neighbour(shared, private_home / "n", REVIEWER) as neighbour:
        with program.started(f"Please {TOKEN} now") as run:
            answered(harness, model, neighbour)
            ended = run.ended()
        assert ended.code == 0, ended
        assert "The reviewer has answered." in ended.output


@pytest.mark.parametrize("harness", ["claude-code", "codex"])
def test_window_with_our_server_asks_a_neighbour_and_is_shown_the_answer(
    harness: str, open_program: Opener, model: ModelServer, shared: Path, private_home: Path
) -> None:
    """A person's window: the typed prompt leads to the same, and the window shows the end."""
    program = open_program(harness)
    script(model)
    with Neighbour(shared, private_home / "n", REVIEWER) as neighbour, program.window() as window:
        window.until(*program.ready)
        neighbour.until_listed(program.place.work.name)
        window.type(f"Please {TOKEN} now\r")
        answered(harness, model, neighbour)
        window.until("The reviewer has answered.")
