"""`tieline hook HARNESS EVENT`: hand a hook of a harness to the root of its session, print the root's answer.

Rule 1: a harness reads stdout as JSON, shows stderr to the person, and takes most exit codes for a refusal:
nothing is printed but an answer, and the code is 0. `TIELINE_DEBUG=1` shows why there was none.
Rule 2: the root that knows the session goes before the one that the nearest ancestor hosts.
Rule 3: it does what `shims/hook.py` does, in more time: that one comes here where no root is known.

Source: DESIGN.md 2, 4; docs/delivery.md.
"""

import json
import os
import sys
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


def tell(options: Namespace) -> int:
    """Carry out one hook; return 0."""
    try:
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
