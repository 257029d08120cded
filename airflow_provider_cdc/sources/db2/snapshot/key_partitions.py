"""Cuts a table into ranges of its key that several readers take at once.

Cuts by counted rows would read the whole table once more, so the first key column is cut evenly between its least and its greatest value, which
its index knows. That is for whole numbers; a table with another key is read by one reader.
"""

from __future__ import annotations

import itertools
from typing import Final

from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.sources.db2.connect import Db2Connection
from airflow_provider_cdc.sources.db2.schema.type_mapping import Db2ColumnType, is_distinct
from airflow_provider_cdc.sources.relational.sql_quoting import quote_table, quoted_name

PART_ROWS: Final = 200_000
"""About how many rows a part has, at least."""
PARTS_OF_A_READER: Final = 4
_WHOLE: Final = frozenset({"SMALLINT", "INTEGER", "BIGINT"})


def build_partition_conditions(
    connection: Db2Connection, schema: TableSchema, count: int, readers: int, alias: str
) -> list[str | None]:
    """Conditions that together select each row once; ``[None]`` = the table is not cut.

    :param count: rows by the optimizer's statistics; 0 = not known
    :param alias: of the table in the query
    """
    column = _cut_column(schema)
    if column is None or 0 < count < 2 * PART_ROWS:
        return [None]
    name = f"{alias}.{quoted_name(column)}"
    ((least, greatest),) = connection.fetch_rows(
        f"SELECT MIN({name}), MAX({name}) FROM {quote_table(schema.id)} {alias} WITH UR"
    )
    if least is None:
        return [None]
    low, width = int(least), int(greatest) - int(least) + 1
    rows = min(count or width, width)
    parts = min(readers * PARTS_OF_A_READER, rows // PART_ROWS)
    if parts < 2:
        return [None]
    return build_range_conditions(name, [low + width * i // parts for i in range(1, parts)])


def build_range_conditions(name: str, cuts: list[int]) -> list[str | None]:
    """Conditions for the ranges between some values; the first and the last are open.

    >>> build_range_conditions("t.ID", [10, 20])
    ['t.ID < 10', 't.ID >= 10 AND t.ID < 20', 't.ID >= 20']
    """
    conditions: list[str | None] = []
    for low, high in itertools.pairwise([None, *cuts, None]):
        sides = [f"{name} >= {low}"] if low is not None else []
        sides += [f"{name} < {high}"] if high is not None else []
        conditions.append(" AND ".join(sides) or None)
    return conditions


def _cut_column(schema: TableSchema) -> str | None:
    """Return the first key column, if it is one of whole numbers."""
    if not schema.key:
        return None
    column = schema.get_column(schema.key[0])
    return column.name if Db2ColumnType.from_column(column).base in _WHOLE and not is_distinct(column) else None
