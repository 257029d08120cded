"""Questions that the log leaves open: present structures, objects that LogMiner does not name, rows as they were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from airflow_provider_cdc.core.model.schema import TableId, TableSchema


@dataclass(frozen=True, slots=True)
class StoredColumns:
    """The columns that a table's rows have now.

    :param plain: they are those of its structure, in its order: none is hidden or unused, none was ever invisible
    """

    names: frozenset[str]
    plain: bool


@dataclass(frozen=True, slots=True)
class StoredFormats:
    """What the stored form of values depends on, for a whole database.

    :param characters: ``NLS_CHARACTERSET``
    :param national: ``NLS_NCHAR_CHARACTERSET``
    :param zone: ``DBTIMEZONE``, in which values WITH LOCAL TIME ZONE lie
    """

    characters: str = "AL32UTF8"
    national: str = "AL16UTF16"
    zone: str = "+00:00"


class Lookups(Protocol):
    """The questions of a stream to the catalog, the database's dictionary."""

    def table(self, table: TableId) -> TableSchema | None:
        """The present structure of a table, ``None`` when it does not exist or cannot be captured."""

    def objects(self) -> dict[int, TableId]:
        """All tables that there are now, by object id."""

    def object_at(self, number: int, scn: int) -> tuple[bool, TableId | None]:
        """Whether the dictionary of that SCN can be read, and what it calls an object, if it has it."""

    def stored(self, table: TableId) -> StoredColumns | None:
        """The stored columns of a table, ``None`` when there is none."""

    def formats(self) -> StoredFormats:
        """What the stored form of values depends on."""

    def constant(self, text: str) -> str | None:
        """Value of an expression that has one for ever; ``None`` for others."""

    def row(self, schema: TableSchema, row_id: str, scn: int) -> pa.StructArray | None:
        """A row as it was at an SCN, one element; ``None`` when it cannot be told."""


class NoLookups:
    """Answers that nothing is known: there is no catalog."""

    def table(self, table: TableId) -> TableSchema | None:
        return None

    def objects(self) -> dict[int, TableId]:
        return {}

    def object_at(self, number: int, scn: int) -> tuple[bool, TableId | None]:
        return False, None

    def stored(self, table: TableId) -> StoredColumns | None:
        return None

    def formats(self) -> StoredFormats:
        return StoredFormats()

    def constant(self, text: str) -> str | None:
        return None

    def row(self, schema: TableSchema, row_id: str, scn: int) -> pa.StructArray | None:
        return None
