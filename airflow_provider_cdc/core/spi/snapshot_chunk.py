"""A part of a table that a reader of a snapshot takes at once."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_cdc.core.model.table_schema import TableId


@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    """A part of a table.

    :param condition: the condition that selects the rows, in the source's own terms; ``None`` for the whole table
    :param rows: an estimate
    """

    table: TableId
    condition: str | None = None
    rows: int = 0
