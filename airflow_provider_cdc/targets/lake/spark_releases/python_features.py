"""Functions of PySpark that not every release has, each found by a probe, and their substitutes."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any, cast

import pyarrow as pa
import pyspark
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

VARIANT_TYPE: type[T.DataType] | None = getattr(T, "VariantType", None)
"""The type of variants; ``None`` before Spark 4.0, where documents stay texts."""
COPIES_VARIANT_ROWS = not pyspark.__version__.startswith("4.0.")
"""True if Spark reads variants of a Delta table with deletion vectors. Spark 4.0 fails with ``Not implemented. VariantType`` on the first row; no
method is missing by which a probe could see it."""
EXCHANGES_ARROW = hasattr(DataFrame, "toArrow")
"""True if Spark takes Arrow tables and returns them; since 4.0."""
VARIANT_FIELDS = (
    pa.field("value", pa.binary(), nullable=False),
    pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
)
"""By this Spark knows that a struct is a variant."""
UNSTORABLE_TYPES: tuple[type[T.DataType], ...] = tuple(
    getattr(T, name)
    for name in ("NullType", "AnsiIntervalType", "DayTimeIntervalType", "YearMonthIntervalType", "CalendarIntervalType", "TimeType")
    if hasattr(T, name)
)  # fmt: skip
"""Types that no column of a table can have."""


def is_variant(type_: T.DataType) -> bool:
    """Return whether a type is Spark's VARIANT.

    >>> is_variant(T.StringType())
    False
    """
    return VARIANT_TYPE is not None and isinstance(type_, VARIANT_TYPE)


def collect_arrow(rows: DataFrame) -> pa.Table:
    """Collect rows as an Arrow table.

    >>> collect_arrow(spark.range(2))["id"].to_pylist()
    [0, 1]
    """
    if EXCHANGES_ARROW:
        return rows.toArrow()
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(rows.schema)
    frame: Any = rows
    batches = frame._collect_as_arrow()
    # field names repeat in joins, and Spark's arrays do not say which columns may be NULL
    parts = [pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in batches]
    return pa.Table.from_batches(parts, schema)


def create_frame(spark: SparkSession, rows: pa.Table, schema: T.StructType | None = None) -> DataFrame:
    """Create a frame of an Arrow table.

    :param schema: the columns and their types; without one, Spark derives it from those of the table

    >>> create_frame(spark, pa.table({"id": [1]})).collect()
    [Row(id=1)]
    """
    if EXCHANGES_ARROW:
        return spark.createDataFrame(rows, schema=schema) if schema is not None else spark.createDataFrame(rows)
    return _create_by_stream(spark, rows, schema)


def _create_by_stream(spark: SparkSession, rows: pa.Table, schema: T.StructType | None) -> DataFrame:
    """Create a frame as PySpark itself does with the arrays of pandas, before it takes those of Arrow."""
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    schema = from_arrow_schema(rows.schema) if schema is None else schema
    named = pa.table([rows.column(at) for at in range(rows.num_columns)], names=schema.names)
    fields = to_arrow_schema(schema)
    table = named.cast(pa.schema([field.with_nullable(True) for field in fields])).combine_chunks()
    context, jvm = spark.sparkContext, cast(Any, spark._jvm)
    size = -(-max(table.num_rows, 1) // context.defaultParallelism)
    batches: Iterator[Any] = iter(
        table.to_batches(max_chunksize=size) or [pa.RecordBatch.from_pylist([], table.schema)]
    )
    numbers = context._serialize_to_jvm(
        batches,
        ArrowStreamSerializer(),
        jvm.PythonSQLUtils.readArrowStreamFromFile,
        jvm.ArrowIteratorServer,
    )
    frame = jvm.PythonSQLUtils.toDataFrame(numbers, schema.json(), spark._jsparkSession)
    return DataFrame(frame, spark)


def metadata_column(rows: DataFrame, name: str) -> Expression:
    """Return a metadata column of the table that rows are read from, such as ``_metadata``."""
    if hasattr(rows, "metadataColumn"):
        return rows.metadataColumn(name)
    return Expression(rows._jdf.metadataColumn(name))


def call_on_arrow(function: Callable[[pa.Array], pa.Array], type_: T.DataType, value: Expression) -> Expression:
    """Have executors call a function of Arrow arrays with the values of a column.

    :param type_: of the result
    """
    try:
        from pyspark.sql.pandas.functions import arrow_udf
    except ImportError:
        return _call_on_pandas(function, type_, value)
    result: Expression = arrow_udf(function, type_)(value)  # type: ignore[call-overload]
    return result


def _call_on_pandas(function: Callable[[pa.Array], pa.Array], type_: T.DataType, value: Expression) -> Expression:
    """Call the function in a pandas UDF, whose values Spark 4.0 takes one by one."""
    from pyspark.sql.pandas.functions import pandas_udf

    def convert(values: Any) -> Any:
        results = function(_to_arrow(values)).to_pylist()
        return type(values)([_from_arrow(value) for value in results], dtype=object)

    series = importlib.import_module("pandas").Series
    convert.__annotations__ = {"values": series, "return": series}  # PySpark finds the kind of the function by them
    return pandas_udf(convert, type_)(value)  # type: ignore[call-overload,no-any-return]


def _to_arrow(values: Any) -> pa.Array:
    """Convert a series of texts or of variants."""
    plain = [None if value is None or value != value else value for value in values]
    if not any(hasattr(value, "metadata") for value in plain):
        return pa.array(plain, pa.string())
    pairs = [(b"", b"") if value is None else (value.value, value.metadata) for value in plain]
    columns = [pa.array([pair[at] for pair in pairs], pa.binary()) for at in range(2)]
    mask = pa.array([value is None for value in plain])
    return pa.StructArray.from_arrays(columns, fields=list(VARIANT_FIELDS), mask=mask)


def _from_arrow(value: Any) -> Any:
    return T.VariantVal(value["value"], value["metadata"]) if isinstance(value, dict) else value
