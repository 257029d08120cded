"""Databases that the server leaves out of its binary log (``binlog_do_db``, ``binlog_ignore_db``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import pymysql
from pymysql.connections import Connection

from airflow_provider_cdc.sources.mysql.connect import MySqlServer
from airflow_provider_cdc.sources.mysql.log.log_end import show_log_end

_NO_RIGHT: Final = 1227


@dataclass(frozen=True, slots=True)
class BinlogFilters:
    """The databases that the server writes to its binary log.

    :param do_db: ``binlog_do_db``: only these are logged; empty = all except ``ignore_db``
    :param ignore_db: ``binlog_ignore_db``: these are not logged
    :param lower_case: the server compares names in lower case (``lower_case_table_names``)
    """

    do_db: frozenset[str] = frozenset()
    ignore_db: frozenset[str] = frozenset()
    lower_case: bool = False

    @classmethod
    def from_server(cls, connection: Connection, server: MySqlServer) -> Self:
        """Ask the server.

        An account without REPLICATION CLIENT gets empty filters: the missing privilege is a separate finding.
        """
        try:
            with connection.cursor() as cursor:
                cursor.execute(show_log_end(server))
                row = cursor.fetchone()
        except pymysql.err.Error as e:
            if e.args[0] == _NO_RIGHT:
                return cls()
            raise
        lower_case = server.variables.get("lower_case_table_names", "0") != "0"
        texts = (
            [str(names).lower() if lower_case else str(names) for names in row[2:4]] if row is not None else ["", ""]
        )
        do_db, ignore_db = (frozenset(filter(None, (name.strip() for name in text.split(",")))) for text in texts)
        return cls(do_db, ignore_db, lower_case)

    def excluded_by(self, database: str) -> str | None:
        """Return the setting that excludes a database from the log; ``None`` = it is logged."""
        name = database.lower() if self.lower_case else database
        if self.do_db:
            return None if name in self.do_db else "binlog_do_db"
        return "binlog_ignore_db" if name in self.ignore_db else None

    def suggest_remedy(self, database: str) -> str:
        """Return the change to the configuration by which an excluded database is logged."""
        change = f"add {database} to binlog_do_db" if self.do_db else f"remove {database} from binlog_ignore_db"
        return f"{change} in the server's configuration and restart it"
