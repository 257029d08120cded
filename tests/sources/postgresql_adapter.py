"""PostgreSQL for the shared suite. A connector has a slot and a publication of its own, which are dropped at the end of the test."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

from psycopg import Cursor, sql
from psycopg.errors import DeadlockDetected
from psycopg.rows import dict_row

from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.postgresql.log.slot_stream import SlotStream
from dev.servers.postgres import Postgres
from tests.sources.suite import INT, LONG, TEXT, Adapter, Changes, Row, UndoTransaction
from tests.support.connectors import Connector
from tests.support.sources.rewrite_journal import Table

DATABASE = "postgres"
KINDS = {INT: "integer", LONG: "bigint", TEXT: "varchar(200)"}
_numbers = itertools.count(1)


class PostgresAdapter(Adapter):
    """A schema of a database.

    :param stack: closed at the end of the test, with the schema, the slots and the publications of the adapter
    :param identity: replica identity of tables with a key; others have all columns
    """

    kind: ClassVar[str] = "postgresql"

    def __init__(self, server: Postgres, stack: ExitStack, identity: str = "FULL") -> None:
        self.server, self._stack, self._identity = server, stack, identity
        self.namespace = f"suite_{next(_numbers)}"
        self._slots: list[str] = []
        server.sql(f"CREATE SCHEMA {self.namespace}")
        stack.callback(self._drop_all)

    def _drop_all(self) -> None:
        for slot in self._slots:
            self.server.sql(
                f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{slot}'"
            )
        self.server.sql(f"DROP PUBLICATION IF EXISTS {self.namespace}")
        self.server.sql(f"DROP SCHEMA {self.namespace} CASCADE")

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.server.sql(f"SET search_path TO {self.namespace}", *statements)

    def id(self, table: str) -> TableId:
        return TableId(catalog=DATABASE, namespace=self.namespace, name=table)

    def create(self, table: str, columns: Mapping[str, str], key: tuple[str, ...] = ()) -> None:
        parts = [f"{n} {KINDS[k]}{' NOT NULL' if n in key else ''}" for n, k in columns.items()]
        parts += [f"PRIMARY KEY ({', '.join(key)})"] if key else []
        identity = self._identity if key else "FULL"
        self.sql(f"CREATE TABLE {table} ({', '.join(parts)})", f"ALTER TABLE {table} REPLICA IDENTITY {identity}")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Changes]:
        with self.server.connect(autocommit=False) as connection, connection.cursor() as cursor:
            cursor.execute(f"SET search_path TO {self.namespace}")
            try:
                yield _Changes(cursor)
            except UndoTransaction:
                connection.rollback()
                return
            connection.commit()

    def asks_to_try_again(self, error: Exception) -> bool:
        return isinstance(error, DeadlockDetected)

    def rows(self, table: str) -> list[Row]:
        with self.server.connect() as connection, connection.cursor(row_factory=dict_row) as cursor:
            found = cursor.execute(f"SELECT * FROM {self.namespace}.{table}").fetchall()
        return sorted(found, key=repr)

    def add_column(self, table: str, name: str, kind: str, value: Any = None) -> None:
        default = "" if value is None else f" DEFAULT {value}"
        self.sql(f"ALTER TABLE {table} ADD COLUMN {name} {KINDS[kind]}{default}")

    def drop_column(self, table: str, name: str) -> None:
        self.sql(f"ALTER TABLE {table} DROP COLUMN {name}")

    def rename_column(self, table: str, old: str, new: str, kind: str) -> None:
        self.sql(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")

    def change_column(self, table: str, name: str, kind: str) -> None:
        self.sql(f"ALTER TABLE {table} ALTER COLUMN {name} TYPE {KINDS[kind]}")

    def rename_table(self, old: str, new: str) -> None:
        self.sql(f"ALTER TABLE {old} RENAME TO {new}")

    def rewrites(self) -> dict[str, Callable[[str, Table, str], str]]:
        return {}

    def drop_table(self, table: str) -> None:
        self.sql(f"DROP TABLE {table}")

    def truncate(self, table: str) -> None:
        self.sql(f"TRUNCATE TABLE {table}")

    def connector(self, folder: Path, **properties: Any) -> Connector:
        slot = f"{self.namespace}_{hashlib.sha256(str(folder).encode()).hexdigest()[:10]}"
        if slot not in self._slots:
            self._slots.append(slot)
            self._copy_slot(slot)
        server = self.server
        secrets = {
            "database.hostname": server.host, "database.port": server.port, "database.user": server.user,
            "database.password": server.password,
        }  # fmt: skip
        given = {
            "database.dbname": DATABASE, "database.sslmode": "disable", "slot.name": slot, "publication.name": self.namespace,
            "poll.interval.ms": 20,
        }  # fmt: skip
        named = {k.replace("_", "."): v for k, v in properties.items()}
        if "table.include.list" not in named:
            named = {"schema.include.list": self.namespace, **named}
        return Connector(folder, self.kind, given | named, secrets)

    def _copy_slot(self, slot: str) -> None:
        """Make a slot at the place of the first connector's, which may have the same offset: tests copy state."""
        name = f"slot_name = '{self._slots[0]}' AND confirmed_flush_lsn IS NOT NULL AND NOT active"
        self.server.sql(
            f"SELECT pg_copy_logical_replication_slot(slot_name, '{slot}') FROM pg_replication_slots WHERE {name} AND slot_name <> '{slot}'"
        )

    def other(self) -> Adapter:
        return PostgresAdapter(self.server, self._stack, self._identity)

    def purge(self) -> None:
        for slot in self._slots:
            self.server.sql(
                "SELECT pg_replication_slot_advance(slot_name, pg_current_wal_lsn()) FROM pg_replication_slots "
                f"WHERE slot_name = '{slot}'"
            )

    @contextlib.contextmanager
    def small_blocks(self) -> Iterator[dict[str, Any]]:
        with patch.dict(SlotStream.__init__.__kwdefaults__, {"block_bytes": 1 << 14}):
            yield {}

    def signals(self) -> str:
        self.sql("CREATE TABLE signals (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT)")
        return f"{self.namespace}.signals"

    @contextlib.contextmanager
    def spoil(self) -> Iterator[str]:
        self.sql("ALTER TABLE bag REPLICA IDENTITY DEFAULT")
        try:
            yield f'ALTER TABLE "{self.namespace}"."bag" REPLICA IDENTITY FULL'
        finally:
            self.sql("ALTER TABLE bag REPLICA IDENTITY FULL")


class _Changes(Changes):
    def __init__(self, cursor: Cursor[Any]) -> None:
        self._cursor = cursor

    def insert(self, table: str, *rows: Row) -> None:
        names = list(rows[0])
        statement = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
            sql.Identifier(table),
            sql.SQL(", ").join(map(sql.Identifier, names)),
            sql.SQL(", ").join(sql.Placeholder() * len(names)),
        )
        self._cursor.executemany(statement, [tuple(row[n] for n in names) for row in rows])

    def update(self, table: str, where: Row, values: Row) -> None:
        sets = sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(n)) for n in values)
        statement = sql.SQL("UPDATE {} SET {} WHERE {}").format(sql.Identifier(table), sets, _conditions(where))
        self._cursor.execute(statement, (*values.values(), *where.values()))

    def delete(self, table: str, where: Row) -> None:
        statement = sql.SQL("DELETE FROM {} WHERE {}").format(sql.Identifier(table), _conditions(where))
        self._cursor.execute(statement, tuple(where.values()))


def _conditions(where: Row) -> sql.Composed:
    return sql.SQL(" AND ").join(sql.SQL("{} IS NOT DISTINCT FROM %s").format(sql.Identifier(n)) for n in where)
