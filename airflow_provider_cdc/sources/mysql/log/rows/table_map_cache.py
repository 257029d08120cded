"""The table maps seen in the log: which table a row event belongs to, and the layout of its rows."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.core.errors import SchemaConflict, values_of
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas
from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.log.rows.row_layout import UNNAMED, LayoutMismatch, RowImageLayout, build_layout
from airflow_provider_cdc.sources.mysql.log.rows.structure_proof import StructureProof
from airflow_provider_cdc.sources.mysql.log.rows.table_map_parser import TableMap, parse_table_map
from airflow_provider_cdc.sources.mysql.log.rows.table_map_schema import counting_layout, schema_of_table_map
from airflow_provider_cdc.sources.mysql.log.rows.unnamed_table_map import has_minimal_metadata, name_columns
from airflow_provider_cdc.sources.mysql.schema.column_types import SYSTEM_DATABASES
from airflow_provider_cdc.sources.mysql.schema.live_catalog import LiveCatalog
from airflow_provider_cdc.sources.mysql.schema.table_name_resolver import TableNameResolver

log = logging.getLogger(__name__)

_MOST_TABLE_IDS: Final = 1 << 16
_MOST_BYTES: Final = 32 << 20
_SEQUENCE = [
    "next_not_cached_value", "minimum_value", "maximum_value", "start_value", "increment", "cache_size", "cycle_option", "cycle_count",
]  # fmt: skip
"""The columns of a sequence of MariaDB."""


class _StoredTableMap(NamedTuple):
    """A table map without its table id and flags: where the kernel has its bytes, and the number of its layout.

    :param unnamed: the structure that rows without column names are decoded with; ``None`` if the map has the names
    """

    offset: int
    length: int
    number: int
    unnamed: TableSchema | None = None


class TableMapCache:
    """The table maps seen so far, as the ``route`` kernel looks them up.

    A new or changed table map is compared with the table's schema in force. If they do not match, the schema of the catalog is tried,
    then the schema that the map itself describes. If that is ambiguous, reading stops: rows are never decoded under a guess. A map without
    column names needs the schema in force, and a proof that it is the one of the rows.

    :ivar layouts: layouts by number, as the kernel gives it
    :ivar left_out: schemas whose rows are counted but not captured, each with the reason
    """

    def __init__(
        self,
        config: MySqlConfig,
        tables: CapturedTableSchemas,
        catalog: LiveCatalog,
        names: TableNameResolver,
        *,
        mariadb: bool,
        proof: StructureProof | None = None,
    ) -> None:
        """Create an empty cache.

        :param proof: of structures of rows without column names; without it, such rows are an error
        """
        self._proof = proof
        self._config, self._tables, self._catalog, self._names = config, tables, catalog, names
        self._mariadb = mariadb
        self.layouts: list[RowImageLayout] = []
        self.left_out: list[tuple[TableSchema, str]] = []
        self._table_ids = np.full(k.SLOTS, -1, np.int64)
        self._body_spans = np.zeros((k.SLOTS, 2), np.int64)
        self._layout_numbers = np.full(k.SLOTS, k.NOT_CAPTURED, np.int32)
        self._bytes = np.zeros(1 << 16, np.uint8)
        self._bytes_used = 0
        self._of_body: dict[bytes, _StoredTableMap] = {}
        self._of_table_id: dict[int, _StoredTableMap] = {}

    @property
    def kernel_arguments(
        self,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
        """The ``map_…`` arguments of the ``route`` kernel: table ids, offset and length of the maps' bytes, layout numbers, bytes."""
        return self._table_ids, self._body_spans, self._layout_numbers, self._bytes

    def discard_maps(self) -> None:
        """Forget all maps, as table schemas have changed: each map is learned again at its next occurrence."""
        self._table_ids[:] = -1
        self.layouts.clear()
        self.left_out.clear()
        self._bytes_used = 0
        self._of_body.clear()
        self._of_table_id.clear()

    def discard_unnamed_maps(self) -> None:
        """Forget the maps if some have no column names, as table ids begin again: another structure may get the same id."""
        if any(stored.unnamed is not None for stored in self._of_body.values()):
            self.discard_maps()

    def trim_maps(self) -> None:
        """Forget all maps if there are many. No transaction may be open: its rows may need a map that came before.

        A server gives a table another id whenever it opens it again, which it does all the time if its ``table_definition_cache`` is
        smaller than the number of its tables.
        """
        if len(self._of_table_id) > _MOST_TABLE_IDS or self._bytes_used > _MOST_BYTES:
            self.discard_maps()

    def restore_map(self, table_id: int) -> bool:
        """Check whether a map with this table id was seen; if so, put it back where the kernel finds it."""
        stored = self._of_table_id.get(table_id)
        if stored is None:
            return False
        self._remember(table_id, stored)
        return True

    def is_passed_over(self, table_id: int) -> bool:
        """Check whether a map with this table id was seen, of a table that is not captured."""
        stored = self._of_table_id.get(table_id)
        return stored is not None and stored.number == k.NOT_CAPTURED

    def add_map(self, body: bytes, where: str, at: tuple[int, int] = (0, 0)) -> TableSchema | None:
        """Add a new table map.

        :param where: position of the event, for errors
        :param at: number of the log file, and offset of the event
        :return: the table's schema from the catalog or the map, if the known one does not match; the caller applies it as a schema
            change and calls again. Otherwise ``None``
        :raises SchemaConflict: no schema matches the map
        """
        described = body[k.MAP_DESCRIPTION :]
        stored = self._of_body.get(described)
        if stored is not None and stored.unnamed is not None and self._doubt(stored.unnamed, at):
            stored = None
        if stored is None:
            table_map, number = parse_table_map(body, mariadb=self._mariadb), k.NOT_CAPTURED
            table = self._names.resolve_table(table_map.database, table_map.table)
            if (
                table.namespace not in SYSTEM_DATABASES
                and self._tables.is_captured(table)
                and not self._is_sequence(table_map, table)
            ):
                layout = self._layout(table_map, table, where, at)
                if isinstance(layout, TableSchema):
                    return layout
                number = len(self.layouts)
                self.layouts.append(layout)
            unnamed = self.layouts[number].schema if number >= 0 and table_map.names is None else None
            stored = _StoredTableMap(self._store(described), len(described), number, unnamed)
            self._of_body[described] = stored
        self._remember(int.from_bytes(body[:6], "little"), stored)
        return None

    def _is_sequence(self, table_map: TableMap, table: TableId) -> bool:
        """Check whether this is a sequence of MariaDB, whose state has rows in the log.

        A table may have been made with its columns, too.
        """
        is_known = self._tables.find_schema(table) is not None
        if not self._mariadb or (is_known and table_map.names != _SEQUENCE):
            return False
        there = self._catalog.is_table(table)
        return not there if there is not None else not is_known and table_map.names == _SEQUENCE

    def _layout(
        self, table_map: TableMap, table: TableId, where: str, at: tuple[int, int]
    ) -> RowImageLayout | TableSchema:
        unnamed = table_map.names is None
        result = self._unnamed(table_map, table, at) if unnamed else self._fitting(table_map, table, where)
        if not isinstance(result, str):
            return result
        problem = result
        if self._tables.read_again(table):
            try:
                layout = counting_layout(table_map, table, self._config)
                self.left_out.append((layout.schema, f"their schema is unknown: {problem}"))
                return layout
            except LayoutMismatch as e:
                problem += f"; to count them: {e}"
        error = SchemaConflict(
            f"Rows of {table} were written with an unknown table definition: {problem}.",
            where=where,
            safe="Everything before this transaction is captured; no row was decoded with a guessed structure.",
            remedy="set binlog_row_metadata=FULL on the server if it is not set; to snapshot many such tables "
            "again, use snapshot.mode=always for one run",
        )
        error.table = str(table)
        raise error

    def _fitting(self, table_map: TableMap, table: TableId, where: str) -> RowImageLayout | TableSchema | str:
        """Return the layout of the rows; or the schema to apply first; or the reason why no schema matches."""
        schema = self._tables.find_schema(table)
        problem = "its schema is unknown"
        if schema is not None:
            try:
                layout = self._build(table_map, schema)
                return self._with_logged_key(table_map, schema) or layout
            except LayoutMismatch as e:
                problem = str(e)
        present = self._catalog.read_table(table)
        if present is not None:
            try:
                self._build(table_map, present)
                return present
            except LayoutMismatch as e:
                problem += f"; with the schema in the catalog: {e}"
        try:
            schemas = [other for other in (schema, present) if other is not None]
            logged = schema_of_table_map(table_map, table, schemas, self._config, self._catalog.collation_charsets)
            self._build(table_map, logged)
            log.warning("The schema of %s at %s is derived from the log: %s.", table, where, problem)
            return logged
        except LayoutMismatch as e:
            return f"{problem}; with the schema in the log: {e}"

    def _unnamed(self, table_map: TableMap, table: TableId, at: tuple[int, int]) -> RowImageLayout | str:
        """Return the layout of rows without column names; or the reason why the schema history does not give it."""
        if self._proof is None or not has_minimal_metadata(table_map):
            return UNNAMED
        schema = self._tables.find_schema(table)
        if schema is None:
            return f"{UNNAMED}, and the schema history does not have the table"
        try:
            named = name_columns(table_map, schema, self._catalog.collation_charsets)
            layout = self._build(named, schema)
        except LayoutMismatch as e:
            return f"{UNNAMED}, and the schema history does not match: {e}"
        doubt = self._doubt(schema, at)
        return layout if doubt is None else f"{UNNAMED}, and the schema history may not match: {doubt}"

    def _doubt(self, schema: TableSchema, at: tuple[int, int]) -> str | None:
        return None if self._proof is None else self._proof.find_doubt(schema, at)

    def _build(self, table_map: TableMap, schema: TableSchema) -> RowImageLayout:
        """Build the layout in either reading of the signs.

        Newer versions of MySQL 8.0 log a sign for YEAR columns, older ones do not.
        """
        try:
            with values_of(schema.id):
                return build_layout(table_map, schema, self._config, self._catalog.collation_charsets)
        except LayoutMismatch:
            if table_map.unsigned_with_years is None:
                raise
            counted = replace(table_map, unsigned=table_map.unsigned_with_years)
            return build_layout(counted, schema, self._config, self._catalog.collation_charsets)

    def _with_logged_key(self, table_map: TableMap, schema: TableSchema) -> TableSchema | None:
        """Return the schema with the primary key of the log, if it differs; otherwise ``None``."""
        if table_map.primary_key is None:
            return None
        assert table_map.names is not None
        key = tuple(table_map.names[i] for i in table_map.primary_key)
        return None if key == schema.key else schema.model_copy(update={"key": key})

    def why_left_out(self, schema: TableSchema) -> str | None:
        """Why rows under a schema are only counted; ``None`` when they are captured."""
        return next((why for other, why in self.left_out if other is schema), None)

    def _store(self, described: bytes) -> int:
        """Store the bytes of a map for the kernel; returns their offset."""
        at, self._bytes_used = self._bytes_used, self._bytes_used + len(described)
        if self._bytes_used > len(self._bytes):
            grown = np.zeros(max(2 * len(self._bytes), self._bytes_used), np.uint8)
            grown[:at] = self._bytes[:at]
            self._bytes = grown
        self._bytes[at : self._bytes_used] = np.frombuffer(described, np.uint8)
        return at

    def _remember(self, table_id: int, stored: _StoredTableMap) -> None:
        slot = table_id % k.SLOTS
        self._of_table_id[table_id] = stored
        self._table_ids[slot], self._body_spans[slot] = table_id, (stored.offset, stored.length)
        self._layout_numbers[slot] = stored.number
