"""The desk in a real pseudo-terminal: golden screens, hostile text, and the whole thing with real agents."""

import os
import statistics
import time
from pathlib import Path

import pytest

from tests.system.kit.desk_terminal import CHECKOUT, Terminal, shape_of
from tieline.adapters.demo.agents import Agent

GOLDEN = Path(__file__).parent / "golden_desk"
PROGRAM = str(CHECKOUT / "tests" / "system" / "kit" / "desk_program.py")
RATIO_MAX = 3.0
KEYS_MEASURED = 40
DEATH_SEEN_S = 15.0
PANES = (
    ("1", "agents", "Enter write"),
    ("2", "talk", "r reply"),
    ("3", "resources", "g grant"),
    ("4", "waits", "f break the ring  :"),
    ("5", "timeline", "e export"),
    ("?", "help", "The keys of the desk"),
)


def golden(name: str, screen: str) -> None:
    """Compare a screen with the kept one; `TIELINE_TEST_GOLDEN=keep` writes it anew."""
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("TIELINE_TEST_GOLDEN") == "keep":
        path.write_text(screen + "\n", encoding="utf-8")
    assert screen + "\n" == path.read_text(encoding="utf-8"), name


def walked(terminal: Terminal, name: str) -> None:
    """Look at every pane, and compare each with its golden screen."""
    terminal.until("(1 RING)")
    for key, pane, wanted in PANES:
        terminal.press(key)
        golden(f"{name}-{pane}", terminal.until(wanted))
    terminal.press("\x1b")
    terminal.until("e export")
    terminal.press("2")
    terminal.until("r reply")
    for place in (1, 2):
        terminal.press("\x1b[B")
        golden(f"{name}-talk-{place}", terminal.until("question  [" if place == 1 else "you to "))


def left_in_order(terminal: Terminal, before: object) -> None:
    """Leave the desk; nothing outside of its region, and nothing that was not its own, was touched."""
    terminal.press("q")
    assert terminal.ended() == 0
    assert terminal.model.outside_count() == 0
    assert terminal.model.replies == [], "nothing made the terminal answer"
    assert shape_of(terminal.model) == before
    assert terminal.offences() == []


@pytest.mark.clause("K22", "native-127")
@pytest.mark.parametrize("case", ["plain", "evil"])
def test_every_pane_is_as_its_golden_screen_and_stays_in_its_region(case: str) -> None:
    """Each pane at 80x24 is what it was; hostile names and bodies are shown escaped."""
    with Terminal([PROGRAM, case]) as terminal:
        before = shape_of(terminal.model)
        walked(terminal, case)
        left_in_order(terminal, before)


@pytest.mark.clause("K22")
def test_hostile_paste_reaches_no_terminal() -> None:
    """What is pasted into the composer is drawn by the screen's package, and passes our last look, too."""
    with Terminal([PROGRAM, "plain"]) as terminal:
        before = shape_of(terminal.model)
        terminal.until("(1 RING)")
        terminal.press(":")
        terminal.until("Enter send")
        terminal.press("\x1b[200~tail \u202e\u200b\x9b5n \U000e0041 end\x1b[201~")
        screen = terminal.until("tail")
        assert "\u202e" not in screen
        assert "\N{REPLACEMENT CHARACTER}" in screen
        terminal.press("\x1b")
        terminal.press("\x1b")
        terminal.until("Enter write")
        left_in_order(terminal, before)


def test_screen_without_colours_says_the_same() -> None:
    """With NO_COLOR no colour is set, and every word and mark is where it was."""
    with Terminal([PROGRAM, "plain"], environment={"NO_COLOR": "1"}) as terminal:
        before = shape_of(terminal.model)
        terminal.until("(1 RING)")
        terminal.press("1")
        golden("plain-agents", terminal.until("Enter write"))
        colours = {(cell.fg, cell.bg) for row in terminal.model.buffer.values() for cell in row.values()}
        assert colours == {("default", "default")}
        left_in_order(terminal, before)


def test_terminal_that_is_too_small_gets_a_sentence() -> None:
    """At 50x12 one sentence says what is needed; the desk is left as ever."""
    with Terminal([PROGRAM, "plain"], columns=50, lines=12) as terminal:
        before = shape_of(terminal.model)
        golden("small", terminal.until("needs 60 and 16"))
        left_in_order(terminal, before)


def test_input_latency_among_a_crowd_is_within_three_times_the_empty_screen() -> None:
    """500 agents and 10,000 messages: a typed letter is shown within 3 x the time of an empty desk."""
    spent: dict[str, list[float]] = {"empty": [], "crowd": []}
    with Terminal([PROGRAM, "empty"]) as empty, Terminal([PROGRAM, "crowd"]) as crowd:
        crowd.until("2 Talk (", 40)
        terminals = {"empty": empty, "crowd": crowd}
        for terminal in terminals.values():
            terminal.until("1 Agents")
            terminal.press(":")
            terminal.until("Enter send")
            terminal.press("\x7f")
            terminal.until("Enter send")
        for number in range(KEYS_MEASURED):
            letter = "abcdefghij"[number % 10]
            for name, terminal in terminals.items():
                begin = time.perf_counter()
                terminal.press(letter)
                while terminal.model.buffer[22][1 + number].data != letter:
                    terminal.pump(0.5)
                    assert time.perf_counter() - begin < 10, terminal.model.text()
                spent[name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(found) for name, found in spent.items()}
    print({name: f"{1000 * found:.1f} ms" for name, found in medians.items()})
    assert medians["crowd"] <= RATIO_MAX * medians["empty"], medians


def test_newcomer_answers_a_question_and_breaks_the_ring_of_the_demo() -> None:
    """`tieline demo --desk`: the footer's keys lead to a reply that is `replied`, and to a broken ring."""
    with Terminal(["-m", "tieline.adapters.cli.main", "demo", "--desk"]) as terminal:
        terminal.until("1 question", 40)
        terminal.until("(1 RING)", 20)
        terminal.press("2")
        terminal.until("r replies")
        terminal.press("r")
        terminal.until("to :planner, answers")
        terminal.press("azure\r")
        screen = terminal.until("The recipient replied.")
        assert "you to :planner" in screen
        terminal.until("The button will be: azure")
        terminal.press("\x1b")
        terminal.until("r reply")
        terminal.press("3")
        terminal.until("machine/staging-database")
        terminal.press("4")
        terminal.until("RING of 3")
        terminal.press("f")
        terminal.until("You are in a ring of waits")
        terminal.press("\r")
        terminal.until("nobody waits for anybody")
        terminal.press("\x1b")
        terminal.until("f break the ring  :")
        terminal.press("5")
        terminal.until("button will be")
        terminal.press("q")
        assert terminal.ended(30) == 0
        assert terminal.offences() == []


@pytest.mark.clause("native-126")
def test_agent_that_is_killed_is_marked_and_its_question_stays(private_home: Path) -> None:
    """A root that dies by kill -9 is shown as ended within its threshold; what it asked can still be read."""
    folder = str(private_home)
    environment = {"TIELINE_HOME": folder, "TIELINE_COORDINATION_DIRECTORY": folder, "USER": "ada"}
    words = ["attach", "--alias", "api", "--workspace", folder]
    agent = Agent("api", words, {**os.environ, **environment}, folder)
    try:
        agent.start()
        desk_words = ["-m", "tieline.adapters.cli.main", "desk", "--workspace", folder]
        with Terminal(desk_words, environment=environment) as terminal:
            terminal.until(":api", 30)
            agent.call("local.send", {"to": "ada", "content": "Which port is free?", "ask": True})
            terminal.until("asks you", 15)
            agent.kill()
            begin = time.monotonic()
            screen = terminal.until(":api has ended; its unanswered question stays here", DEATH_SEEN_S)
            assert time.monotonic() - begin < DEATH_SEEN_S
            assert "ended" in next(line for line in screen.splitlines() if line.startswith(":api"))
            terminal.press("2")
            terminal.until("Which port is free?")
            terminal.press("q")
            assert terminal.ended(20) == 0
            assert terminal.model.outside_count() == 0
    finally:
        agent.end()
