"""Types and flags of binlog events, and which of them hold no data."""

from __future__ import annotations

from typing import Final

from airflow_provider_cdc.core.errors import UnknownLogEvent
from airflow_provider_cdc.sources.mysql.kernels.event_codes import *

ROWS: Final = frozenset({WRITE_ROWS_V1, UPDATE_ROWS_V1, DELETE_ROWS_V1, WRITE_ROWS, UPDATE_ROWS, DELETE_ROWS})
COMPRESSED_ROWS: Final = {
    166: WRITE_ROWS_V1,
    167: UPDATE_ROWS_V1,
    168: DELETE_ROWS_V1,
    169: WRITE_ROWS,
    170: UPDATE_ROWS,
    171: DELETE_ROWS,
}
"""MariaDB's compressed row events → the type they hold."""
HARMLESS: Final = {
    STOP: "STOP",
    5: "INTVAR",
    13: "RAND",
    14: "USER_VAR",
    HEARTBEAT: "HEARTBEAT",
    28: "IGNORABLE",
    PREVIOUS_GTIDS: "PREVIOUS_GTIDS",
    36: "TRANSACTION_CONTEXT",
    37: "VIEW_CHANGE",
    41: "HEARTBEAT_V2",
    MARIADB_BINLOG_CHECKPOINT: "BINLOG_CHECKPOINT",
    MARIADB_GTID_LIST: "GTID_LIST",
    MARIADB_START_ENCRYPTION: "START_ENCRYPTION",
}
"""Events that hold no data of tables: INTVAR, RAND and USER_VAR only prepare a statement that follows."""
TRANSACTION_EVENTS: Final = frozenset({XID, GTID, ANONYMOUS_GTID, GTID_TAGGED})
"""Events that begin or end a transaction; MariaDB's GTID event is handled separately."""
IGNORABLE_FLAG: Final = 0x80
THREAD_SPECIFIC_FLAG: Final = 0x4
"""Flag of a statement that uses temporary tables of its session, or values that only the session knows (``CONNECTION_ID()``)."""

NAMES: Final = {
    1: "START_V3", QUERY: "QUERY", ROTATE: "ROTATE", 6: "LOAD", 8: "CREATE_FILE", 9: "APPEND_BLOCK", 10: "EXEC_LOAD",
    11: "DELETE_FILE", 12: "NEW_LOAD", FORMAT_DESCRIPTION: "FORMAT_DESCRIPTION", XID: "XID", 17: "BEGIN_LOAD_QUERY",
    18: "EXECUTE_LOAD_QUERY", TABLE_MAP: "TABLE_MAP", 20: "PRE_GA_WRITE_ROWS", 21: "PRE_GA_UPDATE_ROWS",
    22: "PRE_GA_DELETE_ROWS", INCIDENT: "INCIDENT", PARTIAL_UPDATE_ROWS: "PARTIAL_UPDATE_ROWS",
    TRANSACTION_PAYLOAD: "TRANSACTION_PAYLOAD", GTID_TAGGED: "GTID_TAGGED", MARIADB_QUERY_COMPRESSED: "QUERY_COMPRESSED",
}  # fmt: skip


def unknown_event(event_type: int, where: str, why: str = "this release does not support it") -> UnknownLogEvent:
    """Return the error for an event that may carry data and cannot be read."""
    return UnknownLogEvent(
        f"The binary log contains an event of type {event_type} ({NAMES.get(event_type, 'no name')}): {why}.",
        where=where,
        safe="Everything before it is captured; the offset is before its transaction.",
        remedy="see docs/sources/mysql.md#events for the supported events; to continue after the event, snapshot the "
        "tables again with snapshot.mode=always for one run",
    )
