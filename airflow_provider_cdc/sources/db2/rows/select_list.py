"""The select list of a query on a table, or on its change table, and its results as Arrow arrays.

Most values are selected as they are, and a whole column of them becomes an array by one call. Others are selected in a form that the driver
hands over exactly and that becomes an array as fast:

* a ``TIME`` as its seconds since midnight: 24:00:00 is no time in Python;
* a ``TIMESTAMP`` as text: the driver's own form has microseconds only, and no hour 24;
* a ``DECFLOAT`` as text, a ``BOOLEAN`` as 0 or 1, ``XML`` as a CLOB, a ``ROWID`` in hexadecimal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.errors import UnreadableValue, values_of
from airflow_provider_cdc.core.model.table_schema import NOT_CAPTURED, Column, TableSchema, arrow_type, row_struct
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.config_enums import NOT_LOGGED
from airflow_provider_cdc.sources.db2.rows.value_conversion import UnreadableDb2Value, reader_of
from airflow_provider_cdc.sources.db2.schema.type_mapping import DEFAULT_FRACTION, Db2ColumnType, is_distinct
from airflow_provider_cdc.sources.relational.sql_quoting import quoted_name

Columns = Sequence[Sequence[Any]]
"""Fetched values, column by column."""
_AT_ONCE: Final = 256


def columns_of(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """Return fetched rows, column by column; empty without rows."""
    columns: list[list[Any]] = [[] for _ in rows[0]] if rows else []
    # few at a time: an iterator for each of ten thousand rows would have the garbage collector look at all of them, again and again
    for start in range(0, len(rows), _AT_ONCE):
        part = zip(*rows[start : start + _AT_ONCE], strict=True)
        for column, values in zip(columns, part, strict=True):
            column.extend(values)
    return columns


class SelectList:
    """The select list of a query on one table, and how to read its results.

    :param alias: alias of the table in the query
    :param absent: columns that the table of the query has no values of: they are not selected, and are unavailable
    :param named: column → its name in the table of the query
    :ivar expressions: the select list; never empty
    :ivar index: column → index of its expression
    :ivar lobs: whether LOBs are selected
    :ivar width: number of the expressions
    """

    def __init__(
        self,
        schema: TableSchema,
        config: Db2Config,
        alias: str = "t",
        *,
        absent: Collection[str] = (),
        named: Callable[[str], str] = str,
    ) -> None:
        self.schema, self.type = schema, row_struct(schema)
        self.expressions: list[str] = []
        self.index: dict[str, int] = {}
        self.lobs = False
        self._absent = frozenset(absent)
        needed = Filters(config).list_needed_columns(schema)
        self._readers: list[Callable[[Sequence[Any]], pa.Array] | None] = []
        for column in schema.columns:
            if column.type == NOT_CAPTURED or column.name in self._absent:
                self._readers.append(None)
                continue
            self._readers.append(reader_of(column, config) if column.name in needed else None)
            self.index[column.name] = len(self.expressions)
            self.expressions.append(expression_of(column, f"{alias}.{quoted_name(named(column.name))}"))
            self.lobs |= Db2ColumnType.from_column(column).base in NOT_LOGGED
        if not self.expressions:
            self.expressions = ["1"]
        self.width = len(self.expressions)

    def build_struct(self, columns: Columns, n: int) -> pa.StructArray:
        """Build a struct array of the rows.

        :param columns: the fetched values of :attr:`expressions`, column by column; more may follow
        :param n: number of rows
        :raises UnreadableValue: the change log cannot represent a value
        """
        children = []
        for column, read in zip(self.schema.columns, self._readers, strict=True):
            type_ = arrow_type(column.type)
            if read is None or not n:
                children.append(pa.nulls(n, type_))
                continue
            try:
                children.append(read(columns[self.index[column.name]]))
            except (UnreadableDb2Value, pa.ArrowInvalid, ValueError, OverflowError) as e:
                with values_of(self.schema.id):
                    raise self._unreadable(column, e) from e
        return pa.StructArray.from_arrays(children, fields=list(self.type))

    def struct_from_rows(self, rows: Sequence[tuple[Any, ...]]) -> pa.StructArray:
        """Build a struct array of fetched rows, see :meth:`build_struct`."""
        return self.build_struct(columns_of(rows), len(rows))

    def build_unavailable_mask(self, n: int) -> npt.NDArray[np.bool_] | None:
        """``bool[column, row]`` for ``n`` rows: columns that the table of the query has no values of; ``None`` if there are none."""
        absent = [c.name in self._absent and c.type != NOT_CAPTURED for c in self.schema.columns]
        return np.repeat(np.array(absent, np.bool_)[:, None], n, axis=1) if any(absent) else None

    def _unreadable(self, column: Column, e: Exception) -> UnreadableValue:
        return UnreadableValue(
            f"A value of column {column.name} cannot be captured: {e}.",
            where=f"{self.schema.id}.{column.name}",
            safe="No rows of this table were committed since the offset.",
            remedy=e.remedy
            if isinstance(e, UnreadableDb2Value)
            else "correct the row, or exclude the column with column.exclude.list",
        )


def expression_of(column: Column, name: str) -> str:
    """Return the expression that is selected for a column.

    :param name: the column in SQL
    """
    t = Db2ColumnType.from_column(column)
    plain = f"CAST({name} AS {t.ddl_expression})" if is_distinct(column) else name
    if t.base == "TIME":
        return f"MIDNIGHT_SECONDS({plain})"
    if t.base == "TIMESTAMP":
        digits = (
            t.fraction_digits
            if column.type in ("timestamp[ns]", "string")
            else min(t.fraction_digits, DEFAULT_FRACTION)
        )
        return f"VARCHAR_FORMAT({plain}, 'YYYY-MM-DD HH24:MI:SS{f'.FF{digits}' if digits else ''}')"
    if t.base == "DECFLOAT":
        return f"VARCHAR({plain})"
    if t.base == "BOOLEAN":
        return f"CASE WHEN {plain} THEN 1 WHEN NOT {plain} THEN 0 END"
    if t.base == "XML":
        return f"XMLSERIALIZE({plain} AS CLOB(2G))"
    if t.base == "ROWID":
        return f"HEX({plain})"
    return name
