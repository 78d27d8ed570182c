"""Verified directories, files that are whole or absent, and locks that end with their holder."""

from tieline.store.files.checks import Seam, check_file, file_system_kind, no_seam, refuse_network_file_system
from tieline.store.files.directory import Directory
from tieline.store.files.lock import Lock
from tieline.store.files.walk import open_directory

__all__ = [
    "Directory",
    "Lock",
    "Seam",
    "check_file",
    "file_system_kind",
    "no_seam",
    "open_directory",
    "refuse_network_file_system",
]
