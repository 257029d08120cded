"""A table as the catalog has it."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_cdc.core.model.table_schema import TableSchema


@dataclass(frozen=True, slots=True)
class TableStructure:
    """A table's schema, with what the values of its columns are read by.

    :param type_oids: OIDs of the types, one per column of the schema
    :param modifiers: of these types, such as the precision of a ``numeric``; -1 = none
    :param identity: replica identity: ``d`` default, ``n`` nothing, ``f`` full, ``i`` index
    :param identity_columns: columns of the replica identity
    """

    schema: TableSchema
    type_oids: tuple[int, ...]
    modifiers: tuple[int, ...]
    identity: str
    identity_columns: tuple[str, ...]
