"""What a broker shows of its rows in files: open asks, and the state that extensions keep.

Theory. The journal is what a broker goes by. Sessions of the ancestor's form, and the people before them,
look into a folder instead: `pending-asks` tells who waits for what, `extension-state` what an extension
keeps, with its former state beside it. These files follow the journal, and are never read back.

Rule 1: a file that cannot be written is told and delays nothing: no row, and no session, waits for it.
Rule 2: an ask's file is removed by the ask that wrote it, not by another of the same message id.

Source: reference/intercom.md 1.5 "Asks", "Extension bus"; 102.
"""

import hashlib
import os
from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import quote

from tieline.engine.brokering.contract import Drop, Put
from tieline.errors import TielineError
from tieline.store.files import Directory, open_directory
from tieline.store.files.directory import NAME_BYTES_MAX

__all__ = ["ShownRows"]

ASKS: Final = "pending-asks"
STATES: Final = "extension-state"
SUFFIX: Final = ".json"
FORMER_SUFFIX: Final = ".json.bak"
STATE_BYTES_MAX: Final = 131_072
_PLAIN: Final = "!*'()"
"""What JavaScript's `encodeURIComponent` leaves as it is, beside letters, digits and `-_.~`."""


class ShownRows:
    """The files below one folder that follow the rows of one broker."""

    def __init__(self, folder: str, failed: Callable[[BaseException], None]) -> None:
        """Remember where they belong; nothing is made before there is something to show.

        Args:
            folder: Absolute.
            failed: Told of what could not be written.
        """
        self._folder, self._failed = folder, failed
        self._keys: dict[str, str] = {}  # of the row that an ask's file shows, by the file's name

    def follow(self, rows: Iterable[Put | Drop]) -> None:
        """Show these rows, which are kept already. Never raises."""
        for row in rows:
            if row.kind not in ("ask", "extension_state"):
                continue
            try:
                if row.kind == "ask":
                    self._follow_ask(row)
                elif isinstance(row, Put):
                    self._show_state(row)
            except (OSError, TielineError) as error:
                self._failed(error)

    def _follow_ask(self, row: Put | Drop) -> None:
        name = _ask_name(row.key.partition("\n")[2])
        if isinstance(row, Put):
            with self._opened(ASKS) as directory:
                directory.write_atomic(name, row.body, sync=False)
            self._keys[name] = row.key
        elif self._keys.get(name, row.key) == row.key:
            self._keys.pop(name, None)
            with self._opened(ASKS) as directory:
                directory.remove(name)

    def _show_state(self, row: Put) -> None:
        name = hashlib.sha256(row.key.encode("utf-8", "surrogatepass")).hexdigest()
        with self._opened(STATES) as directory:
            try:
                former = directory.read(name + SUFFIX, STATE_BYTES_MAX)
            except FileNotFoundError:
                former = b""
            if former == row.body:
                return
            if former:
                directory.write_atomic(name + FORMER_SUFFIX, former, sync=True)
            directory.write_atomic(name + SUFFIX, row.body, sync=True)

    def _opened(self, name: str) -> Directory:
        return open_directory(os.path.join(self._folder, name), create=True)


def _ask_name(message_id: str) -> str:
    """Return the file name of an ask; of one whose name would be too long, its hash."""
    encoded = message_id.encode("utf-8", "surrogatepass")
    name = quote(encoded, safe=_PLAIN) + SUFFIX
    return name if len(name) <= NAME_BYTES_MAX else hashlib.sha256(encoded).hexdigest() + SUFFIX
