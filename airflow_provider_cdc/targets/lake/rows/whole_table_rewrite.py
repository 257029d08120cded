"""Merges by a rewrite of the whole table, for targets and changes that cannot be merged in place."""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_cdc.targets.lake.rows.last_event_per_key import OMITTED, OP, RECREATED
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name


def build_merged_table(there: DataFrame, rows: DataFrame, key: tuple[str, ...], types: dict[str, str]) -> DataFrame:
    """Return the whole table after a merge.

    :param there: the rows of the table
    :param rows: as of :class:`airflow_provider_cdc.targets.lake.formats.table_values.KeyedMerge`
    :param types: column of the change log → its type; other columns of the table stay as they are
    """
    same = reduce(and_, [F.col(f"t.{quote_name(c)}").eqNullSafe(F.col(f"s.{quote_name(c)}")) for c in key])
    if RECREATED in rows.columns:
        same &= ~F.col(f"s.{RECREATED}")
    has_kept, op = OMITTED in rows.columns, F.col(f"s.{OP}")
    columns = []
    for name in there.columns:
        old = F.col(f"t.{quote_name(name)}")
        if name not in types:
            columns.append(old.alias(name))
            continue
        stays = op.isNull()
        if has_kept:
            stays |= F.array_contains(f"s.{OMITTED}", F.lit(name))
        columns.append(F.when(stays, old).otherwise(F.col(f"s.{quote_name(name)}")).alias(name))
    joined = there.alias("t").join(rows.alias("s"), same, "full_outer")
    return joined.where(op.isNull() | (op != "d")).select(*columns)
