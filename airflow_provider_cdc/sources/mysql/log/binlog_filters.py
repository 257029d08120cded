"""Databases that the server leaves out of its binary log (``binlog_do_db``, ``binlog_ignore_db``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import pymysql
from pymysql.connections import Connection

from airflow_provider_cdc.sources.mysql.connect import Server
from airflow_provider_cdc.sources.mysql.log.log_end import show_log_end

_NO_RIGHT: Final = 1227


@dataclass(frozen=True, slots=True)
class BinlogFilters:
    """Which databases are logged.

    :param only: no other ones are; empty = all but those left out
    :param but: those left out
    :param folded: names are compared in lower case
    """

    only: frozenset[str] = frozenset()
    but: frozenset[str] = frozenset()
    folded: bool = False

    @classmethod
    def of(cls, connection: Connection, server: Server) -> Self:
        """What the server says; an account that may not ask is a finding of its own, and sees no filter here."""
        try:
            with connection.cursor() as cursor:
                cursor.execute(show_log_end(server))
                row = cursor.fetchone()
        except pymysql.err.Error as e:
            if e.args[0] == _NO_RIGHT:
                return cls()
            raise
        folded = server.variables.get("lower_case_table_names", "0") != "0"
        texts = [str(names).lower() if folded else str(names) for names in row[2:4]] if row is not None else ["", ""]
        only, but = (frozenset(filter(None, (name.strip() for name in text.split(",")))) for text in texts)
        return cls(only, but, folded)

    def left_out_by(self, database: str) -> str | None:
        """The setting that leaves a database out; ``None`` = it is logged."""
        name = database.lower() if self.folded else database
        if self.only:
            return None if name in self.only else "binlog_do_db"
        return "binlog_ignore_db" if name in self.but else None

    def remedy(self, database: str) -> str:
        """What puts a database into the log that is left out of it."""
        change = f"add {database} to binlog_do_db" if self.only else f"take {database} out of binlog_ignore_db"
        return f"{change} in the server's configuration and restart it"
