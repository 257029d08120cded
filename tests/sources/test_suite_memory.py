"""The shared suite on the memory source."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.sources.memory.database import MemoryDatabase, MemoryTransaction
from tests.sources.suite import INT, LONG, TEXT, Adapter, Changes, Row, SourceSuite, UndoTransaction
from tests.sources.suite.incremental import IncrementalSuite
from tests.support.connectors import Connector, memory_connector

KINDS = {INT: "int32", LONG: "int64", TEXT: "string"}


class MemoryAdapter(Adapter):
    kind = "memory"

    def __init__(self, database: MemoryDatabase, namespace: str = "shop") -> None:
        self._db, self.namespace = database, namespace

    def create(self, table: str, columns: Mapping[str, str], key: tuple[str, ...] = ()) -> None:
        types = {n: KINDS[k] + ("!" if n in key else "") for n, k in columns.items()}
        self._db.create_table(self._name(table), types, key)

    def create_sparse(
        self, table: str, columns: Mapping[str, str], key: tuple[str, ...], sparse: tuple[str, ...]
    ) -> bool:
        types = {n: KINDS[k] + ("!" if n in key else "") for n, k in columns.items()}
        self._db.create_table(self._name(table), types, key, sparse=sparse)
        return True

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Changes]:
        with contextlib.suppress(UndoTransaction), self._db.transaction() as t:
            yield _Changes(self, t)

    def moves_keys(self, table: str, by: int) -> bool:
        with self._db.transaction() as t:
            t.update_each(self._name(table), [(row, {"id": row["id"] + by}) for row in self.rows(table)])
        return True

    def rows(self, table: str) -> list[Row]:
        return sorted(self._db.copy_rows(self._name(table)), key=repr)

    def add_column(self, table: str, name: str, kind: str, value: Any = None) -> None:
        self._db.add_column(self._name(table), name, KINDS[kind], value)

    def drop_column(self, table: str, name: str) -> None:
        self._db.drop_column(self._name(table), name)

    def rename_column(self, table: str, old: str, new: str, kind: str) -> None:
        self._db.rename_column(self._name(table), old, new)

    def change_column(self, table: str, name: str, kind: str) -> None:
        self._db.change_column(self._name(table), name, KINDS[kind], str if kind == TEXT else int)

    def rename_table(self, old: str, new: str) -> None:
        self._db.rename_tables((self._name(old), self._name(new)))

    def swap_tables(self, a: str, b: str) -> bool:
        self._db.rename_tables((self._name(a), self._name(b)), (self._name(b), self._name(a)))
        return True

    def drop_table(self, table: str) -> None:
        self._db.drop_table(self._name(table))

    def truncate(self, table: str) -> None:
        self._db.truncate_table(self._name(table))

    def connector(self, folder: Path, **properties: Any) -> Connector:
        return memory_connector(self._db, folder, **{"table_include_list": rf"{self.namespace}\..*", **properties})

    def other(self) -> Adapter:
        return MemoryAdapter(self._db, "elsewhere")

    def purge(self) -> None:
        self._db.purge_log()

    @contextlib.contextmanager
    def small_blocks(self) -> Iterator[dict[str, Any]]:
        yield {"memory_block_rows": 400}

    def signals(self) -> str:
        self._db.create_table(self._name("signals"), {"id": "string!", "type": "string", "data": "string"}, ("id",))
        return self._name("signals")

    def select(self, table: str, condition: str) -> str:
        return condition

    def _name(self, table: str) -> str:
        return f"{self.namespace}.{table}"


class _Changes(Changes):
    def __init__(self, adapter: MemoryAdapter, transaction: MemoryTransaction) -> None:
        self._adapter, self._transaction = adapter, transaction

    def insert(self, table: str, *rows: Row) -> None:
        for row in rows:
            self._transaction.insert(self._adapter._name(table), row)

    def update(self, table: str, where: Row, values: Row) -> None:
        self._transaction.update(self._adapter._name(table), where, values)

    def delete(self, table: str, where: Row) -> None:
        self._transaction.delete(self._adapter._name(table), where)


class TestMemory(SourceSuite, IncrementalSuite):
    @pytest.fixture
    def db(self, request: pytest.FixtureRequest) -> MemoryAdapter:
        return MemoryAdapter(MemoryDatabase(request.node.nodeid))
