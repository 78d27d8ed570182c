"""Codex: the server in `config.toml`, the hooks in `hooks.json`, and their trust.

Rule 1: a hook that is not trusted is skipped without a word: the trust is written only with consent, and by
the digest that Codex itself gives for the hook as it stands.
Rule 2: the server starts with an empty environment: what a root needs is named. Its tools say themselves
that they destroy nothing and reach nobody outside, so Codex asks for none of them.
Rule 3: code mode is switched on only with consent: it concerns all of a person's tools.

Source: reference/harnesses.md 5; its documentation of hooks and configuration.
"""

import contextlib
import json
import os
import subprocess
import threading
from typing import Any, Final

from tieline.adapters.harness.base import (
    HOOK_MARKS,
    Document,
    Entry,
    Harness,
    Mark,
    Place,
    Whole,
    folder_of,
    gate_entry,
    is_our_command,
    is_our_server,
    program,
    server_entry,
    tool_hook_entries,
)
from tieline.adapters.harness.facts import CODEX_HOOKS, HOST_TOOL, SERVER
from tieline.errors import UsageError

__all__ = ["HARNESS", "hooks_of", "with_trust"]

_HANDED_DOWN: Final = ["CODEX_HOME", "TIELINE_HOME", "TIELINE_COORDINATION_DIRECTORY"]
_ANSWER_SECONDS_MAX: Final = 20
_NAMESPACE: Final = f"mcp__{SERVER}"


def _folder(place: Place) -> str:
    return folder_of(place, "CODEX_HOME", ".codex")


def _files(place: Place) -> list[Document | Whole]:
    folder = os.path.join(place.project, ".codex") if place.project else _folder(place)
    server = server_entry(place, env_vars=_HANDED_DOWN)
    direct = Entry(
        ("features", "code_mode"),
        {"enabled": True, "direct_only_tool_namespaces": [_NAMESPACE]},
        extra="direct",
    )
    servers = Document(
        os.path.join(folder, "config.toml"),
        "toml",
        (Entry(("mcp_servers", SERVER), server), direct),
        (
            Mark(("mcp_servers", SERVER), is_our_server),
            Mark(("features", "code_mode"), lambda value: value == direct.value),
        ),
    )
    hooks = Document(
        os.path.join(folder, "hooks.json"),
        "json",
        (*tool_hook_entries(CODEX_HOOKS), gate_entry(place, "codex")),
        HOOK_MARKS,
    )
    return [servers, hooks]


def with_trust(files: list[Document | Whole], hooks: list[dict[str, Any]]) -> list[Document | Whole]:
    """Return the files with the trust of our hooks among the entries of `config.toml`."""
    trust = tuple(
        Entry(("hooks", "state", one["key"]), {"trusted_hash": one["currentHash"]}) for one in hooks
    )
    first, *rest = files
    if not isinstance(first, Document):
        return files
    return [first._replace(entries=(*first.entries, *trust)), *rest]


def hooks_of(place: Place) -> list[dict[str, Any]]:
    """Return what Codex knows of our hooks: `key`, `currentHash` and `trustStatus` of each.

    Raises:
        UsageError: it is not here, or gave no answer.
    """
    found = program(HARNESS, place)
    if not found:
        raise UsageError("codex is not on the PATH, and only it knows the digests of its hooks")
    folder = place.project or os.getcwd()
    hello = {"clientInfo": {"name": SERVER, "version": "1"}}
    asked: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "initialized"},
        {"id": 2, "method": "hooks/list", "params": {"cwds": [folder]}},
    ]
    answer = _answer(found, place, "".join(json.dumps(one) + "\n" for one in asked))
    listed = [hook for one in answer.get("data", []) for hook in one.get("hooks", [])]
    # The gate is a command: without trust Codex skips it, too, and lets every command go.
    return [
        one
        for one in listed
        if (one.get("server"), one.get("tool")) == (SERVER, HOST_TOOL) or is_our_command(one.get("command"))
    ]


def _answer(found: str, place: Place, text: str) -> dict[str, Any]:
    """Return what `codex app-server` answers to the request 2."""
    with subprocess.Popen(  # noqa: S603 - the person's own Codex
        [found, "app-server"],
        bufsize=0,  # nothing is left to be flushed into a pipe that nobody reads
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=dict(place.environment),
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        limit = threading.Timer(_ANSWER_SECONDS_MAX, server.kill)
        limit.start()
        try:
            with contextlib.suppress(BrokenPipeError):  # it is gone, and may have said why
                server.stdin.write(text.encode())
                server.stdin.flush()
            for line in server.stdout:
                held = json.loads(line)
                if held.get("id") == 2 and isinstance(held.get("result"), dict):
                    return dict(held["result"])
        except (OSError, ValueError) as error:
            raise UsageError(f"codex app-server was not understood: {error}") from None
        finally:
            limit.cancel()
            server.kill()
    raise UsageError("codex app-server did not list its hooks: trust them with /hooks in Codex")


HARNESS = Harness(
    "codex",
    "Codex",
    ("codex",),
    _folder,
    _files,
    ("trust", "gate", "direct"),
    "start its windows anew; hooks that are not trusted are skipped: /hooks in Codex shows them",
)
