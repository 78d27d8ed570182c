"""The project of a directory, as windows know it: the top of its work tree, else the directory.

Source: reference/pi-peers-and-harness-doors.md rule 47.
"""

import os

from tieline.runtime.neighbours import git_answer

__all__ = ["project_of"]


def project_of(workspace: str) -> str:
    """Return the top of the git work tree that holds `workspace`, or `workspace`; canonical. Runs git."""
    return os.path.realpath(git_answer(workspace, "--show-toplevel") or workspace)
