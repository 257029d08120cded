"""Db2, our test server or a real one, for the shared suite. Names are in quotes, so they are as the suite spells them.

The log is what the capture agent has published. So a transaction of the suite ends when the agent has published it, and a table of the suite is one in
capture mode. Its structure changes as an administrator changes it (Debezium Db2 connector, "Online schema updates"): while no one writes, the statement
is repeated on the change table, and the agent gets a command.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.db2.log import stream
from airflow_provider_cdc.sources.db2.log.change_merger import ChangeMerger
from airflow_provider_cdc.sources.relational import fetch_size
from dev.servers.db2 import Db2
from dev.servers.db2.engine.driver import Connection
from tests.sources.suite import INT, LONG, TEXT, Adapter, Changes, Row, UndoTransaction
from tests.support.connectors import Connector
from tests.support.sources.db2.db2_real import RealDb2, authentication

KINDS = {INT: "INTEGER", LONG: "BIGINT", TEXT: "VARCHAR(200)"}
_numbers = itertools.count(1)


def db2_connector(server: Db2 | RealDb2, folder: Path, **properties: Any) -> Connector:
    """A connector on a server; properties with underscores for dots."""
    secrets = {
        "database.hostname": server.host, "database.port": server.port, "database.user": server.user,
        "database.password": server.password,
    }  # fmt: skip
    given: dict[str, Any] = {"database.dbname": server.database, "poll.interval.ms": 20, **authentication(server)}
    named = {k.replace("_", "."): v for k, v in properties.items()}
    return Connector(folder, "db2", given | named, secrets)


class Db2Adapter(Adapter):
    """A schema of a Db2.

    :param stack: closed at the end of the test, with all schemas of the adapter
    :param registered: options with which tables are put into capture mode
    """

    kind: ClassVar[str] = "db2"
    changes_kinds = False

    def __init__(self, server: Db2 | RealDb2, stack: ExitStack, **registered: Any) -> None:
        self.server, self._stack, self._registered = server, stack, registered
        self.namespace = f"SUITE_{next(_numbers)}"
        self._tables: dict[str, None] = {}
        server.sql(f"CREATE SCHEMA {self.namespace}")
        stack.callback(self._drop_all)

    def _drop_all(self) -> None:
        for table in [*self._tables]:
            self.drop_table(table)
        self.server.sql(f"DROP SCHEMA {self.namespace} RESTRICT")

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.server.sql(*statements)

    def name(self, table: str) -> str:
        """A table's name in SQL."""
        return f'{self.namespace}."{table}"'

    def change_table(self, table: str) -> str:
        """The name of its change table in SQL."""
        return f'ASNCDC."CDC_{self.namespace}_{table}"'

    def create(self, table: str, columns: Mapping[str, str], key: tuple[str, ...] = ()) -> None:
        self._create(table, {n: KINDS[k] for n, k in columns.items()}, key)

    def _create(self, table: str, columns: Mapping[str, str], key: tuple[str, ...]) -> None:
        parts = [f'"{n}" {k}{" NOT NULL" if n in key else ""}' for n, k in columns.items()]
        parts += [f"PRIMARY KEY ({_names(key)})"] if key else []
        self.create_as(table, ", ".join(parts))

    def create_as(self, table: str, columns: str) -> None:
        """A table in capture mode; its columns in SQL."""
        self.sql(f"CREATE TABLE {self.name(table)} ({columns})")
        self._tables[table] = None
        self.server.add_table(self.namespace, table, **self._registered)
        self.sql(
            f"GRANT SELECT ON TABLE {self.name(table)} TO USER {self.server.user}",
            f"GRANT SELECT ON TABLE {self.change_table(table)} TO USER {self.server.user}",
        )
        self.server.catch_up()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Changes]:
        with self.server.connect() as connection:
            try:
                yield _Changes(self, connection)
            except UndoTransaction:
                connection.rollback()
                return
            connection.commit()
        self.server.catch_up()

    def moves_keys(self, table: str, by: int) -> bool:
        self.sql(f'UPDATE {self.name(table)} SET "id" = "id" + {by}')
        self.server.catch_up()
        return True

    def asks_to_try_again(self, error: Exception) -> bool:
        return "X0Y84" in str(error)  # the test server's engine gives up on a sequence that too many want at once

    def rows(self, table: str) -> list[Row]:
        with self.server.connect() as connection:
            names = [column[0] for column in connection.columns(f"SELECT * FROM {self.name(table)}")]
            found = connection.rows(f"SELECT * FROM {self.name(table)}")
            connection.rollback()
        return sorted((dict(zip(names, row, strict=True)) for row in found), key=repr)

    # -- structures ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _altering(self, table: str, *, logged: bool = True) -> Iterator[None]:
        """No one writes meanwhile; the agent has captured what was written before, and looks at the change table again afterwards.

        :param logged: otherwise the table does not log changes for replication meanwhile, as Db2 asks for
        """
        if not logged:
            self.sql(f"ALTER TABLE {self.name(table)} DATA CAPTURE NONE")
        yield
        if isinstance(self.server, RealDb2):
            for each in (self.name(table), self.change_table(table)):
                self.server.reorganize(each)
        if not logged:
            self.sql(f"ALTER TABLE {self.name(table)} DATA CAPTURE CHANGES")
        self.server.reinit()
        self.server.catch_up()

    def add_column(self, table: str, name: str, kind: str, value: Any = None) -> None:
        default = "" if value is None else f" DEFAULT {value}"
        with self._altering(table, logged=value is None):  # the engine of the test server writes defaults as updates
            self.sql(
                f'ALTER TABLE {self.name(table)} ADD COLUMN "{name}" {KINDS[kind]}{default}',
                f'ALTER TABLE {self.change_table(table)} ADD COLUMN "{name}" {KINDS[kind]}{default}',
            )

    def drop_column(self, table: str, name: str) -> None:
        with self._altering(table, logged=False):
            self.sql(
                f'ALTER TABLE {self.name(table)} DROP COLUMN "{name}"',
                f'ALTER TABLE {self.change_table(table)} DROP COLUMN "{name}"',
            )

    def rename_column(self, table: str, old: str, new: str, kind: str) -> None:
        with self._altering(table, logged=False):
            self.sql(
                f'ALTER TABLE {self.name(table)} RENAME COLUMN "{old}" TO "{new}"',
                f'ALTER TABLE {self.change_table(table)} RENAME COLUMN "{old}" TO "{new}"',
            )

    def lengthen(self, table: str, name: str, length: int) -> None:
        """Let a text be longer."""
        with self._altering(table, logged=False):
            for each in (self.name(table), self.change_table(table)):
                self.sql(f'ALTER TABLE {each} ALTER COLUMN "{name}" SET DATA TYPE VARCHAR({length})')

    def change_column(self, table: str, name: str, kind: str) -> None:
        """Replace the column: the test server has ``ALTER COLUMN … SET DATA TYPE`` for longer texts only."""
        value = f'TRIM(CHAR("{name}"))' if kind == TEXT else f'"{name}"'
        ((default,),) = self.sql(
            f"""SELECT c."DEFAULT" FROM SYSCAT.COLUMNS c WHERE c.TABSCHEMA = '{self.namespace}' AND c.TABNAME = '{table}' AND c.COLNAME = '{name}'"""
        )
        given = "" if default is None else f" DEFAULT {_literal(default) if kind == TEXT else default}"
        with self._altering(table, logged=False):
            for each in (self.name(table), self.change_table(table)):
                self.sql(
                    f'ALTER TABLE {each} ADD COLUMN "{name} new" {KINDS[kind]}{given}',
                    f'UPDATE {each} SET "{name} new" = {value}',
                    f'ALTER TABLE {each} DROP COLUMN "{name}"',
                    f'ALTER TABLE {each} RENAME COLUMN "{name} new" TO "{name}"',
                )

    def rename_table(self, old: str, new: str) -> None:
        raise NotImplementedError("Db2 does not rename a table in capture mode")

    def drop_table(self, table: str) -> None:
        self.server.remove_table(self.namespace, table)
        self.sql(f"DROP TABLE {self.name(table)}")
        del self._tables[table]
        self.server.catch_up()

    def truncate(self, table: str) -> None:
        """TRUNCATE is not among what SQL Replication captures: who empties a table in capture mode deletes its rows."""
        with self.transaction() as t:
            t.delete(table, {})

    # -- signals and snapshots ----------------------------------------------------------------------------------------

    def signals(self) -> str:
        self._create("signals", {"id": "VARCHAR(64)", "type": "VARCHAR(32) NOT NULL", "data": "VARCHAR(4000)"}, ("id",))
        self.sql(f"GRANT INSERT, DELETE ON TABLE {self.name('signals')} TO USER {self.server.user}")
        return self.collection("signals")

    def collection(self, table: str) -> str:
        return f'{self.namespace}."{table}"'

    def condition(self, column: str, operator: str, value: int) -> str:
        return f'"{column}" {operator} {value}'

    def select(self, table: str, condition: str) -> str:
        return f"SELECT * FROM {self.name(table)} WHERE {condition}"

    sparse: ClassVar[Row] = {"lob.handling.mode": "reselect"}

    def create_sparse(
        self, table: str, columns: Mapping[str, str], key: tuple[str, ...], sparse: tuple[str, ...]
    ) -> bool:
        self._create(table, {n: "CLOB(1M)" if n in sparse else KINDS[k] for n, k in columns.items()}, key)
        return True

    def narrowed(self, name: str, tables: str) -> tuple[Row, Row]:
        if name == "lob.handling.mode":
            return {name: "unavailable"}, {name: "reselect"}
        return super().narrowed(name, tables)

    # -- the log ------------------------------------------------------------------------------------------------------

    def connector(self, folder: Path, **properties: Any) -> Connector:
        return db2_connector(self.server, folder, **{"schema_include_list": self.namespace, **properties})

    def other(self) -> Adapter:
        return Db2Adapter(self.server, self._stack, **self._registered)

    def purge(self) -> None:
        """Fill synchpoints of registrations, as an Apply program that has read everything."""
        self.sql(
            f"UPDATE ASNCDC.IBMSNAP_REGISTER SET CD_OLD_SYNCHPOINT = X'00' WHERE SOURCE_OWNER = '{self.namespace}'"
        )
        self.server.prune()

    @contextlib.contextmanager
    def small_blocks(self) -> Iterator[dict[str, Any]]:
        with patch.object(ChangeMerger.__init__, "__defaults__", (512,)), patch.object(stream, "FETCH_ROWS", 300):
            yield {}

    @contextlib.contextmanager
    def small_fetches(self) -> Iterator[dict[str, Any]]:
        with patch.object(fetch_size, "_FIRST_ROWS", 4):
            yield {}

    @contextlib.contextmanager
    def spoil(self) -> Iterator[str]:  # type: ignore[override]
        """The registrations are stopped, as after an error of the agent."""
        where = f"WHERE SOURCE_OWNER = '{self.namespace}'"
        self.sql(f"UPDATE ASNCDC.IBMSNAP_REGISTER SET STATE = 'S' {where}")
        try:
            yield "SET STATE = 'A'"
        finally:
            self.sql(f"UPDATE ASNCDC.IBMSNAP_REGISTER SET STATE = 'A' {where}")

    def id(self, table: str) -> TableId:
        return TableId(namespace=self.namespace, name=table, catalog=self.server.database)


def _names(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(f'"{n}"' for n in names)


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return str(value)
    escaped = str(value).replace("'", "''")
    return f"'{escaped}'"


class _Changes(Changes):
    def __init__(self, adapter: Db2Adapter, connection: Connection) -> None:
        self._adapter, self._connection = adapter, connection

    def insert(self, table: str, *rows: Row) -> None:
        values = ", ".join(f"({', '.join(_literal(value) for value in row.values())})" for row in rows)
        self._connection.execute(f"INSERT INTO {self._adapter.name(table)} ({_names([*rows[0]])}) VALUES {values}")

    def update(self, table: str, where: Row, values: Row) -> None:
        sets = ", ".join(f'"{n}" = {_literal(value)}' for n, value in values.items())
        self._connection.execute(f"UPDATE {self._adapter.name(table)} SET {sets} WHERE {_condition(where)}")

    def delete(self, table: str, where: Row) -> None:
        self._connection.execute(f"DELETE FROM {self._adapter.name(table)} WHERE {_condition(where)}")


def _condition(where: Row) -> str:
    parts = [f'"{n}" IS NULL' if value is None else f'"{n}" = {_literal(value)}' for n, value in where.items()]
    return " AND ".join(parts or ["1 = 1"])
