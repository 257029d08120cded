"""The type codes of binary log events (MySQL internals documentation, "Event Types"; MariaDB's from 160 on)."""

from __future__ import annotations

from typing import Final

QUERY: Final = 2
STOP: Final = 3
ROTATE: Final = 4
FORMAT_DESCRIPTION: Final = 15
XID: Final = 16
TABLE_MAP: Final = 19
WRITE_ROWS_V1: Final = 23
UPDATE_ROWS_V1: Final = 24
DELETE_ROWS_V1: Final = 25
INCIDENT: Final = 26
HEARTBEAT: Final = 27
ROWS_QUERY: Final = 29
WRITE_ROWS: Final = 30  # version 2, as of MySQL 5.6: extra data before the rows
UPDATE_ROWS: Final = 31
DELETE_ROWS: Final = 32
GTID: Final = 33
ANONYMOUS_GTID: Final = 34
PREVIOUS_GTIDS: Final = 35
XA_PREPARE: Final = 38
PARTIAL_UPDATE_ROWS: Final = 39
TRANSACTION_PAYLOAD: Final = 40
GTID_TAGGED: Final = 42
MARIADB_ANNOTATE: Final = 160
MARIADB_BINLOG_CHECKPOINT: Final = 161
MARIADB_GTID: Final = 162
MARIADB_GTID_LIST: Final = 163
MARIADB_START_ENCRYPTION: Final = 164
MARIADB_QUERY_COMPRESSED: Final = 165

ARTIFICIAL_FLAG: Final = 0x20
"""Of an event that the server makes for the connection: it is not in the log file."""
