"""Rows that Spark makes of some batches for a table with a key, collected as arrays.

So they can be committed in the same way as rows that are made by arrays.

MERGE rows have the change of each key, not always the whole row: columns that no event has, and those that the source does not have any more, keep the
table's values. Here each row becomes whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from airflow_provider_cdc.targets.lake.formats.table_values import KeyedMerge, PinnedTableState
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import OMITTED, OP, OURS, RECREATED, build_key_condition
from airflow_provider_cdc.targets.lake.spark_releases.python_features import collect_arrow, create_frame
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name

_FOUND, _THERE = f"{OURS}found", f"{OURS}there_"


class CollectLimitExceeded(Exception):
    """The driver does not take so many bytes from Spark (``spark.driver.maxResultSize``)."""


@dataclass(frozen=True, slots=True)
class CollectedChanges:
    """The rows of some batches; implements :class:`airflow_provider_cdc.targets.lake.formats.table_values.KeyedChanges`.

    :param deletes: how many of the keys have no row; ``None`` if the table need not have had them
    """

    keys: pa.Table
    inserts_only: bool
    source_version: str
    deletes: int | None
    _rows: pa.Table
    _schema: T.StructType

    @property
    def column_names(self) -> Sequence[str]:
        """The columns of rows."""
        return list(self._rows.column_names)

    def number_of_rows(self) -> int:
        """Rows that come."""
        return int(self._rows.num_rows)

    def number_of_deletes(self) -> int | None:
        """Rows of the table that go without another one in their place."""
        return self.deletes

    def read_rows(self) -> Iterator[pa.Table]:
        """Iterate over the rows that come."""
        if self._rows.num_rows:
            yield self._rows

    def build_key_frame(self, spark: SparkSession) -> DataFrame:
        """Create a Spark frame of the keys."""
        key_schema = T.StructType([self._schema[name] for name in self.keys.column_names])
        return create_frame(spark, self.keys, key_schema)


def collect_changes(
    merge: KeyedMerge,
    columns: Mapping[str, str],
    there: PinnedTableState,
    *,
    inserts_only: bool,
    by_lookup: bool,
    from_there: bool,
) -> CollectedChanges:
    """Collect the rows that would be merged.

    :param columns: of the table, with their types
    :param there: the table
    :param inserts_only: whether all keys are new ones, by their events
    :param by_lookup: whether there may be deletes of keys that the table does not have
    :param from_there: whether the rows were made from those of the table
    :raises TooMuch: they are too many for the driver
    """
    own = {name.lower(): name for name in columns}
    names = {name: own[name.lower()] for name in merge.types}
    has_kept = OMITTED in merge.rows.columns
    rows = merge.rows.select(
        OP,
        *[F.col(quote_name(name)).cast(columns[to]).alias(to) for name, to in names.items()],
        *[name for name in (OMITTED, RECREATED) if name in merge.rows.columns],
    )
    others = [name for name in columns if name not in names.values()]
    key = [names[name] for name in merge.key]
    schema, arrays = rows.schema, _arrays(rows)
    lacks = bool(others) or (has_kept and bool(pc.any(pc.greater(pc.list_value_length(arrays[OMITTED]), 0)).as_py()))
    if lacks:
        frame = create_frame(there.rows.sparkSession, arrays, schema)
        whole = _completed(frame, there.rows, key, {to: name for name, to in names.items()}, others)
        schema, arrays = whole.schema, _arrays(whole)
    gone = pc.equal(arrays[OP], "d")
    deletes = None if by_lookup else int(pc.sum(gone).as_py() or 0)
    made_from = there.version if from_there or lacks else ""
    come = arrays.filter(pc.invert(gone)).select(list(columns))
    return CollectedChanges(arrays.select(key), inserts_only, made_from, deletes, come, schema)


def collect_new(rows: DataFrame, columns: Mapping[str, str], order: str) -> CollectedChanges:
    """Collect rows that are only added.

    :param columns: of the table, with their types
    :param order: the column by which they are in order
    :raises TooMuch: they are too many for the driver
    """
    columns_by_name = {name.lower(): F.col(quote_name(name)) for name in rows.columns}
    values = {name: columns_by_name.get(name.lower(), F.lit(None)) for name in columns}
    whole = rows.select(*[values[name].cast(type_).alias(name) for name, type_ in columns.items()])
    arrays = _arrays(whole).sort_by(order)
    return CollectedChanges(arrays.select([order]).slice(0, 0), True, "", 0, arrays, whole.schema)


def _arrays(rows: DataFrame) -> pa.Table:
    try:
        return collect_arrow(rows)
    except (PySparkException, Py4JJavaError) as e:
        if "maxResultSize" not in str(e):
            raise
        raise CollectLimitExceeded("its rows are larger than spark.driver.maxResultSize allows") from e


def _completed(
    rows: DataFrame, there: DataFrame, key: Sequence[str], names: Mapping[str, str], others: Sequence[str]
) -> DataFrame:
    """Complete rows with the table's values in the columns that they lack.

    :param names: column of the table → how :data:`OMITTED` calls it
    :param others: columns of the table that no row has
    """
    kept_columns = [name for name in names if name not in key] if OMITTED in rows.columns else []
    lacks = F.col(OP) != "d" if others else F.size(OMITTED) > 0
    incomplete = F.broadcast(rows.where(lacks).select(*map(quote_name, key)))
    old = there.alias("t").join(incomplete.alias("s"), build_key_condition(key, "t", "s"), "left_semi")
    places = {name: f"{_THERE}{i}" for i, name in enumerate([*kept_columns, *others])}
    old = old.select(
        *map(quote_name, key),
        *[F.col(quote_name(name)).alias(to) for name, to in places.items()],
        F.lit(True).alias(_FOUND),
    )

    def value(name: str) -> Expression:
        own = F.col(f"r.{quote_name(name)}")
        if name not in kept_columns:
            return own
        keeps = F.coalesce(_FOUND, F.lit(False)) & F.array_contains(OMITTED, F.lit(names[name]))
        return F.when(keeps, F.col(places[name])).otherwise(own)

    continues = build_key_condition(key, "r", "o")
    if RECREATED in rows.columns:  # the row that the table has was deleted before this one
        continues &= ~F.col(f"r.{RECREATED}")
    joined = rows.alias("r").join(old.alias("o"), continues, "left")
    return joined.select(
        OP,
        *[value(name).alias(name) for name in names],
        *[F.col(places[name]).alias(name) for name in others],
    )
