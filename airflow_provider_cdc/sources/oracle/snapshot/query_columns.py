"""The select list of a query on a table, and conversion of its results.

The kernels for redo statements convert them, so that a value is the same in both.

Numbers, dates, times and intervals are selected as text in the session's format (``connect.SESSION``), which is that of LogMiner's
literals. So numbers never become floating point; ``TM9`` writes all digits of a NUMBER.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.errors import UnreadableValue, values_of
from airflow_provider_cdc.core.model.table_schema import Column, TableSchema, arrow_type, row_struct
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.config_enums import LOBS
from airflow_provider_cdc.sources.oracle.flat_columns import flatten_column
from airflow_provider_cdc.sources.oracle.kernels import literal_conversion as k
from airflow_provider_cdc.sources.oracle.kernels import literal_scanner as li
from airflow_provider_cdc.sources.oracle.redo.kernel_column_plan import ColumnReadPlan, column_read
from airflow_provider_cdc.sources.oracle.redo.literal_converter import UNAVAILABLE, read_value
from airflow_provider_cdc.sources.oracle.redo.parsed_literal import LiteralKind, ParsedLiteral, UnreadableRedo
from airflow_provider_cdc.sources.oracle.schema.column_types import NULL, ColumnType

_SERIALIZED: Final = {
    "BOOLEAN": "CASE WHEN {c} THEN 1 WHEN NOT {c} THEN 0 END",
    "JSON": "JSON_SERIALIZE({c} RETURNING CLOB)",
    "VECTOR": "VECTOR_SERIALIZE({c} RETURNING CLOB)",
}
"""Expressions for values that the driver fetches in a special form."""
_AFTER: Final = 1
_MOMENT: Final = "SYYYY-MM-DD HH24:MI:SS"


@dataclass(frozen=True, slots=True)
class _TextExpression:
    """The form in which a value is selected as text.

    :param sql: the expression, with ``{c}`` for the column
    :param kind: the kind of literal that LogMiner writes for the same value
    :param call: the function in this literal
    """

    sql: str
    kind: int
    call: str = ""


_TEXTS: Final = {
    "NUMBER": _TextExpression("TO_CHAR({c}, 'TM9')", li.TEXT),
    "FLOAT": _TextExpression("TO_CHAR({c}, 'TM9')", li.TEXT),
    "DATE": _TextExpression(f"TO_CHAR({{c}}, '{_MOMENT}')", li.DATE, "TO_DATE"),
    "TIMESTAMP": _TextExpression(f"TO_CHAR({{c}}, '{_MOMENT}.FF9')", li.TIMESTAMP, "TO_TIMESTAMP"),
    "TIMESTAMP WITH TIME ZONE": _TextExpression(
        f"TO_CHAR({{c}}, '{_MOMENT}.FF9 TZH:TZM')", li.TIMESTAMP_TZ, "TO_TIMESTAMP_TZ"
    ),
    "TIMESTAMP WITH LOCAL TIME ZONE": _TextExpression(
        f"TO_CHAR({{c}}, '{_MOMENT}.FF9 TZH:TZM')", li.TIMESTAMP_TZ, "TO_TIMESTAMP_TZ"
    ),
    "INTERVAL DAY TO SECOND": _TextExpression("TO_CHAR({c})", li.DAY_TO_SECOND, "TO_DSINTERVAL"),
    "INTERVAL YEAR TO MONTH": _TextExpression("TO_CHAR({c})", li.YEAR_TO_MONTH, "TO_YMINTERVAL"),
}


def _same(values: pa.Array) -> pa.Array:
    return values


_UNSUPPORTED: Final = {
    "BOOLEAN": ColumnReadPlan(k.NUMBER, 1, 0, pa.int64(), lambda values: values.cast(pa.bool_())),
    "JSON": ColumnReadPlan(k.TEXT, 0, 0, pa.string(), _same),
    "VECTOR": ColumnReadPlan(k.TEXT, 0, 0, pa.string(), _same),
}
"""How types are read that only tables have, not the log."""


class QueryColumns:
    """The select list of a query on one table, and how to read its results.

    :param alias: alias of the table in the query
    :ivar expressions: the select list
    :ivar index: column → index of its first expression
    :ivar lobs: whether LOBs are selected
    """

    def __init__(self, schema: TableSchema, config: OracleConfig, alias: str = "t") -> None:
        self.schema, self.type = schema, row_struct(schema)
        self._reads: list[ColumnReadPlan | None] = []
        self.expressions: list[str] = []
        self.index: dict[str, int] = {}
        self.lobs = False
        self._needed = Filters(config).list_needed_columns(schema)
        for column in schema.columns:
            base = ColumnType.from_column(column).base
            if column.type == NULL or (base in LOBS and not config.lob_enabled):
                self._reads.append(None)
                continue
            of_log = column_read(column, f"{schema.id}.{column.name}", config)
            self._reads.append(_UNSUPPORTED.get(base, of_log))
            self.index[column.name] = len(self.expressions)
            self.expressions += _expressions(base, f'{alias}."{column.name}"')
            self.lobs |= base in LOBS or base in ("JSON", "VECTOR")
        if not self.expressions:
            self.expressions = ["1"]

    def find_unavailable_values(self, n: int) -> npt.NDArray[np.bool_] | None:
        """``bool[column, row]`` for ``n`` rows: LOBs that are not captured; ``None`` if there are none."""
        absent = [
            read is None and column.type != NULL for read, column in zip(self._reads, self.schema.columns, strict=True)
        ]
        return np.repeat(np.array(absent, np.bool_)[:, None], n, axis=1) if any(absent) else None

    def read_rows(self, batch: pa.Table) -> pa.StructArray:
        """Return the rows of fetched results.

        :raises UnreadableValue: the change log cannot represent a value, as a date before the year 1
        """
        children, at = [], 0
        for column, read in zip(self.schema.columns, self._reads, strict=True):
            if read is None:
                children.append(pa.nulls(len(batch), arrow_type(column.type)))
                continue
            base = ColumnType.from_column(column).base
            values = flatten_column(batch.column(at))
            at += 1
            if base in LOBS and base != "XMLTYPE":
                values = _with_empty(values, flatten_column(batch.column(at)))
                at += 1
            if column.name not in self._needed:
                children.append(pa.nulls(len(batch), arrow_type(column.type)))
                continue
            with values_of(self.schema.id):
                children.append(self._column(column, base, read, values))
        return pa.StructArray.from_arrays(children, fields=list(self.type))

    def _column(self, column: Column, base: str, read: ColumnReadPlan, values: pa.Array) -> pa.Array:
        text = _TEXTS.get(base)
        if text is None:
            if read.how == k.FLOAT_TEXT:
                return values.cast(arrow_type(column.type))
            return read.finish(values.cast(read.raw))
        converted, left = _convert(values.cast(pa.large_string()), read, text.kind)
        if len(left):
            plain = [self._plain(column, read, text, values[int(i)].as_py()) for i in left]
            take = np.arange(len(converted))
            take[left] = len(converted) + np.arange(len(left))
            converted = pa.concat_arrays([converted, pa.array(plain, read.raw)]).take(pa.array(take))
        return read.finish(converted)

    def _plain(self, column: Column, read: ColumnReadPlan, text: _TextExpression, value: str) -> Any:
        """Convert a value that the kernel does not read."""
        literal = (
            ParsedLiteral(LiteralKind.CALL, value, text.call) if text.call else ParsedLiteral(LiteralKind.TEXT, value)
        )
        try:
            converted = read_value(literal, read.how, read.a, read.b)
        except UnreadableRedo as e:
            raise UnreadableValue(
                f"A value of column {column.name} cannot be read: {e}.",
                where=f"{self.schema.id}.{column.name}",
                safe="No rows of this table were committed.",
                remedy="correct the row, or exclude the column with column.exclude.list",
            ) from e
        return None if converted is UNAVAILABLE else converted


def _expressions(base: str, name: str) -> list[str]:
    """Return the expressions that are selected for a column."""
    if base in _TEXTS:
        return [_TEXTS[base].sql.format(c=name)]
    if base in _SERIALIZED:
        return [_SERIALIZED[base].format(c=name)]
    if base == "ROWID":
        return [f"ROWIDTOCHAR({name})"]
    if base == "XMLTYPE":
        return [f"CASE WHEN {name} IS NOT NULL THEN XMLSERIALIZE(CONTENT {name} AS CLOB NO INDENT) END"]
    if base in LOBS:
        # an empty LOB that is fetched with its row is returned as NULL
        return [name, f"CASE WHEN DBMS_LOB.GETLENGTH({name}) = 0 THEN 1 END"]
    return [name]


def _with_empty(values: pa.Array, empty: pa.Array) -> pa.Array:
    """Return the values of a LOB column, with empty values where ``empty`` is set."""
    if empty.null_count == len(empty):
        return values
    return pc.if_else(
        pc.is_valid(empty), pa.scalar(b"" if pa.types.is_large_binary(values.type) else "", values.type), values
    )


def _convert(values: pa.Array, read: ColumnReadPlan, kind: int) -> tuple[pa.Array, npt.NDArray[np.intp]]:
    """Text values converted to ``read.raw`` by the kernel; and the indices of the rows that it does not read."""
    n = len(values)
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int64)[values.offset : values.offset + n + 1] if n else np.zeros(1, np.int64)
    buf = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    present = values.is_valid().to_numpy(zero_copy_only=False)
    kinds = np.where(present, kind, li.NULL).astype(np.uint8).reshape(1, 1, n).repeat(2, axis=0)
    length = np.diff(ends).astype(np.int32).reshape(1, 1, n).repeat(2, axis=0)
    fixed = np.zeros((1, n), np.int64)
    wide = np.zeros((1, n if read.store_kind == k.STORE_WIDE else 1, 2), np.int64)
    bounds = np.zeros((1, n), np.int64)
    # a number with a fixed scale may be longer than its text, by its zeros
    extra = (max(read.b, 0) if read.how == k.NUMBER_TEXT else 0) + 4
    room = np.empty((1, max(int(ends[-1] - ends[0]) + n * extra, 64)), np.uint8)
    filled, valid, left = np.zeros(1, np.int64), np.zeros((1, n), np.uint8), np.zeros(n, np.uint8)
    parameters = np.array([[read.how, read.a, read.b, 0]], np.int64)
    k.convert_rows(
        buf, ends, 0, n, _AFTER, parameters, np.zeros((2, 1, n), np.int32), length, kinds, fixed, wide, bounds, room, filled,
        valid, left,
    )  # fmt: skip
    good = valid[0] == k.VALUE
    nulls = n - int(np.count_nonzero(good))
    bitmap = pa.py_buffer(np.packbits(good, bitorder="little")) if nulls else None
    buffers = _buffers(read, fixed[0], wide[0], bounds[0], room[0, : filled[0]])
    return pa.Array.from_buffers(read.raw, n, [bitmap, *buffers], nulls), np.flatnonzero(left)


def _buffers(
    read: ColumnReadPlan,
    fixed: npt.NDArray[np.int64],
    wide: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    data: npt.NDArray[np.uint8],
) -> list[pa.Buffer]:
    """Return the Arrow buffers of a store."""
    if read.store_kind == k.STORE_VARIABLE:
        offsets = np.zeros(len(ends) + 1, np.int32)
        offsets[1:] = ends
        return [pa.py_buffer(offsets), pa.py_buffer(data.copy())]
    values: npt.NDArray[Any] = wide if read.store_kind == k.STORE_WIDE else fixed
    if read.store_kind == k.STORE_FIXED and pa.types.is_decimal(read.raw):
        values = np.stack([fixed, fixed >> 63], axis=1)
    elif pa.types.is_date32(read.raw):
        values = fixed.astype(np.int32)
    return [pa.py_buffer(np.ascontiguousarray(values))]
