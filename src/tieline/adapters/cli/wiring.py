"""What `tieline setup` and `tieline unsetup` share: the words, the change shown, the question, the writing.

Rule 1: what will be changed is shown before it is; nothing is written without a yes, or `--yes`.
Rule 2: what gives away more than messages has a question of its own, or its word behind `--with`.
Rule 3: one that refuses keeps no other from being set up; its reason and the exit code say it.

Source: DESIGN.md 4 "setup"; docs/harnesses/setup.md; docs/wire-pi-peers.md.
"""

import difflib
import os
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from typing import Any, Final

from tieline.adapters.cli.arguments import Parser, add_json
from tieline.adapters.cli.output import error_shape, fail, flush, line, note, write, write_json
from tieline.adapters.cli.targets import EXTRAS, NAMES, WIRES, Part, Target, harnesses_here, planned
from tieline.errors import TielineError, UsageError

__all__ = ["add_words", "switch"]

LINE_CHARACTERS_MAX: Final = 8_000
"""Of a changed line: a harness may keep a whole file on one."""


class _Words(tuple[str, ...]):
    """The names to choose from; an empty list is what argparse asks about when no name is given."""

    __slots__ = ()

    def __contains__(self, word: object) -> bool:
        return word == [] or super().__contains__(word)


def add_words(parser: Parser, *, is_on: bool) -> None:
    """Offer what both commands take."""
    whole = "every harness that is installed" if is_on else "every harness that was set up"
    parser.add_argument(
        "name", metavar="NAME", nargs="*", choices=_Words(NAMES), help=f"what; without one: {whole}"
    )
    parser.add_argument("--project", action="store_true", help="the files of this folder, not your own")
    if is_on:
        asked = "; ".join(f"{name}: {text}" for name, text in EXTRAS.items())
        parser.add_argument(
            "--with",
            dest="extra",
            action="append",
            default=[],
            choices=tuple(EXTRAS),
            help=f"what is asked for separately, may be repeated. {asked}",
        )
    parser.add_argument("--dry-run", action="store_true", help="show the change, and write nothing")
    parser.add_argument("--yes", action="store_true", help="write it without a question")
    add_json(parser)


def switch(options: Namespace, *, is_on: bool) -> int:
    """Set up, or take out, what is named; return the exit code: 1 after a no, and where one refused."""
    command = "setup" if is_on else "unsetup"
    names = _names(options, is_on=is_on)
    extras = list(getattr(options, "extra", []))
    targets, refusals = _planned(names, options, extras, is_on=is_on)
    offered = _offered(targets, extras) if is_on and _is_person_there(options) else []
    wanted = [one for one in offered if _says_yes(f"also {EXTRAS[one]} ({one})?")]
    if wanted:
        targets, refusals = _planned(names, options, extras + wanted, is_on=is_on)
    if not options.json:
        for target in targets:
            _show(target.parts)
        flush()
    is_changed = any(target.parts for target in targets)
    is_wanted = is_changed and not options.dry_run and (options.yes or _is_wanted(options))
    results = [_done(target, options, is_wanted=is_wanted, is_on=is_on) for target in targets]
    is_failed = any("error" in one for one in results)
    results += [_refused(name, error) for name, error in refusals]
    _tell(command, results, options)
    for name, error in refusals:
        fail(error, f"{command} {name}", as_json=False)
    is_done = is_wanted or not is_changed or options.dry_run
    return 0 if is_done and not is_failed and not refusals else 1


def _names(options: Namespace, *, is_on: bool) -> list[str]:
    names = list(dict.fromkeys(options.name))
    if options.project and (wires := [one for one in names if one in WIRES]):
        raise UsageError(f"{wires[0]} is a wire of your own roots: it has no project level")
    if names:
        return names
    found = harnesses_here() if is_on else [one for one in NAMES if one not in WIRES]
    if not found:
        raise UsageError(f"no harness is installed here; name what to set up: {', '.join(NAMES)}")
    return found


def _planned(
    names: list[str], options: Namespace, extras: list[str], *, is_on: bool
) -> tuple[list[Target], list[tuple[str, TielineError]]]:
    project = os.getcwd() if options.project else ""
    targets: list[Target] = []
    refusals: list[tuple[str, TielineError]] = []
    for name in names:
        try:
            targets.append(planned(name, project, extras, is_on=is_on))
        except TielineError as error:
            if len(names) == 1:
                raise
            refusals.append((name, error))
    return targets, refusals


def _offered(targets: list[Target], given: list[str]) -> list[str]:
    """Return what is to be asked for: nothing where all is in place already."""
    changed = [target for target in targets if target.parts]
    return [one for one in EXTRAS if one not in given and any(one in target.extras for target in changed)]


def _is_person_there(options: Namespace) -> bool:
    is_asking = not (options.json or options.yes or options.dry_run)
    return is_asking and sys.stdin is not None and sys.stdin.isatty()


def _is_wanted(options: Namespace) -> bool:
    """Ask the person.

    Raises:
        UsageError: there is nobody to ask.
    """
    if not _is_person_there(options):
        raise UsageError("nobody is there to be asked: --yes writes it, --dry-run only shows it")
    return _says_yes("write this?")


def _says_yes(question: str) -> bool:
    note(f"{question} [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _show(parts: Iterable[Part]) -> None:
    for text in _difference(parts):
        write(line(text, LINE_CHARACTERS_MAX))


def _difference(parts: Iterable[Part]) -> Iterator[str]:
    for part in parts:
        was, now = (part.was or "").splitlines(), (part.now or "").splitlines()
        yield from difflib.unified_diff(was, now, part.path, part.path, n=2, lineterm="")


def _done(target: Target, options: Namespace, *, is_wanted: bool, is_on: bool) -> dict[str, Any]:
    """Write one target where it is wanted; return what is told of it."""
    paths = [part.path for part in target.parts] or target.paths
    result: dict[str, Any] = {"name": target.name, "enabled": is_on, "changed": bool(target.parts)}
    is_written = False
    try:
        if is_wanted and target.parts:
            target.write()
            is_written = True
        # Without a change nobody is asked: then `--yes` finishes what is on, and what is off is tidied.
        is_unasked = options.yes if is_on else not target.parts
        if is_wanted or (is_unasked and not options.dry_run):
            more = target.finish()
            is_written = is_written or bool(more)
            _show(() if options.json else more)
    except TielineError as error:
        fail(error, f"{'setup' if is_on else 'unsetup'} {target.name}", as_json=False)
        return {**result, "written": is_written, "paths": paths, "error": error_shape(error)}
    if not options.json:
        note(_outcome(target, options, is_written=is_written, is_on=is_on))
    return {**result, "written": is_written, "paths": paths}


def _refused(name: str, error: TielineError) -> dict[str, Any]:
    return {"name": name, "changed": False, "written": False, "paths": [], "error": error_shape(error)}


def _tell(command: str, results: list[dict[str, Any]], options: Namespace) -> None:
    if options.json and len(results) == 1 and results[0]["name"] in WIRES and "error" not in results[0]:
        one = dict(results[0])
        write_json(command, {"path": one.pop("paths")[0], **one})
    elif options.json:
        write_json(command, {"targets": results})
    flush()


def _outcome(target: Target, options: Namespace, *, is_written: bool, is_on: bool) -> str:
    word = "on" if is_on else "off"
    if not target.parts and not target.paths:
        return f"{target.name}: {target.hint or 'nothing of it is kept here'}"
    if not target.parts:
        said = f"{target.name} is {word} already: nothing to change"
    elif is_written:
        said = f"{target.name} is {word}"
    else:
        return f"{target.name}: nothing was written"
    return f"{said}; {target.hint}" if target.hint and not options.dry_run else said
