"""What can be set up: the foreign wires, which `config.toml` switches, and the harnesses.

Rule 1: the room of the harnesses is a leaf that may be left out of an installation: then only the wires are
there. It is found as every other adapter is, by its name.
Rule 2: what is planned is whole: all parts are known before the first is written.

Source: DESIGN.md 4 "setup"; docs/harnesses/setup.md.
"""

import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

from tieline import config
from tieline.adapters.cli.switches import switched_off, switched_on
from tieline.errors import UsageError
from tieline.runtime.configuration import configuration_path, configuration_text, replace_configuration
from tieline.runtime.options import home_directory

__all__ = ["EXTRAS", "NAMES", "WIRES", "Part", "Target", "harnesses_here", "planned"]

WIRES: Final = ("pi-peers", "intercom")
"""The foreign wires, by the names that a person types."""
_ROOM: Final = "tieline.adapters.harness"
_harness: Any = import_module(_ROOM) if find_spec(_ROOM) is not None else None
HARNESSES: Final[tuple[str, ...]] = () if _harness is None else tuple(_harness.NAMES)
NAMES: Final = (*HARNESSES, *WIRES)
"""All that can be set up."""
EXTRAS: Final[dict[str, str]] = {} if _harness is None else dict(_harness.EXTRAS)
"""What is asked for separately, and the question."""
_FOR_NEW_AGENTS: Final = "it holds for every agent that starts from now on; a running one keeps what it has"


class Part(NamedTuple):
    """One file: what it was and becomes; None is no file."""

    path: str
    was: str | None
    now: str | None


class Target(NamedTuple):
    """One thing to set up or take out.

    Attributes:
        parts: The files that change; none where nothing does.
        paths: The files that it has, also where none changes.
        extras: Those of `EXTRAS` that it has.
        write: Writes the parts.
        finish: What can be known only after that; writes it, and returns it. Taking out, it clears away what
            a command that was killed left of us, which needs no question.
        hint: What a person does next.
    """

    name: str
    parts: list[Part]
    paths: list[str]
    extras: tuple[str, ...]
    write: Callable[[], None]
    finish: Callable[[], list[Part]]
    hint: str = ""


def harnesses_here() -> list[str]:
    """Return the harnesses whose program is installed."""
    if _harness is None:
        return []
    found: list[str] = _harness.here(_harness.place(os.environ, ""))
    return found


def planned(name: str, project: str, extras: list[str], *, is_on: bool) -> Target:
    """Return what setting up, or taking out, one thing would change.

    Args:
        name: One of `NAMES`.
        project: The folder of a project; "" is the person's own level.
        extras: The consents that were given.
        is_on: Whether it is set up or taken out.

    Raises:
        UsageError: it is not here, or a file is broken.
        Refused: `PERMISSION_DENIED`: a file is read-only.
    """
    if name in WIRES:
        return _wire(name, is_on=is_on)
    where = _harness.place(os.environ, project)
    wanted = [one for one in extras if one in _harness.extras_of(name)]
    changes = _harness.plan_in(name, where, wanted) if is_on else _harness.plan_out(name, where)

    def finish() -> list[Part]:
        if not is_on:
            _harness.tidied(name, where)
        if not (is_on and "trust" in wanted):
            return []
        more = _harness.trusted(where, wanted)
        _harness.apply(more, os.environ)
        return [Part(*one[:3]) for one in more]

    parts = [Part(*one[:3]) for one in changes]

    def write() -> None:
        if not is_on:  # first, so that no folder stays because of what somebody that was killed left in it
            _harness.tidied(name, where)
        _harness.apply(changes, os.environ)

    hint = _harness.hint(name, where) if is_on else ""
    return Target(name, parts, _harness.paths(name, where), _harness.extras_of(name), write, finish, hint)


def _wire(name: str, *, is_on: bool) -> Target:
    home = home_directory("", os.environ)
    path = configuration_path(home)
    was = configuration_text(home)
    config.load(was, path, {})
    wire = name.replace("-", "_")
    text = switched_on(was, wire) if is_on else switched_off(was, wire)
    if getattr(config.load(text, path, {}).wires, wire).enabled != is_on:
        raise UsageError(
            f"{path}: [wires.{wire}] is written so that it cannot be changed here: change it there"
        )

    parts = [Part(path, was, text)] if text != was else []
    write = partial(replace_configuration, home, text, was)
    return Target(name, parts, [path], (), write, list, _FOR_NEW_AGENTS)
