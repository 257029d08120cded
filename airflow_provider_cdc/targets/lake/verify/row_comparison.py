"""Compares two sets of rows in the same types: by checksums first, then row by row where those differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from airflow_provider_cdc.targets.lake.rows.last_event_per_key import OURS, UNKNOWN
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name, to_comparable_value
from airflow_provider_cdc.targets.lake.verify import bucket_checksums
from airflow_provider_cdc.targets.lake.verify.projected_table import written_key
from airflow_provider_cdc.verify.verification_report import TableVerification

EXAMPLES = 5
_SOURCE, _TARGET = f"{OURS}source", f"{OURS}target"
"""Number of rows that each side has of a key."""
_A, _B, _COLUMNS = f"{OURS}a", f"{OURS}b", f"{OURS}columns"


@dataclass(frozen=True, slots=True)
class RowComparison:
    """Two sides of a table.

    :param expected: the rows that there should be; with :data:`~airflow_provider_cdc.targets.lake.rows.last_event_per_key.UNKNOWN` where some values are not known
    :param actual: the rows that there are
    :param types: the columns that are compared, and the Spark types in which they are
    :param key: columns that identify rows; all columns if there is no key
    :param rows: about how many there are
    :param key_at_source: key column → its name and its type at the source, where these are others
    """

    expected: DataFrame
    actual: DataFrame
    types: dict[str, str]
    key: tuple[str, ...]
    rows: int
    key_at_source: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def record_differences(self, result: TableVerification, *, values: bool, keys: str = "") -> None:
        """Add the differences to the result.

        :param values: whether examples show values; they may be personal data
        :param keys: folder for the keys of the rows that differ; none are written if it is empty
        """
        never = self._never_known(result)
        types = {c: t for c, t in self.types.items() if c not in never}
        keyed = bool(self.key)
        key = self.key or tuple(types)
        buckets = bucket_checksums.number_of_buckets(self.rows)
        source = bucket_checksums.assign_buckets(_typed(self.expected, types), key, buckets)
        target = bucket_checksums.assign_buckets(_typed(self.actual, types), key, buckets)
        if set(result.unknown) - never:  # no checksum can leave out values of some rows
            result.source, result.target = source.count(), target.count()
            both = _side(source, _SOURCE).unionAll(_side(target, _TARGET))
        else:
            sides = bucket_checksums.compare_checksums(source, target, list(types))
            result.source, result.target = sides.source, sides.target
            if not sides.wrong:
                return
            result.not_compared = "several rows have the same key, at the source and in the table"
            both = _side(bucket_checksums.select_buckets(source, sides.wrong, buckets), _SOURCE).unionAll(
                _side(bucket_checksums.select_buckets(target, sides.wrong, buckets), _TARGET)
            )
        wrong = _wrong(both, key, types).persist()
        try:
            # without a key, a row is identified by its values
            _count(result, wrong, list(types), key if keyed or values else (), values=values)
            if result.rows_differ:
                result.not_compared = ""
            if keys and result.rows_differ and (keyed or values):
                _keys(wrong, key, self.key_at_source).write.parquet(keys)
                result.keys = keys
        finally:
            wrong.unpersist()

    def _never_known(self, result: TableVerification) -> set[str]:
        """Columns of which no row of the reference has the value. Those that some rows lack are counted in the result, too."""
        if UNKNOWN not in self.expected.columns:
            return set()
        per_column = self.expected.select(F.explode(UNKNOWN).alias("c")).groupBy("c").count().collect()
        result.unknown = {row["c"]: row["count"] for row in sorted(per_column) if row["c"] in self.types}
        rows = self.expected.count() if result.unknown else 0
        return {name for name, number in result.unknown.items() if number == rows and name not in self.key}


def _typed(rows: DataFrame, types: dict[str, str]) -> DataFrame:
    unknown = [F.col(UNKNOWN)] if UNKNOWN in rows.columns else [F.array().cast("array<string>").alias(UNKNOWN)]
    typed = rows.select(*[F.col(quote_name(c)).cast(t).alias(c) for c, t in types.items()], *unknown)
    return typed.select(
        *[to_comparable_value(F.col(quote_name(f.name)), f.dataType).alias(f.name) for f in typed.schema.fields]
    )


def _side(rows: DataFrame, side: str) -> DataFrame:
    """Rows of one side, as ``_SOURCE`` and ``_TARGET`` count them."""
    flags = [F.lit(1 if name == side else 0).alias(name) for name in (_SOURCE, _TARGET)]
    return rows.drop(bucket_checksums.BUCKET).select("*", *flags)


def _wrong(both: DataFrame, key: tuple[str, ...], types: dict[str, str]) -> DataFrame:
    """For each key that differs, how many rows each side has, and which columns differ.

    Without a key all columns are the key: then none can differ.
    """
    others = [c for c in types if c not in key]
    image = F.struct(*map(quote_name, others)) if others else F.struct(F.lit(1))

    def of(side: str, value: Expression) -> Expression:
        return F.any_value(F.when(F.col(side) == 1, value), ignoreNulls=True)

    grouped = both.groupBy(*map(quote_name, key)).agg(
        F.sum(_SOURCE).alias(_SOURCE),
        F.sum(_TARGET).alias(_TARGET),
        of(_SOURCE, image).alias(_A),
        of(_TARGET, image).alias(_B),
        of(_SOURCE, F.col(UNKNOWN)).alias(UNKNOWN),
    )
    different = [
        F.when(
            ~F.col(f"{_A}.{quote_name(c)}").eqNullSafe(F.col(f"{_B}.{quote_name(c)}"))
            & ~F.array_contains(UNKNOWN, F.lit(c)),
            F.lit(c),
        )
        for c in others
    ]
    shared = (F.col(_SOURCE) > 0) & (F.col(_TARGET) > 0)
    names = F.array_compact(F.array(*different)) if different else F.array().cast("array<string>")
    named = grouped.withColumn(_COLUMNS, F.when(shared, names).otherwise(F.array().cast("array<string>")))
    return named.where((F.col(_SOURCE) != F.col(_TARGET)) | (F.size(_COLUMNS) > 0))


def _count(
    result: TableVerification, wrong: DataFrame, columns: list[str], key: tuple[str, ...], *, values: bool
) -> None:
    source, target, zero = F.col(_SOURCE), F.col(_TARGET), F.lit(0)
    totals = wrong.agg(
        F.sum(F.greatest(source - target, zero)).alias("missing"),
        F.sum(F.greatest(target - source, zero)).alias("surplus"),
        F.count_if(F.size(_COLUMNS) > 0).alias("different"),
        *[F.count_if(F.array_contains(_COLUMNS, F.lit(c))) for c in columns],
    ).first()
    assert totals is not None
    counts = ("missing", "surplus", "different")
    for at, name in enumerate(counts):
        setattr(result, name, totals[at] or 0)
    result.differing = {c: n for c, n in zip(columns, totals[len(counts) :], strict=True) if n}
    result.examples = [_example(row, key, values=values) for row in wrong.take(EXAMPLES)]


def _kind_of_difference() -> Expression:
    more = F.when(F.col(_SOURCE) > F.col(_TARGET), "missing").when(F.col(_SOURCE) < F.col(_TARGET), "surplus")
    return more.otherwise("different").alias("difference")


def _keys(wrong: DataFrame, key: tuple[str, ...], at_source: Mapping[str, tuple[str, str]]) -> DataFrame:
    """Select the key of the source, the kind of difference, the columns that differ, and the numbers of rows.

    The numbers say how many rows source and table have of the key.
    """
    counts = F.col(_SOURCE).alias("source"), F.col(_TARGET).alias("target")
    return wrong.select(
        written_key(key, at_source).alias("key"), _kind_of_difference(), F.col(_COLUMNS).alias("columns"), *counts
    )


def _example(row: Row, key: tuple[str, ...], *, values: bool) -> dict[str, Any]:
    example: dict[str, Any] = {"key": {name: str(row[name]) for name in key}}
    if row[_SOURCE] > row[_TARGET]:
        example["difference"] = "missing"
    elif row[_SOURCE] < row[_TARGET]:
        example["difference"] = "surplus"
    else:
        example["difference"] = "different"
    if row[_COLUMNS]:
        example["columns"] = list(row[_COLUMNS])
        if values:
            example["source"] = {c: str(row[_A][c]) for c in row[_COLUMNS]}
            example["target"] = {c: str(row[_B][c]) for c in row[_COLUMNS]}
    return example
