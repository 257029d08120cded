"""MySQL and MariaDB for the shared suite."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

from airflow_provider_cdc.sources.mysql import resultset, wire
from tests.sources.suite import INT, LONG, TEXT, Adapter, Changes, Row, Undo
from tests.support.connectors import Connector, mysql_connector
from tests.support.mysql_server import purge_log
from tests.support.workload import source_rows

KINDS = {INT: "INT", LONG: "BIGINT", TEXT: "VARCHAR(200)"}


class MySqlAdapter(Adapter):
    """:param stack: closed at the end of the test, with all databases of the adapter"""

    def __init__(self, server: Any, kind: str, stack: ExitStack) -> None:
        self._server, self._stack = server, stack
        self.kind = kind  # type: ignore[misc]
        self._db = stack.enter_context(server.database("suite"))
        self.namespace = self._db.name

    def create(self, table: str, columns: Mapping[str, str], key: tuple[str, ...] = ()) -> None:
        parts = [f"{n} {KINDS[k]}{' NOT NULL' if n in key else ''}" for n, k in columns.items()]
        parts += [f"PRIMARY KEY ({', '.join(key)})"] if key else []
        self._db.sql(f"CREATE TABLE {table} ({', '.join(parts)})")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Changes]:
        with self._db.connect(autocommit=False) as connection, connection.cursor() as cursor:
            try:
                yield _Changes(cursor)
            except Undo:
                connection.rollback()
                return
            connection.commit()

    def rows(self, table: str) -> list[Row]:
        return source_rows(self._server, self.namespace, table)

    def add_column(self, table: str, name: str, kind: str, value: Any = None) -> None:
        default = "" if value is None else f" DEFAULT {value}"
        self._db.sql(f"ALTER TABLE {table} ADD COLUMN {name} {KINDS[kind]}{default}")

    def drop_column(self, table: str, name: str) -> None:
        self._db.sql(f"ALTER TABLE {table} DROP COLUMN {name}")

    def rename_column(self, table: str, old: str, new: str, kind: str) -> None:
        self._db.sql(f"ALTER TABLE {table} CHANGE COLUMN {old} {new} {KINDS[kind]}")

    def change_column(self, table: str, name: str, kind: str) -> None:
        self._db.sql(f"ALTER TABLE {table} MODIFY COLUMN {name} {KINDS[kind]}")

    def rename_table(self, old: str, new: str) -> None:
        self._db.sql(f"RENAME TABLE {old} TO {new}")

    def drop_table(self, table: str) -> None:
        self._db.sql(f"DROP TABLE {table}")

    def truncate(self, table: str) -> None:
        self._db.sql(f"TRUNCATE TABLE {table}")

    def connector(self, folder: Path, **properties: Any) -> Connector:
        return mysql_connector(
            self._server, folder, self.kind, **{"database_include_list": self.namespace, **properties}
        )

    def other(self) -> Adapter:
        return MySqlAdapter(self._server, self.kind, self._stack)

    def purge(self) -> None:
        purge_log(self._server)

    @contextlib.contextmanager
    def small_blocks(self) -> Iterator[dict[str, Any]]:
        with patch.object(wire, "BUFFER", 1 << 14):
            yield {}

    @contextlib.contextmanager
    def small_fetches(self) -> Iterator[dict[str, Any]]:
        with patch.object(resultset, "BUFFER", 1 << 10):
            yield {}

    def signals(self) -> str:
        self._db.sql("CREATE TABLE signals (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT)")
        account, table = f"'{self._server.user}'@'%'", f"{self.namespace}.signals"
        self._server.sql(f"GRANT SELECT, INSERT, DELETE ON {table} TO {account}")
        # a right to a table outlives the table
        self._stack.callback(self._server.sql, f"REVOKE SELECT, INSERT, DELETE ON {table} FROM {account}")
        return table

    @contextlib.contextmanager
    def spoil(self) -> Iterator[str]:  # type: ignore[override]
        self._server.sql("SET GLOBAL binlog_row_image = 'MINIMAL'")
        try:
            yield "SET GLOBAL binlog_row_image = 'FULL'"
        finally:
            self._server.sql("SET GLOBAL binlog_row_image = 'FULL'")


class _Changes(Changes):
    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def insert(self, table: str, *rows: Row) -> None:
        names = list(rows[0])
        marks = ", ".join(["%s"] * len(names))
        statement = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})"
        self._cursor.executemany(statement, [tuple(row[n] for n in names) for row in rows])

    def update(self, table: str, where: Row, values: Row) -> None:
        sets, conditions = (", ".join(f"{n} = %s" for n in values), " AND ".join(f"{n} <=> %s" for n in where))
        self._cursor.execute(f"UPDATE {table} SET {sets} WHERE {conditions}", (*values.values(), *where.values()))

    def delete(self, table: str, where: Row) -> None:
        conditions = " AND ".join(f"{n} <=> %s" for n in where)
        self._cursor.execute(f"DELETE FROM {table} WHERE {conditions}", tuple(where.values()))
