"""Delta's log as plain files, for a look that needs no Spark."""

from __future__ import annotations

import re
import zlib
from typing import Any

_COMMIT = re.compile(r"(\d{20})\.json")
_HEAD = 4096
"""Bytes of a commit in which its own unique id is."""


def stamp(files: Any, folder: str) -> str:
    """Return the newest version of a table.

    That is its number, and a text that distinguishes it from another table's version of this number.

    :param files: fsspec filesystem
    :return: empty if there is no table
    """
    log = f"{folder}/_delta_log"
    try:
        files.invalidate_cache(log)
        names = [str(path).rstrip("/").rsplit("/", 1)[-1] for path in files.ls(log, detail=False)]
    except (FileNotFoundError, NotADirectoryError):
        return ""
    newest = max((name for name in names if _COMMIT.fullmatch(name)), default=None)
    if newest is None:
        return ""
    path = f"{log}/{newest}"
    with files.open(path, "rb") as commit:
        head = commit.read(_HEAD)
    return f"{int(newest[:20])}:{files.size(path)}:{zlib.crc32(head):08x}"
