"""The two profiles: the published list, what was added to it, and what is no build."""

import pytest

from tieline.engine.gate.profiles import BUILD_EXECUTABLES, BUILD_SCRIPTS, Class, is_build
from tieline.engine.gate.reading import read

PUBLISHED = ("xcodebuild", "make", "cmake", "ninja", "gradle", "gradlew", "mvn", "swift", "go", "cargo")


def is_built(text: str) -> bool:
    """Return whether any program of a text is a build."""
    return any(map(is_build, read(None, text, "/w").subjects))


@pytest.mark.parametrize("name", PUBLISHED)
def test_executable_of_published_list_is_build(name: str) -> None:
    """The published executables are builds, through `sh -c`, `env` and leading assignments."""
    assert name in BUILD_EXECUTABLES
    assert is_built(f"{name} x")
    assert is_built(f"sh -c 'A=1 env B=2 /usr/bin/{name} x'")


@pytest.mark.parametrize("manager", ["npm run", "pnpm run", "pnpm", "yarn", "bun run", "npx"])
@pytest.mark.parametrize("script", ["build", "test", "check", "proof", "lint", "typecheck", "compile"])
def test_script_of_published_list_is_build(manager: str, script: str) -> None:
    """The published scripts are builds under each package manager, and so is `name:variant`."""
    assert script in BUILD_SCRIPTS
    assert is_built(f"{manager} {script}")
    assert is_built(f"{manager} {script}:unit")
    assert not is_built(f"{manager} {script}er")


@pytest.mark.parametrize(
    "text",
    [
        "pytest", "python -m pytest", "tox", "nox -s x", "uv run x", "poetry run x", "./mvnw verify",
        "bazel build x",
        "buck2 build x", "dotnet test", "msbuild", "deno task x", "just x", "task x", "docker build .",
        "docker compose -f a up", "docker-compose up", "npx playwright test", "npx vitest", "jest",
        "cypress run",
        "npm run dev", "yarn start", "vite", "vite --port 1", "next dev", "python manage.py runserver",
        "python -m http.server", "uvicorn a:b", "flask --app x run", "rails s", "python -m unittest", "npm t",
    ],
)  # fmt: skip
def test_command_of_extended_list_is_build(text: str) -> None:
    """What the published list misses of Python, containers, browsers and servers is a build too."""
    assert is_built(text)


@pytest.mark.parametrize(
    "text",
    [
        "ls", "echo make", "git commit -m build", "cat Makefile", "npm install", "npm run deploy",
        "docker ps",
        "docker compose ps", "playwright install", "make --version", "cargo -V", "go version",
        "pytest --help",
        "vite optimize", "uv sync", "rails console", "turbo", "npm view build", "grep pytest x",
    ],
)  # fmt: skip
def test_command_that_builds_nothing_is_no_build(text: str) -> None:
    """Reading, installing and asking for a version are no builds."""
    assert not is_built(text)


def test_classes_of_profiles_are_bits() -> None:
    """The ledger keeps the classes as bits, whose values must not move."""
    assert (Class.NONE, Class.BUILD, Class.STRICT) == (0, 1, 2)
    assert Class.BUILD | Class.STRICT == 3
