"""Checksums of rows in buckets of their keys: two tables are compared by them in one pass that moves no row.

The checksum of a bucket is the number of its rows and the sums of two hashes of each of them, of 64 bits. It does not depend on the order of rows. Values that
are equal to Spark have equal hashes: NaN and NaN, 0.0 and -0.0. NULL, an empty text and an empty array are three different values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from airflow_provider_cdc.targets.lake.rows.last_event_per_key import OURS
from airflow_provider_cdc.targets.lake.spark_releases.python_features import collect_arrow, create_frame
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name

BUCKET = f"{OURS}bucket"
"""Number of the bucket that a row's key is in."""
_ROWS_PER_BUCKET = 2_000
_FEWEST, _MOST = 16, 1 << 16
_SECOND = 0x5DEECE66D
"""Seed of the second hash, so that it is another function."""
_HALF = 0xFFFFFFFF


def number_of_buckets(rows: int) -> int:
    """So many that the rows of one are few, and the checksums of all are little.

    >>> number_of_buckets(1_000), number_of_buckets(2_000_000)
    (16, 1000)
    """
    return min(max(rows // _ROWS_PER_BUCKET, _FEWEST), _MOST)


@dataclass(frozen=True, slots=True)
class ChecksumResult:
    """Comparison of two sides by their checksums.

    :param source: rows of the one side
    :param target: rows of the other
    :param wrong: buckets in which they differ
    """

    source: int
    target: int
    wrong: tuple[int, ...]


def assign_buckets(rows: DataFrame, key: Sequence[str], buckets: int) -> DataFrame:
    """Rows with :data:`BUCKET`.

    :param key: columns whose values identify rows
    """
    hashed = F.xxhash64(*_whole(rows, key))
    return rows.withColumn(BUCKET, F.pmod(hashed, F.lit(buckets)).cast("int"))


def compare_checksums(source: DataFrame, target: DataFrame, columns: Sequence[str]) -> ChecksumResult:
    """Compare rows with :data:`BUCKET` by the checksums of their buckets.

    :param columns: of both, in the same types
    """
    both = _hashed(source, columns, 1).unionAll(_hashed(target, columns, -1))
    # halves, as the sum of whole ones would overflow
    halves = [
        half for name in ("h1", "h2") for half in (F.col(name).bitwiseAND(_HALF), F.shiftrightunsigned(F.col(name), 32))
    ]
    sums = [F.sum(F.col("side") * half).alias(f"s{i}") for i, half in enumerate(halves)]
    counts = [F.count_if(F.col("side") == side).alias(name) for name, side in (("source", 1), ("target", -1))]
    table = collect_arrow(both.groupBy(BUCKET).agg(*counts, *sums))
    wrong = [row[BUCKET] for row in table.to_pylist() if row["source"] != row["target"] or _any(row, len(sums))]
    totals = [sum(table[name].to_pylist()) for name in ("source", "target")]
    return ChecksumResult(totals[0], totals[1], tuple(sorted(wrong)))


def _any(row: dict[str, Any], sums: int) -> bool:
    return any(row[f"s{i}"] for i in range(sums))


def select_buckets(rows: DataFrame, buckets: Sequence[int], bucket_count: int) -> DataFrame:
    """Select the rows of some buckets.

    :param bucket_count: how many buckets there are
    """
    if len(buckets) == bucket_count:
        return rows
    spark = rows.sparkSession
    bucket_rows = create_frame(spark, pa.table({BUCKET: pa.array(buckets, pa.int32())}))
    return rows.join(F.broadcast(bucket_rows), BUCKET, "left_semi")


def _hashed(rows: DataFrame, columns: Sequence[str], side: int) -> DataFrame:
    whole = _whole(rows, columns)
    hashes = F.xxhash64(*whole).alias("h1"), F.xxhash64(F.lit(_SECOND), *whole).alias("h2")
    return rows.select(BUCKET, F.lit(side).cast("bigint").alias("side"), *hashes)


def _whole(rows: DataFrame, columns: Iterable[str]) -> list[Expression]:
    return [part for name in columns for part in _parts(F.col(quote_name(name)), rows.schema[name].dataType)]


def _parts(value: Expression, type_: T.DataType) -> list[Expression]:
    """Return the parts of a value that are hashed.

    A hash passes over NULL, so whether there is a value is hashed, too.
    """
    if isinstance(type_, (T.FloatType, T.DoubleType)):
        value = F.when(value == 0, F.lit(0).cast(type_)).otherwise(value)
    elif isinstance(type_, T.ArrayType):
        element = type_.elementType
        value_of = F.transform(value, lambda item: F.xxhash64(*_parts(item, element)))
        return [value.isNull(), value_of]
    elif isinstance(type_, T.StructType):
        fields = [part for f in type_.fields for part in _parts(value.getField(f.name), f.dataType)]
        return [value.isNull(), *fields]
    return [value, value.isNull()]
