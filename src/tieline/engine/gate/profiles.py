"""The two profiles: what counts as a build, and what is gated at all.

Rule 1: `strict` is every command; `build` is the published list, what it misses of Python, containers and
    browsers, and development servers, because those are what agents collide on.
Rule 2: a program that is only asked for its version or its help builds nothing.
Rule 3: what could not be read is a build under `strict` alone.

Source: reference/native.md 2.14 "Profiles", 3.5 "profile `build` list".
"""

from enum import IntFlag

from tieline.engine.gate.reading import Subject

__all__ = ["BUILD_EXECUTABLES", "BUILD_SCRIPTS", "BUILD_WORDS", "SERVER_SCRIPTS", "Class", "is_build"]


class Class(IntFlag):
    """Under which profiles a command is gated: the bits that the launch ledger keeps of it."""

    NONE = 0
    BUILD = 1
    STRICT = 2


BUILD_EXECUTABLES = frozenset({
    "xcodebuild", "make", "cmake", "ninja", "gradle", "gradlew", "mvn", "swift", "go", "cargo",
    "pytest", "tox", "nox", "unittest", "mvnw", "bazel", "bazelisk", "buck2", "dotnet",
    "msbuild", "just", "task", "vitest", "jest", "cypress", "ctest", "rspec", "phpunit", "meson", "scons",
    "ava", "mocha",
    "uvicorn", "gunicorn", "hypercorn", "daphne", "http.server", "http-server", "live-server",
    "webpack-dev-server", "nodemon",
})  # fmt: skip
"""Programs that build, test or serve whatever their arguments."""

BUILD_WORDS: dict[str, tuple[str, ...]] = {
    "uv": ("run",), "poetry": ("run",), "deno": ("task", "test", "bench"),
    "docker": ("build", "buildx build", "compose up", "compose build", "compose run"),
    "docker-compose": ("up", "build", "run"),
    "podman": ("build", "compose up", "compose build", "compose run"), "podman-compose": ("up", "build",
        "run"),
    "playwright": ("test",), "bun": ("test", "build"), "flask": ("run",), "fastapi": ("dev", "run"),
    "manage.py": ("runserver", "test"), "rails": ("server", "s", "test"), "artisan": ("serve", "test"),
    "mix": ("test", "compile", "phx.server"), "next": ("dev", "build", "start"), "nuxt": ("dev", "build"),
    "astro": ("dev", "build", "preview"), "ng": ("serve", "build", "test"), "webpack": ("serve", "build"),
    "vite": ("dev", "serve", "build", "preview"), "remix": ("dev", "build"), "wrangler": ("dev",),
    "expo": ("start",), "hugo": ("server",), "jekyll": ("serve", "build"), "mkdocs": ("serve", "build"),
    "storybook": ("dev", "build"), "turbo": ("run",), "nx": ("run", "run-many", "serve", "test", "build"),
}  # fmt: skip
"""Programs that build, test or serve when these are their first words."""

_ALONE = frozenset({"vite", "webpack", "parcel"})  # without a word of their own they serve or build

BUILD_SCRIPTS = ("build", "test", "check", "proof", "lint", "typecheck", "compile")
"""Scripts of a package manager that build or test; `name:variant` is the same."""

SERVER_SCRIPTS = ("dev", "start", "serve", "preview", "storybook")
"""Scripts of a package manager that serve while one develops; `name:variant` is the same."""

_SCRIPTS = frozenset(BUILD_SCRIPTS + SERVER_SCRIPTS)
_MANAGERS = frozenset({"npm", "pnpm", "yarn", "bun", "npx", "turbo", "nx", "lerna"})
_QUESTIONS = frozenset({"--version", "-version", "version", "--help", "-help", "help", "-h", "-V"})


def is_build(subject: Subject) -> bool:
    """Return whether the profile `build` gates this program."""
    name, words = subject.executable, subject.words
    if len(subject.arguments) == 1 and subject.arguments[0] in _QUESTIONS:
        return False
    if name in BUILD_EXECUTABLES or (name in _ALONE and not words):
        return True
    for known in BUILD_WORDS.get(name, ()):
        if words[: known.count(" ") + 1] == tuple(known.split(" ")):
            return True
    return name in _MANAGERS and any(script.partition(":")[0] in _SCRIPTS for script in subject.scripts)
