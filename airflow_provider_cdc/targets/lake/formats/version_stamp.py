"""The newest version of a table of files, read without Spark.

Formats name the file of each version by its number. Where an earlier stamp is known, the next number is probed, so that a look costs a few
requests however many versions there are: a folder of a month of commits has a million names.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final

_HEAD: Final = 4096
"""Bytes of a version's file in which its unique id is."""
_MOST_PROBES: Final = 16
"""Versions after the known one that are probed before the folder is listed."""


def read_version_stamp(
    files: Any,
    folder: str,
    find_version: Callable[[str], int | None],
    list_names: Callable[[int], Sequence[str]],
    known: str = "",
) -> str:
    """Return the number of a table's newest version, and a text that distinguishes it from another table's version of this number.

    :param files: fsspec filesystem
    :param folder: has the versions' files
    :param find_version: returns the number in a file's name; ``None`` if it is no version
    :param list_names: returns the names that the file of a version may have
    :param known: an earlier stamp of this place, if there is one
    :return: empty if there is no table

    >>> read_version_stamp(files, "lake/orders/_delta_log", find_version, list_names)
    '12:871:0f3a99c1'
    """
    files.invalidate_cache(folder)
    number = _find_newest_after(files, folder, list_names, known) if known else None
    if number is None:
        try:
            names = [str(path).rstrip("/").rsplit("/", 1)[-1] for path in files.ls(folder, detail=False)]
        except (FileNotFoundError, NotADirectoryError):
            return ""
        number = max((n for n in map(find_version, names) if n is not None), default=None)
    return "" if number is None else _read_stamp(files, folder, list_names, number)


def _find_newest_after(files: Any, folder: str, list_names: Callable[[int], Sequence[str]], known: str) -> int | None:
    """Return the newest version by the one of an earlier stamp; ``None`` if only a list shows it."""
    number = int(known.partition(":")[0])
    if _read_stamp(files, folder, list_names, number) != known:
        return None  # another table, an older copy, or removed by maintenance
    for newer in range(number + 1, number + 1 + _MOST_PROBES):
        if not any(_exists(files, f"{folder}/{name}") for name in list_names(newer)):
            return newer - 1
    return None


def _exists(files: Any, path: str) -> bool:
    """Check for a file in one request; ``exists`` of clients for S3 lists a folder of its name, too."""
    try:
        files.cat_file(path, start=0, end=1)
    except FileNotFoundError:
        return False
    return True


def _read_stamp(files: Any, folder: str, list_names: Callable[[int], Sequence[str]], number: int) -> str:
    for name in list_names(number):
        path = f"{folder}/{name}"
        try:
            head = files.cat_file(path, start=0, end=_HEAD)
        except FileNotFoundError:
            continue
        return f"{number}:{files.size(path)}:{zlib.crc32(head):08x}"
    return ""
