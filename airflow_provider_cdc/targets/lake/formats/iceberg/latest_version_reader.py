"""Iceberg's metadata as plain files, for a look that needs no Spark."""

from __future__ import annotations

import re
import zlib
from typing import Any

_METADATA = re.compile(r"v(\d+)(\.gz)?\.metadata\.json(\.gz)?")
_HEAD = 4096
"""Bytes of a metadata file in which the table's unique id and the time of the commit are."""


def stamp(files: Any, folder: str) -> str:
    """Return the newest version of a table by path.

    That is its number, and a text that distinguishes it from another table's version of this number.

    :param files: fsspec filesystem
    :return: empty if there is no table
    """
    metadata = f"{folder}/metadata"
    try:
        files.invalidate_cache(metadata)
        names = [str(path).rstrip("/").rsplit("/", 1)[-1] for path in files.ls(metadata, detail=False)]
    except (FileNotFoundError, NotADirectoryError):
        return ""
    versions = {int(match[1]): name for name in names if (match := _METADATA.fullmatch(name))}
    if not versions:
        return ""
    newest = max(versions)
    path = f"{metadata}/{versions[newest]}"
    with files.open(path, "rb") as opened:
        head = opened.read(_HEAD)
    return f"{newest}:{files.size(path)}:{zlib.crc32(head):08x}"
