"""The plan by which the columns of one table are read: from the table's schema to the kernels' input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.config.property_enums import BinaryHandling, TimePrecision
from airflow_provider_cdc.core.errors import SchemaConflict
from airflow_provider_cdc.core.model.table_schema import NOT_CAPTURED, Column, TableSchema, arrow_type, row_struct
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.config_enums import LOBS
from airflow_provider_cdc.sources.oracle.kernels import literal_conversion as k
from airflow_provider_cdc.sources.oracle.kernels import literal_scanner as li
from airflow_provider_cdc.sources.oracle.redo.literal_converter import duration_text
from airflow_provider_cdc.sources.oracle.schema.column_types import NULL, TEXTS, UNSUPPORTED, ColumnType
from airflow_provider_cdc.sources.relational.binary_mode_format import binary_text

Finish = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True, slots=True)
class ColumnReadPlan:
    """The plan by which a column is read.

    :param how: kind in ``kernels.convert``, with its parameters ``a`` and ``b``
    :param raw: Arrow type of the values that the kernel and ``values.read_value`` give
    :param finish: converts them to the column's type in the change log
    """

    how: int
    a: int
    b: int
    raw: pa.DataType
    finish: Finish

    @property
    def store_kind(self) -> int:
        if self.how >= k.FIRST_VARIABLE:
            return int(k.STORE_VARIABLE)
        return int(k.STORE_WIDE if self.how == k.NUMBER_WIDE else k.STORE_FIXED)


class KernelLayout:
    """The kernels' input for one table.

    :param ignored: names of the table's columns that are not captured; statements may have them
    :ivar parameters: ``int64[columns, 4]``: kind, a, b, and number of the buffer in its store
    :ivar heads: beginnings of the three statements, as UTF-8; ``head_ends`` their offsets
    :ivar names: the quoted column names, as UTF-8; ``name_ends`` their offsets
    """

    def __init__(self, schema: TableSchema, config: OracleConfig, ignored: tuple[str, ...] = ()) -> None:
        self.schema, self.ignored = schema, frozenset(ignored)
        self.type = row_struct(schema)
        self.columns = _needed_columns(schema, config)
        counts = [0, 0, 0]
        rows = []
        for read in self.columns:
            rows.append((read.how, read.a, read.b, counts[read.store_kind]))
            counts[read.store_kind] += 1
        self.counts = counts
        self.parameters = np.array(rows, np.int64).reshape(-1, 4)
        self.widest = max((read.b for read in self.columns if read.how == k.NUMBER_TEXT), default=0)
        name = f'"{schema.id.namespace}"."{schema.id.name}"'
        self.heads, self.head_ends = _joined(
            [f"insert into {name}(", f"delete from {name} where ", f"update {name} set "]
        )
        self.names, self.name_ends = _joined([f'"{n}"' for n in (*schema.column_names, *ignored)])


def _needed_columns(schema: TableSchema, config: OracleConfig) -> list[ColumnReadPlan]:
    """Return the plans by which the columns are read; those whose values are not needed are not read.

    Without a key, all columns together say to which row the pieces of a long value belong.
    """
    needed = Filters(config).list_needed_columns(schema)
    plans = [column_read(column, f"{schema.id}.{column.name}", config) for column in schema.columns]
    if not schema.key and any(read.how in (k.TEXT, k.BYTES) and read.a == 1 for read in plans):
        return plans
    return [
        read if column.name in needed else ColumnReadPlan(k.NOT_READ, 0, 0, arrow_type(column.type), _same)
        for column, read in zip(schema.columns, plans, strict=True)
    ]


def _joined(texts: list[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    parts = [t.encode() for t in texts]
    return np.frombuffer(b"".join(parts), np.uint8), np.cumsum([0, *(len(p) for p in parts)]).astype(np.int64)


def column_read(column: Column, where: str, config: OracleConfig) -> ColumnReadPlan:
    """Return the plan by which a column is read.

    :raises SchemaConflict: its declared type is not one of Oracle's
    """
    if column.type == NOT_CAPTURED:
        return ColumnReadPlan(k.NOT_READ, 0, 0, arrow_type(column.type), _same)
    t = ColumnType.from_column(column)
    type_ = arrow_type(column.type)
    if column.type == NULL:
        return ColumnReadPlan(k.NOT_READ, 0, 0, type_, _same)
    if t.base in UNSUPPORTED or (t.base in LOBS and not config.lob_enabled):
        return ColumnReadPlan(k.NOT_READ, 0, 0, type_, _same)
    if t.base in TEXTS or t.base in ("CLOB", "NCLOB", "XMLTYPE"):
        return ColumnReadPlan(k.TEXT, int(t.base in LOBS), 0, pa.string(), _same)
    if t.base in ("RAW", "BLOB"):
        return ColumnReadPlan(k.BYTES, int(t.base == "BLOB"), 0, pa.binary(), _binaries(config.binary_handling_mode))
    if t.base in ("BINARY_FLOAT", "BINARY_DOUBLE"):
        return ColumnReadPlan(k.FLOAT_TEXT, int(t.base == "BINARY_FLOAT"), 0, pa.string(), _cast(type_))
    if t.base in ("NUMBER", "FLOAT"):
        return _number(t, type_)
    if t.base.startswith("INTERVAL "):
        months = t.base == "INTERVAL YEAR TO MONTH"
        if column.type == "string":
            return ColumnReadPlan(
                k.DURATION_TEXT, li.YEAR_TO_MONTH if months else li.DAY_TO_SECOND, 0, pa.string(), _durations
            )
        return ColumnReadPlan(k.YEAR_TO_MONTH if months else k.DAY_TO_SECOND, 0, 0, pa.int64(), _same)
    if t.base == "TIMESTAMP WITH TIME ZONE":
        return ColumnReadPlan(k.ZONED_TIMESTAMP, t.fraction_digits, 0, pa.string(), _same)
    if t.base == "DATE":
        return ColumnReadPlan(k.DATE, int(pa.types.is_date32(type_)), 0, type_, _same)
    if t.base in ("TIMESTAMP", "TIMESTAMP WITH LOCAL TIME ZONE"):
        how = k.TIMESTAMP if t.base == "TIMESTAMP" else k.LOCAL_TIMESTAMP
        cut = config.time_precision_mode is TimePrecision.CONNECT and how == k.TIMESTAMP
        return ColumnReadPlan(how, 9 if type_.unit == "ns" else 6, int(cut), type_, _same)
    raise SchemaConflict(
        f"Column {column.name} has the type {t.base or 'unknown'}, which the Oracle connector cannot capture.",
        where=where,
        safe="Nothing is lost: the batch was not written.",
        remedy="exclude the column with column.exclude.list, or set snapshot.mode=recovery for one run",
    )


def _number(t: ColumnType, type_: pa.DataType) -> ColumnReadPlan:
    """Return the plan by which NUMBER and FLOAT are read for the column's type in the change log."""
    if pa.types.is_boolean(type_):
        return ColumnReadPlan(k.NUMBER, 1, 0, pa.int64(), lambda v: pc.greater(v, 0))
    if pa.types.is_integer(type_):
        width = (t.length or 0) - min(t.scale or 0, 0)
        return ColumnReadPlan(k.NUMBER, width, 0, pa.int64(), _cast(type_))
    if pa.types.is_decimal(type_):
        how = k.NUMBER if type_.precision <= 18 else k.NUMBER_WIDE
        return ColumnReadPlan(how, type_.precision, type_.scale, type_, _same)
    if t.base == "FLOAT" or t.length is None or t.scale is None or pa.types.is_floating(type_):
        return ColumnReadPlan(k.NUMBER_TEXT, 0, -1, pa.string(), _cast(type_))
    scale = max(t.scale, 0)
    digits = max(t.length, scale) if t.scale > 0 else t.length - t.scale
    return ColumnReadPlan(k.NUMBER_TEXT, digits, scale, pa.string(), _same)


def _same(values: pa.Array) -> pa.Array:
    return values


def _cast(type_: pa.DataType) -> Finish:
    return _same if pa.types.is_string(type_) else lambda values: values.cast(type_)


def _durations(values: pa.Array) -> pa.Array:
    return _each(values, duration_text)


def _binaries(mode: BinaryHandling) -> Finish:
    text = binary_text(mode)
    return _same if text is None else lambda values: _each(values, text)


def _each(values: pa.Array, convert: Callable[..., str]) -> pa.Array:
    """Each distinct value by itself."""
    encoded = values.dictionary_encode()
    texts = pa.array([convert(v) for v in encoded.dictionary.to_pylist()], pa.string())
    return texts.take(encoded.indices)
