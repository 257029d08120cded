"""The redo that is left to mine: by the archived logs that the control file lists, whose sizes it has."""

from __future__ import annotations

from airflow_provider_cdc.core.model.log_headroom import LogWindow
from airflow_provider_cdc.sources.oracle.connect import Connection
from airflow_provider_cdc.sources.oracle.position import OraclePosition
from airflow_provider_cdc.sources.oracle.privileges import fetch_view_rows

_ARCHIVED = """
SELECT THREAD#, SEQUENCE#, FIRST_CHANGE#, NEXT_CHANGE#, BLOCKS, BLOCK_SIZE
FROM V$ARCHIVED_LOG
WHERE ARCHIVED = 'YES' AND STANDBY_DEST = 'NO' AND RESETLOGS_CHANGE# = :resetlogs AND NEXT_CHANGE# > :low"""


def window_around(connection: Connection, position: OraclePosition) -> LogWindow:
    """Return the bytes of archived logs that end after a position; of the log that it is in, a share by SCNs.

    The bytes that are in online logs alone are not known, and neither is when logs are deleted: that is up to RMAN and the recovery area.
    """
    archived = fetch_view_rows(connection, _ARCHIVED, resetlogs=position.resetlogs, low=position.scn)
    if archived is None:
        return LogWindow()
    logs = {
        (thread, sequence): (int(first), int(following), int(blocks) * int(size))
        for thread, sequence, first, following, blocks, size in archived
    }
    behind = 0
    for first, following, size in logs.values():
        left = following - max(first, position.scn)
        behind += size * left // max(following - first, 1)
    return LogWindow(behind)
