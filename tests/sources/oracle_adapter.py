"""Oracle, our test server or a real one, for the shared suite. Names are in quotes, so they are as the suite spells them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import pytest

from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.oracle.mining import logminer_stream
from airflow_provider_cdc.sources.oracle.transactions.buffer import transaction_buffer
from airflow_provider_cdc.sources.relational import fetch_size
from dev.servers import Oracle
from tests.sources.suite import INT, LONG, TEXT, Adapter, Changes, Row, UndoTransaction
from tests.support.connectors import Connector
from tests.support.sources.oracle.oracle_real import RealOracle
from tests.support.sources.rewrite_journal import Table

KINDS = {INT: "NUMBER(9)", LONG: "NUMBER(18)", TEXT: "VARCHAR2(200)"}
_numbers = itertools.count(1)


def oracle_connector(server: Oracle | RealOracle, folder: Path, **properties: Any) -> Connector:
    """A connector on a server; properties with underscores for dots."""
    secrets = {
        "database.hostname": server.host, "database.port": server.port, "database.user": server.user,
        "database.password": server.password,
    }  # fmt: skip
    given: dict[str, Any] = {
        "database.dbname": server.database, "poll.interval.ms": 20,
        "log.mining.sleep.time.default.ms": 20, "log.mining.sleep.time.max.ms": 100,
    }  # fmt: skip
    if server.pdb:
        given["database.pdb.name"] = server.pdb
    if len(server.nodes) > 1:
        given["rac.nodes"] = ",".join(server.nodes)
    named = {k.replace("_", "."): v for k, v in properties.items()}
    return Connector(folder, "oracle", given | named, secrets)


class OracleAdapter(Adapter):
    """Each transaction is written by the next instance of a cluster.

    :param stack: closed at the end of the test, with all schemas of the adapter
    :param traceable: structures change only in ways after which rows from before can be read without the dictionary of then
    :param properties: of every connector, unless a test says otherwise; with underscores for dots
    """

    kind: ClassVar[str] = "oracle"
    changes_kinds = False

    def __init__(
        self, server: Oracle | RealOracle, stack: ExitStack, *, traceable: bool = False, **properties: Any
    ) -> None:
        self.server, self._stack, self._traceable, self._properties = server, stack, traceable, properties
        self._instances = itertools.cycle(range(1, len(server.nodes) + 1))
        self.namespace = f"SUITE_{next(_numbers)}"
        server.admin(
            f"CREATE USER {self.namespace} IDENTIFIED BY secret QUOTA UNLIMITED ON users",
            f"GRANT CREATE SESSION, CREATE TABLE TO {self.namespace}",
        )
        stack.callback(server.admin, f"DROP USER {self.namespace} CASCADE")

    @property
    def login(self) -> dict[str, Any]:
        return {"user": self.namespace, "password": "secret"}

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.server.sql(*statements, **self.login)

    def create(self, table: str, columns: Mapping[str, str], key: tuple[str, ...] = ()) -> None:
        self._create(table, {n: KINDS[k] for n, k in columns.items()}, key)

    sparse: ClassVar[Row] = {"lob.enabled": True}

    def create_sparse(
        self, table: str, columns: Mapping[str, str], key: tuple[str, ...], sparse: tuple[str, ...]
    ) -> bool:
        self._properties = self._properties | {"lob_enabled": True}
        self._create(table, {n: "CLOB" if n in sparse else KINDS[k] for n, k in columns.items()}, key)
        return True

    def _create(self, table: str, columns: Mapping[str, str], key: tuple[str, ...]) -> None:
        parts = [f'"{n}" {k}{" NOT NULL" if n in key else ""}' for n, k in columns.items()]
        parts += [f"PRIMARY KEY ({_names(key)})"] if key else []
        self.sql(f'CREATE TABLE "{table}" ({", ".join(parts)})', _LOGGED.format(table=table))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Changes]:
        thread = next(self._instances)
        with self.server.connect(thread=thread, **self.login) as connection, connection.cursor() as cursor:
            try:
                yield _Changes(cursor)
            except UndoTransaction:
                connection.rollback()
                return
            connection.commit()

    def moves_keys(self, table: str, by: int) -> bool:
        self.sql(f'UPDATE "{table}" SET "id" = "id" + {by}')
        return True

    def rows(self, table: str) -> list[Row]:
        with self.server.connect(**self.login) as connection, connection.cursor() as cursor:
            cursor.execute(f'SELECT * FROM "{table}"', fetch_lobs=False)
            names = [column[0] for column in cursor.description]
            return sorted((dict(zip(names, row, strict=True)) for row in cursor), key=repr)

    def add_column(self, table: str, name: str, kind: str, value: Any = None) -> None:
        default = "" if value is None else f" DEFAULT {value}{' NOT NULL' if self._traceable else ''}"
        self.sql(f'ALTER TABLE "{table}" ADD ("{name}" {KINDS[kind]}{default})')

    def drop_column(self, table: str, name: str) -> None:
        self.sql(f'ALTER TABLE "{table}" DROP COLUMN "{name}"')

    def rename_column(self, table: str, old: str, new: str, kind: str) -> None:
        self.sql(f'ALTER TABLE "{table}" RENAME COLUMN "{old}" TO "{new}"')

    def change_column(self, table: str, name: str, kind: str) -> None:
        if kind != TEXT:
            self.sql(f'ALTER TABLE "{table}" MODIFY ("{name}" {KINDS[kind]})')
            return
        if self._traceable:
            self.sql(
                f'ALTER TABLE "{table}" ADD ("{name} new" {KINDS[TEXT]})',
                f'UPDATE "{table}" SET "{name} new" = TO_CHAR("{name}")',
                f'ALTER TABLE "{table}" DROP COLUMN "{name}"',
                f'ALTER TABLE "{table}" RENAME COLUMN "{name} new" TO "{name}"',
            )
            return
        # Oracle changes the kind of an empty column only (ORA-01439): the table is made again under its name
        names = [n for (n,) in self.sql(f"SELECT column_name FROM user_tab_columns WHERE table_name = '{table}'")]
        picked = ", ".join(f'TO_CHAR("{n}") "{n}"' if n == name else f'"{n}"' for n in names)
        self.sql(
            f'CREATE TABLE "{table} new" AS SELECT {picked} FROM "{table}"',
            f'ALTER TABLE "{table} new" MODIFY ("{name}" {KINDS[TEXT]})',
            f'ALTER TABLE "{table} new" ADD PRIMARY KEY ("id")',
            _LOGGED.format(table=f"{table} new"),
            f'DROP TABLE "{table}" PURGE',
            f'ALTER TABLE "{table} new" RENAME TO "{table}"',
        )

    @contextlib.contextmanager
    def small_fetches(self) -> Iterator[dict[str, Any]]:
        with patch.object(fetch_size, "_FIRST_ROWS", 4):
            yield {}

    def rewrites(self) -> dict[str, Callable[[str, Table, str], str]]:
        return {"computed": self._computed}

    def _computed(self, table: str, model: Table, name: str) -> str:
        self.sql(f'ALTER TABLE "{table}" ADD ("{name}" NUMBER(9) DEFAULT TO_NUMBER(TO_CHAR(SYSDATE, \'YYYY\')))')
        made = dict(self.sql(f'SELECT "id", "{name}" FROM "{table}"'))
        model.columns[name] = INT
        for id_, row in model.rows.items():
            row[name] = made[id_]
        return table

    def signals(self) -> str:
        self.sql(
            'CREATE TABLE "signals" ("id" VARCHAR2(64) PRIMARY KEY, "type" VARCHAR2(32) NOT NULL, "data" VARCHAR2(4000))',
            _LOGGED.format(table="signals"),
            f'GRANT SELECT, INSERT, DELETE ON "signals" TO {self.server.user}',
        )
        return self.collection("signals")

    def collection(self, table: str) -> str:
        return f'{self.namespace}."{table}"'

    def condition(self, column: str, operator: str, value: int) -> str:
        return f'"{column}" {operator} {value}'

    def select(self, table: str, condition: str) -> str:
        return f'SELECT * FROM "{self.namespace}"."{table}" WHERE {condition}'

    def narrowed(self, name: str, tables: str) -> tuple[Row, Row]:
        value = {
            "log.mining.username.include.list": self.server.user, "log.mining.username.exclude.list": self.namespace,
            "log.mining.clientid.include.list": "nobody", "log.mining.clientid.exclude.list": "nobody",
        }.get(name)  # fmt: skip
        if name == "lob.enabled":
            return {name: False}, {name: True}
        return ({name: value}, {name: ""}) if value else super().narrowed(name, tables)

    def rename_table(self, old: str, new: str) -> None:
        self.sql(f'ALTER TABLE "{old}" RENAME TO "{new}"')

    def drop_table(self, table: str) -> None:
        self.sql(f'DROP TABLE "{table}"')

    def truncate(self, table: str) -> None:
        self.sql(f'TRUNCATE TABLE "{table}"')

    def connector(self, folder: Path, **properties: Any) -> Connector:
        mine = {"schema_include_list": self.namespace, **self._properties}
        return oracle_connector(self.server, folder, **{**mine, **properties})

    def other(self) -> Adapter:
        return OracleAdapter(self.server, self._stack, traceable=self._traceable, **self._properties)

    def purge(self) -> None:
        for _ in range(4):  # as often as there are groups of online logs, and once more
            for thread in range(1, len(self.server.nodes) + 1):
                self.server.switch_log(thread)
        self.server.purge()

    @contextlib.contextmanager
    def small_blocks(self) -> Iterator[dict[str, Any]]:
        with patch.object(transaction_buffer, "BLOCK_ROWS", 512), patch.object(logminer_stream, "PIECE_ROWS", 600):
            yield {"query_fetch_size": 600}

    @contextlib.contextmanager
    def spoil(self) -> Iterator[str]:  # type: ignore[override]
        if isinstance(self.server, RealOracle):
            pytest.skip("the supplemental logging of a real database is left as it is")
        self.server.admin("ALTER DATABASE DROP SUPPLEMENTAL LOG DATA", dsn=self.server.dsn)
        try:
            yield "ALTER DATABASE ADD SUPPLEMENTAL LOG DATA"
        finally:
            self.server.admin("ALTER DATABASE ADD SUPPLEMENTAL LOG DATA", dsn=self.server.dsn)

    def id(self, table: str) -> TableId:
        return TableId(namespace=self.namespace, name=table, catalog=self.server.pdb or self.server.database)


_LOGGED = 'ALTER TABLE "{table}" ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS'


def _names(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(f'"{n}"' for n in names)


class _Changes(Changes):
    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def insert(self, table: str, *rows: Row) -> None:
        names = list(rows[0])
        marks = ", ".join(f":{i}" for i in range(1, len(names) + 1))
        statement = f'INSERT INTO "{table}" ({_names(names)}) VALUES ({marks})'
        self._cursor.executemany(statement, [tuple(row[n] for n in names) for row in rows])

    def update(self, table: str, where: Row, values: Row) -> None:
        sets = ", ".join(f'"{n}" = :{i}' for i, n in enumerate(values, 1))
        conditions, binds = _conditions(where, len(values) + 1)
        self._cursor.execute(f'UPDATE "{table}" SET {sets} WHERE {conditions}', [*values.values(), *binds])

    def delete(self, table: str, where: Row) -> None:
        conditions, binds = _conditions(where, 1)
        self._cursor.execute(f'DELETE FROM "{table}" WHERE {conditions}', binds)


def _conditions(where: Row, first: int) -> tuple[str, list[Any]]:
    parts, binds = [], []
    for name, value in where.items():
        if value is None:
            parts.append(f'"{name}" IS NULL')
        else:
            parts.append(f'"{name}" = :{first + len(binds)}')
            binds.append(value)
    return " AND ".join(parts), binds
