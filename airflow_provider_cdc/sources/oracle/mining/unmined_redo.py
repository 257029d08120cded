"""The redo that is left to mine, and how long it is kept: by the archived logs that the control file lists."""

from __future__ import annotations

import time
from datetime import datetime
from typing import NamedTuple

from airflow_provider_cdc.core.model.log_headroom import LogRetention, LogWindow
from airflow_provider_cdc.sources.oracle.connect import Connection
from airflow_provider_cdc.sources.oracle.position import OraclePosition
from airflow_provider_cdc.sources.oracle.privileges import fetch_view_rows

_ARCHIVED = """
SELECT THREAD#, SEQUENCE#, FIRST_CHANGE#, NEXT_CHANGE#, BLOCKS, BLOCK_SIZE, COMPLETION_TIME
FROM V$ARCHIVED_LOG
WHERE ARCHIVED = 'YES' AND STANDBY_DEST = 'NO' AND RESETLOGS_CHANGE# = :resetlogs AND NEXT_CHANGE# > :low"""
_EXTENT = """
SELECT STATUS, MIN(COMPLETION_TIME), MAX(SYSDATE)
FROM V$ARCHIVED_LOG
WHERE ARCHIVED = 'YES' AND STANDBY_DEST = 'NO' AND RESETLOGS_CHANGE# = :resetlogs
GROUP BY STATUS"""
_AVAILABLE, _REMOVED = "A", {"D", "X"}
SHORT_S = 86_400
"""Logs that go back for a shorter time do not show how long they are kept: a daily job may have just deleted all of them."""


def window_around(connection: Connection, position: OraclePosition) -> LogWindow:
    """Return the bytes of archived logs that end after a position; of the log that it is in, a share by SCNs.

    The bytes that are in online logs alone are not known. When logs are deleted is up to RMAN and the recovery area: it is assumed that a log stays for
    as long as the oldest one has stayed, if any was deleted and the others go back for a day or more.
    """
    archived = fetch_view_rows(connection, _ARCHIVED, resetlogs=position.resetlogs, low=position.scn)
    if archived is None:
        return LogWindow()
    logs = {
        (thread, sequence): (int(first), int(following), int(blocks) * int(size))
        for thread, sequence, first, following, blocks, size, _ in archived
    }
    behind = 0
    for first, following, size in logs.values():
        left = following - max(first, position.scn)
        behind += size * left // max(following - first, 1)
    extent = _read_extent(connection, position.resetlogs)
    if not archived or extent is None or not extent.removed or extent.seconds < SHORT_S:
        return LogWindow(behind)
    age_s = (extent.now - min(completed for *_, completed in archived)).total_seconds()
    return LogWindow(behind, round(time.time() + extent.seconds - age_s))


class _Extent(NamedTuple):
    """The archived logs that are there.

    :param seconds: how far they go back
    :param removed: whether others were removed
    :param now: the time of the database
    """

    seconds: float
    removed: bool
    now: datetime


def _read_extent(connection: Connection, resetlogs: int) -> _Extent | None:
    """Read how far the archived logs go back; ``None`` if there is none, or they are not shown."""
    found = fetch_view_rows(connection, _EXTENT, resetlogs=resetlogs) or []
    oldest = next(((completed, now) for status, completed, now in found if status == _AVAILABLE), None)
    if oldest is None:
        return None
    completed, now = oldest
    return _Extent((now - completed).total_seconds(), any(status in _REMOVED for status, *_ in found), now)


def find_log_retention(connection: Connection, resetlogs: int) -> LogRetention | None:
    """Return how far the archived logs go back now; ``None`` if that is not shown."""
    extent = _read_extent(connection, resetlogs)
    if extent is None:
        return None
    decides = "RMAN and the recovery area decide; on RDS, archivelog retention hours"
    if not extent.removed:
        return LogRetention(None, f"no archived log was deleted yet; {decides}")
    return LogRetention(extent.seconds, f"the archived logs go back as far now; {decides}")
