"""Questions that the log leaves open: current schemas, objects that LogMiner does not name, rows as of an SCN."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema


@dataclass(frozen=True, slots=True)
class StoredColumns:
    """The columns in a table's stored rows, as they are now.

    :param names: their names
    :param plain: they equal the columns of its schema, in the same order: none is hidden or unused, none was ever invisible
    """

    names: frozenset[str]
    plain: bool


@dataclass(frozen=True, slots=True)
class StoredFormats:
    """Settings of a database that Oracle's internal format of values depends on.

    :param characters: ``NLS_CHARACTERSET``
    :param national: ``NLS_NCHAR_CHARACTERSET``
    :param zone: ``DBTIMEZONE``, in which values WITH LOCAL TIME ZONE are stored
    """

    characters: str = "AL32UTF8"
    national: str = "AL16UTF16"
    zone: str = "+00:00"


class StreamLookups(Protocol):
    """A stream's questions to the catalog (Oracle's data dictionary)."""

    def read_table(self, table: TableId) -> TableSchema | None:
        """Return the current schema of a table; ``None`` if it does not exist or cannot be captured."""

    def read_object_numbers(self, tables: Iterable[TableId]) -> dict[int, TableId]:
        """Return the object numbers of those of the tables that exist, with those of their partitions."""

    def table_of_object(self, number: int) -> TableId | None:
        """Return the current table of an object number."""

    def list_partitioned_tables(self) -> list[TableId]:
        """All tables that have partitions."""

    def object_at(self, number: int, scn: int) -> tuple[bool, TableId | None]:
        """Return whether the catalog as of the SCN can be read, and the object's name, if the object exists there."""

    def read_stored_columns(self, table: TableId) -> StoredColumns | None:
        """Return the stored columns of a table; ``None`` if it does not exist."""

    def read_hidden_columns(self, table: TableId) -> tuple[str, ...]:
        """Return the columns of a table that Oracle keeps for itself."""

    def read_stored_formats(self) -> StoredFormats:
        """Return the database's character sets and time zone."""

    def evaluate_constant(self, text: str) -> str | None:
        """Return the value of a constant expression; ``None`` for other expressions."""

    def read_flashback_row(self, schema: TableSchema, row_id: str, scn: int) -> pa.StructArray | None:
        """Return a row as of an SCN, one element; ``None`` if it cannot be read."""

    def row_of_key(self, schema: TableSchema, key: Sequence[Any], scn: int) -> pa.StructArray | None:
        """Return the row with a key as of an SCN: one element, or none.

        It is ``None`` if that moment cannot be read, or several rows have the key.

        :param key: values of the columns of ``schema.key``, as events have them
        """

    def open_transactions(self) -> dict[bytes, int]:
        """XID → start SCN of the transactions that are open now, in all instances.

        :raises NotGranted: the user may not see them
        """


class NoLookups:
    """Lookups without a catalog: every answer is "not known"."""

    def read_table(self, table: TableId) -> TableSchema | None:
        return None

    def read_object_numbers(self, tables: Iterable[TableId]) -> dict[int, TableId]:
        return {}

    def table_of_object(self, number: int) -> TableId | None:
        return None

    def list_partitioned_tables(self) -> list[TableId]:
        return []

    def object_at(self, number: int, scn: int) -> tuple[bool, TableId | None]:
        return False, None

    def read_stored_columns(self, table: TableId) -> StoredColumns | None:
        return None

    def read_hidden_columns(self, table: TableId) -> tuple[str, ...]:
        return ()

    def read_stored_formats(self) -> StoredFormats:
        return StoredFormats()

    def evaluate_constant(self, text: str) -> str | None:
        return None

    def read_flashback_row(self, schema: TableSchema, row_id: str, scn: int) -> pa.StructArray | None:
        return None

    def row_of_key(self, schema: TableSchema, key: Sequence[Any], scn: int) -> pa.StructArray | None:
        return None

    def open_transactions(self) -> dict[bytes, int]:
        return {}
