"""MySQL and MariaDB for the shared suite."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

from airflow_provider_cdc.sources.mysql.log import binlog_connection
from airflow_provider_cdc.sources.mysql.snapshot import result_set_reader
from tests.sources.suite import INT, LONG, TEXT, Adapter, Changes, Row, UndoTransaction
from tests.support.connectors import Connector, mysql_connector
from tests.support.sources.mysql.mysql_server import purge_log
from tests.support.sources.mysql.workload import source_rows
from tests.support.sources.rewrite_journal import Table

KINDS = {INT: "INT", LONG: "BIGINT", TEXT: "VARCHAR(200)"}


class MySqlAdapter(Adapter):
    """:param stack: closed at the end of the test, with all databases of the adapter"""

    def __init__(self, server: Any, kind: str, stack: ExitStack) -> None:
        self.server, self._stack = server, stack
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
            except UndoTransaction:
                connection.rollback()
                return
            connection.commit()

    def rows(self, table: str) -> list[Row]:
        return source_rows(self.server, self.namespace, table)

    def add_column(self, table: str, name: str, kind: str, value: Any = None) -> None:
        default = "" if value is None else f" DEFAULT {value}"
        self._db.sql(f"ALTER TABLE {table} ADD COLUMN {name} {KINDS[kind]}{default}")

    def drop_column(self, table: str, name: str) -> None:
        self._db.sql(f"ALTER TABLE {table} DROP COLUMN {name}")

    def rename_column(self, table: str, old: str, new: str, kind: str) -> None:
        self._db.sql(f"ALTER TABLE {table} CHANGE COLUMN {old} {new} {KINDS[kind]}")

    def change_column(self, table: str, name: str, kind: str) -> None:
        self._db.sql(f"ALTER TABLE {table} MODIFY COLUMN {name} {KINDS[kind]}")

    def narrowed(self, name: str, tables: str) -> tuple[Row, Row]:
        nobody = {"mysql": "00000000-0000-0000-0000-000000000000", "mariadb": "4294967295"}[self.kind]
        all_, none = {"gtid.source.excludes": ".*"}, {"gtid.source.excludes": ""}
        return {
            "gtid.source.includes": ({name: nobody}, {name: ""}), "gtid.source.excludes": (all_, none),
            "gtid.source.filter.dml.events": (all_ | {name: True}, all_ | {name: False}),
        }.get(name) or super().narrowed(name, tables)  # fmt: skip

    def rename_table(self, old: str, new: str) -> None:
        self._db.sql(f"RENAME TABLE {old} TO {new}")

    def swap_tables(self, a: str, b: str) -> bool:
        self._db.sql(f"RENAME TABLE {a} TO swapping, {b} TO {a}, swapping TO {b}")
        return True

    def create_like(self, table: str, other: str) -> bool:
        self._db.sql(f"CREATE TABLE {table} LIKE {other}")
        return True

    def rewrites(self) -> dict[str, Callable[[str, Table, str], str]]:
        return {
            "latin1": self._latin1, "convert": self._convert, "computed": self._computed,
            "altered and renamed": self._altered_and_renamed,
        }  # fmt: skip

    def _latin1(self, table: str, model: Table, name: str) -> str:
        old = next((n for n, k in model.columns.items() if k == TEXT), None)
        if old is None:
            return self._convert(table, model, name)
        # a strict session refuses what it cannot keep, and so has nothing to be read again
        self._db.sql("SET sql_mode = ''", f"ALTER TABLE {table} CHANGE {old} {name} VARCHAR(40) CHARACTER SET latin1")
        model.columns = {name if n == old else n: k for n, k in model.columns.items()}
        for row in model.rows.values():
            row[name] = row.pop(old)
        return table

    def _convert(self, table: str, model: Table, name: str) -> str:
        self._db.sql("SET sql_mode = ''", f"ALTER TABLE {table} CONVERT TO CHARACTER SET latin1, ADD {name} INT")
        return self._added(table, model, name, lambda row: None)

    def _computed(self, table: str, model: Table, name: str) -> str:
        self._db.sql(f"ALTER TABLE {table} ADD {name} INT DEFAULT (id + 1)")
        return self._added(table, model, name, lambda row: row["id"] + 1)

    def _altered_and_renamed(self, table: str, model: Table, name: str) -> str:
        self._db.sql(f"ALTER TABLE {table} ADD c_{name} INT DEFAULT 5, RENAME TO {name}")
        self._added(table, model, f"c_{name}", lambda row: 5)
        return name

    @staticmethod
    def _added(table: str, model: Table, name: str, value: Callable[[Row], Any]) -> str:
        model.columns[name] = INT
        for row in model.rows.values():
            row[name] = value(row)
        return table

    def drop_table(self, table: str) -> None:
        self._db.sql(f"DROP TABLE {table}")

    def truncate(self, table: str) -> None:
        self._db.sql(f"TRUNCATE TABLE {table}")

    def connector(self, folder: Path, **properties: Any) -> Connector:
        return mysql_connector(
            self.server, folder, self.kind, **{"database_include_list": self.namespace, **properties}
        )

    def other(self) -> Adapter:
        return MySqlAdapter(self.server, self.kind, self._stack)

    def purge(self) -> None:
        purge_log(self.server)

    @contextlib.contextmanager
    def small_blocks(self) -> Iterator[dict[str, Any]]:
        with patch.object(binlog_connection, "BUFFER", 1 << 14):
            yield {}

    @contextlib.contextmanager
    def small_fetches(self) -> Iterator[dict[str, Any]]:
        with patch.object(result_set_reader, "BUFFER", 1 << 10):
            yield {}

    def signals(self) -> str:
        self._db.sql("CREATE TABLE signals (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT)")
        account, table = f"'{self.server.user}'@'%'", f"{self.namespace}.signals"
        self.server.sql(f"GRANT SELECT, INSERT, DELETE ON {table} TO {account}")
        # a right to a table outlives the table
        self._stack.callback(self.server.sql, f"REVOKE SELECT, INSERT, DELETE ON {table} FROM {account}")
        return table

    @contextlib.contextmanager
    def spoil(self) -> Iterator[str]:  # type: ignore[override]
        self.server.sql("SET GLOBAL binlog_row_image = 'MINIMAL'")
        try:
            yield "SET GLOBAL binlog_row_image = 'FULL'"
        finally:
            self.server.sql("SET GLOBAL binlog_row_image = 'FULL'")


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
