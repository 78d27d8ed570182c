"""Apply each mutant to a copy of the package and let its witnesses look at it.

Rule 1: the copy is private and temporary; the checkout is not touched.
Rule 2: the witnesses first pass on the package as it is: otherwise they convict nobody.
Rule 3: a witness convicts when its test ran and failed; a test that cannot be collected convicts nobody.

Source: reference/reliability.md 2.5 "or its zeros mean nothing".
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.mutants.table import MUTANTS, Mutant

__all__ = ["Verdict", "main", "patched"]

CHECKOUT = Path(__file__).resolve().parents[2]
PROCESSES = 2
SECONDS_MAX = 60
PYTEST_FAILED = 1
NO_END = 124


class Verdict(NamedTuple):
    """What one witness said of one mutant; `text` says why it convicts nobody."""

    mutant: Mutant
    witness: str
    is_convicted: bool
    text: str


class Copy:
    """A private copy of the package that mutants are applied to, one after the other."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tl-mutant-"))
        self.source = self.folder / "src"
        shutil.copytree(
            CHECKOUT / "src" / "tieline",
            self.source / "tieline",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        self._writes_count = 0

    def write(self, file: str, text: str) -> None:
        """Replace one file; its time is one that no compiled file of it has."""
        path = self.source / "tieline" / file
        path.write_text(text, encoding="utf-8")
        self._writes_count += 1
        seconds = int(time.time()) + 10 * self._writes_count
        os.utime(path, (seconds, seconds))

    def judge(self, mutant: Mutant) -> list[Verdict]:
        """Return what each witness says of a mutant, and leave the copy as it was."""
        package = self.source / "tieline"
        before = {patch.file: (package / patch.file).read_text(encoding="utf-8") for patch in mutant.patches}
        texts = patched(mutant, package)
        if isinstance(texts, str):
            return [Verdict(mutant, "", False, texts)]
        for file, text in texts.items():
            self.write(file, text)
        try:
            return _look(mutant, self.source)
        finally:
            for file, text in before.items():
                self.write(file, text)


def patched(mutant: Mutant, package: Path) -> dict[str, str] | str:
    """Return the texts of the files that a mutant changes, or why it cannot be applied."""
    texts: dict[str, str] = {}
    for patch in mutant.patches:
        text = texts.get(patch.file) or (package / patch.file).read_text(encoding="utf-8")
        if text.count(patch.old) != 1:
            return f"{patch.file} holds the text {text.count(patch.old)} times: {patch.old.strip()[:60]!r}"
        texts[patch.file] = text.replace(patch.old, patch.new)
    return texts


def _pytest(source: Path, witnesses: Sequence[str]) -> tuple[int, str]:
    """Return the exit code and the output of pytest over a copy of the sources."""
    options = ["-q", "-rf", "--tb=line", "-p", "no:cacheprovider", "-o", f"pythonpath={source} {CHECKOUT}"]
    command = [sys.executable, "-m", "pytest", *options, *witnesses]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    try:
        done = subprocess.run(
            command,
            cwd=CHECKOUT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return NO_END, "no end"
    return done.returncode, done.stdout + done.stderr


def _look(mutant: Mutant, source: Path) -> list[Verdict]:
    code, output = _pytest(source, mutant.witnesses)
    failed = [line[len("FAILED ") :] for line in output.splitlines() if line.startswith("FAILED ")]
    verdicts = []
    for witness in mutant.witnesses:
        lines = [line for line in failed if line.startswith(witness)]
        is_convicted = code == PYTEST_FAILED and bool(lines)
        if is_convicted and witness.startswith("tests/sim") and mutant.shows:
            is_convicted = f"'{mutant.shows}'" in output
        verdicts.append(Verdict(mutant, witness, is_convicted, "" if is_convicted else output[-1_500:]))
    return verdicts


def control() -> str:
    """Return "" when all witnesses pass on the package as it is, else what they print."""
    witnesses = sorted({witness for mutant in MUTANTS for witness in mutant.witnesses})
    code, output = _pytest(CHECKOUT / "src", witnesses)
    return "" if code == 0 else output[-3_000:]


def judge_all(mutants: Sequence[Mutant]) -> list[Verdict]:
    """Judge some mutants on one copy."""
    copy = Copy()
    try:
        return [verdict for mutant in mutants for verdict in copy.judge(mutant)]
    finally:
        shutil.rmtree(copy.folder, ignore_errors=True)


def main() -> int:
    """Judge every mutant and print the table; return 0 when none survived."""
    started = time.monotonic()
    with ThreadPoolExecutor(max_workers=PROCESSES) as pool:
        halves = [pool.submit(judge_all, MUTANTS[place::PROCESSES]) for place in range(PROCESSES)]
        verdicts = [verdict for half in halves for verdict in half.result()]
        broken = control()
    order = {mutant.clause: place for place, mutant in enumerate(MUTANTS)}
    verdicts.sort(key=lambda verdict: order[verdict.mutant.clause])
    width = max(len(mutant.name) for mutant in MUTANTS)
    for verdict in verdicts:
        said = "convicted" if verdict.is_convicted else "SURVIVED"
        print(f"{verdict.mutant.clause:<10} {verdict.mutant.name:<{width}}  {said:<9}  {verdict.witness}")
    for verdict in verdicts:
        if not verdict.is_convicted:
            print(f"\n{verdict.mutant.clause} {verdict.mutant.name}:\n{verdict.text}")
    if broken:
        print(f"\nthe witnesses do not pass without a mutant, so they convict nobody:\n{broken}")
    survived = {verdict.mutant.clause for verdict in verdicts if not verdict.is_convicted}
    failed = len(MUTANTS) if broken else len(survived)
    print(f"{time.monotonic() - started:.0f} s")
    print(f"{len(MUTANTS) - failed} passed, {failed} failed")
    return 1 if failed else 0
