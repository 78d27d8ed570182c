"""`tieline hook HARNESS EVENT`: hand a hook of a harness to the root of its session, print the root's answer.

Rule 1: a harness reads stdout as JSON, shows stderr to the person, and takes most exit codes for a refusal:
nothing is printed but an answer, and the code is 0. `TIELINE_DEBUG=1` shows why there was none.
Rule 2: the root that knows the session goes before the one that the nearest ancestor hosts.
Rule 3: it does what `shims/hook.py` does, in more time: that one comes here where no root is known.
Rule 4: the event `Wait` alone ends with 2, on purpose: that wakes the harness, with what is on stderr.

Source: DESIGN.md 2, 4; docs/delivery.md.
"""

import json
import os
import sys
import time
from argparse import Namespace
from collections.abc import Mapping

from tieline.adapters.cli.output import fail, flush
from tieline.errors import TielineError, UsageError
from tieline.runtime.client import Client
from tieline.runtime.locate import find_root, places

__all__ = ["tell"]

INPUT_BYTES_MAX = 3_000_000
ANSWER_S = 5.0
DOOR_BYTES_MAX = 4_096
WAIT = "Wait"
WAIT_S = 604_800.0
APPEAR_S = 30.0
"""The hook of a session's begin is started before the root opens."""
LOOK_S = 0.25
WOKEN = 2
"""What a harness is woken by, with the text on stderr."""


def tell(options: Namespace) -> int:
    """Carry out one hook; return 0, or 2 where the harness is to be woken."""
    try:
        if options.event == WAIT:
            return _wait(options, os.environ)
        _tell(options, os.environ)
    except BrokenPipeError:
        raise
    except (TielineError, OSError) as error:
        if os.environ.get("TIELINE_DEBUG"):
            fail(error, "hook", as_json=False)
    return 0


def _tell(options: Namespace, environment: Mapping[str, str]) -> None:
    if options.harness == "shell" or options.command:
        raise UsageError(f"there is no event {options.event!r} of this harness, and no command with it")
    data = b"" if sys.stdin is None else sys.stdin.buffer.read(INPUT_BYTES_MAX + 1)
    told = data if len(data) <= INPUT_BYTES_MAX else b""
    hook = {"harness": options.harness, "event": options.event, "input": told.hex()}
    with Client(_endpoint(options, told, environment)) as client:
        answer = client.call("host.hook", hook, ANSWER_S)
        output = bytes.fromhex(str(answer.get("output", "")))
        if not output:
            return
        sys.stdout.buffer.write(output)
        flush()
        token = answer.get("token")
        if token:
            client.call("host.carried", {"token": token}, ANSWER_S)


def _wait(options: Namespace, environment: Mapping[str, str]) -> int:
    with Client(_appearing(options, environment)) as client:
        answer = client.call("host.hook", {"harness": options.harness, "event": WAIT}, WAIT_S)
    output = bytes.fromhex(str(answer.get("output", "")))
    sys.stderr.buffer.write(output)
    sys.stderr.flush()
    return WOKEN if output else 0


def _appearing(options: Namespace, environment: Mapping[str, str]) -> str:
    """Return the control endpoint of the root that this hook is for, once that is open."""
    give_up = time.monotonic() + APPEAR_S
    while time.monotonic() < give_up:
        try:
            return _endpoint(options, b"", environment)
        except TielineError:
            time.sleep(LOOK_S)
    return _endpoint(options, b"", environment)


def _endpoint(options: Namespace, told: bytes, environment: Mapping[str, str]) -> str:
    """Return the control endpoint of the root that this hook is for.

    Raises:
        Refused: there is none.
    """
    held = places(environment)
    session = _session(told)
    if session and not options.instance:
        try:
            with open(os.path.join(held.home, "mail", session + ".door"), "rb") as file:
                path = file.read(DOOR_BYTES_MAX).decode()
        except (OSError, ValueError):
            path = ""
        if os.path.exists(path):
            return path
    found = find_root(
        held.home,
        held.coordination,
        environment=environment,
        may_change=True,
        instance=options.instance or None,
    )
    return found.root.control


def _session(told: bytes) -> str:
    """Return the session's id where it may be the name of a file, else ""."""
    try:
        document = json.loads(told)
    except (ValueError, RecursionError):
        return ""
    session = document.get("session_id") if isinstance(document, dict) else None
    is_plain = isinstance(session, str) and session.replace("-", "").replace("_", "").isalnum()
    return str(session) if is_plain else ""
