"""The harnesses as the tests run them: configured for the model of the tests and for nothing else.

Source: reference/harnesses.md 1 to 7.
"""

from tests.harness.programs.base import Place, Program
from tests.harness.programs.claude_code import ClaudeCode
from tests.harness.programs.codex import Codex
from tests.harness.programs.gemini import Gemini
from tests.harness.programs.omp import OhMyPi
from tests.harness.programs.opencode import Opencode
from tests.harness.programs.pi import Pi

__all__ = ["PROGRAMS", "Place", "Program"]

PROGRAMS: dict[str, type[Program]] = {
    program.name: program for program in (ClaudeCode, Codex, Pi, OhMyPi, Opencode, Gemini)
}
