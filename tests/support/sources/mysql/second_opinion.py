"""mysql-replication, which reads the same log. It passes over rows of tables whose columns it cannot name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

__all__ = ["DeleteRowsEvent", "UpdateRowsEvent", "WriteRowsEvent", "row_events"]


def row_events(
    server: Any, start: dict[str, Any], end: dict[str, Any], database: str, *, mariadb: bool
) -> Iterator[Any]:
    """Row events as mysql-replication gives them, between two places of a log file.

    With MariaDB it asks by GTIDs alone, from the oldest log on if it has none. It gets the end as an argument: a server that ends the
    answer itself hangs up before all of it is read, when that is much.
    """
    stream = BinLogStreamReader(
        connection_settings={"host": server.host, "port": server.port, "user": server.user, "passwd": server.password},
        server_id=4499, log_file=start["file"], log_pos=start["pos"], end_log_pos=end["pos"], resume_stream=True, blocking=True,
        is_mariadb=mariadb, auto_position=start["gtids"] if mariadb else None,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent], only_schemas=[database],
    )  # fmt: skip
    try:
        yield from stream
    finally:
        stream.close()
