"""Rows of changes without values: a row that is no change is left out, any other stops its table."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.core.errors import TerminalError, UnknownLogEvent, UnreadableValue
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.sources.oracle.kernels.operation_codes import INTERNAL, LAST_CHANGE, UNSUPPORTED, UPDATE
from airflow_provider_cdc.sources.oracle.schema.column_types import NULL, ColumnType
from airflow_provider_cdc.sources.oracle.schema.column_types import UNSUPPORTED as UNSUPPORTED_TYPES

_NO_CHANGE = "/* No SQL_REDO"
"""Texts of rows that are no changes, as ``/* No SQL_REDO for temporary tables */`` (debezium/debezium#6551)."""


def find_readable_rows(
    rows: pa.Table, schema: TableSchema, owner: npt.NDArray[np.int32], ids: pa.StringArray
) -> npt.NDArray[np.bool_]:
    """Mask of the rows that are changes, or pieces of them.

    :param rows: :data:`airflow_provider_cdc.sources.oracle.transactions.buffer.row_segments.ROWS`, of one table
    :param owner: per row, the index of its transaction in ``ids``
    :raises UnknownLogEvent: LogMiner cannot show a change
    :raises UnreadableValue: a change has no text
    """
    codes = rows.column("code").to_numpy()
    texts = pc.fill_null(rows.column("sql"), "")
    empty = pc.equal(texts, "").to_numpy(zero_copy_only=False) & (codes <= LAST_CHANGE) & (codes != INTERNAL)
    empty &= ~rows.column("rollback").to_numpy(zero_copy_only=False)
    if any(ColumnType.from_column(column).base == "XMLTYPE" for column in schema.columns):
        empty &= codes != UPDATE  # such a row ends a statement that has set a document
    wrong = np.flatnonzero(empty | (codes == UNSUPPORTED))
    if len(wrong):
        at = int(wrong[0])
        where = f"{schema.id}, SCN {rows.column('scn')[at]}, transaction {ids[int(owner[at])]}"
        raise _error(schema, where, unsupported=bool(codes[at] == UNSUPPORTED))
    readable: npt.NDArray[np.bool_] = pc.invert(pc.starts_with(texts, _NO_CHANGE)).to_numpy(zero_copy_only=False)
    return readable


def may_be_unlogged(schema: TableSchema) -> bool:
    """Check whether a table has a column of a type for whose sake LogMiner may show none of its changes."""
    return any(
        column.type == NULL and ((base := ColumnType.from_column(column).base) == "BFILE" or "." in base)
        for column in schema.columns
    )


def build_unlogged_error(table: TableId, columns: list[str]) -> UnreadableValue:
    """Return the error for a table that LogMiner shows no change of."""
    names = ", ".join(columns)
    e = UnreadableValue(
        f"LogMiner returns no changes of {table}, because of its columns {names}.",
        where=str(table),
        safe="All rows of the table that were read are captured, and capture of all other tables continues.",
        remedy=_remedy(names),
    )
    e.table, e.ends_with_read = str(table), False
    return e


def _error(schema: TableSchema, where: str, *, unsupported: bool) -> TerminalError:
    unknown = [c for c in schema.columns if ColumnType.from_column(c).base in UNSUPPORTED_TYPES]
    columns = ", ".join(f"{c.name} ({ColumnType.from_column(c).base})" for c in unknown)
    safe = "All other tables are captured."
    e: TerminalError
    if unsupported:
        because = f", because of its columns {columns}" if columns else ""
        problem = f"LogMiner cannot return a change of {schema.id} (operation UNSUPPORTED){because}."
        e = UnknownLogEvent(
            problem, where=where, safe=safe, remedy=_remedy(columns or "the columns that LogMiner does not support")
        )
    else:
        problem = f"LogMiner returns no text (SQL_REDO) for a change of {schema.id}."
        e = UnreadableValue(
            problem, where=where, safe=safe, remedy="check the database's alert log, and snapshot the table again"
        )
    e.table = str(schema.id)
    return e


def _remedy(columns: str) -> str:
    return f"drop {columns}; until then, snapshot the table again whenever you need its rows"
