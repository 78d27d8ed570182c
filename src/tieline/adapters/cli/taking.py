"""Consume what was printed, once it was printed, and free it when it was not.

Rule: evidence that the reader has it is the flush of stdout; nothing earlier counts.

Source: DESIGN.md 3 "Exposure and consumption"; reference/reliability.md K33, I9.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from tieline.errors import Refused, TielineError
from tieline.runtime.client import Client

__all__ = ["settle"]


@contextmanager
def settle(client: Client, token: object) -> Iterator[None]:
    """Run a block that prints and flushes; then tell the root that `token`'s mail was taken, or was not.

    Args:
        client: Of the root that prepared the mail.
        token: Names what was prepared; anything but a text stands for nothing.

    Raises:
        TielineError: it was printed, and the root could not be told: it may be shown once more.
    """
    if not isinstance(token, str) or not token:
        yield
        return
    try:
        yield
    except BaseException:
        # The first error is the one to tell. Unfreed mail is free again after two minutes anyway.
        _free(client, token)
        raise
    try:
        client.call("host.taken", {"token": token})
    except Refused as error:
        text = f"shown, but not marked as read: {error}; it will be shown again"
        raise Refused(error.code, text, is_retryable=True) from error


def _free(client: Client, token: str) -> bool:
    try:
        client.call("host.refused", {"token": token}, 2.0)
    except TielineError:
        return False
    return True
