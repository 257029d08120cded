"""A view of some tables at the position of a slot, and readers on it."""

from __future__ import annotations

import contextlib
import logging
import queue
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final
from uuid import uuid4

import psycopg
import pyarrow as pa
from psycopg import Connection

from airflow_provider_cdc.core.config.select_overrides import name_parts
from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.spi.source import SnapshotChunk, SnapshotSession
from airflow_provider_cdc.sources.postgresql.config import PostgresConfig
from airflow_provider_cdc.sources.postgresql.connect import connect, raise_cdc_errors, raise_query_refused
from airflow_provider_cdc.sources.postgresql.position import PostgresPosition
from airflow_provider_cdc.sources.postgresql.schema.catalog_reader import PostgresCatalog
from airflow_provider_cdc.sources.postgresql.slots import ExportedSlot, create_slot, drop_slot
from airflow_provider_cdc.sources.postgresql.snapshot.copied_rows import CopiedRows, select_text, source_of
from airflow_provider_cdc.sources.relational.snapshot_row_blocks import read_block
from airflow_provider_cdc.sources.relational.sql_quoting import quote_table

log = logging.getLogger(__name__)

_BEGIN: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_ALTERED: Final = (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, psycopg.errors.InvalidSchemaName)
_SLOT: Final = """
SELECT s.restart_lsn IS NULL OR s.wal_status = 'lost' OR to_jsonb(s)->>'invalidation_reason' IS NOT NULL
FROM pg_replication_slots s WHERE s.slot_name = %s"""
_REWRITTEN: Final = """
SELECT c.relfilenode IS DISTINCT FROM pg_relation_filenode(c.oid) FROM pg_class c WHERE c.oid = %s::oid AND c.relkind = 'r'"""


class PostgresSnapshot(SnapshotSession):
    """Rows at the consistent point of a slot. A table is read by one query, and locked against DDL while that runs.

    :param readers: number of connections that read tables in parallel
    :param selects: table → SELECT that a signal gives for its rows
    """

    position: PostgresPosition

    def __init__(
        self,
        config: PostgresConfig,
        tables: Sequence[TableId],
        readers: int,
        selects: Mapping[TableId, str] = MappingProxyType({}),
    ) -> None:
        self._config, self._selects = config, selects
        self._connections: list[Connection[tuple[Any, ...]]] = []
        self._idle: queue.SimpleQueue[Connection[tuple[Any, ...]]] = queue.SimpleQueue()
        self._changed: set[TableId] = set()
        self.changed = self._changed
        slot = _open_view(config)
        try:
            with raise_cdc_errors(config, "opening a snapshot"):
                for _ in range(max(readers, 1)):
                    self._connections.append(connection := connect(config, query_timeout=False))
                    connection.execute(_BEGIN)
                    connection.execute(f"SET TRANSACTION SNAPSHOT '{slot.snapshot}'")
                    self._idle.put(connection)
                catalog = PostgresCatalog(self._connections[0], config)
                self._structures = catalog.read_structures(tables)
                self._types, self._sizes = catalog.types, catalog.read_row_counts(self._structures)
            self.schemas = {table: structure.schema for table, structure in self._structures.items()}
            self.ddl = {table: catalog.create_statement(schema) for table, schema in self.schemas.items()}
            self.position, self.ts_us = slot.position, time.time_ns() // 1000
            self.source = {**source_of(slot.position), "txId": None, "lsn": slot.position.lsn, "xmin": None}
        except BaseException:
            self.close()
            raise
        finally:
            slot.close()

    def split_table(self, table: TableId) -> list[SnapshotChunk]:
        return [SnapshotChunk(table, None, max(self._sizes.get(table, 0), 0))]

    def read(self, chunk: SnapshotChunk) -> Iterator[RowBlock]:
        connection, table = self._idle.get(), chunk.table
        try:
            with raise_cdc_errors(self._config, str(table)):
                connection.execute("SAVEPOINT cdc_chunk")
                try:
                    yield from self._blocks(connection, table)
                except _ALTERED:
                    if self._statement(table) is not None:
                        raise
                    self._changed.add(table)
                finally:
                    # locks end with it; a connection that is lost has none
                    with contextlib.suppress(psycopg.OperationalError):
                        connection.execute("ROLLBACK TO SAVEPOINT cdc_chunk")
        finally:
            self._idle.put(connection)

    def _statement(self, table: TableId) -> str | None:
        """Return the SELECT of a signal or of the configuration for a table, if there is one."""
        overrides = self._config.snapshot_select_statement_overrides
        named = (text for name, text in overrides.items() if [*name_parts(name)] == [table.namespace, table.name])
        return self._selects.get(table) or next(named, None)

    def _blocks(self, connection: Connection[tuple[Any, ...]], table: TableId) -> Iterator[RowBlock]:
        structure, statement, first = self._structures[table], self._statement(table), 0
        rows = CopiedRows.prepare(structure, self._types, self._config)
        if statement is None:
            source = quote_table(table)
            connection.execute(f"LOCK TABLE {source} IN ACCESS SHARE MODE".encode())
            found = connection.execute(_REWRITTEN, [structure.schema.object_number]).fetchone()
            if found is not None and found[0]:
                # to an older view, a table that was rewritten or emptied has no rows
                self._changed.add(table)
                return
        else:
            source = f"({statement.strip().rstrip(';').rstrip()}\n) cdc_rows"
        query = f"SELECT {select_text(rows)} FROM {source}"
        refused = raise_query_refused(self._config, str(table), "correct the SELECT statement for the table")
        with contextlib.nullcontext() if statement is None else refused:
            for struct, _ in rows.read(connection, query):
                block = read_block(
                    structure.schema, struct, ts_us=self.ts_us, source=source_of(self.position), first=first
                )
                nothing = pa.nulls(len(struct), pa.int64())
                yield replace(block, source={**block.source, "txId": nothing, "xmin": nothing})
                first += len(struct)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections.clear()


def _open_view(config: PostgresConfig) -> ExportedSlot:
    """Create the connector's slot, or a temporary one if that exists, with the view at its position."""
    with raise_cdc_errors(config), connect(config, initial=False) as connection:
        row = connection.execute(_SLOT, [config.slot_name]).fetchone()
        if row is not None and row[0]:
            log.warning(
                "The server has invalidated the replication slot %s: it is dropped and created again.", config.slot_name
            )
            drop_slot(connection, config.slot_name)
            row = None
    if row is None:
        return create_slot(config, config.slot_name, temporary=False)
    return create_slot(config, f"{config.slot_name[:50]}_{uuid4().hex[:8]}", temporary=True)
