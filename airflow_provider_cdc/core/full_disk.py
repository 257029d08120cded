"""Recognizes errors that say that a disk is full: of the operating system, of drivers, and in texts of Java."""

from __future__ import annotations

import errno

_SYSTEM_CODES = frozenset([errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
_SYSTEM_WORDS = ("No space left on device", "Disk quota exceeded")
_SQLITE_FULL = 13
_SQLITE_WORDS = "database or disk is full"
_POSTGRESQL_FULL = "53100"
_MYSQL_FULL = frozenset([1021, 1114])
"""``ER_DISK_FULL`` and ``ER_RECORD_FILE_FULL``."""


def names_full_disk(text: str) -> bool:
    """Check whether a text has the operating system's words for a full disk.

    >>> names_full_disk("java.io.IOException: No space left on device")
    True
    """
    return any(word in text for word in _SYSTEM_WORDS)


def is_disk_full(error: BaseException | None) -> bool:
    """Check whether an error of the operating system, or of the driver of a database, says that no space is left.

    >>> is_disk_full(OSError(errno.ENOSPC, "No space left on device"))
    True
    """
    if error is None:
        return False
    if isinstance(error, OSError):
        return error.errno in _SYSTEM_CODES
    code = getattr(error, "sqlite_errorcode", None)
    if isinstance(code, int):  # the primary code of SQLite is the lowest byte of the extended one
        return code & 0xFF == _SQLITE_FULL
    if (state := getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)) is not None:
        return bool(state == _POSTGRESQL_FULL)
    if error.args and error.args[0] in _MYSQL_FULL:
        return True
    text = str(error)
    return _SQLITE_WORDS in text or names_full_disk(text)
